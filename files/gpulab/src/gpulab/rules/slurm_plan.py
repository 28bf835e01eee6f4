"""From the inventory and the machines to what the files of Slurm say: everything is checked before anything changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from . import slurm_inputs
from .slurm_gres import gres_line
from .slurm_node import CGROUP_V1, NO_CGROUP, Confinement, Node, defaults, offer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .slurm_inputs import Inputs, Partition

_WORD = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9]*")


@dataclass(frozen=True)
class Standing:
    """What is installed already, as far as it cannot be changed by writing another file.

    Attributes:
        cluster: name in slurmctld's state; empty on a new server.
        controller: host name in the slurm.conf that is there; empty likewise.
    """

    cluster: str = ""
    controller: str = ""


@dataclass(frozen=True)
class Plan:
    """What the templates need.

    Attributes:
        nodes: NodeName lines.
        gres: lines of gres.conf.
        cards: name of a node to the last device file of each of its cards and instances, as Slurm numbers them.
        partitions: in the order of the inventory.
        confinement: what the kernels of all nodes can enforce.
        cpus_per_card: DefCpuPerGPU.
        memory_per_card: DefMemPerGPU, MiB.
        memory_per_cpu: DefMemPerCPU, MiB.
        shared_cores: whether Slurm is told of other processors than there are.
        types: types of cards and instances, with how many there are.
        warnings: what somebody should know.
    """

    nodes: tuple[str, ...]
    gres: tuple[str, ...]
    cards: Mapping[str, tuple[str, ...]]
    partitions: tuple[Partition, ...]
    confinement: Confinement
    cpus_per_card: int
    memory_per_card: int
    memory_per_cpu: int
    shared_cores: bool
    types: Mapping[str, int]
    warnings: tuple[str, ...]


def read_inputs(
    raw: Mapping[str, Any], *, nodes: Sequence[str], members: Sequence[str], groups: Sequence[str]
) -> Inputs:
    """Read the tier's variables, by their names without `tier_slurm_`.

    Args:
        raw: the values.
        nodes: names of the nodes.
        members: names of the present members.
        groups: accounts that members belong to.

    Raises:
        InputError: naming variable, value and remedy.
    """
    limits = slurm_inputs.parse_limits(raw.get("limits", {}), "tier_slurm_limits")
    return slurm_inputs.Inputs(
        partitions=slurm_inputs.parse_partitions(raw.get("partitions"), nodes=nodes),
        limits=limits,
        member_limits=slurm_inputs.parse_member_limits(raw.get("member_limits", {}), limits, members),
        account_shares=slurm_inputs.parse_account_shares(raw.get("account_shares", {}), groups),
        shares=slurm_inputs.parse_shares(raw),
        weights=slurm_inputs.parse_weights(raw.get("weights", {})),
    )


def check_names(raw: Mapping[str, Any], standing: Standing, controller: str, members: Sequence[str]) -> None:
    """Refuse names that Slurm cannot take, or that its state on disk does not let us change.

    Args:
        raw: the tier's variables.
        standing: what is installed.
        controller: host name of the controller.
        members: names of the present members.

    Raises:
        InputError: naming variable, value and remedy.
    """
    cluster = raw.get("cluster", "lab")
    if not isinstance(cluster, str) or not _WORD.fullmatch(cluster):
        raise InputError(f"tier_slurm_cluster is {cluster!r}; give a lower-case word, such as lab")
    if standing.cluster and standing.cluster != cluster:
        raise InputError(
            f"tier_slurm_cluster is {cluster}, but the accounts and the queue here belong to {standing.cluster}; "
            f"keep tier_slurm_cluster: {standing.cluster}"
        )
    if not _HOST.fullmatch(controller):
        raise InputError(
            f"the controller calls itself {controller!r}, which Slurm cannot use as a name; "
            "set a host name of lower-case letters, digits and -"
        )
    if standing.controller and standing.controller != controller:
        raise InputError(
            f"this server was called {standing.controller} when Slurm was set up and is called {controller} now; "
            f"name it {standing.controller} again (hostnamectl), or take Slurm off and set it up anew (gpu_tier)"
        )
    for name in members:
        if not _WORD.fullmatch(name):
            raise InputError(
                f"lab_members: {name!r} cannot be a user of Slurm; choose a lower-case letter, then lower-case "
                "letters, digits, - and _, at most 32"
            )
    for key, value in (raw.get("settings") or {}).items():
        if not _SETTING.fullmatch(str(key)):
            raise InputError(
                f"tier_slurm_settings: {key!r} is not a parameter of slurm.conf; write it as in its manual"
            )
        if not str(value).isprintable():
            raise InputError(f"tier_slurm_settings.{key} is {value!r}; give one line of text")


def make_plan(inputs: Inputs, nodes: Sequence[Node], *, problems: Sequence[str], lenient: bool) -> Plan:
    """Work out what the files say.

    Args:
        inputs: the inventory.
        nodes: the machines.
        problems: cards that are left out, and why.
        lenient: planning for a new server, where nothing can ask NVML yet: no card at all is a warning.

    Raises:
        InputError: a machine has no card, or the inventory promises more than there is.
    """
    warnings = list(problems)
    bare = [node.name for node in nodes if not node.devices]
    if bare and not lenient:
        raise InputError(
            f"{bare[0]} has no card that Slurm could hand out ({'; '.join(problems) or 'NVML shows none'}); "
            "mend that, or take it out of group slurm_compute"
        )
    warnings += [f"{name} shows no card yet; the plan leaves its cards out" for name in bare]
    offers = {node.name: offer(node, inputs.shares) for node in nodes}
    shares = defaults(offers, inputs.shares)
    confinement = weakest([node.confinement for node in nodes])
    if confinement.plugin == NO_CGROUP:
        warnings.append(
            f"NOT ENFORCED: a job's cards, cores and memory; {confinement.reason}. A job can open cards that it was "
            "not given"
        )
    counted: dict[str, int] = {}
    for node in nodes:
        for device in node.devices:
            counted[device.kind] = counted.get(device.kind, 0) + 1
    return Plan(
        nodes=tuple(each.line for each in offers.values()),
        gres=tuple(gres_line(node.name, device) for node in nodes for device in node.devices),
        cards={node.name: tuple(device.files[-1] for device in node.devices) for node in nodes},
        partitions=inputs.partitions,
        confinement=confinement,
        cpus_per_card=shares.cpus_per_card,
        memory_per_card=shares.memory_per_card,
        memory_per_cpu=shares.memory_per_cpu,
        shared_cores=any(offers[node.name].cpus != node.topology.cpus for node in nodes),
        types=counted,
        warnings=(*warnings, *shares.warnings),
    )


def weakest(found: Sequence[Confinement]) -> Confinement:
    """Return what all nodes can enforce; they share one cgroup.conf."""
    first = found[0]
    if all((each.plugin, each.mountpoint) == (first.plugin, first.mountpoint) for each in found):
        return first
    reason = next((each.reason for each in found if each.reason), "the nodes' kernels differ in their cgroup trees")
    return Confinement(NO_CGROUP, reason=reason)


def plain(plan: Plan) -> dict[str, Any]:
    """Return a plan as the templates use it."""
    return {
        "nodes": list(plan.nodes),
        "gres": list(plan.gres),
        "cards": {name: list(files) for name, files in plan.cards.items()},
        "partitions": [_plain_partition(each) for each in plan.partitions],
        "cgroup_plugin": plan.confinement.plugin,
        "cgroup_mountpoint": plan.confinement.mountpoint,
        "enforced": plan.confinement.plugin != NO_CGROUP,
        "legacy_cgroup": plan.confinement.plugin == CGROUP_V1,
        "cpus_per_card": plan.cpus_per_card,
        "memory_per_card": plan.memory_per_card,
        "memory_per_cpu": plan.memory_per_cpu,
        "shared_cores": plan.shared_cores,
        "types": dict(plan.types),
    }


def _plain_partition(partition: Partition) -> dict[str, Any]:
    return {
        "name": partition.name,
        "default": partition.default,
        "max_minutes": max(1, round(partition.max_hours * 60)),
        "default_minutes": max(1, round(partition.default_hours * 60)),
        "tier": partition.tier,
        "preemptible": partition.preemptible,
        "grace_seconds": round(partition.grace_minutes * 60),
        "priority": partition.priority,
        "groups": list(partition.groups),
        "nodes": list(partition.nodes),
    }
