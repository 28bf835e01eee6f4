"""`gpulab slurm`: what role tier_slurm has its timer do, and slurmd do before it starts."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from ..adapters.clock import server_now
from ..errors import InputError
from ..rules.windows import class_at
from ..services import slurm_cards, slurm_windows
from ..settings import load

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Apply the golden hours, or make the cards ready for slurmd.

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
    actions.add_parser("cards", help="make missing device files, and note down the UUIDs of cards and MIG instances")
    options = parser.parse_args(argv)
    return _cards() if options.action == "cards" else _windows(options)


def _cards() -> int:
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


def _moment(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M")  # noqa: DTZ007 - naive server time, as everywhere
    except ValueError:
        raise InputError(f'{text!r} is not a moment; write it as "2026-12-01 09:00"') from None
