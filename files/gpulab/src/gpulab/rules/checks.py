"""What check_gpu finds when it compares the booking sheet with the processes on the cards.

One look gives the set of events that hold now; which of them are news is the business of rules/episodes.py. Nothing
here ends a process, and nothing unknown counts as idle, as free or as over.

Bookings are written in the server's own wall clock time. They are compared as instants (`datetime.timestamp`), so that
the hour that is lived twice when summer time ends does not let a booking begin or end twice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from . import sightings
from .booking import CANCELLED, collisions
from .cells import HEADER, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from ..settings import Checks
    from .booking import Booking
    from .cards import Card, Cards
    from .sheet import Row, Sheet
    from .sightings import Boot, Sighting

SOON = "soon"
RUNNING = "running"
UNUSED = "unused"
OVERRUN = "overrun"
UNBOOKED = "unbooked"
OCCUPIED = "occupied"
STRANGER = "stranger"
CARD = "card"
NO_CARDS = "no-cards"
BAD_ROW = "bad-row"
NO_MEMBER = "no-member"
NO_SUCH_CARD = "no-such-card"
OVERLAP = "overlap"
SHEET = "sheet"
STATE = "state"

KINDS = (
    OVERRUN, OCCUPIED, UNBOOKED, STRANGER, UNUSED, RUNNING, SOON,
    NO_CARDS, CARD, SHEET, OVERLAP, NO_MEMBER, NO_SUCH_CARD, BAD_ROW, STATE,
)  # fmt: skip
"""Every kind of event, what matters most first."""

UNCOVERED = "uncovered"
"""First part of the key of overrun and unbooked events: both are one episode, however it is called meanwhile."""

Key = tuple[str, ...]
"""What makes an event the same one in the next run: kind, account that is told, card or `-`, and what it is about."""

_SAME_WORK_SECONDS = 24 * 3600
"""So long after a booking its owner's processes on the card are taken for the same work going on."""

_MAX_PAIRS = 100
"""Overlapping pairs told at once: a sheet that somebody pasted over itself has more pairs than anybody can read."""


@dataclass(frozen=True)
class Event:
    """Something that somebody should know.

    Attributes:
        kind: one of KINDS.
        recipient: account name of the person to tell.
        key: identity over runs.
        gpu_id: the card; None when it is not about one.
        booking: the booking it is about: the recipient's own, or the row that is wrong.
        user: account the event is about when that is not the recipient; empty otherwise.
        cover: somebody else's booking: who has the card now or next, or the other of two overlapping rows.
        processes: what was seen on the card, in order of pid.
        lines: lines of the sheet: of `booking`, then of `cover`.
        reason: why, one sentence (for STATE the file to look at); empty when the kind says it all.
    """

    kind: str
    recipient: str
    key: Key
    gpu_id: int | None = None
    booking: Booking | None = None
    user: str = ""
    cover: Booking | None = None
    processes: tuple[Sighting, ...] = ()
    lines: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Situation:
    """One look at the lab.

    Attributes:
        now: the server's wall clock time, naive.
        cards: what NVML said.
        boot: when the machine started.
        sheet: the bookings; None when they are not known, or not used in this tier.
        sheet_problem: why the sheet cannot be read, one sentence; empty otherwise.
        bindings: account name to UUID of the MIG instance that is theirs, for which they need no booking.
        members: account names of the present members.
        admin: account name of the person who is told about the machine.
        limits: when to speak up.
    """

    now: datetime
    cards: Cards
    boot: Boot
    sheet: Sheet | None
    members: frozenset[str]
    admin: str
    limits: Checks
    sheet_problem: str = ""
    bindings: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def bookings(self) -> dict[int, Booking]:
        """The good rows by line number."""
        return self.sheet.by_line if self.sheet else {}


@dataclass(frozen=True)
class Findings:
    """The events that hold, and what could not be decided.

    Attributes:
        events: in order of KINDS, no key twice.
        clear: cards whose processes and their owners are all known.
        readable: cards that NVML answers for.
        bookings_known: False when the sheet could not be read.
    """

    events: tuple[Event, ...]
    clear: frozenset[int] = frozenset()
    readable: frozenset[int] = frozenset()
    bookings_known: bool = True
    keys: frozenset[Key] = field(init=False)

    def __post_init__(self) -> None:
        """Collect the keys."""
        object.__setattr__(self, "keys", frozenset(event.key for event in self.events))


def find(situation: Situation) -> Findings:
    """Find the events that hold in a situation."""
    events: dict[Key, Event] = {}
    for found in (_machine(situation), _sheet(situation), _slots(situation), _use(situation), _unused(situation)):
        for event in found:
            events.setdefault(event.key, event)
    cards = situation.cards.cards
    return Findings(
        events=tuple(sorted(events.values(), key=lambda event: (KINDS.index(event.kind), event.key))),
        clear=frozenset(card.index for card in cards if sightings.is_clear(card)),
        readable=frozenset(card.index for card in cards if sightings.is_readable(card)),
        bookings_known=not situation.sheet_problem,
    )


def _instant(when: datetime) -> float:
    return when.timestamp()


def _begun(booking: Booking, now: float) -> bool:
    return _instant(booking.start) <= now


def _over(booking: Booking, now: float) -> bool:
    return _instant(booking.end) <= now


def _covers(booking: Booking, now: float) -> bool:
    return booking.active and _begun(booking, now) and not _over(booking, now)


def _name(booking: Booking) -> str:
    """Name a booking for keys: with its owner and card, the start says which one it is."""
    return booking.start.isoformat(timespec="minutes")


def _key(kind: str, recipient: str, gpu_id: int | None, *about: str) -> Key:
    return (kind, recipient, "-" if gpu_id is None else str(gpu_id), *about)


def _concerned(situation: Situation, *users: str) -> Iterable[str]:
    """Name the admin and those of some users who are members, each once."""
    return dict.fromkeys([situation.admin, *(user for user in users if user in situation.members)])


def _machine(situation: Situation) -> Iterator[Event]:
    """Find cards that NVML cannot read."""
    admin = situation.admin
    if not situation.cards.cards:
        yield Event(NO_CARDS, admin, _key(NO_CARDS, admin, None), reason=situation.cards.reason or "NVML lists none")
    for card in situation.cards.cards:
        if not sightings.is_readable(card):
            reason = card.reason or "it does not say who uses it"
            yield Event(CARD, admin, _key(CARD, admin, card.index), card.index, reason=reason)


def _sheet(situation: Situation) -> Iterator[Event]:
    """Find rows that cannot be meant so; what is over is history and nobody's trouble any more."""
    admin, sheet = situation.admin, situation.sheet
    if situation.sheet_problem:
        yield Event(SHEET, admin, _key(SHEET, admin, None), reason=situation.sheet_problem)
    if sheet is None:
        return
    if sheet.headless:
        reason = sheet.problems[0].reason
        yield Event(BAD_ROW, admin, _key(BAD_ROW, admin, None, "header"), lines=(1,), reason=reason)
    for row in sheet.rows:
        if row.problem:
            yield from _bad_row(situation, row, sheet)
    now = _instant(situation.now)
    ahead = {line: b for line, b in situation.bookings.items() if b.active and not _over(b, now)}
    yield from _impossible(situation, ahead)
    yield from _overlaps(situation, ahead)


def _bad_row(situation: Situation, row: Row, sheet: Sheet) -> Iterator[Event]:
    column = sheet.columns[HEADER.index("user")]
    user = plain(row.cells[column]) if column < len(row.cells) else ""
    # The line number moves when somebody inserts a row above; what the row says is what it is.
    about = hashlib.sha256(row.text.encode(errors="surrogatepass")).hexdigest()[:16]
    for recipient in _concerned(situation, user):
        key = _key(BAD_ROW, recipient, None, about)
        yield Event(BAD_ROW, recipient, key, user=user, lines=(row.line,), reason=row.problem)


def _impossible(situation: Situation, ahead: dict[int, Booking]) -> Iterator[Event]:
    existing = {card.index for card in situation.cards.cards}
    for line, booking in ahead.items():
        about = (booking.user, _name(booking))
        if booking.user not in situation.members:
            key = _key(NO_MEMBER, situation.admin, booking.gpu_id, *about)
            yield Event(NO_MEMBER, situation.admin, key, booking.gpu_id, booking, lines=(line,))
        if existing and booking.gpu_id not in existing:
            for recipient in _concerned(situation, booking.user):
                key = _key(NO_SUCH_CARD, recipient, booking.gpu_id, *about)
                yield Event(NO_SUCH_CARD, recipient, key, booking.gpu_id, booking, lines=(line,))


def _overlaps(situation: Situation, ahead: dict[int, Booking]) -> Iterator[Event]:
    for lines in islice(collisions(ahead), _MAX_PAIRS):
        first, second = (ahead[line] for line in lines)
        about = (first.user, _name(first), second.user, _name(second))
        for recipient in _concerned(situation, first.user, second.user):
            # Each person reads about their own row first.
            swap = recipient == second.user
            own, other = (second, first) if swap else (first, second)
            key = _key(OVERLAP, recipient, own.gpu_id, *about)
            yield Event(OVERLAP, recipient, key, own.gpu_id, own, cover=other, lines=lines[::-1] if swap else lines)


def _slots(situation: Situation) -> Iterator[Event]:
    """Find bookings that have begun, or begin soon."""
    now = _instant(situation.now)
    for booking in situation.bookings.values():
        if not booking.active or booking.user not in situation.members:
            continue
        if _covers(booking, now):
            kind = RUNNING
        elif 0 < _instant(booking.start) - now <= situation.limits.soon_minutes * 60:
            kind = SOON
        else:
            continue
        key = _key(kind, booking.user, booking.gpu_id, _name(booking))
        yield Event(kind, booking.user, key, booking.gpu_id, booking)


def _use(situation: Situation) -> Iterator[Event]:
    """Find processes of people on cards that they have no booking for now; their own MIG instance needs none."""
    for whole in situation.cards.cards:
        card = sightings.outside_of(whole, situation.bindings)
        for user, processes in sightings.on_card(card, situation.boot).items():
            if user in situation.limits.ignore_users:
                continue
            if user not in situation.members:
                key = _key(STRANGER, situation.admin, card.index, user)
                yield Event(STRANGER, situation.admin, key, card.index, user=user, processes=processes)
            elif situation.sheet is not None:
                yield from _uncovered(situation, card, user, processes)


def _uncovered(situation: Situation, card: Card, user: str, processes: tuple[Sighting, ...]) -> Iterator[Event]:
    now = _instant(situation.now)
    here = [b for b in situation.bookings.values() if b.gpu_id == card.index]
    if any(_covers(b, now) for b in here if b.user == user):
        return
    ended = [b for b in here if b.user == user and b.status != CANCELLED and _over(b, now)]
    last = max(ended, key=lambda b: b.end, default=None)
    overrun = last is not None and _goes_on(processes, _instant(last.end), now)
    if last is not None and overrun and now < _instant(last.end) + situation.limits.overrun_minutes * 60:
        return
    cover = next((b for b in here if _covers(b, now)), None)
    yield Event(
        OVERRUN if overrun else UNBOOKED,
        user,
        _key(UNCOVERED, user, card.index, _name(last) if last else "-"),
        card.index,
        booking=last if overrun else None,
        cover=cover or _next(here, user, now),
        processes=processes,
    )
    if cover is not None and cover.user in situation.members:
        key = _key(OCCUPIED, cover.user, card.index, _name(cover), user)
        before = last if overrun else None
        yield Event(OCCUPIED, cover.user, key, card.index, cover, user, cover=before, processes=processes)


def _goes_on(processes: Iterable[Sighting], end: float, now: float) -> bool:
    """Tell whether processes are the rest of a booking, and not somebody who came back another day without one."""
    # Work is often a row of short processes: that these began after the end proves nothing on the same day.
    return now - end < _SAME_WORK_SECONDS or any(p.started is None or p.started < end for p in processes)


def _next(bookings: Iterable[Booking], user: str, now: float) -> Booking | None:
    """Find who of the others has the card next."""
    ahead = [b for b in bookings if b.active and b.user != user and not _begun(b, now)]
    return min(ahead, key=lambda b: b.start, default=None)


def _unused(situation: Situation) -> Iterator[Event]:
    """Find bookings that nobody uses, on cards where that can be said."""
    now = _instant(situation.now)
    clear = {card.index: card for card in situation.cards.cards if sightings.is_clear(card)}
    running = [b for b in situation.bookings.values() if _covers(b, now)]
    for booking in running:
        late = now >= _instant(booking.start) + situation.limits.unused_minutes * 60
        if not late or booking.gpu_id not in clear or booking.user not in situation.members:
            continue
        entitled = {b.user for b in running if b.gpu_id == booking.gpu_id}
        others = entitled.union(situation.limits.ignore_users) - {booking.user}
        # The owner's own MIG instance is use enough; somebody else in theirs is in nobody's way.
        card = clear[booking.gpu_id]
        aside = {user: uuid for user, uuid in situation.bindings.items() if user != booking.user}
        # Somebody without a booking may be in the owner's way, or be the owner's container: no time for reproaches.
        if others.issuperset(sightings.on_card(sightings.outside_of(card, aside), situation.boot)):
            key = _key(UNUSED, booking.user, booking.gpu_id, _name(booking))
            yield Event(UNUSED, booking.user, key, booking.gpu_id, booking)
