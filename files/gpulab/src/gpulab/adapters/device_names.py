"""What is behind a device node: its driver's group and the maker of the hardware."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..rules.guard import Node

_NVIDIA_MAJOR = 195
"""Reserved for NVIDIA's cards (Linux, Documentation/admin-guide/devices.txt), also while no driver is loaded."""

_SECTIONS = {"Character devices:": stat.S_ISCHR, "Block devices:": stat.S_ISBLK}


def look(name: str, root: Path = Path("/")) -> Node | None:
    """Look behind a path.

    Links are followed, as systemd follows them when it makes a filter.

    Args:
        name: an absolute path.
        root: the folder that stands for `/`.

    Returns:
        None when there is no device of that name.
    """
    try:
        status = os.stat(root / name.lstrip("/"))
    except OSError:
        return None
    if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
        return None
    major = os.major(status.st_rdev)
    kind = "char" if stat.S_ISCHR(status.st_mode) else "block"
    hardware = root / f"sys/dev/{kind}/{major}:{os.minor(status.st_rdev)}/device/vendor"
    try:
        vendor = hardware.read_text(errors="replace").strip()
    except OSError:
        vendor = ""
    return Node(_driver(status.st_mode, major, root), vendor)


def _driver(mode: int, major: int, root: Path) -> str:
    """Return the name of a device group (proc(5), /proc/devices); empty when it is unknown."""
    if stat.S_ISCHR(mode) and major == _NVIDIA_MAJOR:
        return "nvidia"
    try:
        lines = (root / "proc/devices").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    of_kind = False
    for line in lines:
        if line in _SECTIONS:
            of_kind = _SECTIONS[line](mode)
        elif of_kind and line.split()[:1] == [str(major)]:
            return line.split()[1]
    return ""
