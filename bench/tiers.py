"""The whole site in the larger tiers: first run, no-change run, plan; and what the agents take in a day."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from measure import MACHINE, TOP, Figure, apt_floor, inventory, packages, play, podman, quiet, say, start

if TYPE_CHECKING:
    from pathlib import Path

MOST_TASKS = 90
SECONDS_ALLOWED = {"allocator": 45.0, "slurm": 45.0}
FIRST_ALLOWED = {"allocator": None, "slurm": 6.0}
_WATCHED = 120
_DAY = 24 * 60 * 60
_AGENTS = ("gpulab-sampler.service", "gpulab-overview.service", "gpulab-broker.service")


def measure_tiers(folder: Path) -> list[Figure]:
    """Measure both tiers, each on a server of its own with 12 members."""
    return [figure for tier in SECONDS_ALLOWED for figure in _measure(folder, tier)]


def _measure(folder: Path, tier: str) -> list[Figure]:
    site = TOP / "playbooks" / "site.yml"
    hosts = inventory(folder, 12, gpu_tier=tier)
    say(f"the whole site in the {tier} tier")
    start(MACHINE)
    play(TOP / "playbooks" / "demo.yml", hosts)
    first = play(site, hosts)
    floor = apt_floor(packages(MACHINE))
    again = quiet(site, hosts)
    plan = quiet(site, hosts, "--check", "--diff")
    figures = [
        Figure(f"{tier}: first run / apt-get install of its packages", first.seconds, floor, "s", FIRST_ALLOWED[tier]),
        Figure(f"{tier}: no-change run / allowed", again.seconds, SECONDS_ALLOWED[tier], "s", 1.0),
        Figure(f"{tier}: plan without a change / no-change run", plan.seconds, again.seconds, "s", None),
        Figure(f"{tier}: tasks of a no-change run / allowed", again.ran, MOST_TASKS, "tasks", 1.0),
    ]
    return [*figures, *_agents()] if tier == "allocator" else figures


def _agents() -> list[Figure]:
    """Return what the agents take in a day, told from some minutes, and their memory."""
    say(f"the agents for {_WATCHED} s")
    podman("exec", MACHINE, "runuser", "-l", "member0001", "-c", "allocate_gpu -- true")  # the broker is there then
    before = _processor_seconds()
    time.sleep(_WATCHED)
    used = _processor_seconds() - before
    script = (
        f"for unit in {' '.join(_AGENTS)}; do pid=$(systemctl show --property=MainPID --value $unit); "
        "[ $pid = 0 ] || sed -n 's/^VmRSS: *//p' /proc/$pid/status; done"
    )
    lines = podman("exec", MACHINE, "sh", "-c", script).stdout.splitlines()
    resident = sum(int(line.split()[0]) for line in lines) / 1024
    return [
        Figure("agents, processor time in a day / one second a minute", used * _DAY / _WATCHED, _DAY / 60, "s", 1.0),
        Figure("agents, resident memory / allowed", resident, 100, "MiB", 1.0),
    ]


def _processor_seconds() -> float:
    show = ("systemctl", "show", "--property=CPUUsageNSec", "--value", *_AGENTS)
    values = podman("exec", MACHINE, *show).stdout.split()
    return sum(int(value) for value in values if value.isdecimal()) / 1e9
