"""Who a process is, from /proc (proc(5))."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LIMIT = 1 << 16
_GONE_STATES = {"Z", "X", "x"}
"""Zombie and dead: still listed in /proc, but they hold nothing any more."""


@dataclass(frozen=True)
class Identity:
    """A living process, named for good.

    Attributes:
        start_ticks: start time in clock ticks since boot; with the pid it is never used twice.
        uid: real user id.
        user: account name, or the number as text when there is no such account.
        command: the program's name (comm), control characters replaced by `?`.
    """

    start_ticks: int
    uid: int
    user: str
    command: str


def identify(pid: int, proc_root: Path) -> Identity | None:
    """Look a process up.

    All is read through one descriptor of /proc/PID, which stays with this process: should it end half way and another
    get its pid, the reads fail instead of mixing the two.

    Args:
        pid: the process.
        proc_root: where proc is mounted.

    Returns:
        None when it is gone, ended but not yet reaped, or hidden from the caller (mount option hidepid).
    """
    try:
        folder = os.open(proc_root / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        stat = _read(folder, "stat")
        status = _read(folder, "status")
    except OSError:
        return None
    finally:
        os.close(folder)
    return _parse(stat, status)


def _read(folder: int, name: str) -> str:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    with open(descriptor, "rb") as stream:
        return stream.read(_LIMIT).decode(errors="replace")


def _parse(stat: str, status: str) -> Identity | None:
    # comm may itself hold spaces and brackets: the fields are counted after the last bracket.
    comm = stat[stat.find("(") + 1 : stat.rfind(")")]
    fields = stat[stat.rfind(")") + 1 :].split()
    uid_line = next((line for line in status.splitlines() if line.startswith("Uid:")), "")
    try:
        state, start_ticks, uid = fields[0], int(fields[19]), int(uid_line.split()[1])
    except (IndexError, ValueError):
        return None
    if state in _GONE_STATES:
        return None
    command = "".join(character if character.isprintable() else "?" for character in comm)
    return Identity(start_ticks=start_ticks, uid=uid, user=account_name(uid), command=command)


def account_name(uid: int) -> str:
    """Return the account's name, or the number as text when there is no such account."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def loaded_driver(proc_root: Path) -> str:
    """Return the version of the NVIDIA kernel module that is loaded, such as `550.163.01`; empty when none is."""
    try:
        with open(proc_root / "driver/nvidia/version", encoding="utf-8", errors="replace") as stream:
            words = stream.readline(_LIMIT).split()
    except OSError:
        return ""
    # `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue ...`; the open module adds words, not numbers.
    return next((word for word in words if word[:1].isdigit() and "." in word), "")
