"""The whole server in the allocator tier."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import Acceptance, Person, Play
    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

HAND_ON = Path(__file__).parent.parent / "files" / "hand_on.py"
MOST_TASKS = 90
REFUSED = "Operation not permitted"
LET_THROUGH = "No such device or address"
"""What opening a bare device node says when nothing refuses it: there is no driver behind it."""


def session(host: Host, user: str, command: str) -> CommandResult:
    """Run a command in a login session that logind knows, as ssh makes one."""
    return host.run(
        f"systemd-run --quiet --pipe --wait --uid={user} --property=PAMName=login "
        f"sh -lc {shlex.quote(command)} </dev/null"
    )


def leases(host: Host) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(host.check_output("gpulab leases --json"))
    return found


def site(play: Play, *options: str, **variables: Any) -> str:
    done = play(*options, **variables)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_what_was_promised_holds(acceptance: Acceptance) -> None:
    found = acceptance()
    assert {name: said for name, said in found.items() if not said.startswith(("holds", "not asked for"))} == {}
    for name in ("S4 allocator", "S4 cards are closed without a lease", "S7 MIG layout", "S8 idle cards"):
        assert found[name].startswith("holds"), (name, found[name])


def test_no_session_opens_a_card_but_an_admins(host: Host) -> None:
    for node in ("/dev/nvidia0", "/dev/nvidia3"):
        assert REFUSED in session(host, "bob", f"cat {node}").stderr
        assert LET_THROUGH in session(host, "alice", f"cat {node}").stderr


def test_a_command_started_through_allocate_gpu_has_exactly_one_card(host: Host) -> None:
    script = "for n in 0 1 2 3; do cat /dev/nvidia$n; done; echo $CUDA_VISIBLE_DEVICES"
    ran = session(host, "bob", f"allocate_gpu -- sh -c {shlex.quote(script)}")
    assert ran.stdout.startswith("GPU-")
    assert ran.stderr.count(REFUSED) == 3
    assert ran.stderr.count(LET_THROUGH) == 1


def test_a_member_with_an_instance_gets_it(host: Host) -> None:
    ran = session(host, "carol", "echo $CUDA_VISIBLE_DEVICES; allocate_gpu -- sh -c 'echo $CUDA_VISIBLE_DEVICES'")
    outside, inside = ran.stdout.split()
    assert outside == "run-with-allocate_gpu"
    assert inside in host.check_output("grep ^carol /run/gpulab/bindings")


def test_the_golden_hours_are_told_at_the_moment_of_asking(host: Host, as_member: Person) -> None:
    host.run_expect([0], "cp /etc/gpulab/conf.d/windows.toml /root/windows.toml")
    table = (
        '[windows]\\non_break = "warn"\\n[[windows.table]]\\nname = "always"\\nfrom = "00:00"\\nto = "24:00"\\n'
        'class = "short"\\nmax_cards = 1\\n'
    )
    host.run_expect([0], f"printf '{table}' > /etc/gpulab/conf.d/windows.toml")
    ran = as_member("bob", "allocate_gpu --gpus 2 -- true")
    host.run_expect([0], "cp /root/windows.toml /etc/gpulab/conf.d/windows.toml")
    assert ran.rc == 0, ran.stderr
    assert "window always" in ran.stderr
    assert "allows at most 1 card a job, not 2" in ran.stderr


def test_the_pages_tell_how_to_get_a_card(host: Host, as_member: Person) -> None:
    rules = as_member("bob", "cat /home/admin/GPU_SCHEDULE/README.md").stdout
    assert "allocate_gpu -- python train.py" in rules
    assert "先到先得" in rules
    assert "gpu-schedule add" not in rules
    assert "gpu-keep" in rules
    assert "allocate_gpu" in host.check_output("cat /etc/motd.d/50-gpulab")
    assert as_member("bob", "gpu-status").stdout.count("free") >= 3


def test_the_root_agents_still_see_the_cards(host: Host) -> None:
    assert host.run("/usr/local/sbin/check_gpu.sh").rc == 0
    assert host.check_output("systemctl is-active gpulab-sampler.service") == "active"
    assert "A100" in host.check_output("gpulab info")


def test_a_plan_for_a_finished_server_foretells_nothing(play: Play) -> None:
    plan = site(play, "--check", "--diff")
    assert "changed=0" in plan
    assert plan.count("\nTASK [") <= MOST_TASKS


def test_who_keeps_a_card_open_after_its_lease_does_not_hand_it_on(host: Host, as_member: Person) -> None:
    """A program in a lease hands its open card to one outside; the card is not free while that one has it."""
    host.run_expect([0], f"cat >/tmp/hand_on.py <<'END'\n{HAND_ON.read_text()}END")
    # A bare node opens nothing: behind these three is a driver, that of /dev/kmsg, which the guard refuses as well.
    host.run_expect([0], "for n in 0 1 2; do mv /dev/nvidia$n /root/; mknod -m 666 /dev/nvidia$n c 1 11; done")
    try:
        assert REFUSED in session(host, "bob", "cat /dev/nvidia0").stderr
        host.run_expect([0], "setsid runuser -l bob -c 'python3 /tmp/hand_on.py' </dev/null >/tmp/handed 2>&1 &")
        for _ in range(100):
            handed = host.run("cat /tmp/handed").stdout
            if "\n" in handed:
                break
            time.sleep(0.2)
        assert "GPU-" in handed, handed
        pid, uuid = handed.split()
        again = session(host, "bob", "for n in 1 2; do allocate_gpu -- sh -c 'echo $CUDA_VISIBLE_DEVICES'; done")
        assert uuid not in again.stdout
        assert len(again.stdout.split()) == 2, again.stderr
        assert f"bob: ended, but bob (python3, PID {pid}) has the card open" in as_member("bob", "gpu-status").stdout
        host.run_expect([0], f"kill {pid}")
        for _ in range(50):
            if "ended, but" not in as_member("bob", "gpu-status").stdout:
                break
            time.sleep(0.2)
        assert leases(host) == []
        assert as_member("bob", "gpu-status").stdout.count("free") >= 3
    finally:
        host.run("for n in 0 1 2; do mv /root/nvidia$n /dev/; done")
