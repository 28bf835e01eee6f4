"""Judge the Slurm tier's part of the inventory against the machines, before anything changes."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters.device_nodes import mig_minors
from ..adapters.files import read_regular
from ..adapters.nvml import read_cards
from ..adapters.slurm_node import (
    read_address,
    read_confinement,
    read_memory,
    read_topology,
    short_hostname,
)
from ..rules import slurm_plan
from ..rules.cards import Card, MigDevice, to_dict
from ..rules.members import parse_members
from ..rules.slurm_accounts import account_of
from ..rules.slurm_gres import inventory, kinds
from ..rules.slurm_node import Confinement, Node, Topology
from ..rules.slurm_qos import calendar, short_work, table
from ..rules.window_table import DEFAULT_TABLE, parse_windows
from ..settings import USUAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIMIT = 1 << 20
_CONTROLLER = re.compile(r"^\s*SlurmctldHost=([^\s(]+)", re.MULTILINE)
_CARD_KEYS = ("index", "uuid", "name", "minor", "memory_total", "mig_enabled", "lost", "reason")
_INSTANCE_KEYS = ("index", "uuid", "profile", "gpu_instance", "compute_instance", "memory_total", "memory_used")


@dataclass(frozen=True)
class Judged:
    """The answer.

    Attributes:
        plain: what the templates need.
        warnings: what somebody should know.
    """

    plain: dict[str, Any]
    warnings: tuple[str, ...]


def node_facts() -> dict[str, Any]:
    """Look at this machine once; everything as plain values."""
    cards = to_dict(read_cards())
    capabilities = mig_minors()
    groups = {
        f"gpu{card['minor']}/gi{instance['gpu_instance']}/"
        for card in cards["cards"]
        for instance in card["mig_devices"]
    }
    topology, confinement = read_topology(), read_confinement()
    return {
        "name": short_hostname(),
        "address": read_address(),
        "cpus": topology.cpus,
        "sockets": topology.sockets,
        "cores": topology.cores,
        "memory": read_memory(),
        "cards": [
            {
                **{key: card[key] for key in _CARD_KEYS},
                "mig_devices": [{key: each[key] for key in _INSTANCE_KEYS} for each in card["mig_devices"]],
            }
            for card in cards["cards"]
        ],
        "reason": cards["reason"],
        # The driver lists every instance that could ever be, thousands of them.
        "capabilities": {
            name: minor for name, minor in capabilities.items() if any(name.startswith(group) for group in groups)
        },
        "cgroup_plugin": confinement.plugin,
        "cgroup_mountpoint": confinement.mountpoint,
        "cgroup_reason": confinement.reason,
    }


def judge(
    settings: Mapping[str, Any],
    facts: Sequence[Mapping[str, Any]],
    *,
    members: Sequence[Mapping[str, Any]],
    windows: Any = USUAL,
    controller: str = "",
    lenient: bool = False,
    root: Path = Path("/"),
) -> Judged:
    """Work out what the files of Slurm say.

    Args:
        settings: the tier's variables, by their names without `tier_slurm_`.
        facts: what `node_facts` said on each machine that runs jobs.
        members: the list of members.
        windows: the table of golden hours; USUAL for the one that gpulab comes with.
        controller: host name of the controller; empty for this machine.
        lenient: planning for a new server, where cards cannot be seen yet.
        root: the folder that stands for `/`.

    Raises:
        InputError: naming variable, value and remedy; nothing was changed.
    """
    people = parse_members(members)
    present = [member for member in people if member.present]
    fallback = str(settings.get("account", "members"))
    hours = parse_windows(DEFAULT_TABLE if windows == USUAL else windows)
    nodes, problems = _nodes(facts, settings.get("card_types") or {})
    names = [member.name for member in present]
    inputs = slurm_plan.read_inputs(
        settings,
        nodes=[node.name for node in nodes],
        members=names,
        groups=sorted({account_of(member, fallback) for member in present}),
    )
    slurm_plan.check_names(settings, standing(root), controller or short_hostname(), names)
    plan = slurm_plan.make_plan(inputs, nodes, problems=problems, lenient=lenient)
    minutes, cards = short_work(hours)
    plain = {
        **slurm_plan.plain(plan),
        "window_starts": table(hours),
        "calendar": list(calendar(hours)),
        "short_minutes": minutes,
        "short_cards": cards,
        "weights": asdict(inputs.weights),
    }
    return Judged(plain, plan.warnings)


def standing(root: Path) -> slurm_plan.Standing:
    """Read which names Slurm's own files bind us to."""
    cluster = _text(Path(names.under(root, names.SLURM_CLUSTER_FILE))).strip().partition("|")[0]
    found = _CONTROLLER.search(_text(root / "etc/slurm/slurm.conf"))
    return slurm_plan.Standing(cluster=cluster, controller=found[1] if found else "")


def _text(path: Path) -> str:
    try:
        return read_regular(path, limit=_LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _nodes(facts: Sequence[Mapping[str, Any]], chosen: Mapping[str, str]) -> tuple[list[Node], list[str]]:
    cards = {fact["name"]: [_card(each) for each in fact["cards"]] for fact in facts}
    names = kinds([card for found in cards.values() for card in found], chosen=chosen)
    nodes: list[Node] = []
    problems: list[str] = []
    for fact in facts:
        found = inventory(cards[fact["name"]], fact["capabilities"], names)
        problems += [f"{fact['name']}: {problem}" for problem in found.problems]
        if fact["reason"]:
            problems.append(f"{fact['name']}: {fact['reason']}")
        nodes.append(
            Node(
                name=fact["name"],
                # One machine alone talks to itself, whatever becomes of its network.
                address=fact["address"] if len(facts) > 1 else "127.0.0.1",
                topology=Topology(fact["cpus"], fact["sockets"], fact["cores"]),
                memory=fact["memory"],
                devices=found.devices,
                confinement=Confinement(fact["cgroup_plugin"], fact["cgroup_mountpoint"], fact["cgroup_reason"]),
            )
        )
    return nodes, problems


def _card(raw: Mapping[str, Any]) -> Card:
    instances = tuple(MigDevice(**{key: each[key] for key in _INSTANCE_KEYS}) for each in raw["mig_devices"])
    return Card(**{key: raw[key] for key in _CARD_KEYS}, mig_devices=instances)
