"""Role nvidia_driver: Debian's driver is there, and nothing moves it but the admin's own wish, with nobody at work."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Play
    from testinfra.host import Host

MACHINES = ("debian12", "debian13")
NEWER = "999.1-1"
SCRIPT = Path(__file__).parent.parent / "files" / "newer-packages.sh"
CARD = "/dev/nvidia0"


def version(host: Host, package: str) -> str:
    """Return the version of an installed package; empty when it is not installed."""
    return host.run(f"dpkg-query --show --showformat='${{Version}}' {package}").stdout


@pytest.fixture(scope="module", autouse=True)
def newer(host: Host) -> None:
    """Let apt know newer versions, and install what upgrades servers over night."""
    host.run_expect([0], "DEBIAN_FRONTEND=noninteractive apt-get -qq install -y unattended-upgrades")
    host.run_expect([0], SCRIPT.read_text())


@contextmanager
def work(host: Host, user: str) -> Iterator[int]:
    """Let somebody hold a card open; the node is a plain file, which who holds it does not depend on."""
    host.run_expect([0], f"id {user} || useradd --create-home {user}")
    host.run_expect([0], f"touch {CARD} && chmod 0666 {CARD}")
    pid = host.check_output(f"runuser -u {user} -- sh -c 'setsid sleep 600 <{CARD} >/dev/null 2>&1 & echo $!'")
    for _ in range(50):
        if host.run(f"readlink /proc/{pid}/fd/0").stdout.strip() == CARD:
            break
        time.sleep(0.1)
    try:
        yield int(pid)
    finally:
        host.run_expect([0], f"kill {pid}; rm {CARD}")


def run(play: Play, *options: str, fails: bool = False, **variables: object) -> str:
    """Run the role again, see whether it works, and return what it said, in one line."""
    done = play(*options, **variables)
    assert (done.returncode != 0) is fails, done.stdout
    return done.said


def test_the_driver_is_there_without_a_display(host: Host) -> None:
    installed = version(host, "libnvidia-ml1")
    assert re.fullmatch(r"5\d\d\.\d+\.\d+-\S+", installed)
    assert f"v{installed.partition('-')[0]}" in host.check_output("nvidia-smi -h").splitlines()[0]
    # Debian's own program finds its library, and the library no kernel module.
    assert "couldn't communicate with the NVIDIA driver" in host.run("nvidia-smi").stdout
    assert host.check_output("dkms status").startswith(f"nvidia-current/{installed.partition('-')[0]}")
    assert host.run("dpkg-query --show 'xserver*' 'libx11*' | grep -v '\t$'").stdout == ""
    assert host.service("nvidia-persistenced").is_enabled
    assert host.run("nvidia-modprobe --version").rc == 0, "leases need it to make the nodes of cards and instances"


def test_the_kernels_own_driver_stays_away(host: Host) -> None:
    configuration = host.check_output("modprobe --showconfig").splitlines()
    assert "blacklist nouveau" in configuration
    assert "options nouveau modeset=0" in configuration


def test_the_admins_own_sources_are_as_they_were(host: Host) -> None:
    assert "non-free-firmware" not in host.file("/etc/apt/sources.list").content_string
    update = host.run("apt-get update")
    assert "configured multiple times" not in update.stderr
    assert "firmware-nvidia-gsp" in host.check_output("apt-mark showhold")


def test_no_upgrade_moves_it(host: Host) -> None:
    before = version(host, "nvidia-smi")
    for command in ("upgrade", "dist-upgrade"):
        assert f"Inst nvidia-smi [{before}]" in host.check_output(
            f"apt-get --simulate -o APT::Ignore-Hold=true {command}"
        )
        assert "Inst nvidia-smi" not in host.check_output(f"apt-get --simulate {command}")
    refused = host.run("apt-get install -y nvidia-smi")
    assert refused.rc != 0
    assert "Held packages were changed" in refused.stderr
    assert version(host, "nvidia-smi") == before


def test_unattended_upgrades_upgrade_the_rest(host: Host) -> None:
    before = version(host, "nvidia-smi")
    dry = host.run("unattended-upgrade --dry-run --debug")
    (candidates,) = re.findall(r"(?m)^Packages that will be upgraded: (.*)$", dry.stdout + dry.stderr)
    assert candidates.split() == ["ordinary"]
    host.run_expect([0], "unattended-upgrade")
    assert [version(host, name) for name in ("ordinary", "linux-image-amd64", "nvidia-smi")] == ["2", "1", before]


def test_nobodys_work_loses_its_driver(host: Host, play: Play) -> None:
    wanted = ["nvidia-kernel-dkms", "nvidia-smi", "libnvcuvid1"]
    with work(host, "bob") as pid:
        said = run(play, fails=True, nvidia_driver_packages=wanted)
        assert f"the cards are in use by bob (sleep, PID {pid}): the driver is not changed; run this again" in said
        assert "changed=0" in said
        assert f"bob (sleep, PID {pid})" in run(play, "--check", nvidia_driver_packages=wanted)
    assert version(host, "libnvcuvid1") == ""


def test_a_version_that_is_asked_for_is_what_apt_offers(host: Host, play: Play) -> None:
    said = run(play, fails=True, nvidia_driver_version="latest")
    assert 'nvidia_driver_version is "latest"; give a whole driver version' in said
    before = version(host, "nvidia-smi")
    run(play, nvidia_driver_version=before.partition("-")[0], nvidia_driver_hold=False)
    assert host.check_output("apt-mark showhold") == ""
    assert "Inst nvidia-smi" not in host.check_output("apt-get --simulate upgrade")
    assert version(host, "nvidia-smi") == before


def test_the_hand_off_it_leaves_the_driver_and_the_admins_own_hold(host: Host, play: Play) -> None:
    if host.system_info.release.startswith("12"):
        pytest.skip("three runs; nothing in them depends on the distribution")
    before = host.check_output("dpkg-query --show '*nvidia*' libcuda1")
    run(play, nvidia_driver_install=False)
    assert host.check_output("apt-mark showhold") == ""
    ours = "/etc/apt/preferences.d/gpulab* /etc/apt/apt.conf.d/*gpulab* /var/lib/gpulab/driver/*"
    assert host.run(f"ls {ours}").stdout == ""
    assert "Inst nvidia-smi" in host.check_output("apt-get --simulate upgrade")
    host.run_expect([0], "apt-mark hold libcuda1")
    # With auto, a driver that came from packages is kept, and no more than kept.
    assert "install | " not in run(play, nvidia_driver_install="auto")
    assert "nvidia-smi" in host.check_output("apt-mark showhold").split()
    run(play, nvidia_driver_install=False)
    assert host.check_output("apt-mark showhold") == "libcuda1"
    assert host.check_output("dpkg-query --show '*nvidia*' libcuda1") == before
    host.run_expect([0], "apt-mark unhold libcuda1")


def test_nothing_ever_rebooted(host: Host) -> None:
    began = int(host.check_output("stat --format=%Y /proc/1"))
    installed = int(host.check_output("stat --format=%Y /var/lib/dpkg/info/nvidia-smi.list"))
    assert began < installed
