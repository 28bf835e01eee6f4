"""What people own on the server in one file, and back: the register of accounts, bookings, samples, Slurm's accounts.

Homes, /data and the system's own configuration are not in it: those belong to the lab's ordinary backup, and the
configuration comes from the inventory. The file holds password hashes; it is readable by root only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__, names
from ..adapters import archive
from ..adapters.accounts import read_accounts, read_secrets
from ..adapters.files import read_regular, replacing, write_atomic
from ..adapters.programs import output_of
from ..errors import GpulabError, InputError, NotPermittedError
from ..rules.member_registry import PRESENT
from .members import read_registry, registry_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import PurePath


def _below(path: PurePath) -> str:
    """Name a file of the server as the archive does."""
    return str(path.relative_to("/"))


FORMAT = 1

REGISTRY = _below(registry_path(Path("/")))
SHEET = _below(names.SHEET_FILE)
SAMPLES = _below(names.SAMPLES_FILE)
SLURM = _below(names.SLURM_STATE_DIR / "accounts.sql")
FOLDERS = (_below(names.BOOKING_STATE_DIR), _below(names.REPORTS_DIR))
"""Every plain file in these, except locks: who changed the bookings, and past reports."""

PASSWORDS = "passwords"
"""Not a file of the server: a line `name:hash` for each member who has a password (crypt(5))."""

_DATABASE = "var/lib/mysql/slurm_acct_db"
_IN_USE = _below(names.SLURM_STATE_DIR / "database")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HASH = re.compile(r"[a-z_][a-z0-9_-]*\$?:\$[\x21-\x39\x3b-\x7e]+")
_MODES = {SHEET: 0o644}  # the roles set owners and modes of what is theirs
_DUMP_SECONDS = 3600
_CHANGE_SECONDS = 120
_LIMIT = 256 << 20


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself.

    Attributes:
        host: name of the server it is of.
        made: server time, ISO 8601.
        sums: member of the archive to its SHA-256, hexadecimal.
    """

    host: str
    made: str
    sums: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """What a backup needs of the server.

    Attributes:
        root: the folder that stands for `/`.
        dump: the command that writes the accounting database as SQL to its --result-file (mariadb-dump(1)).
        chpasswd: the command that reads `name:hash` lines (chpasswd(8)).
    """

    root: Path = Path("/")
    dump: Sequence[str] = ("mariadb-dump", "--single-transaction", "slurm_acct_db")
    chpasswd: Sequence[str] = ("chpasswd", "--encrypted")


def make(target: Path, host: str, now: datetime, world: World) -> Manifest:
    """Write a backup; the file is whole or not there.

    Args:
        target: the file, which must not be there.
        host: name of the server.
        now: server time.
        world: what is needed of the server.

    Raises:
        InputError: there is such a file.
        NotPermittedError: the caller is not root.
        GpulabError: something cannot be read or written.
    """
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup.") as folder:
            found = dict(_collect(world, Path(folder)))
            sums = {name: archive.sum_of(path) for name, path in found.items()}
            manifest = Manifest(host, now.isoformat(timespec="seconds"), sums)
            whole = Path(folder) / "whole"
            with replacing(whole, mode=0o600) as stream:
                archive.write(stream, _render(manifest), found)
            os.link(whole, target)  # never over another file
    except FileExistsError:
        raise InputError(f"{target} is there already; choose another name") from None
    except PermissionError as error:
        raise NotPermittedError(f"only root can read and write {error.filename}; use sudo gpulab backup") from error
    except OSError as error:
        raise GpulabError(f"the backup could not be made: {error}") from error
    return manifest


def restore(source: Path, world: World) -> tuple[Manifest, tuple[str, ...]]:
    """Put a backup's files in their places on a server that has none of them yet.

    Nothing is touched before everything is checked. Running it again with the same backup changes nothing.

    Args:
        source: the file that `make` wrote.
        world: what is needed of the server.

    Returns:
        What the backup says of itself, and the files that were put in place, without the leading `/`.

    Raises:
        InputError: it is no backup, is damaged, or the server has its own data; nothing was changed.
        GpulabError: something cannot be written.
    """
    note = Path(names.under(world.root, names.STATE_DIR)) / "restored"
    with _opened(source) as (saved, manifest):
        identity = hashlib.sha256(_render(manifest)).hexdigest()
        if _read_note(note) == identity:
            return manifest, ()
        try:
            missing = _missing(manifest, world.root)
            for name in missing:
                _place(saved, name, world.root)
            note.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomic(note, f"{identity}\n".encode(), mode=0o600)
        except OSError as error:
            raise GpulabError(f"the backup could not be put back: {error}; mend that and run it again") from error
    return manifest, missing


def restore_passwords(source: Path, world: World) -> tuple[str, ...]:
    """Give members the passwords they had, where their accounts are there again and have none.

    Args:
        source: the file that `make` wrote.
        world: what is needed of the server.

    Returns:
        The names of those who got theirs.

    Raises:
        InputError: it is no backup, or is damaged.
        GpulabError: chpasswd(8) failed.
    """
    with _opened(source) as (saved, manifest):
        lines = saved.read(PASSWORDS).decode("ascii", "replace").splitlines() if PASSWORDS in manifest.sums else []
    if not all(map(_HASH.fullmatch, lines)):
        raise InputError(f"{source} holds a password that is none; it is not a backup of gpulab")
    accounts = read_accounts(world.root)
    managed = {entry.name: entry.uid for entry in read_registry(world.root) if entry.state == PRESENT}
    wanted = []
    for line in lines:
        name = line.partition(":")[0]
        account = accounts.get(name)
        if account and not account.has_password and managed.get(name) == account.uid:
            wanted.append(line)
    if wanted:
        try:
            output_of(world.chpasswd, _CHANGE_SECONDS, given="".join(f"{line}\n" for line in wanted))
        except OSError as error:
            raise GpulabError(f"the passwords could not be set: {error}; run it again") from error
    return tuple(line.partition(":")[0] for line in wanted)


def _collect(world: World, folder: Path) -> Iterator[tuple[str, Path]]:
    """Name what belongs to a backup, with a file that holds it and that nobody changes meanwhile."""
    copies = iter(range(1 << 30))

    def keep(data: bytes) -> Path:
        path = folder / str(next(copies))
        path.write_bytes(data)
        return path

    for name in (REGISTRY, SHEET, *_inside(world.root)):
        with contextlib.suppress(FileNotFoundError):
            yield name, keep(read_regular(world.root / name, limit=_LIMIT))
    if (world.root / SAMPLES).is_file():
        copy = folder / "samples"
        live = sqlite3.connect(f"file:{world.root / SAMPLES}?mode=ro", uri=True)
        kept = sqlite3.connect(copy)
        try:
            live.backup(kept)
        except sqlite3.Error as error:
            raise GpulabError(f"/{SAMPLES} cannot be copied: {error}") from error
        finally:
            live.close()
            kept.close()
        yield SAMPLES, copy
    if (world.root / _DATABASE).is_dir():
        dump = folder / "accounts.sql"
        try:
            output_of([*world.dump, f"--result-file={dump}"], _DUMP_SECONDS)
        except OSError as error:
            raise GpulabError(f"Slurm's accounts could not be saved: {error}; see systemctl status mariadb") from error
        yield SLURM, dump
    elif (world.root / SLURM).is_file():
        yield SLURM, world.root / SLURM  # the tier is gone: nobody writes it
    secrets = read_secrets(world.root)
    present = [entry.name for entry in read_registry(world.root) if entry.state == PRESENT]
    lines = [f"{name}:{secrets[name]}" for name in present if secrets.get(name, "").startswith("$")]
    if lines:
        yield PASSWORDS, keep("".join(f"{line}\n" for line in lines).encode("ascii"))


def _inside(root: Path) -> list[str]:
    found = []
    for folder in FOLDERS:
        with contextlib.suppress(FileNotFoundError):
            found += [
                f"{folder}/{entry.name}"
                for entry in sorted(os.scandir(root / folder), key=lambda entry: entry.name)
                if entry.is_file(follow_symlinks=False) and _ours(f"{folder}/{entry.name}")
            ]
    return found


def _ours(name: str) -> bool:
    """Tell whether a backup may hold a file of that name: nothing else is ever written."""
    folder, _, last = name.rpartition("/")
    if folder in FOLDERS:
        return _NAME.fullmatch(last) is not None and last != "lock"
    return name in {REGISTRY, SHEET, SAMPLES, SLURM, PASSWORDS}


def _missing(manifest: Manifest, root: Path) -> tuple[str, ...]:
    """Return what is still to be put in place; what is there must be the same already."""
    wanted = [name for name in manifest.sums if name != PASSWORDS]
    if SLURM in wanted and os.path.lexists(root / _IN_USE):
        raise InputError("Slurm's accounts are in use on this server; a backup is put back on a new server only")
    present = {name for name in wanted if os.path.lexists(root / name)}
    different = [name for name in wanted if name in present and archive.sum_of(root / name) != manifest.sums[name]]
    if different:
        raise InputError(
            f"this server has data of its own ({', '.join('/' + name for name in different)}); a backup is put "
            "back on a new server only, before its first `make site`. Move these away if they are not wanted"
        )
    return tuple(name for name in wanted if name not in present)


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[tuple[archive.Archive, Manifest]]:
    """Open a backup whose every byte is as its manifest says."""
    with archive.opened(source) as saved:
        manifest = _parse(saved.read(archive.HEAD), source)
        for name, wanted in manifest.sums.items():
            if saved.sum(name) != wanted:
                raise InputError(f"{source} is damaged: {name} is not what was saved")
        yield saved, manifest


def _parse(data: bytes, source: Path) -> Manifest:
    try:
        document: dict[str, Any] = json.loads(data)
        version, sums = document["format"], dict(document["sha256"])
        manifest = Manifest(str(document["host"]), str(document["made"]), sums)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{source} is not a backup of gpulab ({error!r})") from error
    if version != FORMAT:
        raise InputError(f"{source} is of format {version!r}; this gpulab reads format {FORMAT}")
    strange = [name for name in sums if not _ours(name)]
    if strange:
        raise InputError(f"{source} holds {strange[0]!r}, which no backup of gpulab has")
    return manifest


def _render(manifest: Manifest) -> bytes:
    document = {
        "format": FORMAT,
        "gpulab": __version__,
        "host": manifest.host,
        "made": manifest.made,
        "sha256": manifest.sums,
    }
    return json.dumps(document, indent=2).encode()


def _place(saved: archive.Archive, name: str, root: Path) -> None:
    target = root / name
    target.parent.mkdir(mode=0o755 if name == SHEET else 0o700, parents=True, exist_ok=True)
    with replacing(target, mode=_MODES.get(name, 0o600)) as stream:
        for block in saved.blocks(name):
            stream.write(block)


def _read_note(path: Path) -> str:
    try:
        return read_regular(path, limit=1024).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
