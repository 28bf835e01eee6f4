"""`gpu-schedule`: members see who has which card when, and book cards for themselves."""

from __future__ import annotations

import argparse
import io
import sys
from typing import TYPE_CHECKING, NoReturn

from ..errors import InputError
from .cli import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\
examples:
  gpu-schedule list                      who has which card, now and later
  gpu-schedule week                      the same as a calendar
  gpu-schedule free --hours 4            when each card is free for 4 hours
  gpu-schedule add train --gpu 0 --start "2026-12-01 09:00" --hours 4
  gpu-schedule add big --gpu 0,1 --start now --hours 1.5
  gpu-schedule done train                finished early: the rest of the time is free again
  gpu-schedule cancel big                give up a booking that has not begun

Times are the server's local time. Exit status: 0 done, 1 failed (check: something is wrong with the sheet),
2 cannot be done as asked, 3 not yours to change, 4 the card is booked by then."""


_LONGEST_CARD = 4  # digits


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; `{self.prog} --help` shows how")


def _cards(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() and len(part) <= _LONGEST_CARD for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of cards; give one or more numbers, such as 0 or 0,1")
    return tuple(int(part) for part in parts)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gpu-schedule",
        description="Book GPU cards and see who has booked them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    add = actions.add_parser("add", help="book cards", allow_abbrev=False)
    add.add_argument("task_name", metavar="TASK", help="a short name for the work; each of your bookings has its own")
    add.add_argument("--gpu", type=_cards, required=True, metavar="N[,M]", help="card numbers; all of them or none")
    add.add_argument("--start", required=True, metavar="TIME", help='"YYYY-MM-DD HH:MM" or now')
    add.add_argument("--hours", type=float, required=True, metavar="H", help="how long, such as 4 or 1.5")
    add.add_argument("--user", metavar="U", help="book for somebody else (admins only)")

    for action, words in (("cancel", "give up a booking that has not begun"), ("done", "end a booking now")):
        parser_of = actions.add_parser(action, help=words, allow_abbrev=False)
        parser_of.add_argument("task_name", metavar="TASK", help="the name it was booked under; all its cards")
        parser_of.add_argument("--user", metavar="U", help="whose booking (admins only)")

    listing = actions.add_parser("list", help="bookings that run now or come later", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="as JSON, with the lines that cannot be read")
    listing.add_argument("--mine", action="store_true", help="only your own")
    listing.add_argument("--all", action="store_true", help="past, done and cancelled ones too")

    week = actions.add_parser("week", help="a calendar of seven days", allow_abbrev=False)
    week.add_argument("--start", metavar="DATE", help="first day, YYYY-MM-DD; today when left out")

    free = actions.add_parser("free", help="when each card is free for long enough", allow_abbrev=False)
    free.add_argument("--hours", type=float, required=True, metavar="H", help="how long, such as 4 or 1.5")
    free.add_argument("--gpu", type=_cards, metavar="N[,M]", help="only these cards")

    actions.add_parser("check", help="look for mistakes in the sheet", allow_abbrev=False)
    return parser


def main(argv: Sequence[str]) -> int:
    """Do what was typed.

    Raises:
        GpulabError: it was refused or failed; nothing was changed.
    """
    arguments = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show a name still shows the table
    if arguments.action in {"add", "cancel", "done"}:
        from . import schedule_change  # noqa: PLC0415 - reading must start fast; only changes need this

        return schedule_change.main(arguments)
    from . import schedule_view  # noqa: PLC0415 - as above

    return schedule_view.main(arguments)


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(guarded("gpu-schedule", main))
