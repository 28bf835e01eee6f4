"""What a node has and how much of it Slurm may hand out: plain data and arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .slurm_gres import Device, gres_count

if TYPE_CHECKING:
    from collections.abc import Mapping

CGROUP_V2 = "cgroup/v2"
CGROUP_V1 = "cgroup/v1"
NO_CGROUP = "disabled"

_RESERVE_LEAST = 512
_RESERVE_SHARE = 20
_ROUND = 256
"""MiB: the kernel of the next update manages a little more or less memory; that must not drain the node."""


@dataclass(frozen=True)
class Confinement:
    """By what jobs are confined to their cards, cores and memory on a node.

    Attributes:
        plugin: CGROUP_V2, CGROUP_V1, or NO_CGROUP when nothing is enforced there.
        mountpoint: the folder of the v1 controllers; empty otherwise.
        reason: why nothing can be enforced; empty when it can.
    """

    plugin: str
    mountpoint: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Topology:
    """Processors of a machine.

    Attributes:
        cpus: logical ones that are on line.
        sockets: physical packages.
        cores: physical cores of all of them.
    """

    cpus: int
    sockets: int
    cores: int

    @property
    def even(self) -> bool:
        """Whether sockets, cores and threads multiply to the number of CPUs, which Slurm insists on."""
        return bool(self.sockets and self.cores) and self.cores % self.sockets == 0 and self.cpus % self.cores == 0


@dataclass(frozen=True)
class Node:
    """One machine that runs jobs.

    Attributes:
        name: its host name without domain.
        address: how the other machines reach it.
        topology: processors.
        memory: RAM, MiB.
        devices: cards and instances.
        confinement: what its kernel can enforce.
    """

    name: str
    address: str
    topology: Topology
    memory: int
    devices: tuple[Device, ...]
    confinement: Confinement


@dataclass(frozen=True)
class Shares:
    """How the machine is divided among jobs that do not ask for particular amounts; 0 means: work it out.

    Attributes:
        cpus: CPUs that Slurm hands out on each node; more than there are makes jobs share cores.
        cpus_per_card: CPUs of a job for each of its cards.
        memory_per_card: RAM of a job for each of its cards, MiB. RAM of the machine, not of the card.
        memory_per_cpu: RAM of a job without cards for each of its CPUs, MiB.
        reserved_memory: RAM that no job gets, for the system and for login sessions, MiB.
    """

    cpus: int = 0
    cpus_per_card: int = 0
    memory_per_card: int = 0
    memory_per_cpu: int = 0
    reserved_memory: int = 0


@dataclass(frozen=True)
class Offer:
    """What a node offers and what a job gets by default.

    Attributes:
        line: its line of slurm.conf.
        cpus: CPUs it hands out.
        memory: RAM it hands out, MiB.
        cards: devices it hands out.
    """

    line: str
    cpus: int
    memory: int
    cards: int


@dataclass(frozen=True)
class Defaults:
    """What a job gets that does not say what it needs: CPUs and MiB for each card, MiB for each CPU without cards."""

    cpus_per_card: int = 1
    memory_per_card: int = 0
    memory_per_cpu: int = 0
    warnings: tuple[str, ...] = field(default=())


def offer(node: Node, shares: Shares) -> Offer:
    """Work out what a node hands out.

    Raises:
        InputError: nothing would be left for jobs.
    """
    reserve = shares.reserved_memory or max(_RESERVE_LEAST, node.memory // _RESERVE_SHARE)
    memory = (node.memory - reserve) // _ROUND * _ROUND
    if memory <= 0:
        raise InputError(
            f"tier_slurm_reserved_memory is {reserve}, and {node.name} has {node.memory} MiB; leave something for jobs"
        )
    cpus = shares.cpus or node.topology.cpus
    gres = gres_count(node.devices)
    fields = [f"NodeName={node.name}", f"NodeAddr={node.address}", *_processors(node.topology, cpus)]
    fields += [f"RealMemory={memory}", *([f"Gres={gres}"] if gres else [])]
    return Offer(" ".join(fields), cpus, memory, len(node.devices))


def _processors(topology: Topology, cpus: int) -> list[str]:
    if cpus != topology.cpus or not topology.even:
        return [f"CPUs={cpus}", "Boards=1", "SocketsPerBoard=1", f"CoresPerSocket={cpus}", "ThreadsPerCore=1"]
    return [
        f"CPUs={cpus}",
        "Boards=1",
        f"SocketsPerBoard={topology.sockets}",
        f"CoresPerSocket={topology.cores // topology.sockets}",
        f"ThreadsPerCore={topology.cpus // topology.cores}",
    ]


def defaults(offers: Mapping[str, Offer], shares: Shares) -> Defaults:
    """Work out what a job gets that does not say what it needs, so that every card of every node can be used at once.

    Raises:
        InputError: the inventory promises each card more than its node has.
    """
    with_cards = {name: each for name, each in offers.items() if each.cards}
    cpus = _per_card(with_cards, shares.cpus_per_card, "cpus", "tier_slurm_cpus_per_card", "CPUs")
    memory = _per_card(with_cards, shares.memory_per_card, "memory", "tier_slurm_memory_per_card", "MiB of RAM")
    least = min(each.memory // each.cpus for each in offers.values())
    if shares.memory_per_cpu > least:
        name = min(offers, key=lambda each: offers[each].memory // offers[each].cpus)
        raise InputError(
            f"tier_slurm_memory_per_cpu is {shares.memory_per_cpu}, and {name} has {offers[name].memory} MiB for "
            f"{offers[name].cpus} CPUs; give at most {least}"
        )
    return Defaults(cpus, memory, shares.memory_per_cpu or max(1, least // 2), _crowded(with_cards))


def _per_card(offers: Mapping[str, Offer], asked: int, what: str, variable: str, unit: str) -> int:
    room = {name: getattr(each, what) // each.cards for name, each in offers.items()}
    if not room:
        return max(asked, 1)
    name = min(room, key=lambda each: room[each])
    if asked > room[name]:
        total: Any = getattr(offers[name], what)
        if room[name] < 1:
            return 1  # fewer CPUs than cards: said as a warning, since no number would help
        raise InputError(
            f"{variable} is {asked}, and {name} has {total} {unit} for {offers[name].cards} cards; "
            f"give at most {room[name]}, or 0 to have it worked out"
        )
    return asked or max(1, room[name])


def _crowded(offers: Mapping[str, Offer]) -> tuple[str, ...]:
    return tuple(
        f"{name} has {each.cards} cards and {each.cpus} CPUs: not all cards can be used at once; "
        "set tier_slurm_cpus to let jobs share cores"
        for name, each in offers.items()
        if each.cpus < each.cards
    )
