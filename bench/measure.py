"""What the parts of the benchmark share: figures, test machines, playbook runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
IMAGE = "debian13"
MACHINE = "gpulab-bench"
FLOOR_MACHINE = "gpulab-bench-floor"
ROUNDS = 3
_PACKAGES = "dpkg-query --show --showformat='${Package}\\n' | sort"


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        what: what was compared.
        ours: measured value of gpulab.
        other: measured value of the alternative.
        unit: of both: `s`, `tasks`, `MiB`, `Mbit/s`, `ms`, or `x` where they are ratios themselves.
        limit: the largest ratio ours / other that we accept; None when it is only told.
    """

    what: str
    ours: float
    other: float
    unit: str
    limit: float | None

    @property
    def ratio(self) -> float:
        """Return ours / other."""
        return self.ours / self.other

    @property
    def holds(self) -> bool:
        """Return whether the limit is kept."""
        return self.limit is None or self.ratio <= self.limit


@dataclass(frozen=True)
class Run:
    """One playbook run: wall time in seconds, all tasks, those that were not skipped, those that changed something."""

    seconds: float
    tasks: int
    ran: int
    changed: int


def podman(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run podman; its complaint is ours when it fails."""
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"bench: podman {' '.join(arguments[:3])} ... failed: {done.stderr.strip()}")
    return done


def start(name: str, image: str = IMAGE) -> None:
    """Start a bare server."""
    subprocess.run(["podman", "rm", "--force", "--time", "0", name], capture_output=True, check=False)
    done = subprocess.run(
        [TOP / "scripts" / "machine", name, image, "gpu1"], capture_output=True, check=False, text=True
    )
    if done.returncode:
        sys.exit(f"bench: {done.stderr.strip()}")


def inventory(folder: Path, members: int, **more: Any) -> Path:
    """Write an inventory with so many members, each with a key, and further variables; return its path."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43
    people = [{"name": "alice", "admin": True, "ssh_keys": [key]}]
    people += [
        {"name": f"member{number:04}", "mail": f"member{number:04}@example.org", "ssh_keys": [key]}
        for number in range(1, members)
    ]
    host = {"ansible_connection": "containers.podman.podman", "ansible_podman_mount_detection": False}
    variables = {
        "lab_admin": "alice",
        "lab_members": people,
        "gpu_tier": "table",
        "simulated_cards": "a100-sxm4-80gb:4",
        **more,
    }
    path = folder / f"{members}-{variables['gpu_tier']}.yml"
    path.write_text(json.dumps({"gpu_servers": {"hosts": {MACHINE: host}, "vars": variables}}))
    return path


def play(playbook: Path, hosts: Path, *options: str) -> Run:
    """Run a playbook and count."""
    began = time.perf_counter()
    command = ["ansible-playbook", "--inventory", str(hosts), str(playbook), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TOP)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"bench: {playbook.name} failed:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    recap = done.stdout.rsplit("PLAY RECAP", 1)[1]
    counts = dict(part.split("=") for part in recap.split() if "=" in part)
    ran = int(counts["ok"])
    return Run(seconds, ran + int(counts["skipped"]), ran, int(counts["changed"]))


def quiet(playbook: Path, hosts: Path, *options: str) -> Run:
    """Return the fastest of several runs that change nothing."""
    runs = [play(playbook, hosts, *options) for _ in range(ROUNDS)]
    if any(run.changed for run in runs):
        sys.exit(f"bench: a repeated run of {playbook.name} changed something")
    return min(runs, key=lambda run: run.seconds)


def say(text: str) -> None:
    """Tell how far we are."""
    print(f"... {text}", file=sys.stderr, flush=True)


def packages(machine: str) -> set[str]:
    """Return the packages that are installed on a machine."""
    return set(podman("exec", machine, "sh", "-c", _PACKAGES).stdout.split())


def apt_floor(wanted: set[str]) -> float:
    """Install packages on another bare server with apt-get alone, nothing started; return how long it took, seconds."""
    start(FLOOR_MACHINE)
    refuse = "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d"
    podman("exec", FLOOR_MACHINE, "sh", "-c", refuse)
    missing = sorted(wanted - packages(FLOOR_MACHINE))
    command = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends", *missing]
    began = time.perf_counter()
    podman("exec", "--env", "DEBIAN_FRONTEND=noninteractive", FLOOR_MACHINE, *command)
    return time.perf_counter() - began


def remove() -> None:
    """Remove the test machines."""
    for machine in (MACHINE, FLOOR_MACHINE):
        podman("rm", "--force", "--time", "0", "--ignore", machine)
