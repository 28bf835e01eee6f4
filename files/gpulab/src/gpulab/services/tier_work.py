"""Who works on which cards, as each tier knows it: the booking sheet, leases and their line, or Slurm's queue."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from ..adapters.programs import output_of
from ..errors import GpulabError
from ..rules import squeue
from ..rules.overview import BOOKED, LEASES, RUNNING, SHEET, SLURM, WAITING, Desk, Work, joined
from .leases import LeaseStore, alive, waiting
from .sheet_file import read_sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..adapters.apart import Apart

DAYS = 7
"""How far ahead bookings are shown."""

_PATIENCE = 5.0


def bookings(root: Path, now: datetime, apart: Apart) -> Desk:
    """Return the bookings of now and of the week to come. The sheet lies in /home, which may hang."""
    try:
        found = apart.run("the booking sheet", partial(_rows, root, now), patience=_PATIENCE)
    except TimeoutError:
        return Desk(problem=SHEET, detail=f"it could not be read within {_PATIENCE:g} s")
    except ChildProcessError as error:
        return Desk(problem=SHEET, detail=str(error))
    return Desk(problem=SHEET, detail=found) if isinstance(found, str) else Desk(found)


def _rows(root: Path, now: datetime) -> tuple[Work, ...] | str:
    try:
        sheet = read_sheet(root)
    except GpulabError as error:
        return str(error)
    until = now + timedelta(DAYS)
    rows = sorted(
        (each for each in sheet.bookings if each.active and each.end > now and each.start < until),
        key=lambda each: (each.start, each.gpu_id),
    )
    return joined(
        Work(
            each.user,
            each.task_name,
            RUNNING if each.covers(now) else BOOKED,
            (each.gpu_id,),
            1,
            each.start,
            each.end,
        )
        for each in rows
    )


def leases(root: Path, _now: datetime, _apart: Apart) -> Desk:
    """Return the leases and the line, in the order of asking. They lie in /run, which never hangs."""
    store = LeaseStore(root)
    try:
        held = [lease for lease in store.leases() if alive(lease, root)]
        line = [ticket for ticket in store.tickets() if waiting(ticket, root)]
    except OSError as error:
        return Desk(problem=LEASES, detail=f"{error.filename}: {error.strerror}")
    work = [
        Work(
            lease.user,
            lease.command,
            RUNNING,
            tuple(sorted({card.index for card in lease.cards})),
            len(lease.cards),
            _local(lease.since),
            None if lease.hours is None else _local(lease.since + lease.hours * 3600),
        )
        for lease in held
    ]
    work += [
        Work(ticket.user, ticket.command, WAITING, (), ticket.request.cards, _local(ticket.since)) for ticket in line
    ]
    return Desk(tuple(work))


def jobs(_root: Path, _now: datetime, _apart: Apart, ask: Callable[[list[str], float], str] = output_of) -> Desk:
    """Return what runs and waits in Slurm."""
    try:
        queue = ask(
            ["squeue", "--noheader", "--all", f"--states={squeue.STATES}", f"--Format={squeue.FIELDS}"], _PATIENCE
        )
        nodes = ask(["scontrol", "--oneliner", "show", "node"], _PATIENCE)
    except TimeoutError:
        return Desk(problem=SLURM, detail=f"it did not answer within {_PATIENCE:g} s")
    except OSError as error:
        return Desk(problem=SLURM, detail=str(error))
    return Desk(tuple(squeue.parse_jobs(queue)), squeue.parse_pool(nodes))


BY_TIER: Mapping[str, Callable[[Path, datetime, Apart], Desk]] = {
    "table": bookings,
    "allocator": leases,
    "slurm": jobs,
}


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds)  # noqa: DTZ006 - the server's own clock on the wall is meant
