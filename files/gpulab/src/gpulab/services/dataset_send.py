"""A curator's half of a copy: reads files with the curator's own rights and sends them to root's half."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import IO, TYPE_CHECKING, NoReturn

from ..errors import InputError
from ..rules.dataset_wire import END, FILE, FOLDER, LINK, Entry, encode, encode_sum
from ..rules.datasets import OWN_FILES, check_link, check_path, read_sum_line
from ..rules.display import printable
from .dataset_sums import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Opener = Callable[[], int]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def walk(source: Path) -> Iterator[tuple[Entry, Opener | None]]:
    """Yield all that is in a folder, or a single file, each with what opens it.

    gpulab's own files at the top are left out: a copy of what another server published can be added.

    Raises:
        InputError: something cannot be read or cannot be in a dataset; naming it.
    """
    source = source.resolve()
    if not source.is_dir():
        yield _entry(source.name, None, str(source))
        return
    try:
        os.scandir(source).close()
    except OSError as error:  # fwalk raises it for the top folder and calls onerror for those below
        _unreadable(error)
    for parent, folders, files, descriptor in os.fwalk(source, onerror=_unreadable):
        folders.sort()
        base = os.path.relpath(parent, source)
        where = "" if base == "." else f"{base}/"
        links = [name for name in folders if stat.S_ISLNK(_status(name, descriptor).st_mode)]
        for name in folders:
            if name not in links:
                yield Entry(FOLDER, check_path(where + name)), None
        for name in sorted((*files, *links)):
            if where or name not in OWN_FILES:
                yield _entry(where + name, descriptor, name)


def _unreadable(error: OSError) -> NoReturn:
    raise InputError(f"{printable(str(error.filename), 200)}: {error.strerror}; nothing was copied") from error


def _status(name: str, parent: int | None) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        _unreadable(error)


def _entry(path: str, parent: int | None, name: str) -> tuple[Entry, Opener | None]:
    check_path(path)
    status = _status(name, parent)
    if stat.S_ISLNK(status.st_mode):
        return Entry(LINK, path, target=check_link(path, os.readlink(name, dir_fd=parent))), None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{printable(path, 200)} is neither a file, a folder nor a link; take it out")
    entry = Entry(
        FILE, path, status.st_size, executable=bool(status.st_mode & 0o111), modified=max(0, int(status.st_mtime))
    )
    return entry, lambda: os.open(name, _READ, dir_fd=parent)


def measure(source: Path) -> tuple[int, int]:
    """Return how many files there are and their size together, bytes; errors as with walk."""
    sizes = [entry.size for entry, _ in walk(source) if entry.kind == FILE]
    return len(sizes), sum(sizes)


def read_given_sums(path: Path) -> dict[str, str]:
    """Read the sums that came with a dataset, as sha256sum(1) writes them.

    Raises:
        InputError: the file cannot be read or a line is something else.
    """
    try:
        lines = path.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    sums = [read_sum_line(line.rstrip("\r")) for line in lines if line.strip()]
    if not sums or None in sums:
        raise InputError(f"{path} is not a list of SHA-256 sums, as sha256sum(1) writes them")
    return dict(found for found in sums if found)


def send(source: Path, stream: IO[bytes], given: dict[str, str], progress: Callable[[int], None]) -> None:
    """Send all that is in a folder.

    Args:
        source: a folder, or a single file.
        stream: to root's half.
        given: sums that the files must have, by path; those that are not named are not compared.
        progress: hears how many bytes were sent, now and then.

    Raises:
        InputError: a file has another sum than given, changes while it is read, or a given one is not there.
        OSError: the other half is gone.
    """
    sent, missing = 0, set(given)
    for entry, opener in walk(source):
        stream.write(encode(entry))
        if opener is None:
            continue
        digest = _send_file(entry, opener, stream)
        stream.write(encode_sum(digest))
        sent += entry.size
        progress(sent)
        missing.discard(entry.path)
        if given.get(entry.path, digest) != digest:
            raise InputError(f"{printable(entry.path, 200)} does not have the sum it should; fetch it again")
    if missing:
        raise InputError(f"{printable(min(missing), 200)} is in the list of sums and not in {source}; fetch it")
    stream.write(encode(Entry(END)))
    stream.flush()


def _send_file(entry: Entry, opener: Opener, stream: IO[bytes]) -> str:
    try:
        descriptor = opener()
    except OSError as error:
        _unreadable(error)
    digest, left = hashlib.sha256(), entry.size
    try:
        while chunk := os.read(descriptor, CHUNK):
            left -= len(chunk)
            if left < 0:
                break
            digest.update(chunk)
            stream.write(chunk)
    finally:
        os.close(descriptor)
    if left:
        raise InputError(f"{printable(entry.path, 200)} changes while it is read; wait until it is whole")
    return digest.hexdigest()
