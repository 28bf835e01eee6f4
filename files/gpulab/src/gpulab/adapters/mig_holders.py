"""Who keeps a card from being reset: the programs that have its device node open, also those that compute nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .open_devices import open_devices
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
    for pid, nodes in open_devices("/dev/nvidia", proc_root):
        if node in nodes:
            who = identify(pid, proc_root)
            found.append(f"{who.command if who else 'a program'} (PID {pid})")
    return tuple(found)
