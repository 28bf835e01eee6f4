"""Files that may be hostile: opened without following links, written whole or not at all.

Root code of gpulab reads folders that members or editors can write to. Every such read and write goes through this
module (open(2) O_NOFOLLOW, flock(2), rename(2)).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import time
from typing import TYPE_CHECKING, BinaryIO

from ..errors import GpulabError, UnsafeFileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_POLL_SECONDS = 0.02


def read_regular(path: Path, *, limit: int) -> bytes:
    """Read a whole file that must be an ordinary one.

    A symbolic link in the last component is not followed and a FIFO or device does not block.

    Args:
        path: the file.
        limit: the most bytes it may hold.

    Raises:
        FileNotFoundError: it is not there.
        UnsafeFileError: it is not an ordinary file, or is larger than the limit.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise UnsafeFileError(f"{path} is not an ordinary file; move it away and try again") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafeFileError(f"{path} is not an ordinary file; move it away and try again")
    with open(descriptor, "rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise UnsafeFileError(f"{path} is larger than {limit} bytes; move it away and try again")
    return data


def write_atomic(path: Path, data: bytes, *, mode: int, uid: int | None = None, gid: int | None = None) -> None:
    """Replace a file in one step: readers see the old content or the new, never a half.

    Args:
        path: the file; its folder must exist. A link in its place is replaced, not followed.
        data: the whole new content.
        mode: permission bits.
        uid: owner, or None for the caller's.
        gid: group, or None for the caller's.

    Raises:
        OSError: the folder cannot be written or the disk is full; the old file is untouched.
    """
    with replacing(path, mode=mode, uid=uid, gid=gid) as stream:
        stream.write(data)


@contextlib.contextmanager
def replacing(path: Path, *, mode: int, uid: int | None = None, gid: int | None = None) -> Iterator[BinaryIO]:
    """Give a stream whose content takes the file's place when the block ends well; see write_atomic."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            if uid is not None or gid is not None:
                os.fchown(descriptor, -1 if uid is None else uid, -1 if gid is None else gid)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def exclusive_lock(path: Path, *, timeout: float) -> Iterator[None]:
    """Hold an exclusive flock(2) on a file, made when it is not there; the kernel frees it when we die.

    Args:
        path: the lock file, in a folder that only root can write to.
        timeout: seconds to wait for others.

    Raises:
        GpulabError: somebody else held it for the whole time.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise GpulabError(f"{path} is in use by another command for {timeout:g} s; try again") from error
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
