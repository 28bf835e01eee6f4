"""Members' answers to idle reclaim: keep what is mine for so long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.procfs import identify
from ..errors import InputError, NotPermittedError
from . import reclaim_memory as memories

if TYPE_CHECKING:
    from ..rules.keep_request import KeepRequest

_HOUR = 3600
_PROC = Path("/proc")


@dataclass(frozen=True)
class Kept:
    """One thing that is kept.

    Attributes:
        pid: of the process.
        command: its name.
        until: seconds since 1970.
    """

    pid: int
    command: str
    until: float


def keep(
    request: KeepRequest,
    uid: int,
    *,
    admin: bool,
    root: Path,
    now: float,
    most_hours: float,
    proc_root: Path = _PROC,
) -> tuple[Kept, ...]:
    """Write an answer down.

    Args:
        request: what was asked.
        uid: who asks.
        admin: whether they may answer for others.
        root: the folder that stands for `/`.
        now: seconds since 1970.
        most_hours: the longest keeping.
        proc_root: where proc is mounted.

    Returns:
        What is kept now, by pid; empty when no pid was given and nothing of theirs was asked about.

    Raises:
        InputError: too long, or there is no such process.
        NotPermittedError: it is somebody else's.
        OSError: it cannot be written; nothing was changed.
    """
    hours = most_hours if request.hours is None else request.hours
    if hours > most_hours:
        raise InputError(f"{hours:g} hours are more than the {most_hours:g} allowed at once; answer again later")
    until = now + hours * _HOUR
    asked = {key: note.finding.runner for key, note in memories.load(root).warned.items()}
    keys: dict[str, Kept] = {}
    for pid in request.pids:
        who = identify(pid, proc_root)
        if who is None:
            raise InputError(f"there is no process {pid}; `nvidia-smi` shows those on the cards")
        if who.uid != uid and not admin:
            raise NotPermittedError(f"process {pid} ({who.command}) belongs to {who.user}; only they can keep it")
        leases = [key for key, runner in asked.items() if runner.pid == pid and not memories.is_process(key)]
        keys.update(dict.fromkeys([f"{pid}:{who.start_ticks}", *leases], Kept(pid, who.command, until)))
    if not request.pids:
        keys = {key: Kept(each.pid, each.command, until) for key, each in asked.items() if each.uid == uid}
    if keys:
        with memories.change_kept(root) as answers:
            for key in [
                key for key, end in answers.items() if end < now and identify(memories.pid_of(key), proc_root) is None
            ]:
                del answers[key]
            answers.update({key: each.until for key, each in keys.items()})
    return tuple(sorted({each.pid: each for each in keys.values()}.values(), key=lambda each: each.pid))
