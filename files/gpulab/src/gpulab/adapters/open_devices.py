"""Which processes have device nodes open, from /proc/PID/fd (proc(5))."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def open_devices(prefix: str, proc_root: Path) -> Iterator[tuple[int, frozenset[str]]]:
    """Look through the descriptors of every process but this one.

    Args:
        prefix: how the nodes of interest begin, such as `/dev/nvidia`.
        proc_root: where proc is mounted.

    Yields:
        Each pid that has any of them open, in ascending order, with the nodes. Other users' only when root looks.
    """
    for pid in sorted(int(name) for name in os.listdir(proc_root) if name.isdecimal()):
        if pid == os.getpid():
            continue
        nodes = frozenset(target for target in _targets(proc_root / str(pid) / "fd") if target.startswith(prefix))
        if nodes:
            yield pid, nodes


def _targets(folder: Path) -> Iterator[str]:
    try:
        descriptors = os.listdir(folder)
    except OSError:  # gone, or another user's and we are not root
        return
    for name in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            yield os.readlink(folder / name)
