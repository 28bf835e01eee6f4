"""Who may have which card: leases, what they promise, and the choice among what is free.

A *place* is what a program can be given as one device: a whole card, or a MIG instance. A lease takes places either
alone or shared; a shared one promises an amount of memory.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - dataclass fields are resolved by tests
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

GIB = 1 << 30
WHOLE = 0.9
"""Part of a card's memory that must be free for a lease that takes it alone and does not say how much it needs."""


@dataclass(frozen=True)
class LeasedCard:
    """One place of a lease.

    Attributes:
        uuid: `GPU-...` or `MIG-...`, the name for CUDA_VISIBLE_DEVICES.
        index: NVML index of the physical card.
        memory: bytes promised; all of the place's when it is not shared.
        shared: whether others may have leases beside this one.
    """

    uuid: str
    index: int
    memory: int
    shared: bool


@dataclass(frozen=True)
class Lease:
    """Cards that one command has; it ends when the last process of its scope does.

    Attributes:
        id: number, never used twice until the next reboot.
        user: account name of the holder.
        uid: user id of the holder.
        pid: the process that asked, which became the command.
        start_ticks: its start time in clock ticks since boot.
        cards: what it has.
        since: when it was given, seconds since the epoch.
        command: the command line in short, printable.
        scope: the systemd scope that holds the processes, such as `gpulab-lease-7.scope`.
        hours: how long the holder means to use it; None when not said.
        asked: when it was asked for, seconds since the epoch; None when not known.
    """

    id: int
    user: str
    uid: int
    pid: int
    start_ticks: int
    cards: tuple[LeasedCard, ...]
    since: float
    command: str
    scope: str
    hours: float | None = None
    asked: float | None = None


@dataclass(frozen=True)
class Request:
    """What somebody asks for.

    Attributes:
        cards: how many devices.
        memory: bytes needed on each; None for a whole one.
        share: whether others may be on the same card.
        hours: how long it is meant to run; None when not said.
    """

    cards: int = 1
    memory: int | None = None
    share: bool = False
    hours: float | None = None


@dataclass(frozen=True)
class Place:
    """A device as it stands.

    Attributes:
        uuid: its name for CUDA_VISIBLE_DEVICES.
        index: NVML index of the physical card.
        name: for people, such as `card 0` or `card 0 (3g.40gb)`.
        total: bytes that programs can have on it; 0 when unknown.
        used: bytes in use.
        by_lease: bytes that processes of each lease use, by lease id.
        quiet: no process without a lease is on it, not even one that only draws.
        strangers: who computes on it without a lease, such as `carol (python, PID 12)`.
        instance: a MIG instance.
        reason: why it cannot be given to anybody, as a clause; empty when it can.
    """

    uuid: str
    index: int
    name: str
    total: int = 0
    used: int = 0
    by_lease: Mapping[int, int] = field(default_factory=dict)
    quiet: bool = True
    strangers: tuple[str, ...] = ()
    instance: bool = False
    reason: str = ""

    @property
    def foreign(self) -> int:
        """Return the bytes used by what has no lease."""
        return max(0, self.used - sum(self.by_lease.values()))


@dataclass(frozen=True)
class Wish:
    """A request with whose it is.

    Attributes:
        request: what is asked for.
        bound: UUID of the MIG instance that this member is bound to; empty when not bound.
    """

    request: Request
    bound: str = ""


def on_place(uuid: str, leases: Iterable[Lease]) -> list[tuple[Lease, LeasedCard]]:
    """Return the leases that have a place, with their part of it."""
    return [(lease, card) for lease in leases for card in lease.cards if card.uuid == uuid]


def free_memory(place: Place, leases: Iterable[Lease]) -> int:
    """Return the bytes of a place that nobody uses and no lease has been promised.

    A process inside a lease uses what the lease was promised, so of the two the larger counts, not both.
    """
    taken = sum(max(card.memory, place.by_lease.get(lease.id, 0)) for lease, card in on_place(place.uuid, leases))
    return max(0, place.total - place.foreign - taken)


def possible(place: Place, wish: Wish, reserved: Collection[str] = ()) -> bool:
    """Tell whether a place could ever serve a wish, whoever has it now and whether or not it works today.

    Args:
        place: the place.
        wish: the wish.
        reserved: UUIDs of instances that some member is bound to.
    """
    request = wish.request
    if wish.bound:
        return place.uuid == wish.bound and request.cards == 1 and _large_enough(place, request)
    if place.uuid in reserved:
        return False
    # One program can use one MIG instance (CUDA C++ programming guide; MIG user guide, "CUDA visible devices").
    return (request.cards == 1 or not place.instance) and _large_enough(place, request)


def _large_enough(place: Place, request: Request) -> bool:
    return place.total == 0 or request.memory is None or request.memory <= place.total


def usable(place: Place, request: Request) -> bool:
    """Tell whether a place works today, whatever leases there are: it can be read, and strangers leave enough of it.

    Who computes without a lease keeps a place from those who want it alone, and leaves the others what memory there is.
    """
    if place.reason or (place.strangers and not request.share):
        return False
    needed = WHOLE * place.total if request.memory is None else request.memory
    return place.total - place.foreign >= needed


def available(place: Place, leases: Iterable[Lease], request: Request) -> bool:
    """Tell whether a usable place can be given now."""
    held = on_place(place.uuid, leases)
    if request.share:
        return all(card.shared for _, card in held) and free_memory(place, leases) >= (request.memory or 0)
    return not held


def choose(candidates: Iterable[Place], leases: Sequence[Lease], request: Request) -> tuple[LeasedCard, ...]:
    """Choose among places the ones that serve a request best.

    Taken alone: first places without any process, then the most free memory. Shared: first cards that are shared
    already, so that whole ones stay whole, then the most free memory. Equals in order of index.

    Args:
        candidates: places that are possible and usable.
        leases: all leases.
        request: the request.

    Returns:
        As many as asked for, or nothing.
    """
    free = [place for place in candidates if available(place, leases, request)]
    if len(free) < request.cards:
        return ()

    def rank(place: Place) -> tuple[bool, int, int, str]:
        first = bool(on_place(place.uuid, leases)) if request.share else place.quiet
        return not first, -free_memory(place, leases), place.index, place.uuid

    chosen = sorted(free, key=rank)[: request.cards]
    return tuple(
        LeasedCard(
            place.uuid, place.index, (request.memory or 0) if request.share else place.total, shared=request.share
        )
        for place in sorted(chosen, key=lambda place: (place.index, place.uuid))
    )
