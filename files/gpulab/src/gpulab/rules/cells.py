"""Single cells of the booking sheet, as people and spreadsheet programs write them.

Each reader raises ValueError with a sentence that says what is wrong with the cell and what is expected. Full-width
digits and signs, as Chinese keyboards produce them, are read like the ordinary ones (Unicode NFKC).
"""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from .booking import BOOKED, CANCELLED, MAX_CARDS, STATUSES, TIME_FORMAT, Booking
from .display import printable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

HEADER = ("task_name", "user", "gpu_id", "start_time", "end_time", "est_hours", "status")

_TIME = re.compile(
    r"(?P<year>\d{4})\s*[-/.年]\s*(?P<month>\d{1,2})\s*[-/.月]\s*(?P<day>\d{1,2})\s*日?"
    r"(?:[T\s]\s*|(?<=日))(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::\d{2}(?:\.\d+)?)?",
    re.ASCII,
)
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}", re.ASCII)
_CARD = re.compile(r"[0-9]{1,4}")
_HOURS = re.compile(r"(?=[0-9.]*[0-9])[0-9]{0,6}(\.[0-9]{0,6})?")
_YEARS = range(2000, 2200)
_SHOWN = 40
LONGEST_NAME = 200
"""Longest task name that is read from a hand-edited row, characters; `add` is stricter."""


def plain(text: str) -> str:
    """Return a cell without surrounding space, full-width forms made ordinary."""
    return text.strip() if text.isascii() else unicodedata.normalize("NFKC", text).strip()


def _shown(text: str) -> str:
    return f"'{printable(text.strip(), _SHOWN)}'"


def read_time(text: str) -> datetime:
    """Read a time to the minute; seconds are cut off and 24:00 is the next midnight.

    Raises:
        ValueError: it is not a time with the year first, or no such day exists.
    """
    match = _TIME.fullmatch(plain(text))
    if match is None:
        raise ValueError(f"{_shown(text)} is not a time; write it as 2026-12-01 09:00, year first")
    year, month, day, hour, minute = (int(match[part]) for part in ("year", "month", "day", "hour", "minute"))
    moment = _moment(year, month, day, hour, minute)
    if moment is None:
        raise ValueError(f"{_shown(text)} names a day or time that does not exist")
    return moment


def _moment(year: int, month: int, day: int, hour: int, minute: int) -> datetime | None:
    next_day, hour = (1, 0) if (hour, minute) == (24, 0) else (0, hour)
    try:
        moment = datetime(year, month, day, hour, minute)  # noqa: DTZ001 - the sheet holds naive server time
    except ValueError:
        return None
    return moment + timedelta(days=next_day) if year in _YEARS else None


def read_user(text: str) -> str:
    """Read an account name.

    Raises:
        ValueError: no account can be called that (useradd(8), NAME_REGEX).
    """
    name = plain(text)
    if not name:
        raise ValueError("is empty; write the member's account name")
    if not _USER.fullmatch(name):
        raise ValueError(f"{_shown(text)} is not an account name; write it as the member logs in, such as alice")
    return name


def read_card(text: str) -> int:
    """Read a card number.

    Raises:
        ValueError: it is not one number in the possible range.
    """
    digits = plain(text)
    if not _CARD.fullmatch(digits) or int(digits) >= MAX_CARDS:
        raise ValueError(f"{_shown(text)} is not a card; write one number per row, 0 to {MAX_CARDS - 1}")
    return int(digits)


def read_hours(text: str) -> float:
    """Read hours; a decimal comma is understood.

    Raises:
        ValueError: it is not a number above 0.
    """
    number = plain(text).replace(",", ".")
    hours = float(number) if _HOURS.fullmatch(number) else 0.0
    if hours <= 0:
        raise ValueError(f"{_shown(text)} is not a number of hours; write one such as 2 or 1.5")
    return hours


def read_status(text: str) -> str:
    """Read a status; an empty cell is a booking that nobody marked otherwise.

    Raises:
        ValueError: it is another word.
    """
    word = plain(text).lower() or BOOKED
    if word == "canceled":  # the other spelling
        return CANCELLED
    if word not in STATUSES:
        raise ValueError(f"{_shown(text)} is not a status; write {', '.join(STATUSES[:-1])} or {STATUSES[-1]}")
    return word


def read_task_name(text: str) -> str:
    """Read a task name from the sheet; a leading `=` is a spreadsheet's business and only refused by `add`.

    Raises:
        ValueError: empty, far too long, or not text.
    """
    name = text.strip()
    if not name:
        raise ValueError("is empty; write what the card is for")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"{_shown(text)} is longer than {LONGEST_NAME} characters; shorten it")
    if any(unicodedata.category(char) in {"Cc", "Cs"} for char in name):
        raise ValueError(f"{_shown(text)} holds control characters or broken text; write it anew")
    return name


def read_booking(values: tuple[str, ...]) -> Booking:
    """Read a whole row.

    Args:
        values: the cells in the order of HEADER.

    Raises:
        ValueError: the first thing that is wrong, with the column's name.
    """
    task_name, user, card, start, end, hours, status = values
    begin = _named("start_time", read_time, start)
    finish = _named("end_time", read_time, end)
    if finish <= begin:
        raise ValueError(f"end_time {_shown(end)} is not later than start_time")
    # An empty estimate is what the times say, to the hundredth.
    estimate = _named("est_hours", read_hours, hours) if hours.strip() else _hours_between(begin, finish)
    return Booking(
        task_name=_named("task_name", read_task_name, task_name),
        user=_named("user", read_user, user),
        gpu_id=_named("gpu_id", read_card, card),
        start=begin,
        end=finish,
        est_hours=estimate,
        status=_named("status", read_status, status),
    )


def _hours_between(start: datetime, end: datetime) -> float:
    return round((end - start) / timedelta(hours=1), 2)


def _named(column: str, reader: Callable[[str], T], text: str) -> T:
    try:
        return reader(text)
    except ValueError as error:
        raise ValueError(f"{column} {error}") from None


def write_booking(booking: Booking) -> tuple[str, ...]:
    """Write a row's cells in the order of HEADER."""
    return (
        booking.task_name,
        booking.user,
        str(booking.gpu_id),
        booking.start.strftime(TIME_FORMAT),
        booking.end.strftime(TIME_FORMAT),
        f"{booking.est_hours:.6f}".rstrip("0").rstrip("."),
        booking.status,
    )
