"""Role idle_reclaim: who holds a card without using it is asked, may keep it, and only then loses it."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import pytest
from desk import LONG, SETTINGS, STATE, STORE, Desk

if TYPE_CHECKING:
    from conftest import Person, Play
    from testinfra.host import Host

ASKED = "card 0: do you still need it? sleep is idle"
ENDED = "card 0: sleep was idle and has been ended"


@pytest.fixture
def desk(host: Host) -> Desk:
    """Return the desk on a clean machine."""
    return Desk(host)


def test_the_owner_of_an_idle_process_is_asked_by_mail_and_on_the_terminal(desk: Desk) -> None:
    desk.terminal("bob")
    bobs = desk.work("bob", "--gpu 0 --mem 20G")
    carols = desk.work("carol", "--gpu 1 --mem 20G --sm 80")
    text = desk.wait_for_mail("bob", ASKED)
    assert f"    PID {bobs}  sleep  card 0  20.0 GiB  idle since " in text
    assert "    gpu-keep\n" in text
    assert "Without an answer alice is told at" in text
    line = desk.wait_for(desk.on_terminal, "the line on the terminal")
    assert line.startswith(f"gpulab: card 0: sleep (PID {bobs}) is idle since ")
    assert desk.state(carols) == "busy"
    assert desk.titles("carol") == []
    assert desk.titles("bob") == [ASKED], "asked once"


def test_a_program_cannot_steer_its_owners_terminal_by_its_name(desk: Desk) -> None:
    desk.host.run_expect([0], "cp /usr/bin/sleep \"$(printf '/tmp/work/a\\033]0;b\\007')\"")
    desk.terminal("bob")
    desk.work("bob", "--gpu 0", "/tmp/work/a*b* 900")
    line = desk.wait_for(desk.on_terminal, "the line on the terminal")
    assert "a?]0;b?" in line
    assert "\x1b" not in line
    assert "\x07" not in line


def test_without_an_answer_the_admin_is_told_once_and_nothing_is_ended(desk: Desk) -> None:
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    text = desk.wait_for_mail("alice", "idle cards: 1 to look at")
    assert "Idle, and the owner did not answer:" in text
    assert f"PID {pid}  bob  sleep  card 0  20.0 GiB  idle since" in text
    time.sleep(10)
    assert desk.alive(pid)
    assert desk.titles("alice") == ["idle cards: 1 to look at"], "no news, no mail"
    desk.work("carol", "--gpu 1 --mem 5G")
    desk.wait_for(lambda: desk.titles("alice")[1:] == ["idle cards: 2 to look at"], "the next digest, with both in it")


def test_gpu_keep_keeps_it_and_only_its_owner_can(desk: Desk, as_member: Person) -> None:
    desk.configure(mode="enforce", answer_minutes=10)
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    desk.wait_for_mail("bob", ASKED)
    refused = as_member("carol", f"gpu-keep {pid}")
    assert refused.rc == 3
    assert refused.stderr == f"gpu-keep: process {pid} (sleep) belongs to bob; only they can keep it\n"
    assert as_member("carol", "gpu-keep").stdout.startswith("nothing of yours has been asked about")
    assert as_member("bob", "gpu-keep --hours 25").rc == 2
    kept = as_member("bob", "gpu-keep --hours 0.5")
    assert kept.rc == 0, kept.stderr
    assert kept.stdout.startswith("kept until ")
    assert kept.stdout.endswith(f": PID {pid} (sleep)\n")
    desk.configure(answer_minutes=0.2)  # so soon it would have been ended
    time.sleep(LONG)
    assert desk.alive(pid)
    assert desk.state(pid) == "kept"
    assert desk.titles("alice") == []
    for forbidden in ("keep-write --root /tmp", "reclaim", "sample"):
        assert as_member("bob", f"sudo -n /opt/gpulab/current/bin/gpulab {forbidden}").rc != 0


def test_when_the_time_is_over_the_owner_is_asked_again(desk: Desk, as_member: Person) -> None:
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    assert as_member("bob", f"gpu-keep --hours 0.002 {pid}").rc == 0  # seven seconds, before anybody asked
    desk.wait_for_mail("bob", ASKED)
    assert as_member("bob", "gpu-keep --hours 0.002").rc == 0
    desk.wait_for(lambda: desk.titles("bob") == [ASKED, ASKED], "the second question")


def test_who_works_again_or_in_short_bursts_is_left_alone(desk: Desk) -> None:
    desk.configure(mode="enforce")
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    desk.wait_for_mail("bob", ASKED)
    desk.host.run_expect([0], f"gpusim busy --pid {pid} --sm 40")
    desk.wait_for(lambda: desk.state(pid) == "busy", "work seen")
    for load in (0, 5) * 4:
        desk.host.run_expect([0], f"gpusim busy --pid {pid} --sm {load}")
        time.sleep(4)
    assert desk.alive(pid)
    assert desk.titles("bob") == [ASKED]


def test_enforce_ends_exactly_what_is_idle(desk: Desk) -> None:
    desk.configure(mode="enforce")
    bobs = desk.work("bob", "--gpu 0 --mem 20G")
    busy = desk.work("carol", "--gpu 0 --mem 20G --sm 80")
    admins = desk.work("alice", "--gpu 1 --mem 20G")
    roots = desk.work("root", "--gpu 2 --mem 20G")
    text = desk.wait_for_mail("bob", ENDED)
    assert f"PID {bobs}  sleep  card 0" in text
    assert not desk.alive(bobs)
    assert all(desk.alive(pid) for pid in (busy, admins, roots))
    assert desk.titles("bob") == [ASKED, ENDED]
    digest = desk.wait_for_mail("alice", "idle cards: 1 to look at")
    assert "Ended because they were idle and the owner did not answer:" in digest
    assert f"PID {bobs}  bob  sleep" in digest
    assert f"ended: PID {bobs} (sleep) of bob" in desk.host.check_output("journalctl --no-pager -u gpulab-reclaim")


def test_term_comes_first_and_leaves_time_to_save(desk: Desk) -> None:
    script = "#!/bin/sh\ntrap 'date +%s.%N > /tmp/work/term' TERM\nwhile :; do sleep 0.2; done\n"
    desk.host.run_expect([0], f"printf %s {shlex.quote(script)} > /tmp/work/work.sh; chmod 755 /tmp/work/work.sh")
    desk.configure(mode="enforce")
    pid = desk.work("bob", "--gpu 0 --mem 20G", "/tmp/work/work.sh")
    desk.wait_for(lambda: not desk.alive(pid), "its end")
    now = float(desk.host.check_output("date +%s.%N"))
    assert now - float(desk.host.check_output("cat /tmp/work/term")) > 2.5, "KILL after the grace of 3 s"
    desk.wait_for_mail("bob", "card 0: work.sh was idle and has been ended")


SPLIT = """
import pynvml as n
n.nvmlInit()
card = n.nvmlDeviceGetHandleByIndex(3)
n.nvmlDeviceSetMigMode(card, 1)
instance = n.nvmlDeviceCreateGpuInstance(card, n.nvmlDeviceGetGpuInstanceProfileInfo(card, 2).id)
part = n.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 2, 0)
n.nvmlGpuInstanceCreateComputeInstance(instance, part.id)
print(n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)))
"""


def test_what_cannot_be_measured_is_never_idle_and_the_admin_sees_it(desk: Desk) -> None:
    uuid = desk.host.check_output(f"/opt/gpulab/current/bin/python -c {shlex.quote(SPLIT)}")
    desk.configure(mode="enforce")
    pid = desk.work("bob", f"--mig {uuid} --mem 5G")
    text = desk.wait_for_mail("alice", "idle cards: 1 to look at")
    assert "Unknown: NVML cannot measure these" in text
    assert f"PID {pid}  bob  sleep  card 3  5.0 GiB  CPU 0 %" in text
    time.sleep(LONG)
    assert desk.alive(pid)
    assert desk.titles("bob") == []
    assert desk.state(pid) == "unknown"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("--unloaded", "the kernel module is not loaded"),
        ("--lost --gpu 0", "fallen off the bus"),
    ],
    ids=["no driver", "lost card"],
)
def test_when_nvml_fails_nothing_is_ended_and_the_admin_is_told_once(desk: Desk, fault: str, reason: str) -> None:
    desk.configure(mode="enforce")
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    desk.wait_for_mail("bob", ASKED)
    desk.host.run_expect([0], f"gpusim fail {fault}")
    assert reason in desk.wait_for_mail("alice", "idle cards cannot be judged")
    time.sleep(LONG)
    assert desk.alive(pid)
    assert desk.titles("alice") == ["idle cards cannot be judged"]
    desk.host.run_expect([0], "gpusim fail --clear")
    desk.wait_for_mail("bob", ENDED)
    assert not desk.alive(pid)


def test_a_full_store_ends_nothing_and_is_told_once_and_sampling_goes_on_after(desk: Desk) -> None:
    desk.configure(mode="enforce")
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    folder = STORE.rpartition("/")[0]
    desk.host.run_expect([0], f"mount -t tmpfs -o size=1m,mode=0755 tmpfs {folder} && systemctl restart gpulab-sampler")
    desk.host.run(f"cat /dev/zero > {folder}/fill")
    assert STORE in desk.wait_for_mail("alice", "idle cards cannot be judged")
    time.sleep(LONG)
    assert desk.alive(pid)
    assert desk.titles("alice") == ["idle cards cannot be judged"]
    assert desk.host.service("gpulab-sampler").is_running
    desk.host.run_expect([0], f"rm {folder}/fill")
    desk.wait_for(lambda: desk.looks() > 2, "new looks")
    desk.wait_for_mail("bob", ENDED)


def test_a_read_only_store_ends_nothing(desk: Desk) -> None:
    desk.configure(mode="enforce")
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    folder = STORE.rpartition("/")[0]
    desk.host.run_expect([0], f"mount -t tmpfs -o ro tmpfs {folder} && systemctl restart gpulab-sampler")
    desk.wait_for_mail("alice", "idle cards cannot be judged")
    time.sleep(LONG)
    assert desk.alive(pid)
    assert (desk.titles("alice"), desk.titles("bob")) == (["idle cards cannot be judged"], [])


def test_a_damaged_store_is_kept_aside_and_told_once(desk: Desk) -> None:
    desk.wait_for(lambda: desk.looks() > 1, "looks")
    desk.host.run_expect([0], f"systemctl stop gpulab-sampler; head -c 8192 /dev/urandom > {STORE}")
    desk.host.run_expect([0], "systemctl start gpulab-sampler")
    assert f"{STORE}.corrupt" in desk.wait_for_mail("alice", "idle cards cannot be judged")
    assert desk.wait_for(lambda: desk.looks() > 2, "new looks")
    assert desk.titles("alice") == ["idle cards cannot be judged"]


def test_while_mail_is_down_nobody_counts_as_asked(desk: Desk) -> None:
    desk.configure(mode="enforce")
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    desk.host.run_expect([0], "mv /usr/sbin/sendmail /usr/sbin/sendmail.away")
    try:
        time.sleep(LONG)
        assert desk.alive(pid)
        assert desk.host.run("systemctl is-failed gpulab-sampler gpulab-reclaim").stdout.count("failed") == 0
    finally:
        desk.host.run_expect([0], "mv /usr/sbin/sendmail.away /usr/sbin/sendmail")
    desk.wait_for_mail("bob", ASKED)
    desk.wait_for_mail("bob", ENDED)


def test_exempt_is_exempt(desk: Desk) -> None:
    desk.configure(mode="enforce", exempt_cards=["1"], exempt_users=["carol"])
    card = desk.work("bob", "--gpu 1 --mem 20G")
    user = desk.work("carol", "--gpu 0 --mem 20G")
    time.sleep(LONG)
    assert (desk.state(card), desk.state(user)) == ("exempt", "exempt")
    assert desk.mails() == {}


REUSE = """
import os, signal, subprocess, sys, time
from pathlib import Path
from gpulab.adapters.processes import ProcessTable
from gpulab.rules.idle import IDLE, MEMORY, Finding
from gpulab.rules.samples import Runner
from gpulab.services.reclaim_end import end

table = ProcessTable()
first = subprocess.Popen(["sleep", "300"])
who = table.find(first.pid).identity
finding = Finding(Runner(first.pid, who.start_ticks, who.uid, who.user, who.command), MEMORY, IDLE, 0, 0, (0,))
first.kill()
first.wait()
time.sleep(0.1)
for _ in range(100):
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
    second = subprocess.Popen(["sleep", "300"])
    if second.pid == first.pid:
        break
    second.kill()
assert second.pid == first.pid, "the pid was not reused"
ending = end([finding], table, lambda lease: [], grace=1.0)
print("ended", [each.runner.pid == first.pid for each in ending.ended], "second lives", second.poll() is None)
"""


def test_a_process_that_got_the_pid_of_an_idle_one_is_not_hit(host: Host) -> None:
    # A pid namespace of its own, where the next pid can be chosen (proc_sys_kernel(5), ns_last_pid).
    command = f"/opt/gpulab/current/bin/python -c {shlex.quote(REUSE)}"
    said = host.check_output(f"unshare --pid --fork --mount-proc {command}")
    assert said == "ended [True] second lives True"


def test_only_admins_read_the_samples(desk: Desk, as_member: Person) -> None:
    desk.wait_for(lambda: desk.looks() > 1, "looks")
    count = f"import sqlite3; sqlite3.connect('file:{STORE}?mode=ro', uri=True).execute('SELECT max(at) FROM ticks')"
    for user, expected in (("alice", 0), ("bob", 1)):
        assert as_member(user, f"python3 -c {shlex.quote(count)}").rc == expected
    assert as_member("bob", f"ls {STATE}").rc != 0
    assert as_member("bob", "gpulab reclaim --status").rc == 3


def test_a_report_tells_who_held_what_and_members_get_their_own(desk: Desk, as_member: Person) -> None:
    desk.work("bob", "--gpu 0 --mem 20G --sm 80")
    desk.work("carol", "--gpu 1 --mem 20G")
    desk.wait_for(lambda: desk.looks() > 3, "looks")
    told = desk.host.check_output("gpulab report --last 1h")
    rows = {line.split()[0]: line.split() for line in told.splitlines() if line}
    assert float(rows["bob"][2]) == float(rows["carol"][2]) >= 0
    assert "80 %" in " ".join(rows["bob"])
    assert "suggestions need records of a week" in told
    assert as_member("bob", "gpulab report").rc == 3
    desk.configure(mode="off")  # or the digest stands beside it
    desk.host.run_expect([0], "gpulab report --last 1h --mail --members")
    assert "carol" in desk.wait_for_mail("alice", "Use of the cards")
    own = desk.wait_for_mail("bob", "Use of the cards")
    assert "bob" in own
    assert "carol" not in own


def test_a_dry_run_says_what_would_happen_and_does_nothing(desk: Desk) -> None:
    desk.host.run_expect([0], "systemctl stop gpulab-reclaim.path")
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    desk.wait_for(lambda: desk.state(pid) == "warn", "idle for long enough")
    said = desk.host.check_output("gpulab reclaim --dry-run")
    assert "asked now" in said
    assert f"To: bob\nSubject: [gpulab {desk.host.check_output('hostname')}] {ASKED}\n" in said
    assert desk.mails() == {}
    assert desk.state(pid) == "warn"


def test_the_sampler_is_small_and_comes_back_when_killed(desk: Desk) -> None:
    desk.work("bob", "--gpu 0 --mem 20G")
    desk.wait_for(lambda: desk.looks() > 3, "looks")

    def pid() -> str:
        return desk.host.check_output("systemctl show --property=MainPID --value gpulab-sampler.service")

    before = pid()
    resident = int(desk.host.check_output(f"awk '/VmRSS/ {{print $2}}' /proc/{before}/status"))
    assert resident < 30 * 1024
    assert desk.host.run(f"ls -l /proc/{before}/fd | grep /dev/nvidia").stdout == ""
    desk.host.run_expect([0], f"kill -KILL {before}")
    desk.wait_for(lambda: pid() not in {before, "0"}, "a new sampler")
    looks = desk.looks()
    desk.wait_for(lambda: desk.looks() > looks, "new looks")


def test_the_playbook_changes_the_mode(desk: Desk, play: Play) -> None:
    ran = play(idle_reclaim_mode="off")
    assert ran.returncode == 0, ran.stdout
    assert "mode off;" in desk.host.check_output("gpulab reclaim --status")
    desk.work("bob", "--gpu 0 --mem 20G")
    time.sleep(LONG)
    assert desk.mails() == {}
    bad = play(idle_reclaim_exempt_times=["at night"])
    assert bad.returncode != 0
    assert "time 'at night' is not understood" in bad.said


def test_the_way_out_stops_everything_and_leaves_the_samples(desk: Desk, play: Play) -> None:
    pid = desk.work("bob", "--gpu 0 --mem 20G")
    desk.wait_for(lambda: desk.looks() > 1, "looks")
    desk.host.run_expect([0], f"rm -f {SETTINGS}.kept")
    first, second = play(tasks="absent.yml"), play(tasks="absent.yml")
    assert (first.returncode, " changed=0 " in first.said) == (0, False), first.stdout
    assert (second.returncode, " changed=0 " in second.said) == (0, True), second.stdout
    assert desk.host.run("systemctl list-units --all --no-legend 'gpulab-sampler*' 'gpulab-reclaim*'").stdout == ""
    gone = f"/usr/local/bin/gpu-keep /etc/sudoers.d/gpulab-keep {SETTINGS} {STATE}"
    assert desk.host.run(f"ls -d {gone}").stdout == ""
    looks = desk.looks()
    assert looks > 1
    time.sleep(5)
    assert desk.looks() == looks
    assert desk.alive(pid)
    ran = play()
    assert ran.returncode == 0, ran.stdout
    desk.wait_for(lambda: desk.looks() > looks, "new looks beside the old")
