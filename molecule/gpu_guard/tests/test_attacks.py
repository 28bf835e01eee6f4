"""What a member could try to get round the guard. Each attack first shows that the member can do what it is made of."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import pytest
from conftest import REFUSED, THROUGH, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Session
    from testinfra.host import Host

CARD = "/dev/nvidia0"
MANAGER = "org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"
LOGIND = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
OWN_GROUP = '/sys/fs/cgroup$(sed -n "s,^0::,,p" /proc/self/cgroup)'


@pytest.fixture(scope="module")
def top(host: Host) -> str:
    """Return the folder of systemd's own root in the tree, which in a container is not the top."""
    return "/sys/fs/cgroup" + host.check_output("sed -n 's,^0::\\(.*\\)/init.scope,\\1,p' /proc/1/cgroup")


@pytest.mark.parametrize("place", ["", "/system.slice/cron.service", "/user.slice", "/user.slice/user-0.slice"])
def test_moving_oneself_to_another_group(session: Session, top: str, place: str) -> None:
    run = session("bob", f"echo $$ >{top}{place}/cgroup.procs; cat {CARD}")
    assert "Permission denied" in run.stderr or "No such file" in run.stderr or "nonexistent" in run.stderr
    assert verdict(run.stderr) == REFUSED


def test_making_a_group_of_ones_own(session: Session) -> None:
    script = f"""
        group={OWN_GROUP}; mkdir $group/mine && echo $BASHPID >$group/mine/cgroup.procs
        grep -c /mine$ /proc/self/cgroup
        cat {CARD}
    """
    run = session(
        "bob", f"systemd-run --user --quiet --wait --pipe --collect -p Delegate=yes bash -c {shlex.quote(script)}"
    )
    assert run.stdout.strip() == "1", run.stderr
    assert verdict(run.stderr) == REFUSED


@pytest.mark.parametrize(
    "request_",
    [
        f"systemd-run --quiet --wait --pipe cat {CARD}",
        f"systemd-run --quiet --scope cat {CARD}",
        "systemctl set-property --runtime user-1001.slice DevicePolicy=auto DeviceAllow='char-* rw'",
        "systemctl daemon-reload",
        "systemctl stop user-1001.slice",
        f"busctl call {MANAGER} AttachProcessesToUnit ssau cron.service '' 1 $$",
        f"busctl call {MANAGER} AttachProcessesToUnit ssau user-0.slice '' 1 $$",
        f"busctl call {MANAGER} StartTransientUnit 'ssa(sv)a(sa(sv))' bob.scope fail 1 PIDs au 1 $$ 0",
        f"busctl call {LOGIND} CreateSession 'uusssssussbssa(sv)' 0 $$ bob tty user '' '' 0 '' '' false '' '' 0",
        "sudo -n true",
        "pkexec --disable-internal-agent true",
    ],
)
def test_asking_the_system_for_more(host: Host, session: Session, request_: str) -> None:
    run = session("bob", f"{request_}; echo status=$?; cat {CARD}")
    assert "status=0" not in run.stdout
    assert verdict(run.stderr) == REFUSED
    assert host.run("systemctl is-active user-1001.slice bob.scope").stdout.split()[-1] != "active"


def test_a_node_of_ones_own(host: Host, session: Session) -> None:
    run = session("bob", "mknod ~/card c 195 0")
    assert REFUSED in run.stderr
    # One that an admin left behind, or that came with an archive which root unpacked.
    host.run_expect([0], "mknod --mode=0666 /home/bob/card c 195 0; chown bob /home/bob/card")
    assert verdict(session("bob", "cat ~/card").stderr) == REFUSED
    assert verdict(session("alice", "sudo cat /home/bob/card").stderr) == THROUGH
    host.run_expect([0], "rm /home/bob/card")


def test_being_root_of_a_namespace_of_ones_own(session: Session) -> None:
    tries = f"id -u; mknod /tmp/card c 195 0; cat {CARD}"
    run = session("bob", f"unshare --user --map-root-user --mount --cgroup --pid --fork sh -c {shlex.quote(tries)}")
    assert run.stdout.strip() == "0", "bob cannot make a user namespace here, so this shows nothing"
    assert f"mknod: /tmp/card: {REFUSED}" in run.stderr
    assert verdict(run.stderr) == REFUSED


def test_a_view_of_the_tree_of_ones_own(session: Session) -> None:
    tries = f"mount -t cgroup2 none /mnt && echo mounted; echo $$ >/mnt/cgroup.procs; cat {CARD}"
    run = session("bob", f"unshare --user --map-root-user --mount --cgroup sh -c {shlex.quote(tries)}")
    assert run.stdout.strip() == "mounted", run.stderr
    assert verdict(run.stderr) == REFUSED


def test_becoming_another_member_or_taking_another_group(host: Host, session: Session) -> None:
    host.run_expect([0], "echo carol:correct-horse | chpasswd")
    try:
        run = session("bob", f"echo correct-horse | su carol -c 'id -un; cat {CARD}'")
    finally:
        host.run_expect([0], "usermod --password='*' carol")
    assert run.stdout.strip() == "carol", run.stderr
    assert verdict(run.stderr) == REFUSED
    run = session("bob", f"sg bob -c 'cat {CARD}'")
    assert verdict(run.stderr) == REFUSED


def test_staying_behind_after_logout(host: Host, session: Session) -> None:
    host.run_expect([0], "install -m 666 /dev/null /tmp/left")
    script = f"while pgrep -u bob sshd >/dev/null; do sleep 0.2; done; sleep 1; cat {CARD} 2>/tmp/left"
    session("bob", f"nohup setsid sh -c {shlex.quote(script)} </dev/null >/dev/null 2>&1 &")
    for _ in range(100):
        text = host.file("/tmp/left").content_string
        if text:
            break
        time.sleep(0.1)
    assert verdict(text) == REFUSED
    host.run_expect([0], "rm /tmp/left")


@pytest.fixture
def _no_logind(host: Host) -> Iterator[None]:
    host.run_expect([0], "systemctl mask --runtime --now systemd-logind.service")
    yield
    host.run_expect([0], "systemctl unmask --runtime systemd-logind.service; systemctl start systemd-logind.service")


@pytest.mark.usefixtures("_no_logind")
def test_coming_in_while_sessions_cannot_be_registered(session: Session) -> None:
    run = session("bob", f"grep -c ssh.service /proc/self/cgroup; cat {CARD}")
    assert run.stdout.strip() == "1", "the session was registered after all"
    assert verdict(run.stderr) == REFUSED


def test_taking_what_another_program_has_open(host: Host, session: Session) -> None:
    host.run_expect([0], "setsid sleep 300 <>/dev/kmsg >/dev/null 2>&1 & echo $! >/tmp/holder")
    pid = host.check_output("pgrep -nx sleep")
    steal = f"""python3 -c '
import os
print(open(os.pidfd_open({pid}) and "/proc/{pid}/cmdline").read()[:5])
import ctypes
print(ctypes.CDLL(None, use_errno=True).syscall(438, os.pidfd_open({pid}), 0, 0))
'"""
    run = session("bob", f"{steal}; cat /proc/{pid}/fd/0")
    host.run_expect([0], f"kill {pid}")
    assert run.stdout.split() == ["sleep", "-1"]
    assert "Permission denied" in run.stderr


def test_a_filter_of_ones_own_adds_nothing(session: Session) -> None:
    # bpf(2) refuses members; and all filters of a group and those of its parents must agree in any case.
    load = "import ctypes; print(ctypes.CDLL(None, use_errno=True).syscall(321, 5, bytes(128), 128))"
    assert session("bob", f"python3 -c '{load}'").stdout.strip() == "-1"
