"""Golden hours: which kind of work the hours of the week are meant for, as one table for every tier.

All times are naive and mean the server's own clock on the wall, as in the booking sheet: a window from 08:00 to 12:00
begins when the clock shows 08:00, summer and winter. In the night of a clock change a window is an hour shorter or
longer, one that lies wholly within the skipped hour does not happen, and the repeated hour belongs to it twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from .window_table import CLASSES, DAY, DEFAULT_TABLE, OUTSIDE_WEIGHT, WEEK, Window, as_raw, parse_windows
from .window_words import day_words, judgement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = [
    "CLASSES",
    "DEFAULT_TABLE",
    "OK",
    "OUTSIDE_WEIGHT",
    "REFUSE",
    "WARN",
    "Verdict",
    "Window",
    "as_raw",
    "class_at",
    "next_change",
    "parse_windows",
    "rows",
    "touched",
    "verdict",
    "weight_at",
]

OK = "ok"
WARN = "warn"
REFUSE = "refuse"


@dataclass(frozen=True)
class Verdict:
    """What the table says about a job.

    Attributes:
        kind: OK, WARN or REFUSE.
        window: the window that judged; None when the job touches none.
        en: the rule that is broken, and from when on the job fits, in English; empty when the kind is OK.
        zh: likewise in Chinese.
    """

    kind: str = OK
    window: Window | None = None
    en: str = ""
    zh: str = ""

    def rule(self, language: str) -> str:
        """Return the sentence in a language, `en` or `zh`."""
        return self.zh if language == "zh" else self.en


def class_at(windows: Collection[Window], when: datetime) -> Window | None:
    """Return the window that a moment belongs to; None outside every window.

    Args:
        windows: the table.
        when: server time, naive.
    """
    minute = _minute(when)
    return next((window for window in windows if window.covers(minute)), None)


def weight_at(windows: Collection[Window], when: datetime) -> float:
    """Return the factor of the submission priority at a moment (server time, naive)."""
    window = class_at(windows, when)
    return OUTSIDE_WEIGHT if window is None else window.weight


def next_change(windows: Collection[Window], when: datetime) -> datetime | None:
    """Return when a window begins or ends next, later than a moment; None without windows.

    Args:
        windows: the table.
        when: server time, naive.
    """
    return next(_edges(windows, when), None)


def touched(windows: Collection[Window], start: datetime, hours: float | None = None) -> Window | None:
    """Return the window that judges a job: the one it starts in, or else the first one that it runs into.

    A job that began in a window of its own kind may run on through the next ones, as a long training does. Without the
    second half of the rule, one minute before the window would be as good as no window.

    Args:
        windows: the table.
        start: server time, naive.
        hours: how long it is meant to run; None when unknown, then only the start counts.
    """
    window = class_at(windows, start)
    if window is not None or hours is None:
        return window
    edge = next_change(windows, start)  # outside every window the next change is a beginning
    return class_at(windows, edge) if edge is not None and edge < start + timedelta(hours=hours) else None


def verdict(
    windows: Collection[Window], *, cards: int, start: datetime, hours: float | None = None, strict: bool = False
) -> Verdict:
    """Judge a job by the table.

    Args:
        windows: the table.
        cards: how many cards it takes.
        start: when it starts, server time, naive.
        hours: how long it is meant to run; None when unknown, which breaks no rule about length.
        strict: whether a broken rule refuses the job; otherwise it warns.
    """
    window = touched(windows, start, hours)
    if window is None or _fits(window, cards, hours):
        return Verdict(window=window)
    better = next(
        (edge for edge in _edges(windows, start) if _fits(touched(windows, edge, hours), cards, hours)),
        None,
    )
    kind = REFUSE if strict else WARN
    return Verdict(kind, window, *judgement(window, cards=cards, job_hours=hours, start=start, better=better))


def rows(windows: Iterable[Window]) -> list[dict[str, Any]]:
    """Return the table as pages show it: hours and days in words, None where there is no limit."""
    return [
        {
            "name": window.name,
            "hours": window.hours,
            **dict(zip(("days_en", "days_zh"), day_words(window.days), strict=True)),
            "class": window.work,
            "max_cards": window.max_cards,
            "max_hours": window.max_hours,
            "weight": window.weight,
            "en": window.en,
            "zh": window.zh,
        }
        for window in windows
    ]


def _fits(window: Window | None, cards: int, hours: float | None) -> bool:
    if window is None:
        return True
    few = window.max_cards is None or cards <= window.max_cards
    return few and (window.max_hours is None or hours is None or hours <= window.max_hours)


def _minute(when: datetime) -> int:
    return when.weekday() * DAY + when.hour * 60 + when.minute


def _edges(windows: Collection[Window], when: datetime) -> Iterator[datetime]:
    """Yield the beginnings and ends of the coming week, ascending."""
    now = _minute(when)
    marks = {mark for window in windows for start in window.starts for mark in (start, start + window.length)}
    ahead = sorted({(mark - now) % WEEK or WEEK for mark in marks})
    this_minute = when.replace(second=0, microsecond=0)
    yield from (this_minute + timedelta(minutes=minutes) for minutes in ahead)
