"""Who and what idle reclaim leaves alone, and when."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..errors import InputError
from ..names import UID_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .idle import Finding

_NOBODY = 65534
"""uid of nobody (Debian Policy 9.2.2)."""

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPAN = re.compile(r"(?:(?P<days>[a-z,-]+) +)?(?P<from>\d\d:\d\d)-(?P<to>\d\d:\d\d)")
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class Span:
    """A time of day on some days of the week; one that ends before it begins goes on into the next day.

    Attributes:
        days: on which it begins, Monday is 0.
        begin: minutes since midnight.
        end: likewise; 1440 for midnight.
    """

    days: frozenset[int]
    begin: int
    end: int

    def holds(self, when: datetime) -> bool:
        """Tell whether a moment of the server's wall clock is in it."""
        minute = when.hour * 60 + when.minute
        if self.begin < self.end:
            return when.weekday() in self.days and self.begin <= minute < self.end
        started_yesterday = minute < self.end and (when.weekday() - 1) % 7 in self.days
        return started_yesterday or (minute >= self.begin and when.weekday() in self.days)


def parse_span(text: str) -> Span:
    """Read `[DAYS ]HH:MM-HH:MM`, such as `22:00-08:00` or `sat,sun 00:00-24:00` or `mon-fri 12:00-14:00`.

    Raises:
        InputError: it is not written so.
    """
    match = _SPAN.fullmatch(text.strip())
    span = None if match is None else _span(match["days"] or "mon-sun", match["from"], match["to"])
    if span is None:
        raise InputError(f'time {text!r} is not understood; write it as "22:00-08:00" or "sat,sun 00:00-24:00"')
    return span


def _span(days: str, begin: str, end: str) -> Span | None:
    try:
        span = Span(_days(days), _minute(begin), _minute(end))
    except ValueError:
        return None
    return span if span.begin not in {span.end, _DAY_MINUTES} else None


def _minute(text: str) -> int:
    minutes = int(text[:2]) * 60 + int(text[3:])
    if int(text[3:]) > 59 or minutes > _DAY_MINUTES:  # noqa: PLR2004 - minutes of an hour
        raise ValueError
    return minutes


def _days(text: str) -> frozenset[int]:
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        days.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return frozenset(days)


@dataclass(frozen=True)
class Exemptions:
    """What is left alone.

    Attributes:
        users: account names.
        commands: patterns of program names (comm, at most 15 characters), such as `jupyter*`.
        cards: indexes or UUIDs.
        times: when no look counts.
        admins: account names of admins; empty when they are treated like everybody.
    """

    users: frozenset[str] = frozenset()
    commands: tuple[str, ...] = ()
    cards: frozenset[str] = frozenset()
    times: tuple[Span, ...] = ()
    admins: frozenset[str] = frozenset()

    def reason(self, finding: Finding) -> str:
        """Return why a holder is left alone, in a word; empty when it is not."""
        runner = finding.runner
        if runner.uid < UID_MIN or runner.uid == _NOBODY:
            return "system"
        if runner.user in self.admins:
            return "admin"
        if runner.user in self.users:
            return "user"
        if any(fnmatchcase(runner.command, pattern) for pattern in self.commands):
            return "command"
        if self.cards & {*map(str, finding.cards), *finding.uuids}:
            return "card"
        return ""

    def counts(self, at: int) -> bool:
        """Tell whether a look at a time, seconds since 1970, counts; days and hours are the server's own."""
        if not self.times:
            return True
        when = datetime.fromtimestamp(at)  # noqa: DTZ006 - the server's wall clock is meant
        return not any(span.holds(when) for span in self.times)


def exemptions(
    *,
    users: Sequence[str],
    commands: Sequence[str],
    cards: Sequence[str],
    times: Sequence[str],
    admins: Sequence[str],
) -> Exemptions:
    """Collect what the settings and the groups say.

    Raises:
        InputError: a time is not understood.
    """
    return Exemptions(
        frozenset(users), tuple(commands), frozenset(cards), tuple(map(parse_span, times)), frozenset(admins)
    )
