"""Which time a report is about, from what people type. Days and months are those of the server's clock on the wall."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ..errors import InputError
from .usage import Period

_LAST = re.compile(r"([1-9]\d{0,3})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_MONTH = re.compile(r"(\d{4})-(\d{2})")
_DECEMBER = 12


def last(text: str, now: datetime) -> Period:
    """Return the time up to now: `36h`, `14d`, `2w`.

    Args:
        text: a number and a unit.
        now: server time, naive.

    Raises:
        InputError: it is not of that form.
    """
    found = _LAST.fullmatch(text)
    if found is None:
        raise InputError(f"--last is {text!r}; give hours, days or weeks, such as 36h, 14d or 2w")
    hours = int(found[1]) * _HOURS[found[2]]
    return Period(_seconds(now - timedelta(hours=hours)), _seconds(now))


def month(text: str, now: datetime) -> Period:
    """Return a whole month, `2026-11` or `last`; the present one up to now.

    Args:
        text: the month.
        now: server time, naive.

    Raises:
        InputError: it is no month, or one to come.
    """
    if text == "last":
        first = (now.replace(day=1) - timedelta(days=1)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    else:
        found = _MONTH.fullmatch(text)
        if found is None or not 1 <= int(found[2]) <= _DECEMBER or int(found[1]) < 1970:  # noqa: PLR2004 - the epoch
            raise InputError(f"--month is {text!r}; write it as 2026-11, or `last`")
        first = datetime(int(found[1]), int(found[2]), 1)  # noqa: DTZ001 - the server's own time
    following = (first + timedelta(days=31)).replace(day=1)
    return _period(first, min(following, now), f"--month {text}")


def between(begin: str, end: str, now: datetime) -> Period:
    """Return the days from one to another, both of them included; an empty end is today.

    Args:
        begin: such as 2026-11-01.
        end: likewise, or empty.
        now: server time, naive.

    Raises:
        InputError: a day is none, or they are the wrong way round.
    """
    last_day = _day(end, "--to") if end else now
    return _period(_day(begin, "--from"), min(_midnight(last_day) + timedelta(days=1), now), f"--from {begin}")


def _midnight(day: datetime) -> datetime:
    return day.replace(hour=0, minute=0, second=0, microsecond=0)


def _day(text: str, option: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d")  # noqa: DTZ007 - the server's own time
    except ValueError:
        raise InputError(f"{option} is {text!r}; write a day as 2026-11-01") from None


def _period(begin: datetime, end: datetime, what: str) -> Period:
    if begin >= end:
        raise InputError(f"{what}: nothing of that time has passed yet")
    return Period(_seconds(begin), _seconds(end))


def _seconds(when: datetime) -> int:
    return int(when.timestamp())
