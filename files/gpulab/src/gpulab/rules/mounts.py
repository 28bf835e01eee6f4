"""File systems and how they are mounted: mountinfo and fstab as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ESCAPE = re.compile(r"\\([0-7]{3})")
_FSTAB_LINE = re.compile(r"(\s*\S+\s+)(\S+)(\s+\S+\s+)(\S+)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Mount:
    """One mounted file system.

    Attributes:
        point: where.
        kind: type, such as `ext4`.
        source: device or what the type has instead.
        device: `major:minor`, the same for every place it is mounted at.
    """

    point: str
    kind: str
    source: str
    device: str


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Read /proc/self/mountinfo (proc_pid_mountinfo(5)), in its order; later mounts cover earlier ones."""
    mounts = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        mine, other = left.split(), right.split()
        mounts.append(Mount(unescape(mine[4]), other[0], unescape(other[1]), mine[2]))
    return tuple(mounts)


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount that a path without links lies on."""

    def holds(mount: Mount) -> bool:
        return path == mount.point or path.startswith(mount.point.rstrip("/") + "/")

    candidates = [mount for mount in mounts if holds(mount)]
    longest = max((len(mount.point) for mount in candidates), default=0)
    return next((mount for mount in reversed(candidates) if len(mount.point) == longest), None)


def unescape(text: str) -> str:
    """Undo the octal escapes of blanks (fstab(5))."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def fstab_options(text: str, point: str) -> str | None:
    """Return the options of a mount point in fstab; None when it is not there."""
    for line in text.splitlines():
        found = _FSTAB_LINE.match(line)
        if found and not line.lstrip().startswith("#") and unescape(found[2]) == point:
            return found[4]
    return None


def escape(text: str) -> str:
    """Write blanks and backslashes as fstab(5) wants them."""
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in text)


def with_line(text: str, point: str, line: str | None) -> str:
    """Return fstab with this line for a mount point, in place of another or at the end, or without one (None)."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    ours = [
        index
        for index, each in enumerate(lines)
        if (found := _FSTAB_LINE.match(each)) and not each.lstrip().startswith("#") and unescape(found[2]) == point
    ]
    if line is not None and ours:
        lines[ours.pop()] = f"{line}\n"
    elif line is not None:
        lines.append(f"{line}\n")
    return "".join(each for index, each in enumerate(lines) if index not in ours)


def with_options(text: str, point: str, add: Iterable[str], remove: Iterable[str] = ()) -> str:
    """Return fstab with options added to one mount point, or taken away; every other byte stays."""
    gone = set(remove)
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        found = _FSTAB_LINE.match(line)
        if found and not line.lstrip().startswith("#") and unescape(found[2]) == point:
            options = [option for option in found[4].split(",") if option not in gone]
            options += [option for option in add if option not in options]
            lines[index] = f"{found[1]}{found[2]}{found[3]}{','.join(options) or 'defaults'}{found[5]}"
    return "".join(lines)
