"""Processes of people: in which control group each is, and which cards it holds open."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import names
from .cgroup import path_of
from .procfs import Identity, identify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CARD = re.compile(r"/dev/nvidia[0-9]+")
_NOBODY = 65534
"""Account of those who have none (Debian Policy 9.2.2); what containers run may show up with it."""


@dataclass(frozen=True)
class PersonsProcess:
    """One process of an account for people.

    Attributes:
        pid: its number.
        identity: who it is.
        group: its control group in systemd's tree.
        cards: the nodes of cards that it has open, in order.
    """

    pid: int
    identity: Identity
    group: str
    cards: tuple[str, ...]


def of_people(proc_root: Path) -> Iterator[PersonsProcess]:
    """Yield the processes of accounts for people, in order of pid.

    Args:
        proc_root: where proc is mounted.
    """
    for pid in sorted(int(name) for name in os.listdir(proc_root) if name.isdecimal()):
        identity = identify(pid, proc_root)
        if identity is None or identity.uid < names.UID_MIN or identity.uid == _NOBODY:
            continue
        group = path_of(pid, proc_root)
        if group:
            yield PersonsProcess(pid, identity, group, _cards(proc_root / str(pid) / "task"))


def _cards(threads: Path) -> tuple[str, ...]:
    """Return what the threads have open: a thread may have a table of its own, or be all that is left (unshare(2))."""
    found = set()
    for thread in _names(threads):
        folder = threads / thread / "fd"
        for name in _names(folder):
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(folder / name)
                if _CARD.fullmatch(target):
                    found.add(target)
    return tuple(sorted(found))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # gone meanwhile
        return []
