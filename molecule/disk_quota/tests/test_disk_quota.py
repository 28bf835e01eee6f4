"""Role disk_quota in a container: plain answers where limits cannot be, nothing half done, and nothing left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Person, Play
    from testinfra.host import Host

FSTAB = "/root/xfs.img /srv/late xfs loop 0 0\n"
WITH_OPTION = FSTAB.replace("loop", "loop,uquota")
INSTALLED = (
    "/etc/gpulab/quota.json",
    "/etc/cron.d/gpulab-quota",
    "/etc/systemd/system/gpulab-quota.service",
    "/usr/local/bin/gpu-quota",
    "/var/lib/gpulab/quota",
)


@pytest.fixture(scope="module", autouse=True)
def _unmount(host: Host) -> Iterator[None]:
    """Let go of the host's loop devices."""
    yield
    host.run("umount /srv/late /srv/ext4 /srv/btrfs")


def refusal(play: Play, *folders: dict[str, object], **more: object) -> str:
    """Run the role with folders that it refuses; return what it said."""
    run = play(playbook="role.yml", disk_quota_folders=list(folders), **more)
    assert run.returncode != 0
    assert "changed=0" in run.said
    return run.said


def test_xfs_without_quota_waits_and_nothing_is_remounted(host: Host) -> None:
    assert WITH_OPTION in host.file("/etc/fstab").content_string
    assert "noquota" in host.check_output("findmnt --noheadings --output OPTIONS /srv/late")
    told = host.check_output("gpulab quota apply")
    assert "no limits yet: XFS begins to count only when it is mounted anew, with the option uquota" in told
    assert "`umount /srv/late && mount /srv/late` while nobody is on it" in told
    assert host.run("systemctl is-enabled gpulab-quota.service").stdout == "enabled\n"


def test_a_member_is_told_the_truth(host: Host, as_member: Person) -> None:
    assert as_member("bob", "gpu-quota").stdout == "No disk limits are in force now.\n"
    refused = as_member("bob", "gpulab quota apply")
    assert refused.rc != 0
    assert "only root" in refused.stderr


def test_the_admin_is_mailed_once_that_limits_are_not_in_force(host: Host) -> None:
    for _ in range(2):
        host.run_expect([0], "gpulab quota check")
    mail = host.file("/var/mail/root").content_string
    assert mail.count("disk limits at /srv/late are not enforced") == 1


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/home", "/home lies on overlay (overlay), where gpulab cannot keep limits; an overlay, as containers have"),
        ("/srv/btrfs", ", where gpulab cannot keep limits; Btrfs limits subvolumes, not people: see btrfs-quota(8)"),
        ("/srv/tmpfs", "it lives in memory: give it a size when it is mounted"),
        ("/nowhere", "disk_quota_folders: there is no folder /nowhere; make it, or take the entry out"),
    ],
)
def test_where_limits_cannot_be_the_answer_is_plain(play: Play, path: str, answer: str) -> None:
    assert answer in refusal(play, {"path": "/srv/late", "hard": "1G"}, {"path": path, "hard": "2G"})


def test_nonsense_is_refused_before_anything_changes(host: Host, play: Play) -> None:
    before = host.file("/etc/gpulab/quota.json").content_string
    assert "soft is 3 GiB, above hard, which is 2 GiB" in refusal(
        play, {"path": "/srv/late", "soft": "3G", "hard": "2G"}
    )
    assert 'hard is "500"; give a number with a unit, such as 200G' in refusal(play, {"path": "/srv/late", "hard": 500})
    overrides = [{"member": "carol", "path": "/srv/late", "hard": "1G"}]
    assert "there is no present member carol" in refusal(
        play, {"path": "/srv/late", "hard": "2G"}, disk_quota_overrides=overrides
    )
    projects = [{"path": "/srv/ext4", "hard": "1G"}]
    assert "tune2fs -O project,quota -Q usrquota,prjquota /dev/loop" in refusal(play, disk_quota_projects=projects)
    assert host.file("/etc/gpulab/quota.json").content_string == before


def test_ext4_in_use_begins_to_count_or_the_kernel_says_why_not(host: Host, play: Play) -> None:
    run = play(playbook="role.yml", disk_quota_folders=[{"path": "/srv/ext4", "hard": "20M"}])
    if run.returncode == 0:
        host.run_expect([0], "install -d -o bob /srv/ext4/bob")
        done = host.run("runuser -u bob -- dd if=/dev/zero of=/srv/ext4/bob/big bs=1M count=30 conv=fsync")
        assert "Disk quota exceeded" in done.stderr
    else:
        assert "quotaon ended with" in run.said  # this host's kernel has no quota format


def test_switched_off_nothing_is_left_behind(host: Host, play: Play) -> None:
    for expected in (True, False):
        run = play(playbook="role.yml", disk_quota_enabled=False)
        assert run.returncode == 0, run.stdout
        assert ("changed=0" not in run.said) == expected
    assert [path for path in INSTALLED if host.file(path).exists] == []
    assert FSTAB in host.file("/etc/fstab").content_string
    assert not host.file("/srv/ext4/aquota.user").exists
    assert host.run("systemctl cat gpulab-quota.service").rc != 0
    # The format alone, jqfmt, is without effect; a remount cannot unset it, ext4 forgets it at the next mount.
    assert "usrjquota" not in host.check_output("findmnt --noheadings --output OPTIONS /srv/ext4")
