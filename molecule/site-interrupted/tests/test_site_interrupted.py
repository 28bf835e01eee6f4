"""A first run that loses power at a random moment, then run again, ends where an unbroken run ends."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

from machines import fingerprint, interrupt, power_off, power_on

SITE = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "playbooks" / "site.yml"
PLAYBOOK = ["ansible-playbook", "-i", os.environ["MOLECULE_INVENTORY_FILE"], str(SITE)]
CUT = ("cut1",)
SEED = int(os.environ.get("GPULAB_SEED", str(time.time_ns())))


def cut_power(machine: str, task: int, delay: float) -> str:
    """Start the site on a machine and take its power away inside the given task; return the task's name."""
    name = f"gpulab-site-interrupted-{machine}"
    last = interrupt([*PLAYBOOK, "-l", machine], task, delay, lambda: power_off(name))
    power_on(name)
    return last


def run_site(*machines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PLAYBOOK, "-l", ",".join(machines)], capture_output=True, text=True, check=False)


def test_a_power_cut_anywhere_ends_in_the_same_state() -> None:
    first = run_site("unbroken")
    assert first.returncode == 0, first.stdout
    tasks = first.stdout.count("\nTASK [")
    choose = random.Random(SEED)
    share = (tasks - 2) // len(CUT)
    moments = {
        # One in each part of the run, at any moment within the task.
        machine: (choose.randint(2 + part * share, 1 + (part + 1) * share), choose.random())
        for part, machine in enumerate(CUT)
    }
    cuts = {machine: cut_power(machine, task, delay) for machine, (task, delay) in moments.items()}
    again = run_site(*CUT)
    told = f"seed {SEED}, power cut in {cuts}\n"
    assert again.returncode == 0, told + again.stdout
    wanted = fingerprint("gpulab-site-interrupted-unbroken")
    for machine in CUT:
        found = fingerprint(f"gpulab-site-interrupted-{machine}")
        assert sorted(set(found) ^ set(wanted)) == [], told + machine
    third = run_site("unbroken", *CUT)
    assert third.stdout.count("changed=0") == 1 + len(CUT), told + third.stdout
