"""Who is on which card: the processes of people, with the time they began."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..names import UID_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .cards import Card, Process


@dataclass(frozen=True)
class Boot:
    """When the machine started; turns a process's start ticks into a time of day.

    Attributes:
        epoch: start of the machine, seconds since 1970 (CLOCK_BOOTTIME taken from now).
        ticks_per_second: sysconf(_SC_CLK_TCK).
    """

    epoch: float
    ticks_per_second: int = 100

    def started(self, process: Process) -> float | None:
        """Return when the process began, seconds since 1970; None when unknown."""
        return None if process.start_ticks is None else self.epoch + process.start_ticks / self.ticks_per_second


@dataclass(frozen=True)
class Sighting:
    """One process of a person on one card.

    Attributes:
        gpu_id: the card.
        pid: process id.
        user: account name, or the uid as text when there is no such account.
        command: the program's name.
        started: when it began, seconds since 1970; None when unknown.
        memory: GPU memory it uses, bytes; None when the driver does not say.
    """

    gpu_id: int
    pid: int
    user: str
    command: str
    started: float | None
    memory: int | None


def on_card(card: Card, boot: Boot) -> Mapping[str, tuple[Sighting, ...]]:
    """Sort a card's processes by person.

    System accounts are left out, and so is a process that ended while it was looked at. A process on two MIG instances
    of the card is one sighting with its memory added up.

    Returns:
        Account name to sightings in order of pid; empty when the card would not say.
    """
    merged: dict[int, Sighting] = {}
    for process in card.processes or ():
        if process.uid is None or process.user is None or process.uid < UID_MIN:
            continue
        seen = merged.get(process.pid)
        merged[process.pid] = Sighting(
            gpu_id=card.index,
            pid=process.pid,
            user=process.user,
            command=process.command,
            started=boot.started(process),
            memory=_sum((process.memory, seen.memory)) if seen else process.memory,
        )
    people: dict[str, list[Sighting]] = {}
    for pid in sorted(merged):
        people.setdefault(merged[pid].user, []).append(merged[pid])
    return {user: tuple(sightings) for user, sightings in people.items()}


def outside_of(card: Card, bindings: Mapping[str, str]) -> Card:
    """Return a card without the processes that run in an instance of their owner's own.

    Args:
        card: as read.
        bindings: account name to UUID of their MIG instance.
    """
    if not card.processes or not bindings:
        return card
    devices = {device.uuid: (device.gpu_instance, device.compute_instance) for device in card.mig_devices}
    own = {user: devices[uuid] for user, uuid in bindings.items() if uuid in devices}
    others = tuple(
        process
        for process in card.processes
        if process.user not in own or own[process.user] != (process.gpu_instance, process.compute_instance)
    )
    return replace(card, processes=others)


def is_clear(card: Card) -> bool:
    """Tell whether all processes of the card and their owners are known: only then may absence mean anything."""
    return card.processes is not None and all(process.uid is not None for process in card.processes)


def is_readable(card: Card) -> bool:
    """Tell whether NVML answers for the card: what it is, its memory, and who uses it."""
    return bool(card.uuid) and card.memory_total is not None and card.processes is not None


def _sum(amounts: Iterable[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
