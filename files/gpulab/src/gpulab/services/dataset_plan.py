"""What preflight says about datasets before anything is installed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..rules.inputs import parse_switch
from .dataset_mount import check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .dataset_mount import World

_SWITCH = "datasets_enabled"
AUTO = "auto"


def plan(variables: Mapping[str, Any], world: World) -> tuple[str, ...]:
    """Judge the folders that the inventory names for datasets; change nothing.

    Args:
        variables: the variables that are set.
        world: the outside.

    Returns:
        The lines of the plan that are about datasets; none when there are none.

    Raises:
        InputError: they cannot be used.
    """
    if "datasets_path" not in variables:
        return ()  # the site does not have the role
    path, store, wanted = (variables.get(f"datasets_{name}") for name in ("path", "store", "enabled"))
    if not isinstance(path, str) or not isinstance(store, str):
        raise InputError(f"datasets_path is {path!r} and datasets_store is {store!r}; give two folders")
    there = os.path.isdir(os.path.dirname(path))
    if not (there if wanted == AUTO else parse_switch(wanted, _SWITCH)):
        return ()
    check(path, store, world)
    return (f"datasets: {path}, from {store}",)
