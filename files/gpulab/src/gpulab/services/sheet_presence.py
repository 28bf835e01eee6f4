"""Have a booking sheet at all: its header, owner, group and mode. What people wrote in it is never touched."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..adapters.files import exclusive_lock, read_regular, write_atomic
from ..errors import InputError, UnsafeFileError
from ..rules.cells import HEADER
from ..rules.sheet import Problem, parse
from .sheet_file import SHEET_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LOCK_SECONDS = 60.0
_UNKNOWN = -1  # an account that is not there yet, in a dry run


@dataclass(frozen=True)
class Presence:
    """What was found and what was done about it.

    Attributes:
        changed: whether something was, or would be in a dry run.
        before: owner, group, mode and content as text for a diff; empty when there was no sheet.
        after: likewise afterwards.
        problems: the lines of the sheet that cannot be used.
    """

    changed: bool
    before: str
    after: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Access:
    """Who may do what with the sheet.

    Attributes:
        owner: account name.
        group: group name.
        mode: permission bits, octal text such as `0664`.
    """

    owner: str
    group: str
    mode: str

    def bits(self) -> int:
        """Return the permission bits.

        Raises:
            InputError: they are not octal.
        """
        if not re.fullmatch(r"0?[0-7]{3}", self.mode):
            raise InputError(f"mode is {self.mode!r}; write it in octal with quotes, such as '0664'")
        return int(self.mode, 8)

    def ids(self, *, dry_run: bool) -> tuple[int, int]:
        """Return user and group id; -1 in a dry run for what does not exist yet.

        Raises:
            InputError: there is no such account or group.
        """
        uid = _id("account", self.owner, lambda name: pwd.getpwnam(name).pw_uid, dry_run=dry_run)
        gid = _id("group", self.group, lambda name: grp.getgrnam(name).gr_gid, dry_run=dry_run)
        return uid, gid


def _id(kind: str, name: str, look_up: Callable[[str], int], *, dry_run: bool) -> int:
    try:
        return look_up(name)
    except KeyError:
        if dry_run:
            return _UNKNOWN
        raise InputError(f"there is no {kind} {name}; set the members up first (role members)") from None


def ensure(path: Path, access: Access, *, state_dir: Path, dry_run: bool) -> Presence:
    """Make the sheet when there is none or nothing in it, and set who may do what.

    Args:
        path: the sheet; its folder must exist, but for a dry run.
        access: owner, group and mode.
        state_dir: the folder with the lock that writers of the sheet hold.
        dry_run: only tell.

    Raises:
        InputError: access names something that does not exist.
        UnsafeFileError: a link, FIFO, folder or device stands in the sheet's place, or it is larger than 4 MiB.
        GpulabError: somebody else held the lock for too long.
        OSError: it cannot be read or written.
    """
    bits = access.bits()
    uid, gid = access.ids(dry_run=dry_run)
    if dry_run:
        return _ensure(path, access, bits, (uid, gid), dry_run=True)
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive_lock(state_dir / "lock", timeout=_LOCK_SECONDS):
        return _ensure(path, access, bits, (uid, gid), dry_run=False)


def _ensure(path: Path, access: Access, bits: int, ids: tuple[int, int], *, dry_run: bool) -> Presence:
    try:
        data = read_regular(path, limit=SHEET_LIMIT)
    except FileNotFoundError:
        data = b""
    status = _status(path)
    sheet = parse(data)
    fill = all(row.blank for row in sheet.rows)
    wrong = status is None or (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) != (*ids, bits)
    if fill and not dry_run:
        write_atomic(path, _header(), mode=bits, uid=ids[0], gid=ids[1])
    elif wrong and not dry_run:
        _set_access(path, bits, ids)
    wanted = f"owner {access.owner}, group {access.group}, mode {bits:04o}\n"
    return Presence(
        changed=fill or wrong,
        before="" if status is None else _described(status) + (_text(data) if fill else ""),
        after=wanted + (_text(_header()) if fill else ""),
        problems=() if fill else sheet.problems,
    )


def _header() -> bytes:
    return (",".join(HEADER) + "\n").encode("ascii")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _described(status: os.stat_result) -> str:
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    return f"owner {owner}, group {group}, mode {stat.S_IMODE(status.st_mode):04o}\n"


def _set_access(path: Path, bits: int, ids: tuple[int, int]) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnsafeFileError(f"{path} is not an ordinary file; move it away and try again")
        os.fchown(descriptor, *ids)
        os.fchmod(descriptor, bits)
    finally:
        os.close(descriptor)
