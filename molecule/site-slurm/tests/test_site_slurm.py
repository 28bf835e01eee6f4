"""The whole server in the Slurm tier."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Acceptance, Person, Play
    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

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


def test_what_was_promised_holds(acceptance: Acceptance) -> None:
    found = acceptance()
    assert {name: said for name, said in found.items() if not said.startswith(("holds", "not asked for"))} == {}
    for name in ("S5 scheduler", "S5 jobs are confined", "S14 job templates and answers", "S19 every machine serves"):
        assert found[name].startswith("holds"), (name, found[name])


def test_no_session_opens_a_card_but_an_admins(host: Host) -> None:
    for node in ("/dev/nvidia0", "/dev/nvidia3"):
        assert REFUSED in session(host, "bob", f"cat {node}").stderr
        assert LET_THROUGH in session(host, "alice", f"cat {node}").stderr


def test_a_job_has_exactly_one_card(host: Host) -> None:
    script = "for n in 0 1 2 3; do cat /dev/nvidia$n; done; gpusim run --mem 1G -- echo ran; echo $CUDA_VISIBLE_DEVICES"
    ran = session(host, "bob", f"srun --gres=gpu:1 sh -c {shlex.quote(script)}")
    assert ran.stdout.split() == ["ran", "0"], ran.stderr
    assert ran.stderr.count(REFUSED) == 3
    assert ran.stderr.count(LET_THROUGH) == 1


def test_every_member_has_an_account_in_slurm(host: Host) -> None:
    found = host.check_output("sacctmgr -nP show assoc user=bob,member12 format=User,Account").splitlines()
    assert sorted(found) == ["bob|vision", "member12|members"]


def test_the_pages_tell_how_to_get_a_card(host: Host, as_member: Person) -> None:
    rules = as_member("bob", "cat /home/admin/GPU_SCHEDULE/README.md").stdout
    assert "sbatch checkpoint.sbatch" in rules
    assert "公平份额" in rules
    assert "| `urgent` |" in rules
    assert "allocate_gpu" not in rules
    assert "gpu-run" in host.check_output("cat /etc/motd.d/50-gpulab")
    assert "Weight" in rules


def test_a_plan_for_a_finished_server_foretells_nothing(play: Play) -> None:
    plan = play("--check", "--diff")
    assert plan.returncode == 0, plan.stdout
    assert "changed=0" in plan.stdout
    assert plan.stdout.count("\nTASK [") <= MOST_TASKS


def test_another_tier_is_refused_while_a_job_runs(host: Host, as_member: Person, play: Play) -> None:
    job = as_member("bob", "sbatch --parsable --gres=gpu:1 --wrap 'sleep 900'").stdout.strip()
    host.run_expect([0], f"timeout 30 sh -c 'until squeue -h -j {job} -o %T | grep -q RUNNING; do sleep 1; done'")
    refused = play(group_size=7)
    assert refused.returncode != 0
    assert f"Slurm still runs jobs: {job} (bob)" in refused.said
    assert host.check_output(f"squeue -h -j {job} -o %T") == "RUNNING"
    host.run_expect([0], f"scancel {job}")
