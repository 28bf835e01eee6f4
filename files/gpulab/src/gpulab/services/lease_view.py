"""The devices of this machine as the broker sees them: NVML's numbers, less what leases promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..adapters import nvml, scopes
from ..adapters.apart import run_apart
from ..rules.cards import Cards
from ..rules.lease_words import gib
from ..rules.leases import Place, free_memory, on_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..rules.cards import Card, MigDevice, Process
    from ..rules.leases import Lease, Request

_PATIENCE = 20.0
"""Seconds that NVML may take: without the persistence daemon it first wakes every card."""


_READ = partial(nvml.read_cards, nvlinks=False)


def look(read: Callable[[], Cards] = _READ, patience: float = _PATIENCE) -> Cards:
    """Read the cards in a process of its own, which can hang or crash as it likes.

    Args:
        read: reads them.
        patience: seconds it may take.

    Returns:
        The cards; none, and the reason, when they cannot be read.
    """
    try:
        return run_apart(read, patience=patience)
    except TimeoutError:
        return Cards(reason=f"NVML did not answer within {patience:g} s; look for `NVRM: Xid` in dmesg")
    except ChildProcessError as error:
        return Cards(reason=f"NVML cannot be asked: {error}")


@dataclass(frozen=True)
class View:
    """The machine at one moment.

    Attributes:
        cards: as read.
        places: what can be given, in order of card.
        leases: those that hold their cards.
        strays: for those whose command has ended, who still has the card open; by id.
    """

    cards: Cards
    places: tuple[Place, ...]
    leases: tuple[Lease, ...]
    strays: Mapping[int, str] = field(default_factory=dict)

    def device(self, uuid: str) -> tuple[Card, MigDevice | None]:
        """Return the card, and the instance, that a place is; see `device`."""
        return device(self.cards, uuid)


def device(cards: Cards, uuid: str) -> tuple[Card, MigDevice | None]:
    """Return the card, and the instance, that has a UUID.

    Raises:
        KeyError: there is none.
    """
    for card in cards.cards:
        if card.uuid == uuid:
            return card, None
        for instance in card.mig_devices:
            if instance.uuid == uuid:
                return card, instance
    raise KeyError(uuid)


def holders(leases: Iterable[Lease], root: Path = Path("/")) -> dict[int, int]:
    """Return the id of the lease that each process in a scope belongs to, by pid."""
    return {pid: lease.id for lease in leases for pid in scopes.pids(lease.scope, root)}


def view(cards: Cards, leases: Sequence[Lease], holder: Mapping[int, int]) -> View:
    """Put cards and leases together.

    Args:
        cards: as read.
        leases: those that hold their cards.
        holder: lease id by pid.
    """
    return View(cards, tuple(place for card in cards.cards for place in _places(card, holder)), tuple(leases))


def _places(card: Card, holder: Mapping[int, int]) -> list[Place]:
    if not card.mig_enabled or not card.mig_devices:
        name = f"card {card.index}"
        uuid = card.uuid or f"card {card.index}"
        make = partial(Place, uuid=uuid, index=card.index, name=name)
        if card.lost or not card.uuid:
            return [make(reason=card.reason or "NVML does not say which card it is")]
        if card.mig_enabled:
            return [make(instance=True, reason="MIG is on and there is no instance; ask the admin (mig_layout)")]
        if card.processes is None:
            return [make(reason=f"its processes cannot be read ({card.reason})")]
        return [_place(make, card, card.processes, holder)]
    found = []
    for instance in card.mig_devices:
        profile = instance.profile or f"MIG {instance.index}"
        make = partial(
            Place, uuid=instance.uuid, index=card.index, name=f"card {card.index} ({profile})", instance=True
        )
        if card.processes is None:
            found.append(make(reason=f"the processes of the card cannot be read ({card.reason})"))
            continue
        own = (instance.gpu_instance, instance.compute_instance)
        # A process that NVML puts on no instance may be on any.
        here = [
            process
            for process in card.processes
            if process.gpu_instance is None or (process.gpu_instance, process.compute_instance) == own
        ]
        found.append(_place(make, instance, here, holder))
    return found


def _place(
    make: Callable[..., Place], device: Card | MigDevice, processes: Sequence[Process], holder: Mapping[int, int]
) -> Place:
    if device.memory_used is None or device.memory_free is None:
        return make(reason="its memory cannot be read")
    by_lease: dict[int, int] = {}
    strangers = []
    for process in processes:
        number = holder.get(process.pid)
        if number is not None:
            by_lease[number] = by_lease.get(number, 0) + (process.memory or 0)
        elif process.kind != "G" and process.user is not None:
            # What only draws on the screen takes memory, not the card; what has ended is about to give both back.
            strangers.append(f"{process.user} ({process.command}, PID {process.pid})")
    return make(
        total=device.memory_used + device.memory_free,  # without what the driver keeps for itself
        used=device.memory_used,
        by_lease=by_lease,
        quiet=all(process.pid in holder for process in processes),
        strangers=tuple(strangers),
    )


def praise(place: Place, leases: Iterable[Lease], request: Request) -> str:
    """Say why a place was chosen."""
    held = [lease.user for lease, _ in on_place(place.uuid, leases)]
    company = f"shared with {', '.join(dict.fromkeys(held))}" if held else "nobody has it"
    free = place.total - place.foreign if not request.share else free_memory(place, leases)
    return f"{place.name}, {place.uuid}: {gib(free)} of {gib(place.total)} GiB free, {company}"


def describe(seen: View, waiting: Iterable[Mapping[str, Any]], now: float) -> dict[str, Any]:
    """Return what gpu-status shows, ready for JSON; unknown is None, never 0."""
    return {
        "reason": seen.cards.reason,
        "devices": [_device(seen, place) for place in seen.places],
        "leases": [_lease(seen, lease, now) for lease in seen.leases],
        "queue": list(waiting),
    }


def _device(seen: View, place: Place) -> dict[str, Any]:
    known = not place.reason
    held = on_place(place.uuid, seen.leases)
    try:
        model = seen.device(place.uuid)[0].name
    except KeyError:
        model = ""
    return {
        "uuid": place.uuid,
        "card": place.index,
        "name": place.name,
        "model": model,
        "mig": place.instance,
        "memory_total": place.total if known else None,
        "memory_used": place.used if known else None,
        "memory_promised": sum(card.memory for _, card in held),
        "memory_free": free_memory(place, seen.leases) if known else None,
        "leases": [lease.id for lease, _ in held],
        "strangers": list(place.strangers),
        "reason": place.reason,
    }


def _lease(seen: View, lease: Lease, now: float) -> dict[str, Any]:
    used = {place.uuid: place.by_lease.get(lease.id, 0) for place in seen.places if not place.reason}
    return {
        "id": lease.id,
        "user": lease.user,
        "pid": lease.pid,
        "command": lease.command,
        "since": lease.since,
        "seconds": max(0.0, now - lease.since),
        "hours": lease.hours,
        "stray": seen.strays.get(lease.id, ""),
        "devices": [
            {
                "uuid": card.uuid,
                "card": card.index,
                "shared": card.shared,
                "memory_promised": card.memory,
                "memory_used": used.get(card.uuid),
            }
            for card in lease.cards
        ],
    }
