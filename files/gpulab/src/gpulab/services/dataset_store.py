"""Where datasets live: what is being copied, what waits to be published, what everybody reads, what is going.

The store is a folder of root's, mode 0700, on one file system; so every step from one state to the next is a rename.
Everything in it is root's too: it counts for no member's disk limit, and nobody can change it later. Readers see the
published ones through a read-only mount of `published` (services/dataset_mount.py).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.files import exclusive_lock, read_regular, write_atomic
from ..adapters.locks import hold, is_held
from ..adapters.trusted import trusted_folder
from ..errors import GpulabError, InputError, UnsafeFileError
from ..rules.datasets import RECORD_FILE, Record, read_record, write_record
from .dataset_sums import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

PUBLISHED, STAGED, INCOMING, REMOVED = "published", "staged", "incoming", "removed"
MODES = {PUBLISHED: 0o755, STAGED: 0o700, INCOMING: 0o700, REMOVED: 0o700}
"""Folders of the store."""

_RECORD_LIMIT = 1 << 16
_LOCK_SECONDS = 60.0


class Store:
    """An open store; made by `open_store`."""

    def __init__(self, folder: Path) -> None:
        """Keep the folder, which nobody but root can exchange."""
        self.folder = folder

    def path(self, state: str, name: str) -> Path:
        """Return the folder of a dataset."""
        return self.folder / state / name

    def records(self, state: str) -> tuple[Record, ...]:
        """Return what is in a state, by name."""
        return records(self.folder / state)

    @contextlib.contextmanager
    def arrival(self, name: str) -> Iterator[Path]:
        """Yield a new folder for a dataset that is being copied; it becomes a staged one when the block ends well.

        What an earlier process left behind when it was killed is cleared away first.

        Raises:
            InputError: there is a dataset of that name already.
        """
        with self._alone():
            self._clear()
            self._refuse_known(name)
            folder = self.folder / INCOMING / f"{name}.{secrets.token_hex(4)}"
            folder.mkdir(mode=0o700)
            held = hold(folder)
        try:
            yield folder
            with self._alone():
                self._refuse_known(name)
                folder.chmod(0o755)
                os.rename(folder, self.path(STAGED, name))
        finally:
            if folder.exists():
                shutil.rmtree(folder)
            os.close(held)

    def publish(self, name: str, *, who: str, when: str) -> Record:
        """Read a staged dataset again from the disk, and let everybody see it in one step.

        Args:
            name: of the dataset.
            who: account name of the curator.
            when: ISO 8601.

        Raises:
            InputError: nothing of that name waits to be published.
            GpulabError: a file is not as it was copied.
        """
        staged = self.path(STAGED, name)
        if not staged.is_dir():
            if self.path(PUBLISHED, name).exists():
                raise InputError(f"{name} is published already; a new version needs a name of its own")
            raise InputError(f"there is no dataset {name} to publish; `gpu-dataset list --staged` shows what there is")
        held = hold(staged)  # nobody removes it meanwhile
        try:
            record = self._record(staged)
            os.sync()  # what is read below comes from the disk, and survives a power cut when everybody sees it
            verify(staged)
            record = replace(record, published_by=who, published=when)
            with self._alone():
                write_atomic(staged / RECORD_FILE, write_record(record), mode=0o644)
                os.rename(staged, self.path(PUBLISHED, name))
                _sync(self.folder / PUBLISHED)
        finally:
            os.close(held)
        return record

    def remove(self, name: str) -> Record:
        """Delete a dataset, published or staged; what somebody has open stays readable for them until they close it.

        Raises:
            InputError: there is none of that name.
            GpulabError: it is being published now.
        """
        with self._alone():
            self._clear()
            places = [self.path(state, name) for state in (STAGED, PUBLISHED)]
            found = next((place for place in places if place.is_dir()), None)
            if found is None:
                raise InputError(f"there is no dataset {name}; `gpu-dataset list` shows what there is")
            held = hold(found)
            record = self._record(found)
            gone = self.folder / REMOVED / f"{name}.{secrets.token_hex(4)}"
            os.rename(found, gone)
        try:
            shutil.rmtree(gone)
        finally:
            os.close(held)
        return record

    def require_room(self, needed: int) -> None:
        """Refuse what the disk cannot take.

        Args:
            needed: bytes.

        Raises:
            InputError: there is not enough space.
        """
        status = os.statvfs(self.folder)
        free = status.f_bavail * status.f_frsize
        if needed > free:
            gib = 1 << 30
            raise InputError(
                f"it takes {needed / gib:.1f} GiB, and {free / gib:.1f} GiB are free at {self.folder}; remove something"
            )

    def _refuse_known(self, name: str) -> None:
        for state, remedy in ((PUBLISHED, "a new version needs a name of its own"), (STAGED, "publish or remove it")):
            if self.path(state, name).exists():
                raise InputError(f"there is a {state} dataset {name} already; {remedy}")

    def _record(self, folder: Path) -> Record:
        record = read_record(read_regular(folder / RECORD_FILE, limit=_RECORD_LIMIT))
        if record is None:
            raise GpulabError(f"{folder / RECORD_FILE} is not what gpulab wrote; remove the dataset and add it again")
        return record

    def _clear(self) -> None:
        """Remove what nobody works on any more."""
        for state in (INCOMING, REMOVED):
            for left in (self.folder / state).iterdir():
                if not is_held(left):
                    shutil.rmtree(left)

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        return exclusive_lock(self.folder / "lock", timeout=_LOCK_SECONDS)


def open_store(path: str, owner: int = 0) -> Store:
    """Open the store, where nobody but root could have a hand in it.

    Args:
        path: its folder.
        owner: who counts as root; tests run as somebody else.

    Raises:
        GpulabError: it is not there, or not as role datasets made it.
    """
    try:
        folder = trusted_folder(Path(path), owner)
        for state in MODES:
            trusted_folder(folder / state, owner)
    except FileNotFoundError as error:
        raise GpulabError(f"there is no folder {error.filename}; is its file system mounted? Ask the admin") from error
    return Store(folder)


def records(folder: Path) -> tuple[Record, ...]:
    """Return the records of all datasets in a folder, by name; one without a record has its name only.

    Raises:
        OSError: the folder cannot be read.
    """
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        try:
            record = read_record(read_regular(entry / RECORD_FILE, limit=_RECORD_LIMIT))
        except (FileNotFoundError, UnsafeFileError):
            record = None
        found.append(replace(record, name=entry.name) if record else Record(entry.name, "", ""))
    return tuple(found)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
