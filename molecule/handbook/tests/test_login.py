"""The two lines at login: what members see, who sees nothing, and that nothing that hangs delays anybody."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from testinfra.host import Host

SHEET = "/home/admin/gpu_schedule.csv"
HEADER = "task_name,user,gpu_id,start_time,end_time,est_hours,status"
DEAD_DISK = Path(__file__).resolve().parent.parent / "files/dead_disk.py"
HOOK = "/etc/profile.d/gpulab-login.sh"
LOGIN = "ssh -i /root/.ssh/test -o StrictHostKeyChecking=no -o LogLevel=ERROR"


@pytest.fixture(scope="module", autouse=True)
def sheet(host: Host) -> Generator[None]:
    """Book card 0 for bob, let root log in as bob, and undo both."""
    now = datetime.strptime(host.check_output("date +%Y-%m-%dT%H:%M"), "%Y-%m-%dT%H:%M")  # noqa: DTZ007 - server time
    start, end = (f"{now + timedelta(hours=hours):%Y-%m-%d %H:%M}" for hours in (-1, 24 * 3))
    row = rf"train\033]0;x\007,bob,0,{start},{end},73,booked"
    host.check_output(f"printf '%b\\n' '{HEADER}' 'train,bob,0,{start},{end},73,booked' '{row}' > {SHEET}")
    host.check_output(
        "mkdir -p /root/.ssh; test -e /root/.ssh/test || ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/test"
    )
    host.check_output("install -d -o bob -g bob -m 700 /home/bob/.ssh")
    host.check_output("install -o bob -g bob -m 600 /root/.ssh/test.pub /home/bob/.ssh/authorized_keys")
    host.check_output("gpulab overview")
    yield
    host.check_output(f"rm -r {SHEET} /home/bob/.ssh; gpulab overview")


@pytest.fixture
def dead_disk(host: Host) -> Generator[None]:
    """Mount a file system that answers nothing on /data."""
    host.check_output("mkdir -p /data; test -e /dev/fuse || mknod /dev/fuse c 10 229")
    host.run_expect([0], f"cat > /root/dead_disk.py <<'END'\n{DEAD_DISK.read_text()}END")
    host.check_output("systemd-run --quiet --unit=dead-disk python3 /root/dead_disk.py /data")
    host.check_output("timeout 10 sh -c 'until grep -q ^dead /proc/mounts; do sleep 0.1; done'")
    yield
    host.run("systemctl stop dead-disk")  # a test may have done so
    host.check_output("umount --lazy /data; rmdir /data")


@pytest.fixture
def login(host: Host) -> Callable[..., list[str]]:
    """Return a function that logs bob in at a terminal, and returns the lines after the static message."""

    def run(*options: str) -> list[str]:
        done = host.run(f"printf 'exit\\n' | timeout 20 {LOGIN} -tt {' '.join(options)} bob@127.0.0.1")
        assert done.rc == 0, done.stdout + done.stderr
        return [line.rstrip("\r") for line in done.stdout.splitlines()]

    return run


def lines(shown: list[str], first: str) -> tuple[str, str]:
    """Return the two lines."""
    (begin,) = [number for number, line in enumerate(shown) if line.startswith(first)]
    return shown[begin], shown[begin + 1]


def test_a_member_sees_what_is_free_and_what_is_theirs(login: Callable[..., list[str]]) -> None:
    free, own = lines(login(), "GPU")
    assert free == "GPU: 3 of 4 cards free: 1, 2, 3"
    assert re.fullmatch(r"Yours: card 0 until \d\d-\d\d \d\d:\d\d \(train\)", own), (
        "a bad row of the sheet is no booking"
    )


def test_a_member_sees_it_in_their_language(login: Callable[..., list[str]]) -> None:
    free, own = lines(login("-o SetEnv=LC_ALL=zh_CN.UTF-8"), "GPU：")
    assert free == "GPU：4 张卡中 3 张空闲：1、2、3"
    assert own.startswith("您的：0 号卡，到 ")


def test_programs_that_log_in_get_not_a_byte(host: Host) -> None:
    for command in ("true", "bash -c true", "bash -lc true"):
        assert host.check_output(f"{LOGIN} bob@127.0.0.1 {command} 2>&1") == ""
    assert host.check_output(f"echo 'echo said' | {LOGIN} -T bob@127.0.0.1 bash -l 2>&1") == "said"
    assert host.check_output(f"scp{LOGIN.removeprefix('ssh')} bob@127.0.0.1:/etc/hostname /tmp/ 2>&1") == ""
    assert host.check_output(f"rsync -e '{LOGIN}' bob@127.0.0.1:/etc/hostname /tmp/ 2>&1") == ""


def test_a_file_system_that_hangs_delays_nobody(host: Host, login: Callable[..., list[str]], dead_disk: None) -> None:
    host.check_output("timeout 60 gpulab overview")
    assert lines(login(), "GPU")[0] == "GPU: 3 of 4 cards free: 1, 2, 3"
    timed = f"begin=${{EPOCHREALTIME/./}}; . {HOOK} >&2; echo took $((${{EPOCHREALTIME/./}} - begin))"
    took = [
        int(host.check_output(f"runuser -u bob -- env -i LOGNAME=bob bash --norc -ic '{timed}' 2>/dev/null").split()[1])
        for _ in range(5)
    ]
    assert min(took) < 100_000, f"microseconds: {took}"


def test_one_process_hangs_with_it_not_one_for_each_look(host: Host, dead_disk: None) -> None:
    host.check_output("systemctl restart gpulab-overview")
    for _ in range(2):
        _await_look(host)
        assert _held(host) == 1
    host.check_output("systemctl stop dead-disk")
    assert [_held(host) for _ in range(5)][-1] == 0, "it ends with the file system"


def _held(host: Host) -> int:
    """Count the service's processes that the kernel holds (proc_pid_stat(5), state D)."""
    group = host.check_output("systemctl show -P ControlGroup gpulab-overview")
    return host.run(f"cd /proc; cat $(sed s,$,/stat, /sys/fs/cgroup{group}/cgroup.procs)").stdout.count(") D ")


def _await_look(host: Host) -> None:
    """Wait for the next look of the service."""
    written = "stat -c %i /run/gpulab/login/en"
    before = host.check_output(written)
    host.check_output(f'timeout 90 sh -c \'while [ "$({written})" = "{before}" ]; do sleep 1; done\'')


def test_when_nobody_writes_them_there_are_no_lines(host: Host, login: Callable[..., list[str]]) -> None:
    host.check_output("systemctl stop gpulab-overview")
    assert not [line for line in login() if line.startswith(("GPU", "Yours"))]
    host.check_output("systemctl start gpulab-overview")
    assert lines(login(), "GPU")[0].startswith("GPU: ")


def test_members_cannot_write_what_others_read(host: Host) -> None:
    for path in (
        "/run/gpulab/login/en",
        "/run/gpulab/login/members/bob.en",
        "/run/gpulab/login/members/alice.en",
        HOOK,
    ):
        assert host.run(f"runuser -u bob -- sh -c 'echo x >> {path}'").rc != 0
    assert host.run("runuser -u bob -- gpulab overview").stderr.strip().endswith("use sudo")
