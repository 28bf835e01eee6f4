"""Machines that lose power or their controller in the middle of a run, and what they are afterwards."""

from __future__ import annotations

import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    """Return one line for each file that gpulab has a part in: path, mode, owner, content.

    Args:
        machine: the container's name.
    """
    command = ["podman", "exec", "-i", machine, "python3", "-"]
    done = subprocess.run(command, input=FINGERPRINT, capture_output=True, text=True, check=True)
    return sorted(done.stdout.splitlines())


def interrupt(command: Sequence[str], task: int, delay: float, cut: Callable[[], None], *, count_from: str = "") -> str:
    """Start a run, and end it inside a task.

    Args:
        command: ansible-playbook and its arguments.
        task: in which task, from 1.
        delay: how long after the task's beginning, seconds.
        cut: what happens besides that the controller is gone.
        count_from: count tasks from the first one on whose line this pattern is found in.

    Returns:
        The task's name; empty when the run ended before.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        seen, last = 0, ""
        for line in run.stdout or ():
            if line.startswith("TASK [") and (seen or re.search(count_from, line)):
                seen += 1
                last = line.strip(" *\n")
                if seen == task:
                    break
        else:
            return ""
        time.sleep(delay)
        run.kill()
        cut()
    return last


def power_off(machine: str) -> None:
    """Take a container's power away."""
    subprocess.run(["podman", "kill", "--signal", "KILL", machine], check=True, capture_output=True)


def power_on(machine: str) -> None:
    """Start a container and wait until it has booted."""
    subprocess.run(["podman", "start", machine], check=True, capture_output=True)
    booted = ["podman", "exec", machine, "systemctl", "is-system-running", "--wait"]
    for _ in range(40):
        if subprocess.run(booted, capture_output=True, text=True, check=False).stdout.strip() == "running":
            return
        time.sleep(0.5)
    pytest.fail(f"{machine} did not boot again")
