"""Bookings of cards: when two collide, when a card is free next, and what a member may do with which row.

All times are naive and mean the server's own clock on the wall, to the minute, as people write them in the sheet.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..errors import InputError, NotPermittedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

BOOKED = "booked"
DONE = "done"
CANCELLED = "cancelled"
STATUSES = (BOOKED, DONE, CANCELLED)

MAX_CARDS = 64
"""Card numbers are below this when the server's own list of cards is not known."""

MAX_TASK_NAME = 64
"""Longest task name, characters."""

FORMULA_LEADS = "=+-@"
"""A cell that begins so is run as a formula by spreadsheet programs (CWE-1236)."""

_SHORTEST_HOURS = 1 / 60
_LONGEST_HOURS = 100_000.0

TIME_FORMAT = "%Y-%m-%d %H:%M"


class TakenError(InputError):
    """The card is booked by then; nothing was changed. Worth another try at another time."""

    exit_status = 4


@dataclass(frozen=True)
class Booking:
    """One row of the sheet: one card for one stretch of time.

    Attributes:
        task_name: what the card is for; one name may span several rows (cards).
        user: account name of the member.
        gpu_id: NVML index of the card.
        start: first minute, naive server time.
        end: first minute that is free again, naive server time; later than start.
        est_hours: the hours its owner expected when booking; kept when the work ends sooner.
        status: `booked`, `done` or `cancelled`.
    """

    task_name: str
    user: str
    gpu_id: int
    start: datetime
    end: datetime
    est_hours: float
    status: str = BOOKED

    @property
    def active(self) -> bool:
        """Whether the row claims its card: neither done nor cancelled."""
        return self.status == BOOKED

    def covers(self, moment: datetime) -> bool:
        """Tell whether the booking claims its card at a moment."""
        return self.active and self.start <= moment < self.end

    def overlaps(self, gpu_id: int, start: datetime, end: datetime) -> bool:
        """Tell whether the booking claims a card for any minute of a stretch of time."""
        return self.active and self.gpu_id == gpu_id and self.start < end and start < self.end


@dataclass(frozen=True)
class Limits:
    """What one booking may ask for.

    Attributes:
        max_hours: the longest booking, hours.
        max_days_ahead: how far ahead it may start, days.
        grace_minutes: how long ago it may have started, minutes: people type slower than the clock runs.
    """

    max_hours: float
    max_days_ahead: int
    grace_minutes: int


@dataclass(frozen=True)
class Actor:
    """Who asks.

    Attributes:
        name: account name, from the operating system.
        admin: whether every row is theirs to change.
    """

    name: str
    admin: bool = False


@dataclass(frozen=True)
class Wish:
    """What somebody wants to book.

    Attributes:
        task_name: as typed.
        gpu_ids: cards, each one a row.
        start: naive server time; None means now.
        hours: how long.
    """

    task_name: str
    gpu_ids: tuple[int, ...]
    start: datetime | None
    hours: float


def check_task_name(text: str) -> str:
    """Return a task name fit for the sheet.

    Raises:
        InputError: empty, too long, not printable, or a formula to a spreadsheet program.
    """
    name = text.strip()
    if not name:
        raise InputError("the task name is empty; give the work a short name, such as train-resnet")
    if len(name) > MAX_TASK_NAME:
        raise InputError(f"the task name has {len(name)} characters; at most {MAX_TASK_NAME} are allowed")
    if not name.isprintable():
        raise InputError("the task name holds a line break, tab or other character that cannot be shown; leave it out")
    # Full-width signs count too: East Asian editions of spreadsheet programs read them as formulas.
    if unicodedata.normalize("NFKC", name)[0] in FORMULA_LEADS:
        raise InputError(
            f"the task name begins with {name[0]}, which spreadsheet programs run as a formula; begin with a letter"
        )
    return name


def minute(moment: datetime) -> datetime:
    """Cut a moment down to its minute."""
    return moment.replace(second=0, microsecond=0)


def show_span(start: datetime, end: datetime) -> str:
    """Write a stretch of time; the date is said once when it ends on the same day."""
    last = f"{end:%H:%M}" if end.date() == start.date() else f"{end:{TIME_FORMAT}}"
    return f"{start:{TIME_FORMAT}} to {last}"


def earliest_start(
    bookings: Iterable[Booking], gpu_ids: Collection[int], length: timedelta, *, not_before: datetime
) -> datetime:
    """Find when all of some cards are free together for long enough.

    Args:
        bookings: in any order; those that are not active do not count.
        gpu_ids: the cards.
        length: how long they must stay free.
        not_before: the earliest acceptable start.
    """
    start = not_before
    for booking in sorted((b for b in bookings if b.active and b.gpu_id in gpu_ids), key=lambda b: b.start):
        if booking.start - start >= length:
            break
        start = max(start, booking.end)
    return start


def collisions(bookings: Mapping[int, Booking]) -> list[tuple[int, int]]:
    """Find the rows that claim the same card at the same time, as only a hand edit can make them.

    Args:
        bookings: by line number.

    Returns:
        Pairs of line numbers, the row that starts first first.
    """
    pairs: list[tuple[int, int]] = []
    open_rows: dict[int, list[int]] = {}
    for line, booking in sorted(bookings.items(), key=lambda item: (item[1].start, item[0])):
        if not booking.active:
            continue
        still = [other for other in open_rows.get(booking.gpu_id, []) if bookings[other].end > booking.start]
        pairs.extend((other, line) for other in still)
        open_rows[booking.gpu_id] = [*still, line]
    return pairs


def duration(hours: float) -> timedelta:
    """Turn hours as typed into a length of time in whole minutes.

    Raises:
        InputError: not a number, or less than a minute.
    """
    if not math.isfinite(hours) or not _SHORTEST_HOURS <= hours <= _LONGEST_HOURS:
        raise InputError(f"--hours is {hours:g}; give a number such as 2 or 1.5, at least one minute")
    return timedelta(minutes=round(hours * 60))


def _length(hours: float, limits: Limits) -> timedelta:
    length = duration(hours)
    if hours > limits.max_hours:
        raise InputError(f"--hours is {hours:g}; one booking may last at most {limits.max_hours:g} hours")
    return length


def _check_start(start: datetime, now: datetime, limits: Limits) -> None:
    if start < minute(now) - timedelta(minutes=limits.grace_minutes):
        raise InputError(f"--start {start:{TIME_FORMAT}} is in the past; on this server it is {now:{TIME_FORMAT}}")
    if start > now + timedelta(days=limits.max_days_ahead):
        raise InputError(
            f"--start {start:{TIME_FORMAT}} is too far away; bookings open {limits.max_days_ahead} days ahead"
        )


def _check_cards(gpu_ids: tuple[int, ...], cards: Collection[int] | None) -> None:
    if not gpu_ids:
        raise InputError("--gpu names no card; give one or more, such as 0 or 0,1")
    if len(set(gpu_ids)) != len(gpu_ids):
        raise InputError("--gpu names a card twice; give each card once, such as 0,1")
    for gpu_id in gpu_ids:
        if cards is not None and gpu_id not in cards:
            known = ", ".join(map(str, sorted(cards))) or "none"
            raise InputError(f"there is no card {gpu_id}; this server has: {known}")
        if not 0 <= gpu_id < MAX_CARDS:
            raise InputError(f"there is no card {gpu_id}; card numbers run from 0 to {MAX_CARDS - 1}")


def add(
    bookings: Collection[Booking],
    wish: Wish,
    user: str,
    *,
    now: datetime,
    limits: Limits,
    cards: Collection[int] | None,
) -> tuple[Booking, ...]:
    """Work out the rows that a wish adds: one for each card, all or none.

    Args:
        bookings: what the sheet holds.
        wish: what is asked for.
        user: whose booking it becomes.
        now: server time.
        limits: what one booking may ask for.
        cards: the server's cards; None when unknown.

    Raises:
        InputError: the wish cannot be granted at any time as it is.
        TakenError: a card is booked by then; the message names the other booking and the next free time.
    """
    name = check_task_name(wish.task_name)
    length = _length(wish.hours, limits)
    _check_cards(wish.gpu_ids, cards)
    start = minute(now if wish.start is None else wish.start)
    _check_start(start, now, limits)
    end = start + length
    for other in bookings:
        if other.active and other.end > now and other.user == user and other.task_name == name:
            raise InputError(
                f"{user} already has a booking {name!r} (card {other.gpu_id}, {show_span(other.start, other.end)}); "
                "choose another name, or cancel or finish that one first"
            )
    for gpu_id in wish.gpu_ids:
        hits = [other for other in bookings if other.overlaps(gpu_id, start, end)]
        if hits:
            first = min(hits, key=lambda other: other.start)
            free = earliest_start(bookings, wish.gpu_ids, length, not_before=start)
            together = f"card {gpu_id} is" if len(wish.gpu_ids) == 1 else f"cards {_join(wish.gpu_ids)} are all"
            raise TakenError(
                f"card {gpu_id} is booked by {first.user} for {first.task_name!r}, "
                f"{show_span(first.start, first.end)}; {together} free for {wish.hours:g} h from {free:{TIME_FORMAT}}"
            )
    return tuple(Booking(name, user, gpu_id, start, end, round(wish.hours, 2)) for gpu_id in wish.gpu_ids)


def _join(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _whose(
    bookings: Mapping[int, Booking], task_name: str, actor: Actor, user: str | None, verb: str
) -> dict[int, Booking]:
    """Find the booked rows that a name means, and that the actor may change."""
    named = {line: b for line, b in bookings.items() if b.active and b.task_name == task_name.strip()}
    if user is not None and user != actor.name and not actor.admin:
        raise NotPermittedError(f"only an admin can {verb} bookings of others; --user {user} is not you, {actor.name}")
    owners = sorted({b.user for b in named.values()})
    owner = user if user is not None else actor.name
    if user is None and owner not in owners and owners:
        if not actor.admin:
            raise NotPermittedError(
                f"{task_name!r} is a booking of {' and of '.join(owners)}; only its owner or an admin can {verb} it"
            )
        if len(owners) > 1:
            raise InputError(f"{' and '.join(owners)} each have a booking {task_name!r}; say whose with --user")
        owner = owners[0]
    mine = {line: b for line, b in named.items() if b.user == owner}
    if not mine:
        open_names = sorted({b.task_name for b in bookings.values() if b.active and b.user == owner})
        hint = f"open ones: {', '.join(map(repr, open_names[:8]))}" if open_names else "there are no open ones"
        raise InputError(f"{owner} has no open booking {task_name!r}; {hint}")
    return mine


def cancel(
    bookings: Mapping[int, Booking], task_name: str, actor: Actor, user: str | None, *, now: datetime
) -> dict[int, Booking]:
    """Work out the rows that change when a booking that has not begun is given up.

    Args:
        bookings: by line number.
        task_name: all rows of that name.
        actor: who asks.
        user: whose booking; None means the actor's own, or for an admin the only one of that name.
        now: server time.

    Raises:
        InputError: there is none, it has begun, or it is unclear whose is meant.
        NotPermittedError: it is somebody else's.
    """
    rows = _whose(bookings, task_name, actor, user, "cancel")
    ahead = {line: b for line, b in rows.items() if b.start > now}
    if not ahead:
        running = any(b.covers(now) for b in rows.values())
        state = "is running; `gpu-schedule done` ends it and frees the rest" if running else "is over already"
        raise InputError(f"{task_name!r} {state}")
    return {line: replace(b, status=CANCELLED) for line, b in ahead.items()}


def done(
    bookings: Mapping[int, Booking], task_name: str, actor: Actor, user: str | None, *, now: datetime
) -> dict[int, Booking]:
    """Work out the rows that change when work is finished: a running booking ends now, its estimate stays.

    Arguments and errors are those of `cancel`; a booking that has not begun is refused.
    """
    rows = _whose(bookings, task_name, actor, user, "finish")
    begun = {line: b for line, b in rows.items() if b.start <= now}
    if not begun:
        start = min(b.start for b in rows.values())
        raise InputError(f"{task_name!r} begins {start:{TIME_FORMAT}}; `gpu-schedule cancel` gives it up")
    return {line: _ended(b, now) for line, b in begun.items()}


def _ended(booking: Booking, now: datetime) -> Booking:
    # A row needs at least one minute, so that its end stays later than its start.
    end = min(booking.end, max(minute(now), booking.start + timedelta(minutes=1)))
    return replace(booking, end=end, status=DONE)


def leave(bookings: Mapping[int, Booking], user: str, *, now: datetime) -> dict[int, Booking]:
    """Work out the rows that change when a member leaves: running ones end now, later ones are cancelled."""
    mine = {line: b for line, b in bookings.items() if b.active and b.user == user and b.end > now}
    return {line: _ended(b, now) if b.start <= now else replace(b, status=CANCELLED) for line, b in mine.items()}
