"""The part of `gpu-schedule` that only reads: lists, calendars, free time, and the check of the sheet."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .. import names
from ..adapters.callers import caller, in_group
from ..adapters.clock import server_now
from ..errors import InputError
from ..rules.cells import read_time
from ..rules.schedule_text import check_lines, free_lines, list_lines
from ..services.sheet_file import read_cards, read_sheet, sheet_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from ..rules.booking import Booking
    from ..rules.sheet import Sheet

_DEFAULT_COLUMNS = 80
_MINE, _OTHERS, _OVER = "32;1", "36", "2"
"""Bold green, cyan, dim (ECMA-48 SGR)."""


def main(arguments: argparse.Namespace) -> int:
    """Show what was asked for.

    Returns:
        1 when `check` finds something, else 0.

    Raises:
        GpulabError: the sheet cannot be read.
    """
    sheet = read_sheet()
    now = server_now()
    if arguments.action == "check":
        return _check(sheet, now)
    chosen = _chosen(sheet, now, arguments) if arguments.action == "list" else {}
    if arguments.action == "list" and arguments.json:
        print(_as_json(sheet, chosen, now))
        return 0
    if arguments.action == "list":
        lines = list_lines(chosen.values(), now)
    elif arguments.action == "week":
        lines = _week_lines(sheet, now, arguments.start)
    else:
        cards = arguments.gpu or read_cards() or {booking.gpu_id for booking in sheet.bookings}
        lines = free_lines(sheet.bookings, cards, arguments.hours, now)
    print("\n".join(lines))
    if sheet.problems:
        print(
            f"gpu-schedule: {sheet_path()}: {len(sheet.problems)} of {len(sheet.rows)} lines cannot be used; "
            "`gpu-schedule check` says why",
            file=sys.stderr,
        )
    return 0


def _chosen(sheet: Sheet, now: datetime, arguments: argparse.Namespace) -> dict[int, Booking]:
    rows = sheet.by_line
    if not arguments.all:
        rows = {line: booking for line, booking in rows.items() if booking.active and booking.end > now}
    if arguments.mine:
        me = caller()
        rows = {line: booking for line, booking in rows.items() if booking.user == me}
    return dict(sorted(rows.items(), key=lambda item: (item[1].start, item[1].gpu_id)))


def _as_json(sheet: Sheet, rows: dict[int, Booking], now: datetime) -> str:
    import json  # noqa: PLC0415 - the other views start faster without it

    def described(line: int, booking: Booking) -> dict[str, object]:
        return {
            "line": line,
            "task_name": booking.task_name,
            "user": booking.user,
            "gpu_id": booking.gpu_id,
            "start_time": booking.start.isoformat(timespec="minutes"),
            "end_time": booking.end.isoformat(timespec="minutes"),
            "est_hours": booking.est_hours,
            "status": booking.status,
            "running": booking.covers(now),
        }

    bookings = [described(line, booking) for line, booking in rows.items()]
    problems = [{"line": line, "reason": reason} for line, reason in sheet.problems]
    return json.dumps({"bookings": bookings, "problems": problems}, indent=2)


def _check(sheet: Sheet, now: datetime) -> int:
    lines = check_lines(sheet, read_cards(), lambda user: in_group(user, names.MEMBERS_GROUP), now)
    if not lines:
        print(f"{sheet_path()}: {len(sheet.bookings)} bookings, nothing wrong")
        return 0
    print("\n".join(lines))
    return 1


def _week_lines(sheet: Sheet, now: datetime, start: str | None) -> list[str]:
    from ..rules import calendar_view  # noqa: PLC0415 - only this view needs it

    try:
        first = now.date() if start is None else read_time(f"{start} 00:00").date()
    except ValueError:
        raise InputError(f"--start {start!r} is not a date; write it as 2026-12-01") from None
    make = calendar_view.unicode_style if draws_utf8(sys.stdout.encoding, os.environ) else calendar_view.ascii_style
    style = make(_columns(), _painter()) if _colourful() else make(_columns())
    cards: Iterable[int] = read_cards() or ()
    return calendar_view.week(sheet.bookings, first, tuple(cards), now, style)


def _columns() -> int:
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isascii() and wanted.isdigit() and len(wanted) <= len("9999"):
        return int(wanted) or _DEFAULT_COLUMNS
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _DEFAULT_COLUMNS
    except (OSError, ValueError):
        return _DEFAULT_COLUMNS


def _colourful() -> bool:
    """Tell whether colour is welcome: on a terminal that knows it, unless NO_COLOR (no-color.org) is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _painter() -> Callable[[str, Booking], str]:
    me = caller()

    def paint(text: str, booking: Booking) -> str:
        mine = _MINE if booking.user == me else _OTHERS
        return f"\x1b[{mine if booking.active else _OVER}m{text}\x1b[0m"

    return paint


def draws_utf8(encoding: str, environ: Mapping[str, str]) -> bool:
    """Tell whether the terminal draws UTF-8.

    The encoding alone does not tell: Python turns the C locale into UTF-8 (PEP 538, which sets LC_CTYPE to C.UTF-8,
    and PEP 540).

    Args:
        encoding: of standard output.
        environ: the environment.
    """
    category = environ.get("LC_CTYPE", "")
    chosen = environ.get("LC_ALL") or ("" if category == "C.UTF-8" else category) or environ.get("LANG") or "C"
    return encoding.lower() in {"utf-8", "utf8"} and chosen not in {"C", "POSIX"}
