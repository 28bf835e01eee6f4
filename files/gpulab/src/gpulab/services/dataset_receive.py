"""Root's half of a copy: writes what a curator's process sends, and opens no path that the curator names outside."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, BinaryIO

from ..errors import InputError
from ..rules.dataset_wire import END, FILE, FOLDER, LINE_LIMIT, LINK, Request, decode_entry, decode_sum
from ..rules.datasets import RECORD_FILE, SUMS_FILE, Record, sum_line, write_record
from ..rules.display import printable
from .dataset_sums import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..rules.dataset_wire import Entry
    from .dataset_store import Store

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LATEST = 1 << 36
_MOST_OTHERS = 1_000_000
"""Folders and links, which the announced number of files does not bound."""


def receive(stream: BinaryIO, request: Request, store: Store, *, who: str, when: str) -> Record:
    """Take in a whole dataset; what ends early leaves nothing behind.

    Files become 0644 or 0755 and folders 0755, root's, whatever they were. Links are made last, so that nothing is
    written through one.

    Args:
        stream: entries, as `rules.dataset_wire` says.
        request: what was asked.
        store: where it goes.
        who: account name of the curator.
        when: ISO 8601.

    Returns:
        The record of the staged dataset.

    Raises:
        InputError: it ended early, is not what was announced, or there is no room.
        OSError: the disk is full or broken.
    """
    store.require_room(request.bytes)
    with store.arrival(request.name) as folder:
        files, size = _receive_all(stream, folder, request)
        record = Record(
            request.name,
            request.source,
            request.licence,
            request.note,
            files=files,
            bytes=size,
            added_by=who,
            added=when,
        )
        with open(folder / RECORD_FILE, "xb") as out:
            out.write(write_record(record))
    return record


def _receive_all(stream: BinaryIO, folder: Path, request: Request) -> tuple[int, int]:
    files = size = others = 0
    links: list[Entry] = []
    with open(folder / SUMS_FILE, "x", encoding="utf-8", errors="surrogateescape", newline="\n") as sums:
        while (entry := decode_entry(stream.readline(LINE_LIMIT))).kind != END:
            others += entry.kind != FILE
            if others > _MOST_OTHERS:
                raise InputError(f"it has more than {_MOST_OTHERS} folders and links; pack it into archives first")
            with _explained(entry):
                if entry.kind == FOLDER:
                    os.mkdir(folder / entry.path, 0o755)
                elif entry.kind == LINK:
                    links.append(entry)
                elif entry.kind == FILE:
                    files, size = files + 1, size + entry.size
                    if files > request.files or size > request.bytes:
                        raise InputError("more comes than was announced; the source changes, wait until it is whole")
                    sums.write(sum_line(entry.path, _receive_file(stream, folder, entry)) + "\n")
        for entry in links:
            with _explained(entry):
                os.symlink(entry.target, folder / entry.path)
    return files, size


@contextlib.contextmanager
def _explained(entry: Entry) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{printable(entry.path, 200)} comes twice or before its folder; use gpu-dataset") from error


def _receive_file(stream: BinaryIO, folder: Path, entry: Entry) -> str:
    descriptor = os.open(folder / entry.path, _NEW, 0o755 if entry.executable else 0o644)
    digest, left = hashlib.sha256(), entry.size
    with open(descriptor, "wb", buffering=0) as out:
        while left:
            chunk = stream.read(min(CHUNK, left))
            if not chunk:
                raise InputError("the copy ended early; nothing was kept")
            digest.update(chunk)
            _write(out.fileno(), chunk)
            left -= len(chunk)
        modified = min(max(0, entry.modified), _LATEST)
        os.utime(out.fileno(), (modified, modified))
    found = digest.hexdigest()
    if decode_sum(stream.readline(LINE_LIMIT)) != found:
        raise InputError(f"{printable(entry.path, 200)} did not arrive as it was sent; try again")
    return found


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
