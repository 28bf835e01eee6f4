"""What preflight says about disk limits before anything is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..rules.inputs import parse_switch
from ..rules.quota import parse_policy
from ..rules.quota_places import places
from .quota import paths_of
from .quota_world import find_mounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.lab import Lab
    from .quota_world import World

_SWITCH = "disk_quota_enabled"
_LISTS = ("folders", "overrides", "projects")


def plan(lab: Lab, variables: Mapping[str, Any], world: World) -> tuple[str, ...]:
    """Judge the limits that the inventory asks for against the file systems that are there; change nothing.

    Args:
        lab: the inventory's wishes.
        variables: the variables that are set.
        world: the outside.

    Returns:
        The lines of the plan that are about disk limits; none when nobody asks for any.

    Raises:
        InputError: they cannot be understood, or cannot be had on this machine.
    """
    enabled = parse_switch(variables.get(_SWITCH, True), _SWITCH)
    raw = {name: variables.get(f"disk_quota_{name}") or [] for name in _LISTS}
    for name, value in raw.items():
        if not isinstance(value, list):
            raise InputError(f"disk_quota_{name} is {value!r}; give a list, such as [{{path: /home, hard: 220G}}]")
    policy = parse_policy(raw, [member.name for member in lab.members if member.present])
    if not enabled or not paths_of(policy):
        return ()
    found = places(policy, find_mounts(paths_of(policy), world))
    return (f"disk limits: {', '.join(place.title for place in found)}",)
