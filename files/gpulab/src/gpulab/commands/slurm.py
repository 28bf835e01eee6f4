"""`gpulab slurm`: what role tier_slurm has its timer do, and slurmd do before it starts."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.clock import server_now
from ..errors import InputError
from ..rules.windows import class_at
from ..services import slurm_bookings, slurm_cards, slurm_windows
from ..settings import load

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Apply the golden hours, carry bookings over, or make the cards ready for slurmd.

    Args:
        argv: arguments after the subcommand.

    Raises:
        GpulabError: the settings cannot be understood or Slurm does not answer.
    """
    parser = argparse.ArgumentParser(prog="gpulab slurm", description="Slurm's part of gpulab.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    windows = actions.add_parser("windows", help="put the golden hours of this moment into Slurm's QOS rows")
    windows.add_argument("--at", type=_moment, metavar="TIME", help='another moment, "YYYY-MM-DD HH:MM", to try it out')
    windows.add_argument("--check", action="store_true", help="only print what would be done")
    bookings = actions.add_parser("bookings", help="bring the booking sheet and Slurm's reservations into step")
    bookings.add_argument("--leave", action="store_true", help="Slurm goes away: remove every reservation of a booking")
    bookings.add_argument("--check", action="store_true", help="only print what would be done")
    actions.add_parser("cards", help="make missing device files, and note down the UUIDs of cards and MIG instances")
    options = parser.parse_args(argv)
    return {"cards": _cards, "windows": _windows, "bookings": _bookings}[options.action](options)


def _cards(_: argparse.Namespace) -> int:
    problems = slurm_cards.prepare()
    for problem in problems:
        print(f"gpulab slurm cards: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _windows(options: argparse.Namespace) -> int:
    when = options.at or server_now()
    table = load().windows.table
    commands = slurm_windows.apply(table, when, dry_run=options.check)
    window = class_at(table, when)
    now = f"{window.name} ({window.hours}), for {window.work} work" if window else "outside every window"
    print(f"{when:%Y-%m-%d %H:%M}: {now}")
    for command in commands:
        print(f"{'would do' if options.check else 'done'}: {command}")
    return 0


def _bookings(options: argparse.Namespace) -> int:
    found = slurm_bookings.carry(Path("/"), server_now, leave=options.leave, dry_run=options.check)
    for line in found.done:
        print(f"{'would do' if options.check else 'done'}: {line}")
    for line in found.not_held:
        print(f"not held: {line}")
    return 0


def _moment(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M")  # noqa: DTZ007 - naive server time, as everywhere
    except ValueError:
        raise InputError(f'{text!r} is not a moment; write it as "2026-12-01 09:00"') from None
