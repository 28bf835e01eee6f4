"""What shall be done about the driver: installed, kept or left alone, refused, rebooted into."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpulab.rules.driver import AUTO, INSTALL, KEEP, LEAVE, NEVER, Found, Wish, plan
from gpulab.rules.driver_words import Holder, SecureBoot, in_use, signing
from test_driver_packages import package

ALWAYS = "true"
CARD = ("0000:07:00.0",)
PACKAGES = ("nvidia-kernel-dkms", "libcuda1", "nvidia-smi")
DRIVER = tuple(package(name) for name in PACKAGES)
BOB = Holder(4711, "bob", "python")
BARE = Found(cards=CARD, kernel="6.12.43+deb13-amd64", packages=(package("linux-image-amd64", "6.12", "linux"),))
RUNNING = replace(BARE, loaded="550.163.01", library="550.163.01", packages=DRIVER)
MIXED = replace(RUNNING, loaded="535.261.03", mismatch=True)
WISH = Wish(install=ALWAYS, packages=PACKAGES)


@pytest.mark.parametrize(
    ("found", "install", "action", "reason"),
    [
        (BARE, AUTO, INSTALL, "NVIDIA cards: 1, and no driver"),
        (replace(BARE, nouveau=True), AUTO, INSTALL, "NVIDIA cards: 1, and no driver"),
        (RUNNING, AUTO, KEEP, "there is a driver (550.163.01); set nvidia_driver_install to true"),
        (replace(RUNNING, installed_by_us=True), AUTO, INSTALL, "an earlier run installed the driver"),
        (replace(RUNNING, packages=()), AUTO, LEAVE, "there is a driver that belongs to no package (550.163.01)"),
        (replace(BARE, loaded="550.163.01"), AUTO, LEAVE, "there is a driver that belongs to no package (550.163.01)"),
        (Found(), AUTO, LEAVE, "there is no NVIDIA card"),
        (replace(BARE, container=True), AUTO, LEAVE, "this is a container"),
        (replace(RUNNING, container=True), AUTO, KEEP, "there is a driver (550.163.01)"),
        (BARE, NEVER, LEAVE, "nvidia_driver_install is false"),
        (replace(RUNNING, installed_by_us=True), NEVER, LEAVE, "nvidia_driver_install is false"),
        (Found(container=True), ALWAYS, INSTALL, "nvidia_driver_install is true"),
    ],
)
def test_whose_driver_it_is(found, install, action, reason):
    judged = plan(found, Wish(install=install, packages=PACKAGES))
    assert judged.action == action
    assert judged.reason.startswith(reason)
    assert judged.errors == ()


def test_a_bare_server_gets_all_of_it():
    judged = plan(BARE, WISH)
    assert (judged.specifications, judged.changes) == (PACKAGES, PACKAGES)
    assert judged.headers == ("linux-headers-amd64",)
    assert (judged.load, judged.reboot) == (False, False)


def test_a_container_has_no_kernel_to_build_for():
    assert plan(replace(BARE, container=True), WISH).headers == ()


def test_what_is_missing_comes_in_the_version_that_is_there():
    judged = plan(replace(RUNNING, packages=DRIVER[:2]), replace(WISH, tools=("nvidia-persistenced",)))
    assert judged.specifications == (*(f"{name}=550.163.01-*" for name in PACKAGES), "nvidia-persistenced")
    assert judged.changes == ("nvidia-smi", "nvidia-persistenced")
    assert judged.errors == ()


def test_nothing_to_change_disturbs_nobody():
    judged = plan(replace(RUNNING, holders=(BOB,)), WISH)
    assert (judged.changes, judged.errors, judged.warnings, judged.reboot) == ((), (), (), False)


def test_a_driver_is_not_changed_under_running_processes():
    judged = plan(replace(RUNNING, holders=(BOB,)), replace(WISH, version="570.133.07", allow_reboot=True))
    (error,) = judged.errors
    assert error.startswith("the cards are in use by bob (python, PID 4711): the driver is not changed; run this again")


def test_a_change_that_takes_a_reboot_waits_for_consent():
    wish = replace(WISH, version="570.133.07")
    (error,) = plan(RUNNING, wish).errors
    assert error.startswith(
        "changing the driver from 550.163.01 to 570.133.07 takes a reboot, which is not allowed; set"
    )
    assert error.endswith("nothing was changed")
    (error,) = plan(RUNNING, replace(wish, allow_reboot=True, local=True)).errors
    assert "Ansible runs on the server itself" in error
    assert plan(RUNNING, replace(wish, allow_reboot=True)).errors == ()
    assert plan(replace(RUNNING, loaded=""), wish).errors == ()


def test_packages_are_not_mixed_with_another_installation():
    (error,) = plan(replace(RUNNING, packages=()), WISH).errors
    assert "belongs to no package (550.163.01)" in error


@pytest.mark.parametrize("install", [AUTO, ALWAYS, NEVER])
def test_a_mismatch_stops_with_both_versions_and_the_cure(install):
    (error,) = plan(MIXED, Wish(install=install, packages=PACKAGES)).errors
    assert "the NVIDIA kernel module that is loaded is 535.261.03, the library is 550.163.01" in error
    assert "reboot the server, or when nothing uses a card run `modprobe -r" in error


@pytest.mark.parametrize("install", [AUTO, ALWAYS])
def test_a_mismatch_is_rebooted_away_only_with_consent_nobody_at_work_and_from_outside(install):
    wish = Wish(install=install, packages=PACKAGES, allow_reboot=True)
    assert plan(MIXED, wish).reboot
    assert plan(MIXED, wish).errors == ()
    for found, other in (
        (replace(MIXED, holders=(BOB,)), wish),
        (MIXED, replace(wish, local=True)),
        (MIXED, replace(wish, allow_reboot=False)),
        (MIXED, replace(wish, install=NEVER)),
    ):
        judged = plan(found, other)
        assert not judged.reboot
        assert judged.errors
    assert "bob (python, PID 4711): the server is not rebooted" in plan(replace(MIXED, holders=(BOB,)), wish).errors[0]


def test_a_driver_that_only_needs_to_be_loaded():
    installed = replace(BARE, library="550.163.01", packages=DRIVER)
    assert plan(installed, WISH).load
    assert not plan(replace(installed, cards=()), WISH).load
    assert not plan(replace(installed, container=True), WISH).load
    assert not plan(RUNNING, WISH).load


def test_nouveau_needs_a_reboot_and_says_so():
    installed = replace(BARE, library="550.163.01", packages=DRIVER, nouveau=True)
    judged = plan(installed, WISH)
    assert (judged.load, judged.reboot, judged.errors) == (False, False, ())
    assert "nouveau has the cards until then; reboot, or set nvidia_driver_allow_reboot to true" in judged.warnings[0]
    assert plan(installed, replace(WISH, allow_reboot=True)).reboot
    judged = plan(installed, replace(WISH, allow_reboot=True, local=True))
    assert not judged.reboot
    assert "until then; reboot when it suits" in judged.warnings[0]


def test_secure_boot_is_explained_where_it_stands_in_the_way():
    blocked = SecureBoot(enabled=True, key="/var/lib/dkms/mok.pub")
    installed = replace(BARE, library="550.163.01", packages=DRIVER, secure_boot=blocked)
    assert "mokutil --import /var/lib/dkms/mok.pub" in plan(installed, WISH).warnings[0]
    assert plan(replace(RUNNING, secure_boot=blocked), WISH).warnings == ()
    for harmless in (None, SecureBoot(), SecureBoot(enabled=True, key="/x", enrolled=True)):
        assert signing(harmless) == ""


def test_a_few_of_many_are_named():
    crowd = [Holder(pid, "bob", "python") for pid in range(1, 8)]
    assert "PID 4) and 3 more: x; run" in in_use(crowd, "x")
