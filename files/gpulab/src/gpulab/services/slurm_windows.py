"""Put the golden hours of this moment into Slurm's QOS rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..adapters.slurm import SlurmError, change_accounts, rows, run
from ..rules.slurm_qos import Qos, changes, wanted

if TYPE_CHECKING:
    from datetime import datetime

    from ..adapters.slurm import Run
    from ..rules.window_table import Window

_CARDS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_WALL = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")


def apply(windows: tuple[Window, ...], when: datetime, *, dry_run: bool = False, run_command: Run = run) -> list[str]:
    """Bring the QOS rows to what a moment asks for, and read them again.

    Returns:
        The commands that were given to sacctmgr, or would be; empty when all is so already.

    Raises:
        SlurmError: slurmdbd does not answer, or a row is not as it should be afterwards.
    """
    goal = wanted(windows, when)
    commands = changes(read_qos(run_command), goal)
    if dry_run or not commands:
        return commands
    complaints = change_accounts(commands, run_command)
    left = changes(read_qos(run_command), goal)
    if left:
        raise SlurmError(f"still to do: {'; '.join(left)} ({'; '.join(complaints) or 'sacctmgr said nothing'})")
    return commands


def read_qos(run_command: Run = run) -> dict[str, Qos]:
    """Return what slurmdbd has.

    Raises:
        SlurmError: it does not answer.
    """
    answer = run_command(
        ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name,Priority,MaxTRES,MaxWall"]
    )
    found = {}
    for name, priority, tres, wall in rows(answer, 4):
        cards = _CARDS.search(tres)
        found[name] = Qos(int(priority or 0), int(cards[1]) if cards else None, _minutes(wall))
    return found


def _minutes(wall: str) -> int | None:
    """Read a duration such as `04:00:00` or `1-00:00:00`; None for no limit."""
    found = _WALL.fullmatch(wall)
    if found is None:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + minutes
