"""What preflight says about the guard before anything is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..adapters.accounts import read_accounts, read_groups
from ..rules.guard import GUARDED_TIERS
from ..rules.guard_check import disabled_words, unenforced_words, unheld, why_not
from ..rules.inputs import parse_switch
from .guard import in_force
from .guard_people import open_hands

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..rules.guard_check import DeviceControl
    from ..rules.lab import Lab

_SWITCH = "gpu_guard_enabled"


def plan(
    lab: Lab, variables: Mapping[str, Any], *, root: Path, control: Callable[[Path], DeviceControl]
) -> tuple[str, ...]:
    """Return the lines of the plan that are about the guard; none in a tier that does not hand out cards.

    Args:
        lab: the inventory's wishes.
        variables: the variables that are set.
        root: the folder that stands for `/`.
        control: tells what the machine has for refusing devices.

    Raises:
        InputError: gpu_guard_enabled is neither true nor false.
    """
    enabled = parse_switch(variables.get(_SWITCH, True), _SWITCH)
    if lab.tier not in GUARDED_TIERS:
        return ()
    if not enabled:
        return (disabled_words(lab.tier),)
    reason = why_not(control(root / "proc"))
    if reason:
        return (unenforced_words(reason),)
    lines = []
    members = {member.name for member in lab.members if member.present and not member.admin}
    loose = unheld(members, {name: group.members for name, group in read_groups(root).items()})
    if loose:
        lines.append(f"RISK  the guard does not hold who is root by a group: {', '.join(loose)}; take them out of it")
    if not in_force(root):
        lines.append("RISK  the cards are closed to members' sessions, open ones too; who is on a card keeps it")
        admins = {member.name for member in lab.members if member.admin}
        exempt = {account.uid: name for name, account in read_accounts(root).items() if name in admins}
        lines += [f"RISK  {line}" for line in open_hands(exempt, root / "proc")]
    return tuple(lines)
