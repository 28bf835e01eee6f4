"""Golden hours in Slurm: each class of work is a QOS, and the hour of the day moves what the QOS says.

A QOS lives in slurmdbd: what is set there survives a restart, reaches jobs that wait already, and shows in sprio. A
window raises the priority of its class, and its limits on one job hold for the jobs of every class: what does not fit
waits, with the reason QOSMaxGRESPerJob or QOSMaxWallDurationPerJobLimit, and starts when the window has ended. Running
jobs are left alone. The hour of submission is another matter: job_submit.lua marks each job with it for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .slurm_accounts import NORMAL, TOP_PRIORITY, USUAL_PRIORITY
from .window_table import CLASSES, DAY, DAYS, SHORT, clock
from .windows import class_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

    from .window_table import Window

_SHORT_MINUTES = 240
_SHORT_CARDS = 1


@dataclass(frozen=True)
class Qos:
    """What a QOS says at some moment.

    Attributes:
        priority: 0 to TOP_PRIORITY.
        max_cards: most cards of one job; None for no limit.
        max_minutes: longest job that may start; None for no limit.
    """

    priority: int
    max_cards: int | None = None
    max_minutes: int | None = None


def wanted(windows: Collection[Window], when: datetime) -> dict[str, Qos]:
    """Return what each QOS shall say at a moment.

    Args:
        windows: the table.
        when: server time, naive.
    """
    window = class_at(windows, when)
    cards = window.max_cards if window else None
    minutes = round(window.max_hours * 60) if window and window.max_hours else None
    return {
        name: Qos(TOP_PRIORITY if window and window.work == name else USUAL_PRIORITY, cards, minutes)
        for name in (*CLASSES, NORMAL)
    }


def changes(now: Mapping[str, Qos], then: Mapping[str, Qos]) -> list[str]:
    """Return the commands of sacctmgr that bring QOS rows from one state to another.

    Args:
        now: what slurmdbd has.
        then: what it shall have; names that it does not have are left to role tier_slurm.
    """
    commands = []
    for name, goal in then.items():
        have = now.get(name)
        if have is None or have == goal:
            continue
        settings = []
        if have.priority != goal.priority:
            settings.append(f"Priority={goal.priority}")
        if have.max_cards != goal.max_cards:
            settings.append(f"MaxTRESPerJob=gres/gpu={-1 if goal.max_cards is None else goal.max_cards}")
        if have.max_minutes != goal.max_minutes:
            settings.append(f"MaxWall={-1 if goal.max_minutes is None else goal.max_minutes}")
        commands.append(f"modify qos where name={name} set {' '.join(settings)}")
    return commands


def calendar(windows: Collection[Window]) -> Iterator[str]:
    """Yield systemd calendar events (systemd.time(7)) at which a window begins or ends, in server time."""
    moments: dict[int, set[int]] = {}
    for window in windows:
        for start in window.starts:
            for mark in (start, start + window.length):
                day, minute = divmod(mark % (len(DAYS) * DAY), DAY)
                moments.setdefault(minute, set()).add(day)
    for minute in sorted(moments):
        days = sorted(moments[minute])
        names = "" if len(days) == len(DAYS) else ",".join(DAYS[day].capitalize() for day in days) + " "
        yield f"{names}*-*-* {clock(minute)}:00"


def table(windows: Collection[Window]) -> list[dict[str, Any]]:
    """Return the windows as job_submit.lua takes them: minutes of the week, 0 for Monday 00:00."""
    return [
        {
            "name": window.name,
            "work": window.work,
            "weight": window.weight,
            "hours": window.hours,
            "length": window.length,
            "starts": list(window.starts),
        }
        for window in windows
    ]


def short_work(windows: Collection[Window]) -> tuple[int, int]:
    """Return up to how many minutes and cards a job counts as short work: what the windows for it allow."""
    minutes = [round(each.max_hours * 60) for each in windows if each.work == SHORT and each.max_hours]
    cards = [each.max_cards for each in windows if each.work == SHORT and each.max_cards]
    return max(minutes, default=_SHORT_MINUTES), max(cards, default=_SHORT_CARDS)
