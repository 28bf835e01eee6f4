"""Folders that nobody but root can exchange: what root's code may rely on before it works at a path."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import UnsafeFileError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40
"""As the kernel's own limit (path_resolution(7))."""


def trusted_folder(path: Path, owner: int = 0) -> Path:
    """Follow a path as the kernel would, and refuse it where somebody else could have a hand in it.

    Every folder and link on the way must be root's, and no folder writable for others, unless it is sticky: there only
    the owner can rename or remove what is in it (inode(7)). So what root finds now is there still when it is used.

    Args:
        path: an absolute path of a folder.
        owner: who counts as root besides root; tests run as somebody else.

    Returns:
        The same folder without links.

    Raises:
        FileNotFoundError: there is no such folder.
        UnsafeFileError: naming what is wrong and what to do.
    """
    here, left, links = Path("/"), list(reversed(path.parts[1:])), 0
    while True:
        status = os.lstat(here)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise UnsafeFileError(f"{path}: too many links; give the folder itself")
            _check_owner(here, status, owner)
            target = Path(os.readlink(here))
            left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            here = Path("/") if target.is_absolute() else here.parent
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise UnsafeFileError(f"{here} is not a folder; move it away")
        _check_owner(here, status, owner)
        if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
            raise UnsafeFileError(f"{here} can be changed by others, who could exchange what is in it; chmod +t {here}")
        if not left:
            return here
        part = left.pop()
        here = here.parent if part == ".." else here / part


def _check_owner(path: Path, status: os.stat_result, owner: int) -> None:
    if status.st_uid not in {0, owner}:
        raise UnsafeFileError(f"{path} belongs to uid {status.st_uid}, who could exchange it; chown root {path}")
