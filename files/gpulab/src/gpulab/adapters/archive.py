"""A tar.gz of plain files with a head, read with suspicion: nothing is ever unpacked by a name of its own."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tarfile
import zlib
from typing import IO, TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

HEAD = "manifest.json"
_BLOCK = 1 << 20
_LIMIT = 256 << 20
_BROKEN = (tarfile.TarError, zlib.error, EOFError, KeyError, OSError)


class Archive:
    """An archive that is open for reading.

    Args:
        source: the file, for messages.
        opened: the open archive.
    """

    def __init__(self, source: Path, opened: tarfile.TarFile) -> None:
        """Read nothing yet."""
        self._source = source
        self._opened = opened

    def read(self, name: str) -> bytes:
        """Return the whole of a part that fits in memory.

        Raises:
            InputError: there is none, it is no file, is too large, or the archive is damaged.
        """
        data = bytearray()
        for block in self.blocks(name):
            data += block
            if len(data) > _LIMIT:
                raise InputError(f"{self._source} is not what it should be: {name} is larger than {_LIMIT} bytes")
        return bytes(data)

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield a part bit by bit; errors as with `read`."""
        stream = self._stream(name)
        while True:
            try:
                block = stream.read(_BLOCK)
            except _BROKEN as error:
                raise _damaged(self._source, error) from error
            if not block:
                return
            yield block

    def sum(self, name: str) -> str:
        """Return the SHA-256 of a part, hexadecimal; errors as with `read`."""
        return _sum(self.blocks(name))

    def _stream(self, name: str) -> IO[bytes]:
        try:
            member = self._opened.getmember(name)
            stream = self._opened.extractfile(member) if member.isreg() else None
        except _BROKEN as error:
            raise _damaged(self._source, error) from error
        if stream is None:
            raise InputError(f"{self._source} is not what it should be: {name} is not a file")
        return stream


@contextlib.contextmanager
def opened(source: Path) -> Iterator[Archive]:
    """Open an archive for reading.

    Raises:
        InputError: it is not there, or is no such archive.
    """
    try:
        archive = tarfile.open(source, "r:gz")  # noqa: SIM115 -- closed below; what the caller does raises its own errors
    except FileNotFoundError:
        raise InputError(f"there is no backup at {source}") from None
    except _BROKEN as error:
        raise _damaged(source, error) from error
    with archive:
        yield Archive(source, archive)


def write(stream: IO[bytes], head: bytes, parts: Mapping[str, Path]) -> None:
    """Write an archive that says nothing of who owned the files.

    Args:
        stream: where to.
        head: content of the first part.
        parts: name in the archive to the file.

    Raises:
        OSError: a file cannot be read, or the disk is full.
    """
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        first = tarfile.TarInfo(HEAD)
        first.size, first.mode = len(head), 0o600
        archive.addfile(first, io.BytesIO(head))
        for name, path in parts.items():
            archive.add(path, name, recursive=False, filter=_anonymous)


def sum_of(path: Path) -> str:
    """Return the SHA-256 of a plain file, hexadecimal; empty for what is none.

    Raises:
        OSError: it cannot be read.
    """
    if path.is_symlink() or not path.is_file():
        return ""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        return _sum(iter(lambda: stream.read(_BLOCK), b""))


def _sum(blocks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o600
    return info


def _damaged(source: Path, error: BaseException) -> InputError:
    return InputError(f"{source} is not a backup of gpulab, or is damaged ({error})")
