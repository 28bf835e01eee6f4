"""systemd scopes: a cgroup around a running process, with exactly the device nodes it may open.

The process keeps its pid, parent, terminal and signals; only the cgroup changes (systemd.scope(5)). What it may open is
enforced by the kernel where systemd has the unified cgroup tree (systemd.resource-control(5), DeviceAllow=).
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import bus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOP = ("gpulab.slice", "gpulab-lease.slice")
"""Where leases are: a dash in a slice's name makes it a child (systemd.slice(5)).

A program of a parent cgroup binds its children, so leases cannot lie under the members' own slices.
"""

_MANAGER = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
_START = "org.freedesktop.systemd1.Manager", "StartTransientUnit"
"""Name, mode, properties, and units to start along (org.freedesktop.systemd1(5))."""

_TREES = ("sys/fs/cgroup", "sys/fs/cgroup/unified", "sys/fs/cgroup/systemd")
"""The unified tree, and where systemd keeps its own on machines with version 1 or both (cgroups(7))."""

_POLL_SECONDS = 0.0005
_SECOND_THOUGHT = 0.5  # seconds
_PREFIX = "gpulab-lease-"
_SCOPE = ".scope"
_SLICE = ".slice"


def scope_name(number: int) -> str:
    """Return the unit name of a lease."""
    return f"{_PREFIX}{number}{_SCOPE}"


def slice_name(uid: int) -> str:
    """Return the unit that all leases of a member are in: their limits hold for them together."""
    return f"{_PREFIX}{uid}{_SLICE}"


def scope_of(pid: int, root: Path = Path("/")) -> str:
    """Return the name of the lease's scope that a process is in; empty when it is in none or gone.

    The whole path counts: below their own user service members may make groups of any name.
    """
    try:
        text = (root / f"proc/{pid}/cgroup").read_text(errors="replace")
    except OSError:
        return ""
    tops = ["/".join(("", *filter(None, (start, *_TOP)), "")) for start in _starts(root)]
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "name=systemd"}:  # the unified tree, and systemd's own
            for top in tops:
                whose, _, rest = path.removeprefix(top).partition("/")
                if path.startswith(top) and whose.startswith(_PREFIX) and whose.endswith(_SLICE):
                    return rest.partition("/")[0]
    return ""


def pids(scope: str, root: Path = Path("/")) -> tuple[int, ...]:
    """Return the living processes of a scope, those of groups below it included; none when there is no such scope."""
    folder = _folder(scope, root)
    found: list[int] = []
    if folder is not None:
        for path, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):  # the group went away meanwhile
                found += map(int, Path(path, "cgroup.procs").read_text().split())
    return tuple(sorted(found))


def _folder(scope: str, root: Path) -> Path | None:
    for tree in _TREES:
        for start in _starts(root):
            top = Path(root, tree, start, *_TOP)
            for whose in _members(top):
                folder = top / whose / scope
                if folder.is_dir():
                    return folder
    return None


def _members(top: Path) -> list[str]:
    """Return the slices of members who have leases, or had some."""
    try:
        return [name for name in os.listdir(top) if name.startswith(_PREFIX) and name.endswith(_SLICE)]
    except OSError:  # there has been none yet
        return []


@functools.cache
def _starts(root: Path) -> tuple[str, ...]:
    """Return the groups systemd has for its root, without the slash: where pid 1 is (in a container not the top)."""
    try:
        lines = (root / "proc/1/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    paths = (line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] in {"", "name=systemd"})
    return tuple(dict.fromkeys(path.removesuffix("/init.scope").strip("/") for path in paths)) or ("",)


@dataclass(frozen=True)
class Move:
    """A process to be put into a new scope.

    Attributes:
        pid: the process.
        scope: unit name.
        slice: name of the unit it is to be in.
        description: what `systemctl status` shows, one line.
        nodes: what it may open besides systemd's closed list: device nodes and names of systemd.resource-control(5).
    """

    pid: int
    scope: str
    slice: str
    description: str
    nodes: tuple[str, ...]

    def properties(self) -> list[tuple[str, tuple[str, Any]]]:
        """Return the properties of the scope, each with its type and value."""
        return [
            ("Description", ("s", self.description)),
            ("PIDs", ("au", [self.pid])),
            ("Slice", ("s", self.slice)),
            ("DevicePolicy", ("s", "closed")),
            ("DeviceAllow", ("a(ss)", [(node, "rw") for node in self.nodes])),
            ("CollectMode", ("s", "inactive-or-failed")),
        ]


def make_scope(move: Move, seconds: float) -> str:
    """Have systemd make the scope, and put the process into it soon.

    Args:
        move: what is wanted.
        seconds: how long systemd may take to answer.

    Returns:
        What systemd, or the way to it, had against it; empty when it has begun.
    """
    try:
        bus.call(*_MANAGER, _START, "ssa(sv)a(sa(sv))", move.scope, "fail", move.properties(), [], seconds=seconds)
    except bus.BusError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Mover:
    """Puts processes into scopes, several at once.

    Attributes:
        root: the folder that stands for `/`.
        patience: seconds that systemd may take.
        make: has a scope made; see make_scope.
        monotonic: seconds on a clock that never jumps.
        sleep: waits for some seconds.
    """

    root: Path = Path("/")
    patience: float = 10.0
    make: Callable[[Move, float], str] = make_scope
    monotonic: Callable[[], float] = field(default=time.monotonic)
    sleep: Callable[[float], None] = field(default=time.sleep)

    def move(self, moves: Sequence[Move]) -> list[str]:
        """Move the processes, and wait until the kernel shows each where it belongs.

        Returns:
            For each why it failed, as a clause; empty when it is there.
        """
        deadline = self.monotonic() + self.patience
        complaints = [self.make(move, max(0.1, deadline - self.monotonic())) for move in moves]
        return [self._finish(move, complaint, deadline) for move, complaint in zip(moves, complaints, strict=True)]

    def _finish(self, move: Move, complaint: str, deadline: float) -> str:
        if complaint:
            # A predecessor that was killed may have asked for the same, and systemd is about to do it.
            deadline = min(deadline, self.monotonic() + _SECOND_THOUGHT)
        while scope_of(move.pid, self.root) != move.scope:
            if self.monotonic() >= deadline or not (self.root / f"proc/{move.pid}").exists():
                if complaint:
                    return f"systemd would not make {move.scope}: {complaint}"
                return f"the process did not get into {move.scope}"
            self.sleep(_POLL_SECONDS)
        return ""
