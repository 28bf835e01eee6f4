"""Judge inventory and machine before anything changes, and say what the run is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters.cgroup import device_control
from ..rules import bandwidth, board
from ..rules.lab import TIERS, Lab, parse_lab
from ..rules.member_registry import ABSENT
from ..rules.server import judge, parse_server
from . import dataset_mount, dataset_plan, guard_plan, quota_plan
from .members import read_registry
from .quota_world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..rules.guard_check import DeviceControl


@dataclass(frozen=True)
class Preflight:
    """What the run will be about.

    Attributes:
        lab: the inventory's wishes, understood.
        plan: lines for the admin, risky steps first.
        warnings: what is worth knowing but stops nothing.
        old_tiers: tiers whose parts are on the server and not wanted now.
        extras: roles that few labs need (`board`, `bandwidth`): those wanted now or there from an earlier run.
    """

    lab: Lab
    plan: tuple[str, ...]
    warnings: tuple[str, ...]
    old_tiers: tuple[str, ...]
    extras: tuple[str, ...]


def inspect(
    variables: Mapping[str, Any],
    *,
    defined: Iterable[str],
    facts: Mapping[str, Any],
    root: Path = Path("/"),
    control: Callable[[Path], DeviceControl] = device_control,
) -> Preflight:
    """Read the inventory and the machine; change nothing.

    Args:
        variables: the lab-wide variables that are set.
        defined: names of all variables that look like lab-wide ones.
        facts: Ansible's facts about the machine.
        root: the folder that stands for `/`.
        control: tells what the machine has for refusing devices.

    Raises:
        InputError: the inventory or the machine cannot be used; one line with name, value and remedy.
    """
    lab = parse_lab(variables, defined=defined)
    server = parse_server(facts)
    warnings = judge(server)
    old_tiers = _old_tiers(lab.tier, root)
    risks = guard_plan.plan(lab, variables, root=root, control=control)
    limits = quota_plan.plan(lab, variables, World(root=root))
    datasets = dataset_plan.plan(variables, dataset_mount.World(root=root))
    line, page = bandwidth.plan(variables), board.plan(variables)
    plan = (*risks, *line, *_plan(lab, old_tiers, server.system, root), *limits, *datasets, *page)
    settings = Path(names.under(root, names.SETTINGS_DIR))
    wanted = {"board": bool(page), "bandwidth": bool(line)}
    extras = tuple(name for name in wanted if wanted[name] or (settings / f"{name}.toml").exists())
    return Preflight(lab=lab, plan=plan, warnings=warnings, old_tiers=old_tiers, extras=extras)


def _old_tiers(tier: str, root: Path) -> tuple[str, ...]:
    marks = Path(names.under(root, names.TIERS_STATE_DIR))
    return tuple(name for name in TIERS if name != tier and (marks / name).exists())


def _plan(lab: Lab, old_tiers: tuple[str, ...], system: str, root: Path) -> list[str]:
    known = {entry.name for entry in read_registry(root) if entry.state != ABSENT}
    leaving = sorted(member.name for member in lab.members if not member.present and member.name in known)
    joining = sorted(member.name for member in lab.members if member.present and member.name not in known)
    lines: list[str] = []
    if leaving:
        lines.append(f"RISK  {len(leaving)} leave: processes and bookings ended, account locked: {_some(leaving)}")
    lines += [f"RISK  tier {old} goes: its commands and rules are taken away, data stays" for old in old_tiers]
    fresh = not Path(names.under(root, names.SETTINGS_FILE)).exists()
    lines.append(f"server: {system}, {'new to gpulab' if fresh else 'already a gpulab server'}")
    lines.append(f"tier: {lab.tier} ({lab.tier_reason})")
    hours = ", ".join(f"{window.name} {window.hours} {window.work}" for window in lab.windows)
    lines.append(f"golden hours: {hours or 'none'}")
    lines.append(f"members: {sum(member.present for member in lab.members)} present; in charge: {lab.admin}")
    if joining:
        lines.append(f"new members: {_some(joining)}")
    return lines


def _some(people: list[str], most: int = 8) -> str:
    more = f" and {len(people) - most} more" if len(people) > most else ""
    return ", ".join(people[:most]) + more
