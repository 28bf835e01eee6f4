"""What `gpu-schedule` says about the sheet: lists and findings as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .booking import TIME_FORMAT, collisions, duration, earliest_start, minute, show_span
from .display import fit, printable, width

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from .booking import Booking
    from .sheet import Sheet


def list_lines(bookings: Iterable[Booking], now: datetime) -> list[str]:
    """Lay out bookings as a table, the name of the task last because it may be long.

    Args:
        bookings: in the order to show.
        now: server time.
    """
    rows = [("CARD", "START", "END", "USER", "STATUS", "TASK")]
    rows += [
        (
            f"{booking.gpu_id:>4}",
            f"{booking.start:{TIME_FORMAT}}",
            f"{booking.end:{TIME_FORMAT}}",
            booking.user,
            _state(booking, now),
            printable(booking.task_name),
        )
        for booking in bookings
    ]
    return _table(rows) if len(rows) > 1 else ["no bookings; `gpu-schedule add --help` says how to make one"]


def _state(booking: Booking, now: datetime) -> str:
    if booking.covers(now):
        return "running"
    return "over" if booking.active and booking.end <= now else booking.status


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return ["  ".join([*(fit(cell, size) for cell, size in zip(row, widths, strict=False)), row[-1]]) for row in rows]


def free_lines(bookings: Collection[Booking], cards: Iterable[int], hours: float, now: datetime) -> list[str]:
    """Say when each card is free for long enough, and until when.

    Args:
        bookings: all there are.
        cards: the cards asked about; none when it is not known which cards there are.
        hours: how long.
        now: server time.

    Raises:
        InputError: hours is no length of time.
    """
    length = duration(hours)
    rows = [("CARD", f"FREE FOR {hours:g} H FROM", "UNTIL")]
    for card in sorted(set(cards)):
        this_minute = minute(now)
        start = earliest_start(bookings, [card], length, not_before=this_minute)
        later = [b.start for b in bookings if b.active and b.gpu_id == card and b.start >= start]
        shown = "now" if start == this_minute else f"{start:{TIME_FORMAT}}"
        rows.append((f"{card:>4}", shown, f"{min(later):{TIME_FORMAT}}" if later else "further notice"))
    return _table(rows) if len(rows) > 1 else ["no booking so far, so every card is free; name one with --gpu"]


def check_lines(
    sheet: Sheet, cards: Collection[int] | None, is_member: Callable[[str], bool], now: datetime
) -> list[str]:
    """Say what is wrong with the sheet, by line.

    Bookings that are over are only read, not judged: who left and cards that were taken out are history.

    Args:
        sheet: as it was read.
        cards: the server's cards; None when unknown.
        is_member: tells whether an account may have bookings.
        now: server time.

    Returns:
        One line for each finding in order; empty when there is none.
    """
    found: list[tuple[int, str]] = list(sheet.problems)
    ahead = {line: booking for line, booking in sheet.by_line.items() if booking.active and booking.end > now}
    for line, booking in ahead.items():
        if not is_member(booking.user):
            found.append((line, f"{booking.user} is no member of the lab"))
        if cards is not None and booking.gpu_id not in cards:
            found.append((line, f"this server has no card {booking.gpu_id}"))
    for first, second in collisions(ahead):
        one, other = ahead[first], ahead[second]
        found.append((second, f"overlaps line {first} on card {one.gpu_id}: {_whose(other)} and {_whose(one)}"))
    return [f"line {line}: {reason}" for line, reason in sorted(found)]


def _whose(booking: Booking) -> str:
    return f"{booking.user}'s '{printable(booking.task_name)}' ({show_span(booking.start, booking.end)})"
