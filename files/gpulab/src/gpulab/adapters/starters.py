"""What starts an account's processes without a login: crontab(5), at(1) jobs, lingering (loginctl(1))."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CRONTABS = "var/spool/cron/crontabs"
_AT_JOBS = "var/spool/cron/atjobs"
_LINGER = "var/lib/systemd/linger"


def crontabs(root: Path) -> frozenset[str]:
    """Return the names of accounts that have a crontab."""
    return frozenset(_names(root / _CRONTABS))


def lingering(root: Path) -> frozenset[str]:
    """Return the names of accounts whose services run without a login."""
    return frozenset(_names(root / _LINGER))


def at_jobs(root: Path) -> dict[int, tuple[str, ...]]:
    """Return the file names of waiting and running at jobs, by the uid they would run under."""
    found: dict[int, tuple[str, ...]] = {}
    for name in _names(root / _AT_JOBS):
        with contextlib.suppress(FileNotFoundError):
            uid = os.lstat(root / _AT_JOBS / name).st_uid
            found[uid] = (*found.get(uid, ()), name)
    return found


def remove(root: Path, name: str, jobs: tuple[str, ...]) -> None:
    """Remove an account's crontab, its lingering, and some at jobs; what is gone already is no error.

    cron and at notice by themselves: both look at their folders every minute.

    Args:
        root: the folder that stands for `/`.
        name: account name.
        jobs: file names from at_jobs.

    Raises:
        OSError: something cannot be removed.
    """
    for path in (root / _CRONTABS / name, root / _LINGER / name, *(root / _AT_JOBS / job for job in jobs)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
