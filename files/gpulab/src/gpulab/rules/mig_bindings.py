"""Which MIG instance is whose in the light tiers: what the inventory says, and an even spread of the others.

An instance is named by its card and its number there, `mig-0-1`: NVML's index of the card and of the MIG device on it,
as `gpulab info` and `nvidia-smi -L` show them. MIG devices are numbered in the order of GPU instance id, then compute
instance id. A name stays when a layout is made anew; the UUID behind it does not.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .cards import Card
    from .mig_layout import Layout

NOT_BOUND = "none"
"""Value of a member's `gpu` that keeps them out of the spread."""

REMEDY = f"give an instance as mig-CARD-INSTANCE, such as mig-0-1, or {NOT_BOUND}"

_PLACE = re.compile(r"mig-(0|[1-9]\d{0,3})-(0|[1-9]\d{0,3})")
# What useradd takes (useradd(8)); it must stay one word of a line.
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_SHOWN = 60


@dataclass(frozen=True, order=True)
class Place:
    """One instance by its numbers.

    Attributes:
        card: NVML index of the card.
        instance: MIG device index on the card.
    """

    card: int
    instance: int

    def __str__(self) -> str:
        """Return the name that the inventory has for it."""
        return f"mig-{self.card}-{self.instance}"


@dataclass(frozen=True)
class Wishes:
    """Who shall be bound.

    Attributes:
        fixed: account name to the instance that the inventory names.
        spread: account names of those who get one of our choosing.
    """

    fixed: Mapping[str, Place] = field(default_factory=dict)
    spread: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether anybody shall be bound."""
        return bool(self.fixed or self.spread)


def parse_place(text: object) -> Place | None:
    """Read a member's `gpu`.

    Returns:
        The instance; None for `none`.

    Raises:
        ValueError: it is neither; the message says what to give.
    """
    if text == NOT_BOUND:
        return None
    found = _PLACE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(REMEDY)
    return Place(int(found[1]), int(found[2]))


def parse_wishes(raw: Mapping[Any, Any], *, spread: bool) -> Wishes:
    """Read who shall be bound.

    Args:
        raw: account names of the present members, each with its `gpu`; empty or None where none is given.
        spread: whether those without one get one.

    Raises:
        InputError: a name or an instance cannot be one.
    """
    fixed: dict[str, Place] = {}
    others: list[str] = []
    for user, text in raw.items():
        if not isinstance(user, str) or not _USER.fullmatch(user):
            raise InputError(f"{_shown(user)} is no account name; give those of lab_members")
        if text in (None, ""):  # a list given by mistake has no hash: no set here
            others.append(user)
            continue
        try:
            place = parse_place(text)
        except ValueError as error:
            raise InputError(f"lab_members, member {user}: gpu is {_shown(text)}; {error}") from None
        if place is not None:
            fixed[user] = place
    return Wishes(fixed, tuple(sorted(others)) if spread else ())


def counts_of(layout: Layout) -> dict[int, int] | None:
    """Return how many instances a layout makes on each card that it names; None when it takes the machine to know."""
    if any(entry.cards is None or entry.filters for entry in layout.entries):
        return None
    return {index: len(entry.target.names) for entry in layout.entries for index in entry.cards or ()}


def check(wishes: Wishes, counts: Mapping[int, int], *, source: str = "mig_layout") -> None:
    """Refuse wishes that a layout cannot fulfil.

    Args:
        wishes: who shall be bound.
        counts: how many instances each card of the layout has; 0 where MIG is off.
        source: what the layout is called, for messages.

    Raises:
        InputError: an instance is not in the layout, or there is none to spread over.
    """
    for user, place in sorted(wishes.fixed.items()):
        count = counts.get(place.card)
        if count is None:
            clause = f"{source} has no card {place.card}; add it there"
        elif count == 0:
            clause = f"{source} makes no instance on card {place.card}; make some"
        elif place.instance >= count:
            numbers = f"mig-{place.card}-0" + (f" to mig-{place.card}-{count - 1}" if count > 1 else "")
            clause = f"{source} makes only {numbers} there; choose one"
        else:
            continue
        raise InputError(f"lab_members, member {user}: gpu is {place}; {clause}, or give another gpu")
    if wishes.spread and not any(counts.values()):
        raise InputError(f"mig_spread is true and {source} makes no instance; make some, or set mig_spread: false")


def distribute(wishes: Wishes, counts: Mapping[int, int], former: Mapping[str, Place]) -> dict[str, Place]:
    """Say who gets which instance.

    Those whom the inventory gives an instance have that one. The others are spread evenly: who has an instance keeps
    it, who is new gets one of those with the fewest people, on the card with the fewest, and somebody moves only
    where one instance would otherwise have two people more than another. The order of the list plays no part.

    Args:
        wishes: who shall be bound; `check` has passed.
        counts: how many instances each card has.
        former: who had which instance before.

    Returns:
        Account name to instance, in order of name.
    """
    places = [Place(card, number) for card, count in sorted(counts.items()) for number in range(count)]
    people: dict[Place, list[str]] = {place: [] for place in places}
    load = Counter(wishes.fixed.values())
    on_card = Counter(place.card for place in wishes.fixed.values())

    def crowd(place: Place) -> tuple[int, int, Place]:
        return load[place], on_card[place.card], place

    def move(user: str, place: Place, step: int = 1) -> None:
        people[place].append(user) if step > 0 else people[place].remove(user)
        load[place] += step
        on_card[place.card] += step

    for user in sorted(wishes.spread):
        if former.get(user) in people:
            move(user, former[user])
    for user in sorted({*wishes.spread} - {user for users in people.values() for user in users}):
        move(user, min(places, key=crowd))
    while any(people.values()):
        fullest = max((place for place in places if people[place]), key=crowd)
        emptiest = min(places, key=crowd)
        if load[fullest] - load[emptiest] <= 1:
            break
        user = people[fullest][-1]
        move(user, fullest, -1)
        move(user, emptiest)
    found = {user: place for place, users in people.items() for user in users}
    return dict(sorted({**found, **wishes.fixed}.items()))


def resolve(places: Mapping[str, Place], cards: Iterable[Card]) -> dict[str, str]:
    """Return the UUID of each member's instance; who has one that is not there is left out.

    Args:
        places: account name to instance.
        cards: as NVML shows them now.
    """
    uuids = {Place(card.index, device.index): device.uuid for card in cards for device in card.mig_devices}
    return {user: uuids[place] for user, place in sorted(places.items()) if uuids.get(place)}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
