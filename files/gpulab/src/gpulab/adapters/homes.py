"""Home folders: made whole, moved by rename, never reached through a link that a member made.

Root works here only inside folders that root alone can change, from `/` down to the one that holds the home; so nobody
can exchange one of them meanwhile. The home itself is a member's: it is moved, or given to another owner, as a whole.
Nothing in it is opened.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ..errors import UnsafeFileError
from ..rules.accounts import ARCHIVE_FOLDER, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ESCAPED = re.compile(r"\\([0-7]{3})")


def _chown(target: int | str, uid: int, gid: int) -> None:
    if isinstance(target, int):
        os.fchown(target, uid, gid)
    else:
        os.chown(target, uid, gid, follow_symlinks=False)


@dataclass(frozen=True)
class Homes:
    """The homes of one server.

    Attributes:
        root: the folder that stands for `/`.
        mode: permission bits of a new home.
        skeleton: what a new home holds.
        chown: changes the owner of a descriptor or path, not following links.
        owner: reads the owner from a stat result.
    """

    root: Path = Path("/")
    mode: int = 0o750
    skeleton: str = "/etc/skel"
    chown: Callable[[int | str, int, int], None] = field(default=_chown)
    owner: Callable[[os.stat_result], int] = field(default=lambda status: status.st_uid)

    def look(self, home: str, mounts: frozenset[str] = frozenset()) -> Place:
        """Say what stands at a home's path, without following a link there."""
        path = PurePosixPath(home)
        if not path.is_absolute() or ".." in path.parts:
            return Place(kind="other")
        try:
            status = os.lstat(self._real(home))
        except (FileNotFoundError, NotADirectoryError):
            return Place()
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "other"
        mode = stat.S_IMODE(status.st_mode)
        return Place(kind=kind, uid=self.owner(status), mode=mode, mounted=home in mounts)

    def archived(self, homes: Iterable[str]) -> frozenset[str]:
        """Return the archived homes beside any of some homes."""
        found = set()
        for folder in {PurePosixPath(home).parent / ARCHIVE_FOLDER for home in homes if home.startswith("/")}:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found |= {str(folder / name) for name in os.listdir(self._real(str(folder)))}
        return frozenset(found)

    def mounts(self) -> frozenset[str]:
        """Return where file systems are mounted (proc_pid_mountinfo(5), fifth field); bind mounts show only there."""
        try:
            text = (self.root / "proc/self/mountinfo").read_text(errors="surrogateescape")
        except FileNotFoundError:
            return frozenset()
        points = (line.split()[4] for line in text.splitlines())
        return frozenset(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), point) for point in points)

    def make(self, home: str, *, uid: int, gid: int) -> None:
        """Make a home with what the skeleton holds; it appears whole or not at all.

        Raises:
            UnsafeFileError: others than root can change the folder it would be in.
            OSError: it cannot be written.
        """
        path = PurePosixPath(home)
        os.makedirs(self._real(str(path.parent)), mode=0o755, exist_ok=True)
        with self._trusted(path.parent) as folder:
            if _there(path.name, folder):
                raise FileExistsError(f"{home} is there already")
            building = f".{path.name}.gpulab-new"
            new = str(self._real(str(path.parent)) / building)
            if _there(building, folder):
                shutil.rmtree(new)
            os.mkdir(building, 0o700, dir_fd=folder)
            if (source := self._real(self.skeleton)).is_dir():
                shutil.copytree(source, new, symlinks=True, dirs_exist_ok=True)
            for parent, folders, files in os.walk(new):
                for name in (*folders, *files):
                    self.chown(os.path.join(parent, name), uid, gid)
            os.chmod(new, self.mode)
            self.chown(new, uid, gid)
            os.rename(building, path.name, src_dir_fd=folder, dst_dir_fd=folder)

    def archive(self, home: str, archive: str, *, uid: int) -> None:
        """Move a home into the archive beside it, which only root can enter.

        Raises:
            UnsafeFileError: it is not the member's folder, or others can change the folder it is in.
            OSError: it cannot be renamed, such as a mount point (EBUSY).
        """
        path = PurePosixPath(home)
        with self._trusted(path.parent) as folder:
            self._check(path.name, folder, uid)
            with contextlib.suppress(FileExistsError):
                os.mkdir(ARCHIVE_FOLDER, 0o700, dir_fd=folder)
            store = os.open(ARCHIVE_FOLDER, _FOLDER, dir_fd=folder)
            try:
                os.fchmod(store, 0o700)
                self._move(path.name, folder, PurePosixPath(archive).name, store)
            finally:
                os.close(store)

    def restore(self, archive: str, home: str) -> None:
        """Move an archived home back to where it was; errors as with archive."""
        kept, path = PurePosixPath(archive), PurePosixPath(home)
        with self._trusted(kept.parent) as store, self._trusted(path.parent) as folder:
            self._move(kept.name, store, path.name, folder)

    def close(self, home: str, *, uid: int) -> None:
        """Give a home to root where it stands; its content keeps its owners.

        Raises:
            UnsafeFileError: it is not the member's folder.
            OSError: it cannot be changed.
        """
        with self._opened(home, uid) as folder:
            os.fchmod(folder, 0o700)
            self.chown(folder, 0, 0)

    def reopen(self, home: str, *, uid: int, gid: int) -> None:
        """Give a closed home back; it stays for its owner's eyes only. Errors as with close."""
        with self._opened(home, 0) as folder:
            self.chown(folder, uid, gid)

    def _real(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    @contextlib.contextmanager
    def _trusted(self, folder: PurePosixPath) -> Iterator[int]:
        """Open a folder that nobody but root can change, nor any folder above it."""
        path = Path(os.path.realpath(self._real(str(folder))))
        base = Path(os.path.realpath(self.root))
        above = [parent for parent in path.parents if parent == base or base in parent.parents]
        for parent in [*above[::-1], path]:
            status = os.lstat(parent)
            # In a sticky folder only its owner can rename what root put there (inode(7)).
            open_to_others = status.st_mode & _OTHERS_WRITE and (parent == path or not status.st_mode & stat.S_ISVTX)
            if self.owner(status) != 0 or open_to_others:
                raise UnsafeFileError(
                    f"{parent} can be changed by others than root, so no home is moved there; make it root's, mode 0755"
                )
        descriptor = os.open(path, _FOLDER)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _opened(self, home: str, uid: int) -> Iterator[int]:
        descriptor = os.open(self._real(home), _FOLDER)
        try:
            owner = self.owner(os.fstat(descriptor))
            if owner != uid:
                raise UnsafeFileError(f"{home} belongs to uid {owner}, not {uid}; see to it by hand")
            yield descriptor
        finally:
            os.close(descriptor)

    def _check(self, name: str, folder: int, uid: int) -> None:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or self.owner(status) != uid:
            raise UnsafeFileError(f"{name} is not a folder of uid {uid}; see to it by hand")

    @staticmethod
    def _move(source: str, source_folder: int, target: str, target_folder: int) -> None:
        # rename(2) would replace an empty folder; both are root's, so nothing comes between this look and the move.
        if _there(target, target_folder):
            raise FileExistsError(f"{target} is there already")
        os.rename(source, target, src_dir_fd=source_folder, dst_dir_fd=target_folder)
        os.fsync(source_folder)
        os.fsync(target_folder)


def _there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
