"""Leases in words: why somebody waits, who has what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .leases import GIB, available, free_memory, on_place, usable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .leases import Lease, Place, Request

_HOUR, _DAY = 60, 24 * 60  # minutes


def gib(size: int) -> str:
    """Write bytes as GiB, without a fraction that says nothing: `80`, `39.4`."""
    text = f"{size / GIB:.1f}"
    return text.removesuffix(".0")


def duration(seconds: float) -> str:
    """Write a time span in its two largest units: `2 d 3 h`, `1 h 5 min`, `12 min`, `40 s`."""
    seconds = max(0, int(seconds))
    minutes = seconds // 60
    if minutes == 0:
        return f"{seconds} s"
    if minutes < _HOUR:
        return f"{minutes} min"
    if minutes < _DAY:
        return f"{minutes // _HOUR} h {minutes % _HOUR} min"
    return f"{minutes // _DAY} d {minutes % _DAY // _HOUR} h"


def unusable(places: Sequence[Place], request: Request) -> str:
    """Say why fewer places work than are asked for."""
    reasons = [_trouble(place) for place in places if not usable(place, request)]
    working = len(places) - len(reasons)
    return f"{request.cards} asked for, {working} can be given today: {'; '.join(reasons)}"


def _trouble(place: Place) -> str:
    if place.reason:
        return f"{place.name}: {place.reason}"
    if place.strangers:
        return f"{place.name} is used without a lease by {', '.join(place.strangers)}"
    return f"{place.name} has {gib(max(0, place.total - place.foreign))} GiB that no lease holds"


def busy(places: Sequence[Place], leases: Sequence[Lease], request: Request, claimed: Collection[str]) -> str:
    """Say who has the places that could serve a request."""
    holders: dict[str, list[str]] = {}
    others = []
    for place in places:
        users = list(dict.fromkeys(lease.user for lease, _ in on_place(place.uuid, leases)))
        if available(place, leases, request):
            if place.uuid in claimed:
                others.append(f"{place.name} is kept for those who came before you")
        elif users and not request.share:
            holders.setdefault(" and ".join(users), []).append(place.name)
        elif users:
            shared = all(card.shared for _, card in on_place(place.uuid, leases))
            what = f"{gib(free_memory(place, leases))} GiB left" if shared else "not shared"
            others.append(f"{' and '.join(users)} on {place.name} ({what})")
    held = [f"{user} has {', '.join(names)}" for user, names in holders.items()]
    return "; ".join(held + others)
