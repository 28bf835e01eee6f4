"""What the ledger says about the machine around the cards: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .quota_warn import Reading

ABSENT = "there is no such folder"
"""The reason of a disk whose folder is not there."""


@dataclass(frozen=True)
class Disk:
    """One place that members write to, and the file system behind it.

    Attributes:
        path: such as `/home`.
        total: size of the file system, bytes; None when unknown.
        free: what ordinary users can still write, bytes; None when unknown.
        reason: why the numbers are unknown; empty when they are there.
    """

    path: str
    total: int | None = None
    free: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Machine:
    """The machine around the cards.

    Attributes:
        hostname: as the machine calls itself.
        cpu: processor model; empty when unknown.
        sockets: processors, None when unknown.
        cores: cores of all processors together, None when unknown.
        threads: logical CPUs, None when unknown.
        memory: RAM that the kernel manages, bytes; None when unknown.
        disks: the places asked for, in that order.
        quotas: how much of their limits members and shared folders use; empty where nothing is limited.
        quota_off: folders whose limits the kernel does not enforce now.
        quota_reason: why all that is unknown; empty when it is not.
    """

    hostname: str
    cpu: str = ""
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    memory: int | None = None
    disks: tuple[Disk, ...] = ()
    quotas: tuple[Reading, ...] = ()
    quota_off: tuple[str, ...] = ()
    quota_reason: str = ""
