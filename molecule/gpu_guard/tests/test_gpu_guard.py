"""Role gpu_guard: members' sessions, jobs and services cannot open the cards; root, admins and leases can."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any

import pytest
from conftest import REFUSED, THROUGH, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import RolePlay, Session
    from testinfra.host import Host

CARDS = [f"/dev/nvidia{number}" for number in range(4)]
INSTANCE = ["/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]
MONITOR = "/dev/nvidia-caps/nvidia-cap2"
AT_THE_CONSOLE = """
import os, pty, sys, time
def more():
    try:
        return os.read(terminal, 1000)
    except OSError:  # login hangs the line up once before it takes it (vhangup(2)), and so does the end
        time.sleep(0.1)
        return b""
pid, terminal = pty.fork()
if pid == 0:
    os.execvp("login", ["login", "-f", "bob"])
said = b""
while b"$ " not in said:
    said += more()
os.write(terminal, sys.argv[1].encode() + b"\\n")
while os.waitpid(pid, os.WNOHANG) == (0, 0):
    said += more()
print((said + more()).decode(errors="replace"))
"""
DROP_INS = "/etc/systemd/system/*.d/60-gpulab-guard.conf"


def test_a_members_session_cannot_open_cards_or_instances(session: Session) -> None:
    nodes = [*CARDS, *INSTANCE, MONITOR]
    complaints = session("bob", "; ".join(f"cat {node}" for node in nodes)).stderr.splitlines()
    assert complaints == [f"cat: {node}: {REFUSED}" for node in nodes]


def test_a_login_on_the_console_is_refused_too(host: Host) -> None:
    said = host.check_output(f"timeout 60 python3 -c {shlex.quote(AT_THE_CONSOLE)} 'cat {CARDS[0]}; exit'")
    assert f"cat: {CARDS[0]}: {REFUSED}" in said


@pytest.mark.parametrize("user", ["root", "alice"])
def test_root_and_admins_keep_the_cards(answer: Callable[..., str], user: str) -> None:
    assert {answer(user, node) for node in (CARDS[0], INSTANCE[0])} == {THROUGH}


def test_an_admin_who_becomes_root_keeps_the_cards(session: Session) -> None:
    assert verdict(session("alice", f"sudo cat {CARDS[0]}").stderr) == THROUGH


def test_the_mode_of_the_nodes_is_not_touched(host: Host) -> None:
    assert {host.file(node).mode for node in CARDS} == {0o666}


def test_programs_learn_that_there_is_no_card_instead_of_a_broken_driver(answer: Callable[..., str]) -> None:
    assert answer("bob", "/dev/nvidiactl") == THROUGH


def test_a_program_of_a_member_is_refused_as_on_a_real_card(session: Session) -> None:
    run = session("bob", "gpusim run --gpu 0 --mem 1G -- true")
    assert run.rc != 0
    assert "/dev/nvidia0" in run.stderr
    assert session("alice", "gpusim run --gpu 0 --mem 1G -- true").rc == 0


def test_ordinary_work_goes_on(session: Session) -> None:
    work = """
        tty
        echo text >/dev/null && head -c 8 /dev/urandom | wc -c
        python3 -c 'import pty; pty.spawn(["tty"])'
        echo shared >/dev/shm/bob.$$ && rm /dev/shm/bob.$$ && echo memory
        : <>/dev/fuse && : <>/dev/net/tun && : <>/dev/tty && echo nodes
    """
    said = session("bob", work, "-tt").stdout.split()
    assert said[0].startswith("/dev/pts/")
    assert said[1] == "8"
    assert said[2].startswith("/dev/pts/")
    assert said[3:] == ["memory", "nodes"]


def test_services_of_a_user_are_refused_also_while_nobody_is_logged_in(host: Host, session: Session) -> None:
    unit = "systemd-run --user --quiet --wait --pipe --collect"
    assert verdict(session("bob", f"{unit} cat {CARDS[0]}").stderr) == REFUSED
    asked = session("bob", f"{unit} -p DevicePolicy=auto -p 'DeviceAllow={CARDS[0]} rw' cat {CARDS[0]}")
    assert verdict(asked.stderr) == REFUSED
    host.run_expect([0], "loginctl enable-linger bob")
    try:
        command = f"cat {CARDS[0]} 2>/tmp/lingering; sleep 60"
        run = session("bob", f"systemd-run --user --on-active=1 --timer-property=AccuracySec=10ms sh -c '{command}'")
        assert run.rc == 0, run.stderr
        assert verdict(wait_for(host, "/tmp/lingering")) == REFUSED
    finally:
        host.run_expect([0], "loginctl disable-linger bob; rm -f /tmp/lingering")


def wait_for(host: Host, path: str, seconds: float = 80) -> str:
    """Return what stands in a file as soon as something does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        text = host.run(f"cat {path}").stdout
        if text:
            return text
        time.sleep(0.3)
    pytest.fail(f"nothing came to {path} within {seconds} s")


@pytest.fixture
def papers(host: Host) -> Iterator[Callable[[str], str]]:
    """Return a function that makes an empty file which everybody may write to."""
    host.run_expect([0], "mkdir -m 1777 /tmp/papers")

    def make(name: str) -> str:
        host.run_expect([0], f"install -m 666 /dev/null /tmp/papers/{name}")
        return f"/tmp/papers/{name}"

    yield make
    host.run_expect([0], "rm -r /tmp/papers")


def test_cron_jobs_of_members_are_refused_and_those_of_root_and_admins_are_not(
    host: Host, papers: Callable[[str], str]
) -> None:
    expected = {"root": THROUGH, "alice": THROUGH, "bob": REFUSED}
    for user in expected:
        line = shlex.quote(f"* * * * * cat {CARDS[0]} >>{papers(user)} 2>&1")
        host.run_expect([0], f"echo {line} | crontab -u {user} -")
    system = shlex.quote(f"* * * * * root cat {CARDS[0]} >>{papers('system')} 2>&1")
    host.run_expect([0], f"echo {system} >/etc/cron.d/ask")
    try:
        for user, word in (expected | {"system": THROUGH}).items():
            assert verdict(wait_for(host, f"/tmp/papers/{user}")) == word, user
    finally:
        host.run_expect([0], f"rm /etc/cron.d/ask; for user in {' '.join(expected)}; do crontab -u $user -r; done")


def test_at_jobs_are_refused_from_the_moment_that_at_is_installed(
    host: Host, papers: Callable[[str], str], guard: RolePlay
) -> None:
    def ask(user: str) -> str:
        paper = papers(user)
        host.run_expect([0], f"echo 'cat {CARDS[0]} >>{paper} 2>&1' | runuser -u {user} -- at now")
        return verdict(wait_for(host, paper))

    assert not host.package("at").is_installed
    host.run_expect([0], "DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends at")
    assert {ask("bob"), ask("root")} == {REFUSED}  # closed for all until the role has run again
    said = guard()
    assert "changed=1" in said, said
    assert [ask("bob"), ask("root"), ask("alice")] == [REFUSED, THROUGH, THROUGH]
    # What a member may say about his own session does not move the job elsewhere (pam_systemd(8), XDG_SESSION_CLASS).
    for word in ("manager", "greeter", "nonsense"):
        host.run_expect(
            [0], f"echo XDG_SESSION_CLASS={word} >/home/bob/.pam_environment; chown bob: /home/bob/.pam_environment"
        )
        assert ask("bob") == REFUSED, word
    host.run_expect([0], "rm /home/bob/.pam_environment")


def scope(host: Host, pid: int, node: str) -> None:
    """Move a running process where it may open one card, as whoever gives out the cards does."""
    host.run_expect(
        [0],
        "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager "
        f"StartTransientUnit 'ssa(sv)a(sa(sv))' gpulab-lease-{pid}.scope fail 5 PIDs au 1 {pid} "
        f"Slice s gpulab-lease.slice DevicePolicy s closed DeviceAllow 'a(ss)' 2 {node} rw char-pts rw "
        "CollectMode s inactive-or-failed 0",
    )
    for _ in range(50):
        if f"gpulab-lease-{pid}.scope" in host.run(f"cat /proc/{pid}/cgroup").stdout:
            return
        time.sleep(0.1)
    pytest.fail("the process did not get into its scope")


@pytest.fixture
def waiting(host: Host, session: Session) -> Iterator[Callable[..., int]]:
    """Return a function that starts a program in a session; it waits until /tmp/go is written to. Returns its pid."""
    host.run_expect([0], "rm -f /tmp/go /tmp/pid /tmp/said; mkfifo -m 666 /tmp/go; install -m 666 /dev/null /tmp/pid")
    host.run_expect([0], "install -m 666 /dev/null /tmp/said")

    def start(user: str, then: str) -> int:
        script = f"echo $$ >/tmp/pid; read -r _ </tmp/go; exec >/tmp/said 2>&1; {then}"
        session(user, f"setsid sh -c {shlex.quote(script)} </dev/null >/dev/null 2>&1 &")
        return int(wait_for(host, "/tmp/pid"))

    yield start
    host.run_expect([0], "rm /tmp/go /tmp/pid /tmp/said")


def test_what_was_given_a_card_opens_exactly_that_one(host: Host, waiting: Callable[..., int]) -> None:
    pid = waiting("bob", f"for node in {' '.join([*CARDS, *INSTANCE])}; do cat $node; done; echo end")
    scope(host, pid, CARDS[1])
    host.run_expect([0], "echo >/tmp/go")
    *lines, _ = wait_for(host, "/tmp/said").splitlines()
    assert [verdict(line) for line in lines] == [REFUSED, THROUGH, REFUSED, REFUSED, REFUSED, REFUSED]


def test_shared_memory_of_a_program_on_a_card_outlives_the_login(host: Host, waiting: Callable[..., int]) -> None:
    pid = waiting("bob", "echo batch >/dev/shm/loader; sleep 300")
    scope(host, pid, CARDS[1])
    host.run_expect([0], "echo >/tmp/go")
    assert wait_for(host, "/dev/shm/loader") == "batch\n"
    for _ in range(60):
        if host.run("loginctl show-user bob").rc != 0:
            break
        time.sleep(0.5)
    else:
        pytest.fail("logind did not see bob leave")
    try:
        assert host.file("/dev/shm/loader").exists
    finally:
        host.run_expect([0], f"pkill -s {pid}; rm -f /dev/shm/loader")


@pytest.fixture
def talk(host: Host) -> Iterator[Callable[[], str]]:
    """Log carol in and keep her there; return a function with which she tries a card in that same session."""
    host.run_expect([0], "rm -f /tmp/asked /tmp/answers; touch /tmp/asked")
    loop = 'while read -r node; do cat "$node"; done'
    host.run_expect([0], f"tail -f /tmp/asked | ssh -o BatchMode=yes carol@localhost '{loop}' >/tmp/answers 2>&1 &")
    count = 0

    def ask() -> str:
        nonlocal count
        count += 1
        host.run_expect([0], f"echo {CARDS[0]} >>/tmp/asked")
        for _ in range(100):
            lines = host.file("/tmp/answers").content_string.splitlines()
            if len(lines) >= count:
                return verdict(lines[-1])
            time.sleep(0.1)
        pytest.fail("carol's session does not answer")

    yield ask
    host.run_expect([0], "pkill -f '[t]ail -f /tmp/asked'; pkill -u carol sshd; rm /tmp/asked /tmp/answers")


def test_sessions_that_are_open_follow_at_once_both_ways(talk: Callable[[], str], guard: RolePlay) -> None:
    assert talk() == REFUSED
    guard("absent.yml")
    assert talk() == THROUGH
    guard()
    assert talk() == REFUSED
    guard(gpu_guard_exempt=["carol"])
    assert talk() == THROUGH
    guard()
    assert talk() == REFUSED


def test_who_becomes_an_admin_or_no_longer_is_one_follows(host: Host, talk: Callable[[], str], guard: RolePlay) -> None:
    host.run_expect([0], "gpasswd --add carol gpu-admins")
    assert "changed=1" in guard()
    assert talk() == THROUGH
    host.run_expect([0], "gpasswd --delete carol gpu-admins")
    assert "changed=1" in guard()
    assert talk() == REFUSED


def test_the_allow_list_is_followed_and_never_opens_a_card(host: Host, session: Session, guard: RolePlay) -> None:
    opens = "python3 -c 'import os; os.open(\"/dev/net/tun\", os.O_RDWR)'"
    said = guard(gpu_guard_devices=["/dev/fuse"])
    assert "changed=1" in said
    assert REFUSED in session("bob", opens).stderr
    assert "changed=1" in guard()
    assert session("bob", opens).rc == 0
    host.run_expect([0], "mknod /dev/innocent c 195 0")
    said = guard(gpu_guard_devices=["/dev/innocent"])
    assert "gpu_guard_devices has /dev/innocent, which leads to a card" in said
    host.run_expect([0], "rm /dev/innocent")


def test_a_plan_tells_and_changes_nothing(host: Host, guard: RolePlay, answer: Callable[..., str]) -> None:
    assert "changed=0" in guard("main.yml", "--check", "--diff")
    said = guard("main.yml", "--check", "--diff", gpu_guard_devices=["/dev/kvm"])
    assert "changed=1" in said
    assert "+DeviceAllow=/dev/kvm rw" in said
    said = guard("main.yml", "--check", "--diff", gpu_guard_enabled=False)
    assert "-DevicePolicy=closed" in said
    assert answer("bob") == REFUSED


def test_a_guard_that_something_else_undoes_is_not_reported_as_one(host: Host, guard: RolePlay) -> None:
    path = "/etc/systemd/system/user-.slice.d/99-local.conf"
    host.run_expect([0], rf"printf '[Slice]\nDevicePolicy=auto\nDeviceAllow=\n' >{path}; systemctl daemon-reload")
    try:
        said = guard()
    finally:
        host.run_expect([0], f"rm {path}; systemctl daemon-reload")
    assert "failed=1" in said
    assert "the kernel does not follow them: a program in user-gpulab.slice got 'ENXIO'" in said


def test_the_way_out_leaves_no_trace(host: Host, guard: RolePlay, answer: Callable[..., str]) -> None:
    def traces() -> str:
        everywhere = "/etc /run /var/lib /usr/local"
        return host.run(f"grep --recursive --files-with-matches --ignore-case guard {everywhere} 2>/dev/null").stdout

    before: Any = traces()
    assert "60-gpulab-guard.conf" in before
    assert "changed=1" in guard("absent.yml")
    assert "guard" not in "".join(line for line in traces().splitlines() if "gpusim" not in line)
    assert host.run(f"ls {DROP_INS}").stdout == ""
    assert host.check_output("dpkg --verify cron at") == ""
    assert host.run("ls /run/systemd/system.control").stdout == ""
    assert {answer("bob"), answer("root")} == {THROUGH}
    assert "changed=0" in guard("absent.yml")
    assert "changed=1" in guard()
    assert answer("bob") == REFUSED
