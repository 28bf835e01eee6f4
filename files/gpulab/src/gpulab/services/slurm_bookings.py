"""Carry the bookings of the table tier over into Slurm as reservations, and back.

/var/lib/gpulab/slurm/bookings.json (root only) holds the names of the reservations that were made, and by which state
of slurmctld they are kept: what is missing from another one was lost with the former, not deleted by anybody.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters.files import read_regular, write_atomic
from ..adapters.slurm import SlurmError, run
from ..errors import GpulabError
from ..rules import sheet as sheets
from ..rules.booking import CANCELLED
from ..rules.slurm_bookings import Plan, creation, plan
from ..rules.slurm_bookings import names as reservation_names
from .sheet_file import NoSheetError, read_sheet
from .sheet_store import as_record, update

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ..adapters.slurm import Run

_MADE_LIMIT = 1 << 20
_UNABLE = "not supported with reservations"
"""What scontrol says of GPUs where Slurm cannot reserve any (22.05)."""


@dataclass
class Carried:
    """What was done, or would be.

    Attributes:
        done: one line for each change.
        not_held: bookings for which Slurm holds no card, with the reason; one line each.
    """

    done: list[str] = field(default_factory=list)
    not_held: list[str] = field(default_factory=list)


def carry(
    root: Path,
    now: Callable[[], datetime],
    *,
    leave: bool = False,
    dry_run: bool = False,
    run_command: Run = run,
) -> Carried:
    """Bring the sheet and Slurm's reservations into step.

    What the sheet books is reserved. A reservation that somebody deleted cancels its booking: in this tier the
    scheduler's word counts. Those that slurmctld lost with its state are made again.

    Args:
        root: the folder that stands for `/`.
        now: server time, naive.
        leave: the tier goes away: every reservation is removed, the bookings count again.
        dry_run: only say what would be done.
        run_command: runs a program.

    Raises:
        GpulabError: Slurm does not answer, or the sheet cannot be read or written.
    """
    found = Carried()
    try:
        rows = read_sheet(root).by_line
    except NoSheetError:
        rows = {}
    made = _made(root)
    if not made and not any(row.active and row.end > now() for row in rows.values()):
        return found
    there = reservation_names(run_command(["scontrol", "--oneliner", "show", "reservation"]).splitlines())
    todo = plan(rows, there, made, now(), leave=leave)
    for line in todo.cancel:
        row = rows[line]
        found.done.append(f"cancel the booking of {row.user}, card {row.gpu_id}, {row.start:%Y-%m-%d %H:%M}")
    if not dry_run:
        if todo.cancel:
            _cancel(root, now, there, made)
        # Forgotten before it is deleted: whoever is killed in between must not take it for deleted by somebody.
        _remember(root, set(todo.known) - todo.make.keys())
    for name in todo.remove:
        found.done.append(f"delete reservation {name}")
        if not dry_run:
            run_command(["scontrol", "delete", f"ReservationName={name}"])
    failed = _make(todo, now(), found, dry_run=dry_run, run_command=run_command)
    if not dry_run:
        _remember(root, set(todo.known) - failed)
    return found


def _make(todo: Plan, now: datetime, found: Carried, *, dry_run: bool, run_command: Run) -> set[str]:
    """Make the reservations; return the names of those that could not be made."""
    failed: set[str] = set()
    for name, booking in todo.make.items():
        if not dry_run:
            try:
                run_command(["scontrol", "--quiet", "create", "reservation", *creation(name, booking, now)])
            except SlurmError as error:
                failed.add(name)
                if _UNABLE in str(error):
                    found.not_held.append(f"{len(todo.make)} bookings: this release of Slurm cannot reserve a GPU")
                    return set(todo.make)
                found.not_held.append(f"{name}: {error}")
                continue
        found.done.append(f"create reservation {name}")
    return failed


def _cancel(root: Path, now: Callable[[], datetime], there: list[str], made: set[str]) -> None:
    def edit(sheet: sheets.Sheet) -> tuple[sheets.Sheet, dict[str, Any]]:
        rows = sheet.by_line
        lines = plan(rows, there, made, now()).cancel
        changes = {line: replace(rows[line], status=CANCELLED) for line in lines}
        if not changes:
            return sheet, {}
        pairs = [{"before": as_record(rows[line]), "after": as_record(after)} for line, after in changes.items()]
        return sheets.change(sheet, changes), {"action": "cancel", "note": "its reservation was deleted", "rows": pairs}

    update(edit, by="root", root=root, now=now)


def _file(root: Path) -> Path:
    return Path(names.under(root, names.SLURM_STATE_DIR)) / "bookings.json"


def _made(root: Path) -> set[str]:
    path = _file(root)
    try:
        found = json.loads(read_regular(path, limit=_MADE_LIMIT))
    except FileNotFoundError:
        return set()
    except ValueError as error:
        raise GpulabError(f"{path} cannot be understood ({error}); delete it, and no reservation is missed") from error
    if not isinstance(found, dict) or found.get("kept_by") != _state(root):
        return set()
    return {str(name) for name in found.get("reservations", ())}


def _state(root: Path) -> str:
    """Tell one state of slurmctld from another; empty when it is kept on another machine."""
    try:
        found = os.lstat(names.under(root, names.SLURM_CLUSTER_FILE))
    except FileNotFoundError:
        return ""
    return f"{found.st_ino} {found.st_mtime_ns}"


def _remember(root: Path, known: set[str]) -> None:
    path = _file(root)
    if known:
        if known != _made(root):
            note = {"kept_by": _state(root), "reservations": sorted(known)}
            write_atomic(path, json.dumps(note).encode() + b"\n", mode=0o600)
    else:
        path.unlink(missing_ok=True)
