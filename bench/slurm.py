"""The Slurm tier: from nothing to a job, accounts of many members, what windows and limits cost a stream of jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from measure import MACHINE, TOP, Figure, apt_floor, inventory, packages, play, podman, quiet, say, start

if TYPE_CHECKING:
    from pathlib import Path

_JOBS = 500
_BARE = (  # the same Slurm, but nothing asks who submits what, when and how much
    "cd /etc/slurm && cp slurm.conf slurm.conf.ours && "
    "sed -i -e '/^JobSubmitPlugins=/d' -e '/^AccountingStorageEnforce=/d' slurm.conf && "
    "systemctl restart slurmctld && until scontrol ping | grep -q UP; do sleep 0.2; done"
)
_STREAM = (
    "cd /tmp && for n in $(seq {jobs}); do sbatch --quiet --output=/dev/null --mem=10 --wrap true; done && "
    'while [ -n "$(squeue --noheader)" ]; do sleep 0.2; done'
)


def measure_slurm(folder: Path) -> list[Figure]:
    """Measure on a server of its own; the names of Slurm's parts are those of role tier_slurm."""
    playbook = TOP / "bench" / "slurm.yml"
    settings = {"gpu_tier": "slurm", "tier_slurm_cpus": 16, "tier_slurm_memory_per_card": 100}
    few, many = inventory(folder, 10, **settings), inventory(folder, 1000, **settings)
    say("the Slurm tier: from nothing to the first finished job")
    start(MACHINE)
    play(playbook, few, "--tags", "before")
    before = packages(MACHINE)
    began = time.perf_counter()
    play(playbook, few, "--tags", "tier")
    _as_member("srun --gres=gpu:1 true")
    first = time.perf_counter() - began
    floor = apt_floor(packages(MACHINE) - before)
    ran = quiet(playbook, few, "--tags", "tier").ran
    say("accounts of 10 and 1,000 members")
    accounts = TOP / "bench" / "slurm_accounts.yml"
    play(accounts, few)
    ten = quiet(accounts, few)
    play(playbook, many, "--tags", "before")
    created = play(accounts, many)
    thousand = quiet(accounts, many)
    say(f"{_JOBS} jobs, with windows and limits and without")
    ours = _stream()
    podman("exec", MACHINE, "sh", "-c", _BARE)
    bare = _stream()
    return [
        Figure("Slurm: first finished job / apt-get install of its packages", first, floor, "s", 4.0),
        Figure("Slurm: tasks that run when nothing changes / allowed", ran, 25, "tasks", 1.0),
        Figure("Slurm: accounts unchanged, 1,000 / 10 members", thousand.seconds, ten.seconds, "s", 1.5),
        Figure("Slurm: accounts of 1,000 new members / allowed", created.seconds, 60, "s", 1.0),
        Figure(f"Slurm: {_JOBS} jobs / without lua, windows and limits", ours, bare, "s", 1 / 0.9),
    ]


def _as_member(command: str) -> None:
    podman("exec", MACHINE, "runuser", "-l", "member0001", "-c", command)


def _stream() -> float:
    """Return how long a stream of short jobs takes from the first submission to the end of the last, seconds."""
    began = time.perf_counter()
    _as_member(_STREAM.format(jobs=_JOBS))
    return time.perf_counter() - began
