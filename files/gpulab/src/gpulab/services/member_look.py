"""One look at the server: every file that matters is read once, however many members there are."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import accounts, starters
from ..adapters.files import read_regular
from ..errors import GpulabError, UnsafeFileError
from ..rules.accounts import Account, Host, KeyFile, Traces
from ..rules.sshd import DROP_IN, MAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ..rules.member_registry import Registry
    from .members import Request, World

KEY_FOLDER = "etc/ssh/authorized_keys.d"
KEY_FILE_MODE = 0o644
"""Everybody may read public keys, and sshd reads them as the member."""

_LIMIT = 1 << 20


@dataclass(frozen=True)
class SheetBookings:
    """The bookings of members in the sheet of the table tier.

    Its code is loaded only when somebody leaves and there is a sheet.
    """

    def count(self, root: Path, user: str, now: datetime) -> int:
        """Return how many bookings would end if the member left now.

        Raises:
            GpulabError: the sheet cannot be read.
        """
        if not os.path.lexists(names.under(root, names.SHEET_FILE)):
            return 0
        from ..rules.booking import leave  # noqa: PLC0415 - see the class
        from .sheet_file import read_sheet  # noqa: PLC0415

        return len(leave(read_sheet(root).by_line, user, now=now))

    def end(self, root: Path, user: str, now: Callable[[], datetime]) -> None:
        """End them.

        Raises:
            GpulabError: the sheet cannot be read or written.
        """
        from .booking import end_all_bookings  # noqa: PLC0415 - see the class

        end_all_bookings(root, user, "root", now)


def naive(moment: datetime) -> datetime:
    """Return the server's time on the wall, as the booking sheet holds it."""
    return moment.replace(tzinfo=None)


def look(request: Request, world: World, registry: Registry) -> Host:
    """Read everything.

    Raises:
        GpulabError: an account file is not what it should be.
        OSError: a file cannot be read.
    """
    root = world.root
    found = accounts.read_accounts(root)
    leavers = {member.name: _uid(member.name, found, registry) for member in request.members if not member.present}
    homes = {member.name: _home(member.name, found, registry, request) for member in request.members}
    mounts = world.homes.mounts() if leavers else frozenset()
    archived = set(homes.values()) | {_unarchived(entry.archive) for entry in registry.values() if entry.archive}
    shells = {member.shell for member in request.members if member.shell} | {request.default_shell}
    notes: list[str] = []
    aliases = root / request.aliases_file.lstrip("/")
    return Host(
        accounts=found,
        groups=accounts.read_groups(root),
        key_files=_key_files(root, {member.name for member in request.members}),
        places={home: world.homes.look(home, mounts) for home in homes.values()},
        archived=world.homes.archived(archived),
        shells=accounts.runnable(root, shells | {entry.shell for entry in registry.values() if entry.shell}),
        traces=_traces(leavers, world, notes),
        logged_in=world.processes.logged_in() if leavers else frozenset(),
        aliases=_text(aliases),
        aliases_stale=any(_older(path, aliases) for path in compiled_aliases(aliases)),
        notes=tuple(notes),
    )


def compiled_aliases(aliases: Path) -> list[Path]:
    """Return the compiled forms of an alias file that are there; newaliases(1) writes them."""
    forms = [aliases.with_name(f"{aliases.name}.{form}") for form in ("db", "cdb", "lmdb", "dir")]
    return [form for form in forms if form.exists()]


def sshd_files(root: Path) -> dict[str, str]:
    """Return the texts of sshd's settings by path, without our own; empty when sshd is not installed."""
    folder = DROP_IN.rpartition("/")[0]
    try:
        drop_ins = sorted(name for name in os.listdir(root / folder.lstrip("/")) if name.endswith(".conf"))
    except FileNotFoundError:
        drop_ins = []
    paths = [MAIN, *(f"{folder}/{name}" for name in drop_ins if f"{folder}/{name}" != DROP_IN)]
    texts = {path: _follow(root / path.lstrip("/")) for path in paths}
    return {path: text for path, text in texts.items() if text is not None}


def _traces(leavers: Mapping[str, int | None], world: World, notes: list[str]) -> dict[str, Traces]:
    known = {name: uid for name, uid in leavers.items() if uid is not None}
    if not known:
        return {}
    crontabs, lingering = starters.crontabs(world.root), starters.lingering(world.root)
    jobs, lent = starters.at_jobs(world.root), accounts.read_subuids(world.root)
    uids = {name: (range(uid, uid + 1), *lent.get(name, ())) for name, uid in known.items()}
    running = world.processes.owned_by([some for ranges in uids.values() for some in ranges])
    return {
        name: Traces(
            uids=uids[name],
            crontab=name in crontabs,
            at_jobs=jobs.get(uid, ()),
            lingers=name in lingering,
            processes=sum(any(process.identity.uid in some for some in uids[name]) for process in running),
            bookings=_bookings(name, world, notes),
        )
        for name, uid in known.items()
    }


def _bookings(name: str, world: World, notes: list[str]) -> int:
    try:
        return world.bookings.count(world.root, name, naive(world.now()))
    except (GpulabError, OSError) as error:
        # A sheet that somebody damaged must not keep the door of a leaver open.
        notes.append(f"the bookings of {name}, who left, could not be looked at: {error}")
        return 0


def _uid(name: str, found: Mapping[str, Account], registry: Registry) -> int | None:
    """Return the uid whose processes are a leaver's; None when the number is nobody's or somebody else's by now."""
    if name in found:
        return found[name].uid
    if name not in registry or registry[name].uid in {account.uid for account in found.values()}:
        return None
    return registry[name].uid


def _home(name: str, found: Mapping[str, Account], registry: Registry, request: Request) -> str:
    if name in found:
        return found[name].home
    return registry[name].home if name in registry else f"{request.home_root.rstrip('/')}/{name}"


def _unarchived(archive: str) -> str:
    """Return a path beside the folder that holds an archived home."""
    return str(Path(archive).parent.parent / "x")


def _key_files(root: Path, members: set[str]) -> dict[str, KeyFile]:
    folder = root / KEY_FOLDER
    try:
        there = members.intersection(os.listdir(folder))
    except FileNotFoundError:
        return {}
    return {name: _key_file(folder / name) for name in there}


def _key_file(path: Path) -> KeyFile:
    try:
        content = read_regular(path, limit=_LIMIT)
    except UnsafeFileError:
        return KeyFile(b"", sound=False)
    status = os.lstat(path)
    return KeyFile(content, sound=status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == KEY_FILE_MODE)


def _text(path: Path) -> str | None:
    try:
        return read_regular(path, limit=_LIMIT * 16).decode(errors="surrogateescape")
    except FileNotFoundError:
        return None


def _follow(path: Path) -> str | None:
    """Read a file that only root writes; links are root's own choice there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, IsADirectoryError):
        return None


def _older(path: Path, than: Path) -> bool:
    try:
        return path.stat().st_mtime_ns < than.stat().st_mtime_ns
    except FileNotFoundError:
        return False
