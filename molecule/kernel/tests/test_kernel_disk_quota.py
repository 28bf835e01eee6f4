"""Role disk_quota: writes beyond a limit fail, for whom they shall and for nobody else, on each kind of file system."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Person, Play
    from testinfra.host import Host

pytestmark = pytest.mark.usefixtures("still_cron")  # it mails as well, once an hour

MIB = 1 << 20
LATE = "/srv/late"
PLACES = {
    "/home/{}": "ext4, the root file system, without the feature quota",
    "/data/{}": "XFS",
    "/srv/fast/{}": "ext4 with the feature quota",
}


@pytest.fixture(autouse=True, scope="module")
def _folders(host: Host) -> Iterator[None]:
    """Give everybody a folder of their own, and leave everybody with nothing."""
    clean = "; ".join(f"rm -rf {place.format(who)}/big*" for place in PLACES for who in ("alice", "bob", "carol"))
    host.run_expect([0], clean)
    for who in ("alice", "bob", "carol"):
        host.run_expect([0], f"install -d -o {who} -g {who} /data/{who} /srv/fast/{who} {LATE}/{who}")
    yield
    host.run_expect([0], clean + f"; rm -f {LATE}/*/big /data/vision/big* /srv/fast/vision/big*")


def write(host: Host, user: str, path: str, mib: int):
    """Write a file as somebody; return what dd said and how many bytes are there."""
    done = host.run(f"runuser -u {user} -- dd if=/dev/zero of={path} bs=1M count={mib} conv=fsync")
    return done, host.file(path).size


@pytest.mark.parametrize("place", PLACES, ids=PLACES.values())
def test_writing_past_the_hard_limit_fails_for_the_member_alone(host: Host, place: str) -> None:
    bobs = f"{place.format('bob')}/big"
    done, size = write(host, "bob", bobs, 40)
    assert done.rc != 0
    assert "Disk quota exceeded" in done.stderr
    assert 20 * MIB < size <= 30 * MIB
    for user, path in (("carol", f"{place.format('carol')}/big"), ("root", f"{place.format('bob')}/big-root")):
        done, size = write(host, user, path, 25)
        assert (done.rc, size) == (0, 25 * MIB), done.stderr
    host.run_expect([0], f"rm {bobs} {place.format('carol')}/big {place.format('bob')}/big-root")
    done, size = write(host, "bob", bobs, 10)  # who deletes may write again
    assert (done.rc, size) == (0, 10 * MIB), done.stderr
    host.run_expect([0], f"rm {bobs}")


@pytest.mark.usefixtures("_once")
def test_a_member_may_have_more_than_the_others(host: Host) -> None:
    done, size = write(host, "alice", "/home/alice/big", 40)
    assert (done.rc, size) == (0, 40 * MIB), done.stderr
    done, size = write(host, "alice", "/home/alice/big2", 40)
    assert "Disk quota exceeded" in done.stderr
    host.run_expect([0], "rm /home/alice/big*")


@pytest.mark.usefixtures("_once")
def test_the_number_of_files_is_limited(host: Host) -> None:
    done = host.run("runuser -u bob -- sh -c 'mkdir /home/bob/big && cd /home/bob/big && touch $(seq 400)'")
    assert "Disk quota exceeded" in done.stderr
    assert 200 < len(host.file("/home/bob/big").listdir()) < 300
    host.run_expect([0], "rm -r /home/bob/big")


def test_xfs_without_quota_waits_for_its_next_mount(host: Host, rebooted: bool) -> None:
    # Nothing was remounted by force; after the reboot the limits are there without a further converge.
    done, size = write(host, "bob", f"{LATE}/bob/big", 40)
    if rebooted:
        assert "Disk quota exceeded" in done.stderr
        assert size <= 30 * MIB
    else:
        assert (done.rc, size) == (0, 40 * MIB), done.stderr
        said = host.run("gpulab quota apply").stdout
        assert "no limits yet: XFS begins to count only when it is mounted anew" in said
        assert f"umount {LATE} && mount {LATE}" in said
    host.run_expect([0], f"rm {LATE}/bob/big")


@pytest.mark.parametrize("folder", ["/data/vision", "/srv/fast/vision"])
def test_a_shared_folder_has_a_limit_whoever_writes(host: Host, folder: str) -> None:
    done, size = write(host, "bob", f"{folder}/big-bob", 6)
    assert (done.rc, size) == (0, 6 * MIB), done.stderr
    done, size = write(host, "carol", f"{folder}/big-carol", 6)
    # XFS answers as if the folder were a disk of its own.
    assert "No space left on device" in done.stderr or "Disk quota exceeded" in done.stderr
    assert size <= 4 * MIB
    host.run_expect([0], f"rm {folder}/big-*")


def test_what_somebody_changed_by_hand_comes_back(host: Host) -> None:
    host.run_expect([0], "setquota --user bob 0 0 0 0 /data && setquota --user carol 1 2 3 4 /")
    said = host.check_output("gpulab quota apply")
    assert "bob: soft/hard 20 MiB/30 MiB" in said
    assert "carol: soft/hard 20 MiB/30 MiB, files -/300" in said
    assert "bob" not in host.run("gpulab quota apply").stdout


@pytest.mark.usefixtures("_once")
def test_a_member_sees_where_they_stand(host: Host, session: Person) -> None:
    write(host, "bob", "/data/bob/big", 25)
    seen = session("bob", "gpu-quota; echo ended with $?")
    assert "/data: 25 MiB of 30 MiB (soft limit 20 MiB), 83 %; over the soft limit: delete something" in seen.stdout
    assert "ended with 1" in seen.stdout
    assert seen.stderr == ""
    assert "only root" in session("bob", "gpulab quota show").stderr
    assert "bob" in host.check_output("gpulab quota show")


def checked(host: Host, *, expected: int) -> str:
    """Check twice; return bob's mailbox, in which there are that many mails once the transport is done."""
    host.run_expect([0], "gpulab quota check && gpulab quota check")
    host.run("for i in $(seq 50); do mailq | grep -q empty && break; sleep 0.2; done")
    mail = host.file("/var/mail/bob").content_string
    assert mail.count("\nSubject: ") == expected, mail
    return mail


@pytest.mark.usefixtures("_once")
def test_each_step_is_mailed_once(host: Host) -> None:
    # Bob has 25 MiB of 30 at /data now, over the soft limit.
    host.run_expect([0], ": > /var/mail/bob")
    mail = checked(host, expected=1)
    assert "more than your soft limit of 20 MiB" in mail
    assert "the grace time (14 days)" in mail
    write(host, "bob", "/data/bob/big2", 10)
    mail = checked(host, expected=2)
    assert "Writing fails now with `Disk quota exceeded`" in mail
    host.run_expect([0], "rm /data/bob/big*")
    checked(host, expected=2)


@pytest.mark.usefixtures("_once")
def test_the_hardware_ledger_shows_everybodys_use(host: Host) -> None:
    host.run_expect([0], "gpulab ledger")
    page = host.file("/home/admin/GPU_INFO.md").content_string
    assert "| bob | /data |" in page
    assert "| /data/vision | /data/vision |" in page


@pytest.mark.usefixtures("_once")
def test_a_thousand_members_cost_little_more_than_ten(host: Host, play: Play) -> None:
    began = time.monotonic()
    assert play("--check", playbook="limits.yml").returncode == 0
    call = time.monotonic() - began  # what a run of the playbook takes whose only task is ours, for three members

    # Made-up members are kept apart from the server's own, so the service is called, not the module.
    script = Path(__file__).parents[1] / "files/quota_speed.py"
    host.run_expect([0], f"printf %s {shlex.quote(script.read_text())} > /root/quota_speed.py")

    def seconds(command: str) -> float:
        done = host.run(f"bash -c {shlex.quote(f'TIMEFORMAT=%R; time {{ {command}; }} >/dev/null')}")
        assert done.rc == 0, done.stderr
        return float(done.stderr)

    def give(count: int, hard: str) -> float:
        return seconds(f"/opt/gpulab/current/bin/python /root/quota_speed.py {count} {hard} /data /srv/fast")

    times = {"call": call, "first 10": give(10, "30M"), "again 10": give(10, "30M")}
    times |= {"first 1000": give(1000, "30M"), "again 1000": min(give(1000, "30M"), give(1000, "30M"))}
    one_by_one = "for uid in $(seq 21001 21010); do setquota --user $uid 0 {} 0 0 /data; done"
    times["setquota"] = seconds(one_by_one.format(1000)) / 10
    seconds(one_by_one.format(0))
    give(0, "0")
    print(times)
    more = times["again 1000"] - times["again 10"]
    assert call + more <= 1.5 * call, times
    assert 2000 * times["setquota"] >= 20 * times["first 1000"], times


def test_in_the_end_nothing_is_left_behind(host: Host, rebooted: bool) -> None:
    if not rebooted:
        pytest.skip("the reboot comes first")
    host.run_expect([0], "gpulab quota apply --remove")
    for path in ("/home/bob/big", "/data/bob/big", "/srv/fast/bob/big", "/data/vision/big"):
        done, size = write(host, "bob", path, 40)
        assert (done.rc, size) == (0, 40 * MIB), (path, done.stderr)
    assert not host.file("/aquota.user").exists
    assert "LABEL=late /srv/late xfs defaults,nofail 0 0" in host.file("/etc/fstab").content_string
    assert "LABEL=data /data xfs defaults,uquota,pquota 0 0" in host.file("/etc/fstab").content_string
    assert host.run("gpulab quota show").stdout.startswith("no limits are set")
