"""Evidence that members have files of their own which are published already: same size, same SHA-256."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .dataset_sums import digest_of, read_sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Copy:
    """A file that is published already.

    Attributes:
        owner: account name of the member whose home it is in.
        path: where it is.
        size: bytes.
        same_as: the published file.
    """

    owner: str
    path: str
    size: int
    same_as: str


@dataclass(frozen=True)
class Copies:
    """What a search found.

    Attributes:
        found: in the order of the homes.
        skipped: homes that could not be looked through to the end, and why.
    """

    found: tuple[Copy, ...]
    skipped: tuple[str, ...]


def search(published: Path, homes: Iterable[tuple[str, Path]], least: int) -> Copies:
    """Look for published files in homes; only files of a published size are read.

    Links are not followed and other file systems not entered, whatever members do in their homes meanwhile.

    Args:
        published: the folder of all published datasets, in a place that only root can change.
        homes: account name and home, in a folder that only root can change.
        least: the smallest files that count, bytes.

    Raises:
        GpulabError: a list of sums is damaged.
        OSError: the published datasets cannot be read.
    """
    known = dict(_large_files(published, least))
    sizes = {size for size, _ in known}
    found: list[Copy] = []
    skipped: list[str] = []
    for owner, home in homes if known else ():
        candidates = _candidates(home, sizes, skipped)
        found += [
            Copy(owner, path, size, known[size, digest]) for path, size, digest in candidates if (size, digest) in known
        ]
    return Copies(tuple(found), tuple(skipped))


def _large_files(published: Path, least: int) -> Iterator[tuple[tuple[int, str], str]]:
    """Yield size and sum, and path, of what is published and large."""
    for dataset in sorted(entry for entry in published.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        with contextlib.suppress(FileNotFoundError):  # it is being removed
            for path, digest in read_sums(dataset):
                size = os.stat(dataset / path, follow_symlinks=False).st_size
                if size >= least:
                    yield (size, digest), str(dataset / path)


def _candidates(home: Path, sizes: set[int], skipped: list[str]) -> Iterator[tuple[str, int, str]]:
    """Yield path, size and sum of each ordinary file that has one of these sizes."""
    try:
        top = os.lstat(home).st_dev
        for parent, folders, files, descriptor in os.fwalk(home):
            if os.fstat(descriptor).st_dev != top:
                folders.clear()
                continue
            for name in files:
                read = _read_if_like(name, descriptor, sizes)
                if read is not None:
                    yield os.path.join(parent, name), *read
    except (OSError, RecursionError) as error:
        skipped.append(f"{home}: {getattr(error, 'strerror', '') or 'folders within folders without end'}")


def _read_if_like(name: str, parent: int, sizes: set[int]) -> tuple[int, str] | None:
    """Return size and sum of an ordinary file that has one of these sizes."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_size not in sizes:
            return None
        descriptor = os.open(name, _READ, dir_fd=parent)
    except OSError:
        return None  # gone, or changed into something else
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size not in sizes:
            return None
        return status.st_size, digest_of(descriptor, status.st_size)
    finally:
        os.close(descriptor)
