"""Fixtures of this scenario: the role run again with another inventory, and jobs that are gone after each test."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testinfra.host import Host

FACTS = ["!all", "!min", "distribution", "service_mgr", "python", "user", "platform", "pkg_mgr"]


class Rerun(Protocol):
    """Runs the role on the machine under test."""

    def __call__(self, tasks: str = "main.yml", **variables: Any) -> tuple[int, str]:
        """Return the exit status and all that was said, on one line."""


@pytest.fixture
def rerun(host: Host, tmp_path: Path) -> Rerun:
    """Return a function that runs the role again with other variables."""
    inventory = os.environ["MOLECULE_INVENTORY_FILE"]
    listing = subprocess.run(
        ["ansible-inventory", "-i", inventory, "--list"], capture_output=True, text=True, check=True
    )
    known = json.loads(listing.stdout)["_meta"]["hostvars"]
    name = next(name for name in known if host.backend.hostname.endswith(name))

    def run(tasks: str = "main.yml", **variables: Any) -> tuple[int, str]:
        path = tmp_path / "play.yml"
        include = {"ansible.builtin.include_role": {"name": "tier_slurm", "tasks_from": tasks}}
        play = {"hosts": "gpu_servers", "gather_subset": FACTS, "tasks": [include]}
        path.write_text(json.dumps([play]))
        command = ["ansible-playbook", "-i", inventory, "-l", name, "-e", json.dumps(variables), str(path)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return ran.returncode, " ".join(ran.stdout.split())

    return run


def until(question: Callable[[], object], seconds: float, what: str) -> None:
    """Ask again and again until the answer is yes."""
    deadline = time.monotonic() + seconds
    while not question():
        if time.monotonic() >= deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.5)


@pytest.fixture(autouse=True)
def _no_jobs_left(host: Host) -> Iterator[None]:
    yield
    if host.run("command -v scancel").rc == 0:
        host.run("scancel --user=alice; scancel --user=bob; scancel --user=carol")
        until(lambda: not host.run("squeue --noheader --all").stdout.strip(), 90, "all jobs have ended")
