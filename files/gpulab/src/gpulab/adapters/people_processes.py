"""Processes of people: in which control group each is, and which cards or other devices it holds open."""

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
    from collections.abc import Collection, Iterator
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
    for pid, identity in _people(proc_root):
        group = path_of(pid, proc_root)
        if group:
            yield PersonsProcess(pid, identity, group, _cards(proc_root / str(pid) / "task"))


def holding(devices: Collection[int], proc_root: Path) -> Iterator[tuple[int, Identity, frozenset[int]]]:
    """Yield the processes of people that have one of some devices open, whatever name they opened it by.

    What was opened with O_PATH, which anybody may do, is a place in the file tree and no open device (open(2)).
    Looking at what a process has open can hang, where that is on a network file system that does not answer.

    Args:
        devices: device numbers, as st_rdev of stat(2) has them.
        proc_root: where proc is mounted.

    Returns:
        Pid, who it is, and which of the devices.
    """
    for pid, identity in _people(proc_root):
        found = set()
        for path in _open_files(proc_root / str(pid) / "task"):
            with contextlib.suppress(OSError, ValueError):  # closed meanwhile, or nothing to look at
                device = os.stat(path).st_rdev
                if device in devices and not _flags(path) & os.O_PATH:
                    found.add(device)
        if found:
            yield pid, identity, frozenset(found)


def _flags(path: Path) -> int:
    """Return the flags that something was opened with; proc_pid_fdinfo(5) has them in octal."""
    text = (path.parent.parent / "fdinfo" / path.name).read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("flags:")), 8)


def _people(proc_root: Path) -> Iterator[tuple[int, Identity]]:
    for pid in sorted(int(name) for name in os.listdir(proc_root) if name.isdecimal()):
        identity = identify(pid, proc_root)
        if identity is not None and identity.uid >= names.UID_MIN and identity.uid != _NOBODY:
            yield pid, identity


def _cards(threads: Path) -> tuple[str, ...]:
    found = set()
    for path in _open_files(threads):
        with contextlib.suppress(OSError):  # closed meanwhile
            target = os.readlink(path)
            if _CARD.fullmatch(target):
                found.add(target)
    return tuple(sorted(found))


def _open_files(threads: Path) -> Iterator[Path]:
    """Yield what the threads have open: one may have a table of its own, or be all that is left (unshare(2))."""
    for thread in _names(threads):
        folder = threads / thread / "fd"
        for name in _names(folder):
            yield folder / name


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # gone meanwhile
        return []
