"""Who keeps a card from being reset: the programs that have its device node open, also those that compute nothing."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from .procfs import identify

if TYPE_CHECKING:
    from pathlib import Path


def holders(minor: int, proc_root: Path) -> tuple[str, ...]:
    """Return the programs that have /dev/nvidiaN open, such as `nvidia-persistenced (PID 812)`, in order of PID.

    Args:
        minor: N.
        proc_root: where proc is mounted.
    """
    node = f"/dev/nvidia{minor}"
    found = []
    for pid in sorted(int(name) for name in os.listdir(proc_root) if name.isdecimal()):
        if pid != os.getpid() and _holds(proc_root / str(pid) / "fd", node):
            who = identify(pid, proc_root)
            found.append(f"{who.command if who else 'a program'} (PID {pid})")
    return tuple(found)


def _holds(folder: Path, node: str) -> bool:
    try:
        descriptors = os.listdir(folder)
    except OSError:  # gone, or another user's and we are not root
        return False
    for name in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(folder / name) == node:
                return True
    return False
