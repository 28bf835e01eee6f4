"""Sums of a dataset's files: compare what lies on the disk with what was copied."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from ..errors import GpulabError
from ..rules.datasets import OWN_FILES, SUMS_FILE, read_sum_line
from ..rules.display import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def digest_of(descriptor: int, size: int | None = None) -> str:
    """Return the SHA-256 of an open file from where it stands, in small letters.

    Args:
        descriptor: of the file.
        size: read no more than this, bytes, whatever its owner appends meanwhile; None for all of it.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    left = size
    while chunk := os.read(descriptor, CHUNK if left is None else min(CHUNK, left)):
        digest.update(chunk)
        left = None if left is None else left - len(chunk)
    return digest.hexdigest()


def read_sums(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield path and sum of each file of a dataset, as recorded.

    Raises:
        GpulabError: the list is damaged.
        OSError: it cannot be read.
    """
    with open(folder / SUMS_FILE, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        for line in stream:
            found = read_sum_line(line.rstrip("\n"))
            if found is None:
                raise GpulabError(f"{folder / SUMS_FILE} is damaged; remove the dataset and add it again")
            yield found


def verify(folder: Path) -> int:
    """Read a whole dataset from the disk and compare it with its sums.

    Args:
        folder: in a place that only root can change.

    Returns:
        How many files there were.

    Raises:
        GpulabError: naming the first file that differs, is missing, or is not listed.
        OSError: something cannot be read.
    """
    count = 0
    for path, recorded in read_sums(folder):
        try:
            descriptor = os.open(folder / path, _READ)
        except FileNotFoundError:
            raise _different(path) from None
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # not from memory: that is what was just written
            if digest_of(descriptor) != recorded:
                raise _different(path)
        finally:
            os.close(descriptor)
        count += 1
    there = sum(
        name not in OWN_FILES or parent != str(folder)
        for parent, _, files in os.walk(folder)
        for name in files
        if not os.path.islink(os.path.join(parent, name))
    )
    if there != count:
        raise GpulabError(f"{there - count} files are there that were not copied; remove the dataset and add it again")
    return count


def _different(path: str) -> GpulabError:
    return GpulabError(
        f"{printable(path, 200)} on the disk is not what was copied; remove the dataset, look at the disk, add it again"
    )
