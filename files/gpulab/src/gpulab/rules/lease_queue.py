"""First come, first served: who of those who wait gets a card now.

Those who wait are looked at in the order of their tickets. One who cannot be served yet *claims* every place that could
serve it, and what is claimed is given to nobody behind it. So a large request is never overtaken by small ones, and a
place stands idle only while somebody who came earlier is waiting for that very place. No claim is made for a request
that no card coming free could serve at the moment: one that is held up (see `Waiter.held`), whose owner has as much as
the lab allows, or that asks for more cards than work today. Its turn stays what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .lease_words import busy, unusable
from .leases import Lease, LeasedCard, Place, Request, Wish, choose, possible, usable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


@dataclass(frozen=True)
class Limits:
    """The most that one member may have at a time; 0 means no limit.

    Attributes:
        cards: devices in all leases together.
        leases: leases.
    """

    cards: int = 0
    leases: int = 0


@dataclass(frozen=True)
class Waiter:
    """Somebody in the line.

    Attributes:
        number: of the ticket; the line is in order of it.
        uid: user id.
        user: account name.
        wish: what is asked for.
        held: why it is not served now whatever comes free, as a clause; empty when it can be.
    """

    number: int
    uid: int
    user: str
    wish: Wish
    held: str = ""


@dataclass(frozen=True)
class Outcome:
    """What becomes of one who waits.

    Attributes:
        number: of the ticket.
        cards: what it gets; empty when it waits on.
        position: place in the line, from 1; 0 when it is served.
        why: what it waits for, as a clause; empty when it is served.
    """

    number: int
    cards: tuple[LeasedCard, ...] = ()
    position: int = 0
    why: str = ""


def refusal(request: Request, places: Sequence[Place], limits: Limits, wish: Wish, reserved: Collection[str]) -> str:
    """Return why a request could never be served on this server, as a clause; empty when it could."""
    if limits.cards and request.cards > limits.cards:
        return f"{_cards(request.cards)} asked for, but a member may have {limits.cards} at a time"
    fitting = [place for place in places if possible(place, wish, reserved)]
    if len(fitting) >= request.cards:
        return ""
    if wish.bound and request.cards > 1:
        return f"{_cards(request.cards)} asked for, but you are bound to one MIG instance, {wish.bound}"
    largest = max((place.total for place in places), default=0)
    if request.memory is not None and request.memory > largest:
        return f"--mem asks for {request.memory / 2**30:.1f} GiB, but the largest device has {largest / 2**30:.1f} GiB"
    if wish.bound:
        return f"you are bound to the MIG instance {wish.bound}, which is not there; ask the admin"
    kind = "whole cards" if request.cards > 1 and any(place.instance for place in places) else "cards"
    size = "" if request.memory is None else " of that size"
    return f"{_cards(request.cards)} asked for, but this server has {len(fitting)} {kind}{size} to give"


def over_limit(uid: int, request: Request, leases: Iterable[Lease], limits: Limits) -> str:
    """Return which limit of the lab a further lease would break, as a clause; empty when none."""
    own = [lease for lease in leases if lease.uid == uid]
    cards = sum(len(lease.cards) for lease in own)
    if limits.leases and len(own) >= limits.leases:
        return f"you have {len(own)} of the {limits.leases} leases a member may have at a time"
    if limits.cards and cards + request.cards > limits.cards:
        return f"you have {cards} of the {limits.cards} cards a member may have at a time, and ask for {request.cards}"
    return ""


def decide(
    places: Sequence[Place],
    leases: Iterable[Lease],
    line: Iterable[Waiter],
    limits: Limits | None = None,
    reserved: Collection[str] = (),
) -> tuple[Outcome, ...]:
    """Serve the line.

    Args:
        places: every device of the machine.
        leases: the leases that are alive.
        line: who waits.
        limits: the most one member may have; None for no limit.
        reserved: UUIDs of instances that some member is bound to; nobody else gets them.

    Returns:
        An outcome for each, in order of tickets.
    """
    current = list(leases)
    claimed: set[str] = set()
    outcomes = []
    position = 0
    for waiter in sorted(line, key=lambda waiter: waiter.number):
        request = waiter.wish.request
        fitting = [place for place in places if possible(place, waiter.wish, reserved)]
        working = [place for place in fitting if usable(place, request)]
        held = waiter.held or over_limit(waiter.uid, request, current, limits or Limits())
        cards: tuple[LeasedCard, ...] = ()
        if held:
            why = held
        elif len(working) < request.cards:
            why = unusable(fitting, request)
        else:
            cards = choose([place for place in working if place.uuid not in claimed], current, request)
            why = "" if cards else busy(working, current, request, claimed)
            if not cards:
                claimed |= {place.uuid for place in working}
        if cards:
            current.append(_provisional(waiter, cards))
        else:
            position += 1
        outcomes.append(Outcome(waiter.number, cards, 0 if cards else position, why))
    return tuple(outcomes)


def _provisional(waiter: Waiter, cards: tuple[LeasedCard, ...]) -> Lease:
    return Lease(
        id=waiter.number,
        user=waiter.user,
        uid=waiter.uid,
        pid=0,
        start_ticks=0,
        cards=cards,
        since=0.0,
        command="",
        scope="",
    )


def _cards(number: int) -> str:
    return "1 card is" if number == 1 else f"{number} cards are"
