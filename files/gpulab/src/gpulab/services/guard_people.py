"""Whom the guard does not reach: who holds a card from before, and whose processes run in a service that is open."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..adapters.people_processes import of_people

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ..adapters.people_processes import PersonsProcess
    from ..rules.guard import Guard

_GIVEN = ("gpulab.slice", "slurmstepd.scope", "*_slurmstepd.scope")
"""Where programs run that were given their cards: leases, and Slurm's jobs."""


def open_hands(exempt: Mapping[int, str], proc_root: Path) -> Iterator[str]:
    """Yield a line for each program that holds a card without having been given it.

    Args:
        exempt: uid and name of those who may.
        proc_root: where proc is mounted.
    """
    for process in of_people(proc_root):
        if process.cards and process.identity.uid not in exempt and not _within(process, _GIVEN):
            who = process.identity
            yield (
                f"{who.user} ({who.command}, PID {process.pid}) has {', '.join(process.cards)} open from before; "
                "a filter takes nothing away that is open: it keeps the card until it ends"
            )


def uncovered(guard: Guard, proc_root: Path) -> Iterator[str]:
    """Yield a line for each service that runs processes of people and is not closed.

    Args:
        guard: what is closed.
        proc_root: where proc is mounted.
    """
    closed = ("user-*.slice", *_GIVEN, *(each.replace("@.", "@*.") for each in guard.closed_services))
    told: dict[str, set[str]] = {}
    for process in of_people(proc_root):
        unit = next((part for part in reversed(process.group.split("/")) if part.endswith(".service")), "")
        if unit and process.identity.uid not in guard.exempt and not _within(process, closed):
            told.setdefault(unit, set()).add(process.identity.user)
    for unit, people in sorted(told.items()):
        yield (
            f"{unit} runs processes of {', '.join(sorted(people))} and is open to the cards; "
            "if members can start programs through it, add it to gpu_guard_services"
        )


def _within(process: PersonsProcess, units: tuple[str, ...]) -> bool:
    return any(fnmatchcase(part, unit) for part in process.group.split("/") for unit in units)
