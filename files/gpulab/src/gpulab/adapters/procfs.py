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
"""Zombie and dead: still listed in /proc, but they hold nothing any more, unless other threads live on."""

_GONE_BYTES = {state.encode() for state in _GONE_STATES}
_STAT_FIELDS = 20
"""How far the fields of proc_pid_stat(5) after the name are needed: to the start time."""


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
        None when it is gone, ended but not yet reaped, or hidden from the caller (mount option hidepid). A program
        whose first thread has ended shows as a zombie too; it lives as long as it has others.
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


def cpu_ticks(pid: int, proc_root: str) -> tuple[int, int] | None:
    """Return a living process's start time and the processor time it has used, both in clock ticks.

    Much cheaper than `identify`: one small file (proc_pid_stat(5)), for looks every minute at a process known by its
    start time. The processor time is that of all its threads, without children it waited for.

    Returns:
        None when it is gone or only waits to be reaped.
    """
    try:
        descriptor = os.open(f"{proc_root}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        stat = os.read(descriptor, _LIMIT)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    fields = stat[stat.rfind(b")") + 2 :].split(None, 20)
    # A zombie with more than one thread is a program whose first thread has ended: it lives on in the others.
    if len(fields) < _STAT_FIELDS or (fields[0] in _GONE_BYTES and int(fields[17]) <= 1):
        return None
    return int(fields[19]), int(fields[11]) + int(fields[12])


def cgroup(pid: int, proc_root: Path) -> str:
    """Return the path of a process's control group in the v2 tree (cgroups(7)); empty when unknown."""
    try:
        with open(proc_root / str(pid) / "cgroup", encoding="utf-8", errors="replace") as stream:
            lines = stream.read(_LIMIT).splitlines()
    except OSError:
        return ""
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")


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
        state, threads, start_ticks = fields[0], int(fields[17]), int(fields[19])
        uid = int(uid_line.split()[1])
    except (IndexError, ValueError):
        return None
    if state in _GONE_STATES and threads <= 1:
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
