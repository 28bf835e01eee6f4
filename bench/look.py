"""Runs inside the machine: processor time of one look of the sampler, and of one nvidia-smi call, on the same cards.

Usage: look.py PROCESSES, with gpulab's Python. Prints two numbers, milliseconds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpulab.adapters.nvml_light import Binding
from gpulab.adapters.sample_store import SampleWriter
from gpulab.adapters.sampler import Sampler
from gpulab.services.sampling import Watch

ROUNDS = 25
CARDS = 8


def nvidia_smi() -> float:
    """Return user and system time of one call, milliseconds."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"nvidia-smi ended with {child.returncode}")
    return (used.ru_utime + used.ru_stime) * 1000


def main(processes: int) -> None:
    """Start the processes, let both take turns, print the medians."""
    command = ["gpusim", "run", "--mem", "500M"]
    users = [
        subprocess.Popen([*command, "--gpu", str(number % CARDS), "--sm", str(number % 2 * 50), "--", "sleep", "600"])
        for number in range(processes)
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "var/lib/gpulab/samples").mkdir(parents=True)
        now = [1_000_000]
        watch = Watch(
            root,
            Sampler(Binding(), Path("/proc"), os.sysconf("SC_CLK_TCK"), tuple),
            SampleWriter(root / "var/lib/gpulab/samples/samples.db", "boot"),
            sample_seconds=60,
            percent=5,
            idle_seconds=900,
            clock=lambda: now[0],
        )
        while len(watch.look().uses) < processes:
            time.sleep(0.5)
            now[0] += 60
        ours, theirs = [], []
        for _ in range(ROUNDS):
            now[0] += 60
            began = time.process_time()
            watch.look()
            ours.append((time.process_time() - began) * 1000)
            theirs.append(nvidia_smi())
    for user in users:
        user.kill()
        user.wait()
    print(statistics.median(ours), statistics.median(theirs))


if __name__ == "__main__":
    main(int(sys.argv[1]))
