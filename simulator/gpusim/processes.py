"""Which real processes use which simulated card: one small file each in procs.d, checked against /proc.

A file is named `PID.START`, START being the start time of proc(5), so that a reused PID is never taken for the old
process. Each line is `use key=value ...`, one for each card or MIG device the process uses. The folder is sticky
and writable by all; a file counts only if its owner is root or the user of the process. nvml/procs.c reads the same.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import store
from .errors import GpusimError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_START_FIELD = 19  # of proc_pid_stat(5), counted after the command's closing bracket: state is 0, starttime 19
_STATE_FIELD = 0
_LARGEST_FILE = 65536
MIB = 1024 * 1024


@dataclass(frozen=True)
class Use:
    """What one process holds of one card.

    Attributes:
        card: index of the card.
        mib: GPU memory, MiB.
        sm: percent of time its kernels run, 0-100.
        memory: percent of time it moves memory, 0-100.
        gi: GPU instance id, -1 without MIG.
        ci: compute instance id, -1 without MIG.
        kind: `C` compute, `G` graphics, `M` compute through MPS.
    """

    card: int
    mib: int
    sm: int = 0
    memory: int = 0
    gi: int = -1
    ci: int = -1
    kind: str = "C"

    def render(self) -> str:
        """Return the line for the file."""
        return (
            f"use card={self.card} gi={self.gi} ci={self.ci} mib={self.mib} sm={self.sm} memory={self.memory}"
            f" kind={self.kind}\n"
        )


@dataclass(frozen=True)
class Process:
    """A registered process that is still there.

    Attributes:
        pid: process id.
        start: start time, clock ticks since boot.
        uses: the cards it uses.
    """

    pid: int
    start: int
    uses: tuple[Use, ...]

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.pid}.{self.start}"


def start_time(pid: int) -> int | None:
    """Return when a process started, None when it is gone or only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE_FIELD] in {"Z", "X"} else int(fields[_START_FIELD])


def register(uses: tuple[Use, ...]) -> None:
    """Write the file of the calling process, which then executes the real program under the same PID.

    Raises:
        GpusimError: the folder is not there or not writable.
    """
    start = start_time(os.getpid())
    if start is None:
        raise GpusimError("/proc shows no start time of this process; mount proc and try again")
    write(Process(os.getpid(), start, uses))


def write(process: Process) -> None:
    """Write the file of a process.

    Raises:
        GpusimError: the folder is not there or not writable.
    """
    path = store.folder() / store.PROCESSES / process.name
    try:
        store.replace(path, "".join(use.render() for use in process.uses))
    except OSError as error:
        raise GpusimError(f"{path} cannot be written ({error.strerror}); run gpusim init again as root") from error


def living() -> Iterator[Process]:
    """Yield the registered processes that are there, in order of PID; files that prove nothing are passed over."""
    for pid, start, path in sorted(_files()):
        uses = _read(path, pid) if start_time(pid) == start else None
        if uses:
            yield Process(pid, start, uses)


def sweep() -> None:
    """Remove the files of processes that are gone, as far as this user may."""
    for pid, start, path in _files():
        if start_time(pid) != start:
            with contextlib.suppress(PermissionError, FileNotFoundError):
                path.unlink()


def forget_all() -> None:
    """Remove every registration, as a reboot does. The processes themselves are left alone."""
    for _, _, path in list(_files()):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            path.unlink()


def forget_own() -> None:
    """Remove the registration of the calling process."""
    for pid, _, path in list(_files()):
        if pid == os.getpid():
            with contextlib.suppress(FileNotFoundError, PermissionError):
                path.unlink()


def change(pid: int, changes: Mapping[str, Any]) -> None:
    """Change what a running process uses, for instance `{"sm": 3}` when it goes idle.

    Raises:
        GpusimError: there is no such process, or it is somebody else's.
    """
    for process in living():
        if process.pid == pid:
            write(replace(process, uses=tuple(replace(use, **changes) for use in process.uses)))
            return
    raise GpusimError(f"no registered process has PID {pid}; see them with: gpusim status")


def _files() -> Iterator[tuple[int, int, Path]]:
    folder = store.folder() / store.PROCESSES
    if folder.is_dir():
        for path in folder.iterdir():
            pid, _, start = path.name.partition(".")
            if pid.isdecimal() and start.isdecimal():
                yield int(pid), int(start), path


def _read(path: Path, pid: int) -> tuple[Use, ...] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, encoding="utf-8", errors="replace") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in {0, _user(pid)}:
            return None
        lines = stream.read(_LARGEST_FILE).splitlines()
    try:
        return tuple(_parse(line) for line in lines)
    except (KeyError, ValueError):
        return None


def _user(pid: int) -> int | None:
    """Return the real user id of a process (proc_pid_status(5)), None when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def _parse(line: str) -> Use:
    fields = dict(word.split("=", 1) for word in line.split()[1:])
    numbers = {key: int(fields[key]) for key in ("card", "gi", "ci", "mib", "sm", "memory")}
    return Use(kind=fields["kind"], **numbers)
