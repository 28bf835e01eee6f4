"""The Slurm tier's part of the inventory, read strictly: partitions, limits, weights.

Each refusal is one line that names the variable, the value and the remedy; nothing has been changed when it is raised.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .slurm_node import Shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_RESERVED_PARTITIONS = {"default"}
_MOST_HOURS = 24 * 365
_MOST_TIER = 65533  # PriorityTier of slurm.conf(5)
_MOST_NUMBER = 1_000_000
_MOST_MEMORY = 1 << 30
"""MiB: a petabyte, which no node has; a larger number is a typing error."""


@dataclass(frozen=True)
class Partition:
    """A queue that members submit to.

    Attributes:
        name: what members write after `-p`.
        default: whether jobs go here that name none.
        max_hours: the longest job.
        default_hours: length of a job that does not say.
        tier: jobs of a higher tier start first, and stop jobs of a lower tier that are preemptible.
        preemptible: whether its jobs can be stopped and requeued for those of a higher tier.
        grace_minutes: how long a job that is stopped has to save its state.
        priority: share of PriorityWeightPartition its jobs get, 0 to 100.
        groups: Unix groups whose members may use it; empty for everybody.
        nodes: names of its nodes; empty for all.
    """

    name: str
    default: bool = False
    max_hours: float = 48.0
    default_hours: float = 1.0
    tier: int = 10
    preemptible: bool = False
    grace_minutes: float = 2.0
    priority: int = 0
    groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limits:
    """What one member may have at once; None for no limit.

    Attributes:
        cards: cards and MIG instances of all running jobs.
        jobs: running jobs.
        submitted: running and waiting jobs.
        shares: weight in the fair share; others of the same account have 1.
    """

    cards: int | None = None
    jobs: int | None = None
    submitted: int | None = None
    shares: int = 1


@dataclass(frozen=True)
class Weights:
    """The most that each reason can add to the priority of a job (slurm.conf(5), PriorityWeight*).

    Attributes:
        fairshare: little use in the past.
        age: time in the queue.
        qos: the golden hours of the job's class.
        partition: the partition.
        submission: 100 % of what the hour of submission counts; a window of weight 0.5 takes off half of it.
    """

    fairshare: int = 10000
    age: int = 2000
    qos: int = 4000
    partition: int = 1000
    submission: int = 12000


@dataclass(frozen=True)
class Inputs:
    """What the inventory says about the Slurm tier."""

    partitions: tuple[Partition, ...]
    limits: Limits = field(default_factory=Limits)
    member_limits: Mapping[str, Limits] = field(default_factory=dict)
    account_shares: Mapping[str, int] = field(default_factory=dict)
    shares: Shares = field(default_factory=Shares)
    weights: Weights = field(default_factory=Weights)


def parse_partitions(raw: Any, *, nodes: Sequence[str]) -> tuple[Partition, ...]:
    """Read `tier_slurm_partitions`.

    Args:
        raw: the list as it stands in the inventory.
        nodes: names of the nodes there are.

    Raises:
        InputError: something in it cannot be used.
    """
    variable = "tier_slurm_partitions"
    if not isinstance(raw, list) or not raw:
        raise InputError(f"{variable} is {raw!r}; give a list of partitions, each beginning with `- name:`")
    found = tuple(_partition(item, f"{variable}[{position}]", nodes) for position, item in enumerate(raw))
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise InputError(f"{variable}: {twice} is there twice; remove one")
    chosen = [each.name for each in found if each.default]
    if len(chosen) != 1:
        raise InputError(
            f"{variable}: {len(chosen)} partitions have `default: true` ({', '.join(chosen) or 'none'}); "
            "give it to exactly one"
        )
    return found


def _partition(raw: Any, where: str, nodes: Sequence[str]) -> Partition:
    values = _mapping(raw, where, Partition)
    name = values.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED_PARTITIONS:
        raise InputError(
            f"{where}.name is {name!r}; give a lower-case word such as batch (letters, digits, - and _; not default)"
        )
    where = f"tier_slurm_partitions, {name}"
    partition = Partition(
        name=name,
        default=_flag(values, "default", where, default=False),
        max_hours=_number(values, "max_hours", where, Partition.max_hours, most=_MOST_HOURS),
        default_hours=_number(values, "default_hours", where, Partition.default_hours, most=_MOST_HOURS),
        tier=_whole(values, "tier", where, Partition.tier, least=1, most=_MOST_TIER),
        preemptible=_flag(values, "preemptible", where, default=False),
        grace_minutes=_number(values, "grace_minutes", where, Partition.grace_minutes, least=0, most=60),
        priority=_whole(values, "priority", where, 0, least=0, most=100),
        groups=_words(values, "groups", where),
        nodes=_words(values, "nodes", where),
    )
    if partition.default_hours > partition.max_hours:
        raise InputError(
            f"{where}: default_hours is {partition.default_hours:g}, above max_hours {partition.max_hours:g}; lower it"
        )
    unknown = next((node for node in partition.nodes if node not in nodes), None)
    if unknown is not None:
        raise InputError(f"{where}: node {unknown!r} is not there; the nodes are {', '.join(nodes)}")
    return partition


def parse_limits(raw: Any, variable: str, *, base: Limits | None = None) -> Limits:
    """Read limits; keys that are not given stay as in `base`.

    Raises:
        InputError: a key is unknown or a number makes no sense.
    """
    base = base or Limits()
    values = _mapping(raw, variable, Limits)
    chosen: dict[str, Any] = {}
    for item in fields(Limits):
        value = values.get(item.name, getattr(base, item.name))
        if value is None and item.name != "shares":
            chosen[item.name] = None
        elif type(value) is not int or not 0 <= value <= _MOST_NUMBER:
            raise InputError(f"{variable}.{item.name} is {value!r}; give a whole number, 0 or more, or leave it out")
        else:
            chosen[item.name] = value
    return Limits(**chosen)


def parse_member_limits(raw: Any, base: Limits, members: Sequence[str]) -> dict[str, Limits]:
    """Read `tier_slurm_member_limits`, which says by name what differs from everybody's limits.

    Raises:
        InputError: it names somebody who is not in the list.
    """
    variable = "tier_slurm_member_limits"
    if not isinstance(raw, dict):
        raise InputError(f"{variable} is {raw!r}; give limits by name, such as {{bob: {{cards: 2}}}}")
    for name in raw:
        _known(str(name), members, f"{variable} names {name}, who is not in lab_members")
    return {str(name): parse_limits(value, f"{variable}.{name}", base=base) for name, value in raw.items()}


def parse_account_shares(raw: Any, accounts: Sequence[str]) -> dict[str, int]:
    """Read `tier_slurm_account_shares`: account (a group of lab_members) to its weight in the fair share.

    Raises:
        InputError: it names an account that no member belongs to.
    """
    variable = "tier_slurm_account_shares"
    if not isinstance(raw, dict):
        raise InputError(f"{variable} is {raw!r}; give weights by account, such as {{vision: 2}}")
    for name, value in raw.items():
        _known(str(name), accounts, f"{variable} names {name}, which is no group of a member")
        if type(value) is not int or not 1 <= value <= _MOST_NUMBER:
            raise InputError(f"{variable}.{name} is {value!r}; give a whole number, 1 or more")
    return {str(name): value for name, value in raw.items()}


def parse_shares(raw: Mapping[str, Any]) -> Shares:
    """Read how CPUs and memory are divided; each stands in a variable `tier_slurm_NAME` of its own.

    Raises:
        InputError: a number makes no sense.
    """
    return Shares(
        **{
            item.name: _whole(raw, item.name, "tier_slurm", 0, least=0, most=_MOST_MEMORY, join="_")
            for item in fields(Shares)
        }
    )


def parse_weights(raw: Any) -> Weights:
    """Read `tier_slurm_weights`.

    Raises:
        InputError: a key is unknown or a number makes no sense.
    """
    variable = "tier_slurm_weights"
    values = _mapping(raw, variable, Weights)
    return Weights(
        **{
            item.name: _whole(values, item.name, variable, getattr(Weights, item.name), least=0, most=_MOST_NUMBER)
            for item in fields(Weights)
        }
    )


def _mapping(raw: Any, where: str, kind: type[Any]) -> Mapping[str, Any]:
    keys = [item.name for item in fields(kind)]
    if not isinstance(raw, dict):
        raise InputError(f"{where} is {raw!r}; give a mapping with the keys {', '.join(keys)}")
    for key in raw:
        _known(str(key), keys, f"{where}: the key {key!r} is unknown")
    return raw


def _known(name: str, names: Sequence[str], complaint: str) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names) or 'none'}"
        raise InputError(f"{complaint}; {hint}")


def _flag(values: Mapping[str, Any], key: str, where: str, *, default: bool) -> bool:
    value = values.get(key, default)
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key} is {value!r}; give true or false, without quotes")
    return value


def _number(
    values: Mapping[str, Any], key: str, where: str, default: float, *, least: float = 0.01, most: float
) -> float:
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InputError(f"{where}: {key} is {value!r}; give a number from {least:g} to {most:g}")
    return float(value)


def _whole(
    values: Mapping[str, Any], key: str, where: str, default: int, *, least: int, most: int, join: str = ": "
) -> int:
    value = values.get(key, default)
    # A number given on the command line (-e tier_slurm_cpus=16) arrives as text.
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"{where}{join}{key} is {value!r}; give a whole number from {least} to {most}")
    return value


def _words(values: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = values.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and _NAME.fullmatch(item) for item in value):
        raise InputError(f"{where}: {key} is {value!r}; give a list of names, such as [gpu-admins]")
    return tuple(value)
