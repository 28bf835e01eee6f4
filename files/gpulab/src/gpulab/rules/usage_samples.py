"""From looks at the cards to time: who had which card between two looks (light tiers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .samples import LISTED, OK
from .usage import Stretch, Wait, Watch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_LATE = 1.9
"""Looks further apart than this many usual distances have a gap between them, in which nothing was seen."""

_FULL = 100.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Something of one person on one card at a look.

    Attributes:
        card: NVML index.
        user: account name.
        run: names the lease or the process, the same in all looks.
        load: percent of its kernels since the look before; None when unknown; 0 for a lease without processes.
        process: whether it is a process, not only a promise.
    """

    card: int
    user: str
    run: str
    load: float | None
    process: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """One look.

    Attributes:
        at: seconds since 1970.
        states: of each card, by index; words of rules/samples.py.
        seen: what was on them.
    """

    at: int
    states: Mapping[int, str]
    seen: tuple[Seen, ...]


def place(card: int) -> str:
    """Return the name of a card in reports."""
    return f"card {card}"


def records(looks: Iterable[Look], distance: float) -> Iterator[Stretch | Watch]:
    """Turn looks into time.

    A look stands for the time since the one before, or for the usual distance where that is longer ago. A card with
    several people on it is shared equally between them, and one person's part between their runs; their load is what
    all of it did together.

    Args:
        looks: oldest first.
        distance: usual time between two, seconds.
    """
    last = float("-inf")
    for look in looks:
        begin = last if look.at - last <= _LATE * distance else look.at - distance
        last = look.at
        for card, state in look.states.items():
            if state in LISTED:
                yield Watch(place(card), begin, look.at)
                here = [each for each in look.seen if each.card == card]
                yield from _shares(here, begin, look.at, measured=state == OK)


def _shares(here: Iterable[Seen], begin: float, end: float, *, measured: bool) -> Iterator[Stretch]:
    people: dict[str, dict[str, list[Seen]]] = {}
    for each in here:
        people.setdefault(each.user, {}).setdefault(each.run, []).append(each)
    for user, runs in people.items():
        processes = [each for run in runs.values() for each in run if each.process]
        load = _load(processes) if measured else None
        for run, parts in runs.items():
            yield Stretch(user, run, place(parts[0].card), begin, end, 1 / (len(people) * len(runs)), load)


def _load(processes: Iterable[Seen]) -> float | None:
    """Add up loads; one that is unknown makes the sum unknown, and no process at all does nothing."""
    total = 0.0
    for each in processes:
        if each.load is None:
            return None
        total += each.load
    return min(_FULL, total)


def waits(leases: Iterable[tuple[str, int, int]]) -> Iterator[Wait]:
    """Turn leases into waits.

    Args:
        leases: for each its user, when it was asked for and when it was given, seconds since 1970.
    """
    for user, asked, given in leases:
        yield Wait(user, asked, max(0, given - asked))
