"""Locks on folders that somebody works in; the kernel lets go of them when the process ends (flock(2))."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from ..errors import GpulabError

if TYPE_CHECKING:
    from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def hold(folder: Path) -> int:
    """Take a folder for oneself.

    Args:
        folder: in a place that only root can change.

    Returns:
        A descriptor; closing it lets go.

    Raises:
        GpulabError: somebody else holds it.
    """
    descriptor = os.open(folder, _FLAGS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise GpulabError(f"{folder} is in use by another command; try again when that is done") from error
    return descriptor


def is_held(folder: Path) -> bool:
    """Tell whether somebody holds a folder now."""
    try:
        os.close(hold(folder))
    except GpulabError:
        return True
    return False
