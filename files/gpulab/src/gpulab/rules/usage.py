"""Who used the cards, and how well: sums over what was recorded, whichever tier recorded it.

A stretch of time in which somebody had a card counts, clipped to the period, as GPU time: a card alone for an hour is
one GPU-hour; a card that several people are on is shared equally between them, so the members' hours never add up to
more than the cards have. Means are weighted by that time. What could not be measured is left out of a mean and shown as
unmeasured; it never counts as idle.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from .windows import class_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from .windows import Window

HOUR = 3600
WEEK_HOURS = 7 * 24
OUTSIDE = ""
"""Stands for the hours that no window covers."""

_P95 = 0.95
_QUARTER = 900
"""Seconds; clocks change, and zones differ, by whole quarters of an hour."""


def local(at: float) -> datetime:
    """Return the server's time on the wall at a moment, naive; the repeated hour of a clock change has fold 1."""
    return datetime.fromtimestamp(at)  # noqa: DTZ006 - the week that people see is that of the wall clock


@dataclass(frozen=True)
class Period:
    """The time that a report is about.

    Attributes:
        begin: first second, seconds since 1970.
        end: the second after its last.
    """

    begin: int
    end: int

    @property
    def seconds(self) -> int:
        """How long it is."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Stretch:
    """Somebody had cards from one moment to another.

    Attributes:
        user: account name.
        run: names the job, lease or process; the same for all stretches of one.
        place: the card, or the node whose cards these are.
        begin: seconds since 1970.
        end: seconds since 1970; not before the beginning.
        cards: how many cards, or which part of one.
        load: percent of the time in which their kernels ran; None when nobody measured it.
    """

    user: str
    run: str
    place: str
    begin: float
    end: float
    cards: float = 1.0
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """A place was watched, so that an empty hour there means an empty hour.

    Attributes:
        place: as in Stretch.
        begin: seconds since 1970.
        end: seconds since 1970.
        cards: how many cards it has.
    """

    place: str
    begin: float
    end: float
    cards: float = 1.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody asked for cards and got them.

    Attributes:
        user: account name.
        asked: when, seconds since 1970.
        seconds: until the cards were there.
    """

    user: str
    asked: float
    seconds: float


@dataclass(frozen=True)
class Waits:
    """Some waits in numbers.

    Attributes:
        count: how many.
        mean: seconds; None without any.
        p95: the shortest wait that 95 % do not exceed (nearest rank), seconds; None without any.
    """

    count: int = 0
    mean: float | None = None
    p95: float | None = None


@dataclass(frozen=True)
class MemberUse:
    """What one member used.

    Attributes:
        user: account name.
        runs: jobs, leases or processes that had cards.
        gpu_hours: see the module.
        share: part of all GPU-hours used, 0 to 1.
        waits: how long it took to get cards.
        utilisation: mean percent while cards were held; None when nothing of it was measured.
        measured: part of the GPU-hours whose utilisation was measured, 0 to 1.
        idle_hours: measured GPU-hours below the limit of idle reclaim.
    """

    user: str
    runs: int
    gpu_hours: float
    share: float
    waits: Waits
    utilisation: float | None
    measured: float
    idle_hours: float


@dataclass(frozen=True)
class PlaceUse:
    """How occupied one card, or the cards of one node, was.

    Attributes:
        place: as in Stretch.
        cards: how many cards, as last watched.
        occupancy: part of the watched time in use, 0 to 1, by hour of the week from Monday 00:00 on; None where it was
            not watched.
        total: likewise over the whole period.
    """

    place: str
    cards: float
    occupancy: tuple[float | None, ...]
    total: float | None


@dataclass(frozen=True)
class WindowUse:
    """One golden hour in use.

    Attributes:
        name: of the window; OUTSIDE for all other hours.
        waits: of those who asked in it.
        occupancy: part of the watched card time in it that was used; None when it was not watched.
    """

    name: str
    waits: Waits
    occupancy: float | None


@dataclass(frozen=True)
class Usage:
    """A report in numbers.

    Attributes:
        period: what it is about.
        members: everybody who had a card or asked for one, most GPU-hours first.
        places: every place that was watched or used, by name.
        windows: each window of the table, in its order, and the rest of the week.
        gpu_hours: used by all.
        watched_hours: card hours that were watched.
    """

    period: Period
    members: tuple[MemberUse, ...]
    places: tuple[PlaceUse, ...]
    windows: tuple[WindowUse, ...]
    gpu_hours: float
    watched_hours: float


@dataclass(slots=True)
class _Member:
    runs: set[str] = field(default_factory=set)
    held: float = 0.0
    measured: float = 0.0
    load: float = 0.0
    idle: float = 0.0
    waits: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Place:
    cards: float = 1.0
    used: list[float] = field(default_factory=lambda: [0.0] * WEEK_HOURS)
    watched: list[float] = field(default_factory=lambda: [0.0] * WEEK_HOURS)


class Tally:
    """Adds up what is shown to it, in any order.

    Args:
        period: what lies outside is cut off.
        windows: the golden hours.
        idle_percent: below this much load a card is held idle.
        clock: the time on the wall at a moment.
    """

    def __init__(
        self,
        period: Period,
        windows: Collection[Window] = (),
        idle_percent: float = 5.0,
        clock: Callable[[float], datetime] = local,
    ) -> None:
        """Begin at nothing."""
        self._period = period
        self._windows = windows
        self._idle = idle_percent
        self._hours = _Hours(clock, windows)
        self._clock = clock
        self._members: defaultdict[str, _Member] = defaultdict(_Member)
        self._places: defaultdict[str, _Place] = defaultdict(_Place)
        self._window_waits: defaultdict[str, list[float]] = defaultdict(list)
        self._window_used: defaultdict[str, float] = defaultdict(float)
        self._window_watched: defaultdict[str, float] = defaultdict(float)

    def had(self, stretch: Stretch) -> None:
        """Add a stretch."""
        begin, end = max(stretch.begin, self._period.begin), min(stretch.end, self._period.end)
        if begin >= end:
            return
        member = self._members[stretch.user]
        member.runs.add(stretch.run)
        time = (end - begin) * stretch.cards
        member.held += time
        if stretch.load is not None:
            member.measured += time
            member.load += time * stretch.load
            if stretch.load < self._idle:
                member.idle += time
        used = self._places[stretch.place].used
        for hour, name, seconds in self._split(begin, end):
            used[hour] += seconds * stretch.cards
            self._window_used[name] += seconds * stretch.cards

    def watched(self, watch: Watch) -> None:
        """Add that a place was watched."""
        begin, end = max(watch.begin, self._period.begin), min(watch.end, self._period.end)
        if begin >= end:
            return
        place = self._places[watch.place]
        place.cards = watch.cards
        for hour, name, seconds in self._split(begin, end):
            place.watched[hour] += seconds * watch.cards
            self._window_watched[name] += seconds * watch.cards

    def waited(self, wait: Wait) -> None:
        """Add a wait; it belongs to the period in which it ended."""
        if self._period.begin <= wait.asked + wait.seconds < self._period.end:
            self._members[wait.user].waits.append(wait.seconds)
            self._window_waits[self._window(wait.asked)].append(wait.seconds)

    def total(self) -> Usage:
        """Return the sums."""
        held = sum(member.held for member in self._members.values())
        members = [
            MemberUse(
                user,
                len(member.runs),
                member.held / HOUR,
                member.held / held if held else 0.0,
                waits_of(member.waits),
                member.load / member.measured if member.measured else None,
                member.measured / member.held if member.held else 0.0,
                member.idle / HOUR,
            )
            for user, member in self._members.items()
        ]
        places = [
            PlaceUse(
                name,
                place.cards,
                tuple(map(_part, place.used, place.watched)),
                _part(sum(place.used), sum(place.watched)),
            )
            for name, place in self._places.items()
        ]
        names = [*(window.name for window in self._windows), OUTSIDE]
        return Usage(
            self._period,
            tuple(sorted(members, key=lambda member: (-member.gpu_hours, member.user))),
            tuple(sorted(places, key=lambda place: place.place)),
            tuple(
                WindowUse(
                    name,
                    waits_of(self._window_waits[name]),
                    _part(self._window_used[name], self._window_watched[name]),
                )
                for name in names
            ),
            held / HOUR,
            sum(sum(place.watched) for place in self._places.values()) / HOUR,
        )

    def _split(self, begin: float, end: float) -> Iterator[tuple[int, str, float]]:
        """Cut a stretch where the hour or the window changes: hour of the week, window, seconds."""
        while begin < end:
            for first, last, hour, name in self._hours.at(begin):
                if first <= begin < last:
                    until = min(last, end)
                    yield hour, name, until - begin
                    begin = until
                    if begin >= end:
                        break

    def _window(self, at: float) -> str:
        window = class_at(self._windows, self._clock(at))
        return OUTSIDE if window is None else window.name


class _Hours:
    """The hours of the wall clock, each cut at the minutes at which windows begin or end."""

    def __init__(self, clock: Callable[[float], datetime], windows: Collection[Window]) -> None:
        self._clock = clock
        self._windows = windows
        self._marks = sorted({mark % 60 for window in windows for mark in (window.begin, window.end)} | {0, 60})
        self._known: dict[float, tuple[tuple[float, float, int, str], ...]] = {}

    def at(self, moment: float) -> tuple[tuple[float, float, int, str], ...]:
        """Return the parts of the hour that a moment is in: begin, end, hour of the week, window."""
        quarter = moment // _QUARTER
        found = self._known.get(quarter)
        if found is None:
            found = self._known[quarter] = tuple(self._parts(quarter * _QUARTER))
        return found

    def _parts(self, moment: float) -> Iterator[tuple[float, float, int, str]]:
        when = self._clock(moment)
        begin = moment - when.minute * 60 - when.second
        for first, last in pairwise(self._marks):
            window = class_at(self._windows, when.replace(minute=first))
            name = OUTSIDE if window is None else window.name
            yield begin + first * 60, begin + last * 60, when.weekday() * 24 + when.hour, name


def waits_of(seconds: Sequence[float]) -> Waits:
    """Put waits into numbers."""
    if not seconds:
        return Waits()
    ranked = sorted(seconds)
    return Waits(len(ranked), math.fsum(ranked) / len(ranked), ranked[math.ceil(_P95 * len(ranked)) - 1])


def _part(used: float, watched: float) -> float | None:
    """Return the used part of watched time; what was used unwatched is no more than all of it."""
    return min(1.0, used / watched) if watched else None
