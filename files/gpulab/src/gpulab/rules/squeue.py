"""What squeue(1) and scontrol(1) print, as people's work and the cards they have.

Names of jobs are left out: a member may put a line break in one, and so a row of somebody else's.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from .overview import BOOKED, RUNNING, WAITING, Pool, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS = "JobID:|,UserName:|,StateCompact:|,StartTime:|,EndTime:|,tres-alloc:|"
"""For squeue's --Format; each field ends with a bar whatever its length."""

STATES = "PD,R,S,CG"
_HAVE_CARDS = {"R", "S", "CG"}
_PARTS = FIELDS.count("|") + 1
_CARDS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_NODE = re.compile(r"(?m)^NodeName=.*$")
_STATE = re.compile(r"\bState=(\S+)")
_CONFIGURED = re.compile(r"\bCfgTRES=(\S*)")
_ALLOCATED = re.compile(r"\bAllocTRES=(\S*)")
_AWAY = re.compile(r"DOWN|DRAIN|FAIL|MAINT|NOT_RESPONDING|POWER|FUTURE|UNKNOWN")


def parse_jobs(text: str) -> Iterator[Work]:
    """Read squeue's answer: `squeue --noheader --all --states=STATES --Format=FIELDS`.

    Running jobs without a card are left out; of those that wait Slurm does not say here what they ask for.
    """
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != _PARTS:
            continue
        number, user, state, start, end, tres = (part.strip() for part in parts[:-1])
        cards = _count(tres)
        if state in _HAVE_CARDS and cards:
            yield Work(user, f"#{number}", RUNNING, (), cards, _time(start), _time(end))
        elif state == "PD":
            # With a start time that Slurm has planned it is as good as booked.
            planned = _time(start)
            yield Work(user, f"#{number}", BOOKED if planned else WAITING, (), 0, planned, None)


def parse_pool(text: str) -> Pool:
    """Read how many cards the nodes have and give: `scontrol --oneliner show node`. Nodes that are away have none."""
    total = free = 0
    for node in _NODE.findall(text):
        state = _STATE.search(node)
        if state is None or _AWAY.search(state[1]):
            continue
        has, given = (_count(found[1]) if (found := field.search(node)) else 0 for field in (_CONFIGURED, _ALLOCATED))
        total += has
        free += max(0, has - given)
    return Pool(free, total)


def _count(tres: str) -> int:
    found = _CARDS.search(tres)
    return int(found[1]) if found else 0


def _time(text: str) -> datetime | None:
    """Return a time; None for `N/A`, `Unknown` and `NONE`."""
    return datetime.fromisoformat(text) if _TIME.fullmatch(text) else None
