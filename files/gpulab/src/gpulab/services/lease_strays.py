"""Who still has the card of an ended lease open, from outside: a device filter judges opening, not what is open.

A program can leave its lease with a card open (its owner's service manager may take it elsewhere), or hand the open
node to another (SCM_RIGHTS, unix(7)). The lease is not over before the last of these is.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.apart import run_apart
from ..adapters.device_nodes import nodes_of
from ..adapters.people_processes import holding
from ..adapters.scopes import scope_of
from ..errors import GpulabError
from ..rules.guard import ALL_SESSIONS, drop_in
from .lease_view import device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..rules.cards import Cards
    from ..rules.leases import Lease

_PATIENCE = 5.0
"""Seconds; looking at an open file can hang on a network file system that does not answer."""


def strays(
    nodes: Mapping[int, Sequence[str]],
    owners: Mapping[int, int],
    root: Path = Path("/"),
    log: Callable[[str], None] = print,
    patience: float = _PATIENCE,
) -> dict[int, str]:
    """Find who has nodes open without being in any lease.

    Members who may open the cards anyway, and servers where everybody may (no guard), are left out: there an open card
    says nothing about leases. On a shared card somebody's open card counts for their own ended leases, where they have
    some: it holds up nobody else's.

    Args:
        nodes: by lease id, the device nodes that lead to its cards and to nothing else.
        owners: uid of the holder, by lease id.
        root: the folder that stands for `/`.
        log: told, in one line, that it cannot be found out.
        patience: seconds it may take.

    Returns:
        By lease id, one such process in words: `bob (python, PID 12)`.
    """
    if not nodes or not _guarded(ALL_SESSIONS, root):
        return {}
    try:
        return run_apart(partial(_find, nodes, owners, root), patience=patience)
    except (TimeoutError, ChildProcessError) as error:
        log(f"cannot see who else has the cards of ended leases open: {str(error) or 'no answer in time'}")
        return {}


def own_nodes(cards: Cards, leases: Iterable[Lease], root: Path = Path("/")) -> dict[int, list[str]]:
    """Return the device nodes that lead to what leases were given and to nothing else, by id of lease."""
    found: dict[int, list[str]] = {}
    for lease in leases:
        for part in lease.cards:
            with contextlib.suppress(KeyError, GpulabError):  # not there any more, and so open to nobody
                card, instance = device(cards, part.uuid)
                # An instance shares its card's node with others; what comes last is its own.
                found.setdefault(lease.id, []).append(nodes_of(card, instance, root)[-1])
    return found


def _find(nodes: Mapping[int, Sequence[str]], owners: Mapping[int, int], root: Path) -> dict[int, str]:
    devices: dict[int, set[int]] = {}
    for number, paths in nodes.items():
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # not made yet, so nobody has opened it
                devices.setdefault(os.stat(root / path.lstrip("/")).st_rdev, set()).add(number)
    found: dict[int, str] = {}
    for pid, who, opened in holding(devices, root / "proc"):
        if scope_of(pid, root) or _guarded(f"user-{who.uid}.slice", root):
            continue
        numbers = set().union(*(devices[each] for each in opened))
        own = {number for number in numbers if owners[number] == who.uid}
        for number in own or numbers:
            found.setdefault(number, f"{who.user} ({who.command}, PID {pid})")
    return found


def _guarded(unit: str, root: Path) -> bool:
    """Tell whether role gpu_guard has a file for a slice: for all of them it closes, for one account's it exempts."""
    return os.path.lexists(root / drop_in(unit).lstrip("/"))
