"""The world that disk limits live in: what the kernel keeps, what is mounted, and the system's tools."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..adapters import quotactl
from ..adapters.accounts import run_command
from ..rules.mounts import mount_of, parse_mountinfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..rules.mounts import Mount
    from ..rules.quota import Grace, Limits, Usage

_TOOL_SECONDS = 3600.0
"""quotacheck(8) reads every inode of a large file system."""


def _run(argv: Sequence[str]) -> None:
    run_command(argv, seconds=_TOOL_SECONDS)


class Quotas(Protocol):
    """What the kernel answers; `adapters.quotactl.Kernel` is the real one."""

    def flags(self, path: str, kind: int) -> tuple[bool, bool]: ...  # noqa: D102 - see the adapter
    def enforce(self, path: str, kind: int, *, on: bool) -> None: ...  # noqa: D102 - see the adapter
    def grace(self, path: str, kind: int) -> Grace: ...  # noqa: D102 - see the adapter
    def set_grace(self, path: str, kind: int, grace: Grace) -> None: ...  # noqa: D102 - see the adapter
    def usages(self, path: str, kind: int, owners: list[int]) -> dict[int, Usage]: ...  # noqa: D102 - see the adapter
    def set_limits(self, path: str, kind: int, wanted: dict[int, Limits]) -> None: ...  # noqa: D102 - see the adapter


@dataclass(frozen=True)
class World:
    """The outside world.

    Attributes:
        root: the folder that stands for `/` where gpulab keeps its files; folders with limits are always real ones.
        kernel: keeps the limits.
        run: runs one of the system's tools.
        read_mounts: reads what is mounted.
        project_of: tells the project of a folder.
        put_in_project: puts a tree into one.
    """

    root: Path = Path("/")
    kernel: Quotas = field(default_factory=quotactl.Kernel)
    run: Callable[[Sequence[str]], None] = _run
    read_mounts: Callable[[], Sequence[Mount]] = lambda: parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    project_of: Callable[[str], int] = quotactl.project_of
    put_in_project: Callable[[str, int], int] = quotactl.put_in_project


def find_mounts(paths: Iterable[str], world: World) -> dict[str, Mount | None]:
    """Return the mount that each folder lies on; None where there is no such folder."""
    mounts = world.read_mounts()
    return {path: mount_of(os.path.realpath(path), mounts) if Path(path).is_dir() else None for path in paths}
