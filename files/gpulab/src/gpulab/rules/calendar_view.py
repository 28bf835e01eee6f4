"""Calendars for terminals: one line per day and card, a bar for each booking, all within a given width."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING

from .booking import CANCELLED, Booking, show_span
from .display import fit, printable, width

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

DAYS = 7
_LABEL = 15  # "Mon 2026-12-01 "
_CELLS_PER_DAY = (144, 96, 48)
_FEWEST_CELLS = 24
_RULER_HOURS = 3
_BRACKETS = 2
_MOST_NOTES = 30


@dataclass(frozen=True)
class Style:
    """How to draw.

    Attributes:
        columns: terminal width.
        free: one character for free time.
        now: one character for this moment where the card is free.
        fill: one character that fills the bar of a booking.
        over: likewise for one that is done.
        dot: one character for a booking too short for a bar.
        paint: adds colour to a bar; gets its text and the booking.
    """

    columns: int
    free: str
    now: str
    fill: str
    over: str
    dot: str
    paint: Callable[[str, Booking], str]


def _unpainted(text: str, _: Booking) -> str:
    return text


def ascii_style(columns: int, paint: Callable[[str, Booking], str] = _unpainted) -> Style:
    """Return the style for terminals that may not know more than ASCII."""
    return Style(columns, free=".", now="|", fill="=", over="-", dot="#", paint=paint)


def unicode_style(columns: int, paint: Callable[[str, Booking], str] = _unpainted) -> Style:
    """Return the style for terminals that draw UTF-8."""
    return Style(columns, free="·", now="│", fill="━", over="╌", dot="■", paint=paint)


def ranges(numbers: Iterable[int]) -> str:
    """Write whole numbers in short, such as `0-2,5`."""
    groups: list[list[int]] = []
    for number in sorted(set(numbers)):
        if groups and number == groups[-1][1] + 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in groups)


def week(bookings: Collection[Booking], first: date, cards: Collection[int], now: datetime, style: Style) -> list[str]:
    """Draw seven days.

    Args:
        bookings: any; cancelled ones are not drawn.
        first: the first day.
        cards: cards to show besides those with bookings.
        now: server time.
        style: how to draw.

    Returns:
        The lines.
    """
    start = datetime.combine(first, time())
    shown = [b for b in bookings if b.status != CANCELLED and b.start < start + timedelta(DAYS) and b.end > start]
    everything = sorted({*cards, *(b.gpu_id for b in shown)})
    last = first + timedelta(DAYS - 1)
    lines = [f"{first:%a %Y-%m-%d} to {last:%a %Y-%m-%d}; on this server it is now {now:%a %Y-%m-%d %H:%M}"]
    cells = next((n for n in _CELLS_PER_DAY if _LABEL + n < style.columns), _FEWEST_CELLS)
    notes: list[Booking] = []
    for offset in range(DAYS):
        midnight = start + timedelta(offset)
        lines += _day(shown, midnight, everything, now, cells, style, notes)
    return lines + _notes(notes)


def _day(
    bookings: Sequence[Booking],
    midnight: datetime,
    cards: Sequence[int],
    now: datetime,
    cells: int,
    style: Style,
    notes: list[Booking],
) -> list[str]:
    today = [b for b in bookings if b.start < midnight + timedelta(1) and b.end > midnight]
    busy = sorted({b.gpu_id for b in today})
    idle = [card for card in cards if card not in busy]
    label = f"{midnight:%a %Y-%m-%d} "
    if not busy:
        return [f"{label}{'all cards free' if cards else 'no bookings'}"]
    lines = [label + _ruler(cells)]
    for card in busy:
        mine = sorted((b for b in today if b.gpu_id == card), key=lambda b: b.start)
        lines.append(fit(f"  card {card}", _LABEL) + _row(mine, midnight, now, cells, style, notes))
    if idle:
        lines.append(fit(f"  card {ranges(idle)}", _LABEL) + "free all day")
    return lines


def _ruler(cells: int) -> str:
    step = cells * _RULER_HOURS // 24
    return "".join(fit(str(hour), step) for hour in range(0, 24, _RULER_HOURS)).rstrip()


def _row(
    bookings: Sequence[Booking], midnight: datetime, now: datetime, cells: int, style: Style, notes: list[Booking]
) -> str:
    cell = timedelta(1) / cells
    at_now = (now - midnight) // cell
    parts: list[str] = []
    used = 0
    for booking in bookings:
        begin = max(used, (booking.start - midnight) // cell)
        finish = min(cells, -((midnight - booking.end) // cell))
        length = finish - begin
        if length > 0:
            parts += [style.now if place == at_now else style.free for place in range(used, begin)]
            parts.append(style.paint(_bar(booking, length, midnight, style), booking))
            used = finish
        if length < width(_name(booking)) + _BRACKETS and booking not in notes:
            notes.append(booking)
    parts += [style.now if place == at_now else style.free for place in range(used, cells)]
    return "".join(parts)


def _name(booking: Booking) -> str:
    return printable(f"{booking.user} {booking.task_name}")


def _bar(booking: Booking, length: int, midnight: datetime, style: Style) -> str:
    fill = style.fill if booking.active else style.over
    if length == 1:
        return style.dot
    left = "[" if booking.start >= midnight else fill
    right = "]" if booking.end <= midnight + timedelta(1) else fill
    room = length - _BRACKETS
    name = _name(booking)
    size = width(name)
    inside = name + fill * (room - size) if size <= room else fit(name, room)
    return left + inside + right


def _notes(bookings: Sequence[Booking]) -> list[str]:
    if not bookings:
        return []
    ordered = sorted(bookings, key=lambda b: (b.start, b.gpu_id))
    lines = ["In full:"]
    lines += [f"  card {b.gpu_id}  {show_span(b.start, b.end)}  {_name(b)}" for b in ordered[:_MOST_NOTES]]
    if len(ordered) > _MOST_NOTES:
        lines.append(f"  and {len(ordered) - _MOST_NOTES} more; `gpu-schedule list` shows them")
    return lines
