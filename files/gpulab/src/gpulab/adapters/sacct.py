"""Slurm's accounting and its nodes, through sacct(1), sacctmgr(1) and sinfo(1)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import datetime
from typing import TYPE_CHECKING

from ..errors import GpulabError
from ..rules.usage_jobs import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable

    Runner = Callable[..., subprocess.CompletedProcess[str]]
    """Called like subprocess.run."""

_PATIENCE = 600.0
"""Seconds; months of a large cluster's accounting take a while."""

_SLACK = 3600
"""Seconds; times are asked for by the clock on the wall, which shows one hour of the year twice."""

_GRES = re.compile(r"gpu:(?:[^:(,]+:)?(\d+)")


def installed() -> bool:
    """Tell whether this server has Slurm's commands."""
    return shutil.which("sacct") is not None


def job_lines(begin: int, end: int, runner: Runner = subprocess.run) -> str:
    """Return every run of every job that was anywhere in a time, as `rules/usage_jobs.py` reads it.

    Args:
        begin: seconds since 1970.
        end: seconds since 1970.
        runner: runs a program.

    Raises:
        GpulabError: Slurm's database does not answer.
    """
    options = ["--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2"]
    times = [f"--starttime={_date(begin - _SLACK)}", f"--endtime={_date(end + _SLACK)}"]
    return _run(["sacct", *options, *times, f"--format={','.join(FIELDS)}"], runner)


def node_cards(runner: Runner = subprocess.run) -> dict[str, int]:
    """Return how many cards (or MIG instances) each node of the cluster has.

    Raises:
        GpulabError: Slurm's controller does not answer.
    """
    text = _run(["sinfo", "--Node", "--noheader", "--format=%N|%G"], runner)
    found = {}
    for line in text.splitlines():
        node, _, resources = line.partition("|")
        found[node.strip()] = sum(map(int, _GRES.findall(resources)))
    return found


def kept_since(runner: Runner = subprocess.run) -> int | None:
    """Return since when the cluster's accounting is kept: its first registration, seconds since 1970.

    slurmctld registers what the cluster has when it first speaks to slurmdbd, and whenever that changes: these are the
    cluster's own events (sacctmgr(1), "show event"). None when there is none yet.

    Raises:
        GpulabError: Slurm's database does not answer.
    """
    show = ["sacctmgr", "--noheader", "--parsable2", "show", "event", "all_time", "event=cluster", "format=start"]
    return min((int(line) for line in _run(show, runner).split() if line.isdecimal()), default=None)


def _date(at: int) -> str:
    """Write a time as sacct reads it: on this server's clock."""
    return datetime.fromtimestamp(at).isoformat(timespec="seconds")  # noqa: DTZ006 - see above


def _run(command: list[str], runner: Runner) -> str:
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    try:
        done = runner(
            command, capture_output=True, text=True, errors="replace", env=environment, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpulabError(f"{command[0]}: {getattr(error, 'strerror', None) or 'no answer in time'}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise GpulabError(f"{command[0]}: {said[-1] if said else f'status {done.returncode}'}")
    return done.stdout
