"""A first run that loses power at a random moment, then run again, ends where an unbroken run ends."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

SITE = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "playbooks" / "site.yml"
PLAYBOOK = ["ansible-playbook", "-i", os.environ["MOLECULE_INVENTORY_FILE"], str(SITE)]
CUT = ("cut1", "cut2")
SEED = int(os.environ.get("GPULAB_SEED", str(time.time_ns())))

# What a machine is, as far as gpulab makes it: every file it keeps, with owner and mode, without the times in them,
# without the simulator, and without what the agents wrote down when the clock had it.
FINGERPRINT = r"""
import hashlib, os, pwd, grp, re, stat
roots = ["/etc", "/opt/gpulab", "/usr/local", "/home", "/var/lib/gpulab", "/var/spool/cron"]
skip = re.compile(
    r"/__pycache__|/etc/(ssh/ssh_host_|hosts$|hostname$|resolv\.conf$|machine-id$|mtab$|\.pwd\.lock$|ld\.so\.cache$"
    r"|(passwd|shadow|group|gshadow|subuid|subgid)-$|\.updated$|apt/)|/usr/local/(src/|bin/gpusim$)"
    r"|/var/lib/gpulab/(checks|samples|reclaim)/"
)
times = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?([+-]\d\d:?\d\d|Z)?")
measured = {"/home/admin/GPU_INFO.md", "/var/lib/gpulab/ledger/ledger.json"}  # free space and the like
for root in roots:
    for folder, folders, files in os.walk(root):
        for name in sorted(folders + files):
            path = os.path.join(folder, name)
            if skip.search(path):
                continue
            status = os.lstat(path)
            content = ""
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode) and path not in measured:
                content = hashlib.sha256(times.sub(b"TIME", open(path, "rb").read())).hexdigest()
            owner = pwd.getpwuid(status.st_uid).pw_name + ":" + grp.getgrgid(status.st_gid).gr_name
            print(path, oct(status.st_mode), owner, content)
"""


def fingerprint(machine: str) -> list[str]:
    command = ["podman", "exec", "-i", f"gpulab-site-interrupted-{machine}", "python3", "-"]
    done = subprocess.run(command, input=FINGERPRINT, capture_output=True, text=True, check=True)
    return sorted(done.stdout.splitlines())


def cut_power(machine: str, task: int, delay: float) -> str:
    """Start the site on a machine and take its power away inside the given task; return the task's name."""
    name = f"gpulab-site-interrupted-{machine}"
    with subprocess.Popen(
        [*PLAYBOOK, "-l", machine], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        seen = 0
        last = ""
        for line in run.stdout:
            if line.startswith("TASK ["):
                seen += 1
                last = line.strip(" *\n")
                if seen == task:
                    break
        time.sleep(delay)
        subprocess.run(["podman", "kill", "--signal", "KILL", name], check=True, capture_output=True)
        run.kill()
    subprocess.run(["podman", "start", name], check=True, capture_output=True)
    booted = ["podman", "exec", name, "systemctl", "is-system-running", "--wait"]
    for _ in range(40):
        if subprocess.run(booted, capture_output=True, text=True, check=False).stdout.strip() == "running":
            return last
        time.sleep(0.5)
    pytest.fail(f"{name} did not boot again")


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
    wanted = fingerprint("unbroken")
    for machine in CUT:
        found = fingerprint(machine)
        assert sorted(set(found) ^ set(wanted)) == [], told + machine
    third = run_site("unbroken", *CUT)
    assert third.stdout.count("changed=0") == 1 + len(CUT), told + third.stdout
