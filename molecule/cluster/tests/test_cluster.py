"""Several machines: one queue, and machines that come, rest and go by a line of the inventory."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testinfra.host import Host

    from ...conftest import Person

MACHINES = ["head"]


@pytest.fixture
def converge(tmp_path: Path) -> Callable[..., str]:
    """Return a function that edits the inventory and runs the role on all machines in it."""
    source = os.environ["MOLECULE_INVENTORY_FILE"]
    command = ["ansible-inventory", "--inventory", source, "--list", "--export", "--yaml"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    playbook = tmp_path / "play.yml"
    facts = ["!all", "!min", "distribution", "service_mgr", "python", "user", "platform", "pkg_mgr"]
    playbook.write_text(yaml.safe_dump([{"hosts": "gpu_servers", "gather_subset": facts, "roles": ["tier_slurm"]}]))

    def run(edit: Callable[[dict[str, Any]], None] = lambda _: None, *, refused: bool = False) -> str:
        inventory = yaml.safe_load(listing)
        edit(inventory["all"]["children"])
        path = tmp_path / "hosts.yml"
        path.write_text(yaml.safe_dump(inventory))
        ran = subprocess.run(
            ["ansible-playbook", "--inventory", str(path), str(playbook)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert (ran.returncode != 0) is refused, ran.stdout
        return " ".join(ran.stdout.split())

    return run


@pytest.fixture(autouse=True)
def _no_jobs_left(host: Host) -> Iterator[None]:
    yield
    host.run("scancel --user=bob")


def host_variables(groups: dict[str, Any], name: str) -> dict[str, Any]:
    """Return where an exported inventory keeps the variables of a host: with the first group that has it."""
    found = [group["hosts"][name] for group in groups.values() if group.get("hosts", {}).get(name)]
    variables: dict[str, Any] = found[0]
    return variables


def rest(groups: dict[str, Any]) -> None:
    """Keep new jobs off gpu2."""
    host_variables(groups, "gpu2")["tier_slurm_drain"] = "new fan"


def leave(groups: dict[str, Any]) -> None:
    """Take gpu2 out of the inventory."""
    for group in groups.values():
        group.get("hosts", {}).pop("gpu2", None)


def submit(as_member: Person, request: str) -> str:
    """Submit a job of bob's that runs until it is cancelled; return its number."""
    done = as_member("bob", f"sbatch --parsable --output=/dev/null --chdir=/tmp {request} --wrap 'sleep 900'")
    assert done.rc == 0, done.stderr
    return done.stdout.strip()


def until_state(host: Host, job: str, wanted: str) -> None:
    """Wait for a job."""
    deadline = time.monotonic() + 60
    while (state := host.run(f"squeue --noheader --states=all --jobs={job} --format=%T").stdout.strip()) != wanted:
        if time.monotonic() > deadline:
            pytest.fail(f"job {job} is {state or 'gone'}, not {wanted}")
        time.sleep(0.5)


def test_a_job_runs_where_the_cards_are_that_it_asks_for(as_member: Person) -> None:
    for request, machine in (("gpu:a100:1", "clustergpu1"), ("gpu:l40s:2", "clustergpu2")):
        ran = as_member("bob", f"srun --immediate=60 --chdir=/tmp --gres={request} hostname")
        assert ran.stdout.strip() == machine, ran.stderr
    ran = as_member(
        "bob", "srun --immediate=60 --chdir=/tmp --gres=gpu:a100_3g.40gb:1 sh -c 'hostname; echo $CUDA_VISIBLE_DEVICES'"
    )
    assert ran.stdout.startswith("clustergpu1\nMIG-"), ran.stderr


def test_a_job_over_both_machines_has_the_cards_of_both(as_member: Person) -> None:
    ran = as_member("bob", "srun --immediate=60 --chdir=/tmp --nodes=2 --ntasks-per-node=1 --gres=gpu:1 hostname")
    assert sorted(ran.stdout.split()) == ["clustergpu1", "clustergpu2"], ran.stderr


def test_a_machine_rests_leaves_and_comes_back_by_lines_of_the_inventory(
    host: Host, as_member: Person, converge: Callable[..., str]
) -> None:
    here, there = submit(as_member, "--gres=gpu:a100:1"), submit(as_member, "--gres=gpu:l40s:1")
    until_state(host, here, "RUNNING")
    until_state(host, there, "RUNNING")

    said = converge(rest)
    assert "changed=1" in said
    assert "gpulab: new fan" in host.check_output("sinfo --list-reasons")
    waiting = submit(as_member, "--gres=gpu:l40s:1")
    ran = as_member("bob", "srun --immediate=60 --chdir=/tmp --gres=gpu:a100_3g.40gb:1 hostname")
    assert ran.stdout.strip() == "clustergpu1", ran.stderr
    until_state(host, waiting, "PENDING")
    until_state(host, there, "RUNNING")

    said = converge(leave, refused=True)
    assert f"clustergpu2 leaves the cluster, which would kill its jobs: {there} (bob)" in said
    until_state(host, there, "RUNNING")
    host.run_expect([0], f"scancel {there} {waiting}")
    until_state(host, there, "CANCELLED")
    converge(leave)
    assert set(host.check_output("sinfo --noheader --Node --format=%N").split()) == {"clustergpu1"}
    until_state(host, here, "RUNNING")

    converge()
    ran = as_member("bob", "srun --immediate=60 --chdir=/tmp --gres=gpu:l40s:1 hostname")
    assert ran.stdout.strip() == "clustergpu2", ran.stderr
    until_state(host, here, "RUNNING")
