"""What people own on the server in one file, and back: the register of accounts, bookings, samples, Slurm's accounts.

Homes, /data and the system's own configuration are not in it: those belong to the lab's ordinary backup, and the
configuration comes from the inventory. The file holds password hashes; it is readable by root only.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import sqlite3
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .. import __version__, names
from ..adapters.accounts import read_accounts, read_secrets
from ..adapters.files import read_regular, write_atomic
from ..errors import GpulabError, InputError
from ..rules.member_registry import PRESENT
from .members import read_registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

FORMAT = 1

REGISTRY = "var/lib/gpulab/members/registry.json"
SHEET = "home/admin/gpu_schedule.csv"
SAMPLES = "var/lib/gpulab/samples/samples.db"
SLURM = "var/lib/gpulab/slurm/accounts.sql"
FOLDERS = ("var/lib/gpulab/booking", "var/lib/gpulab/reports")
"""Every plain file in these, except locks: who changed the bookings, and past reports."""

PASSWORDS = "passwords"
"""Not a file of the server: a line `name:hash` for each member who has a password (crypt(5))."""

_DATABASE = "var/lib/mysql/slurm_acct_db"
_IN_USE = "var/lib/gpulab/slurm/database"
_MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HASH = re.compile(r"[a-z_][a-z0-9_-]*\$?:\$[\x21-\x39\x3b-\x7e]+")
_MODES = {SHEET: 0o644}  # the roles set owners and modes of what is theirs
_DUMP_SECONDS = 3600
_LIMIT = 256 << 20
_BLOCK = 1 << 20


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
        dump: the command that prints the accounting database as SQL (mariadb-dump(1)).
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
        GpulabError: something cannot be read or written.
    """
    if os.path.lexists(target):
        raise InputError(f"{target} is there already; choose another name")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup.") as folder:
            found = dict(_collect(world, Path(folder)))
            manifest = Manifest(
                host, now.isoformat(timespec="seconds"), {name: _sum(path) for name, path in found.items()}
            )
            whole = Path(folder) / "whole"
            with open(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                with tarfile.open(fileobj=stream, mode="w:gz") as archive:
                    _add(archive, _MANIFEST, _render(manifest))
                    for name, path in found.items():
                        archive.add(path, name, recursive=False, filter=_anonymous)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(whole, target)  # never over another file
    except FileExistsError:
        raise InputError(f"{target} is there already; choose another name") from None
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
    with _opened(source) as (archive, manifest):
        identity = hashlib.sha256(_render(manifest)).hexdigest()
        if _read_note(note) == identity:
            return manifest, ()
        present = [name for name in manifest.sums if name != PASSWORDS and os.path.lexists(world.root / name)]
        if SLURM in manifest.sums and os.path.lexists(world.root / _IN_USE):
            present.append(_IN_USE)
        different = [name for name in present if name == _IN_USE or _sum(world.root / name) != manifest.sums[name]]
        if different:
            raise InputError(
                f"this server has data of its own ({', '.join('/' + name for name in different)}); a backup is put "
                "back on a new server only, before its first `make site`. Move these away if they are not wanted"
            )
        placed = []
        try:
            for name in manifest.sums:
                if name != PASSWORDS and name not in present:
                    _place(archive, name, world.root)
                    placed.append(name)
            note.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomic(note, f"{identity}\n".encode(), mode=0o600)
        except OSError as error:
            raise GpulabError(f"the backup could not be put back: {error}; mend that and run it again") from error
    return manifest, tuple(placed)


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
    with _opened(source) as (archive, manifest):
        if PASSWORDS not in manifest.sums:
            return ()
        lines = _content(archive, PASSWORDS).decode("ascii").splitlines()
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
        _run(world.chpasswd, given="".join(f"{line}\n" for line in wanted))
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
        with dump.open("wb") as stream:
            _run(world.dump, into=stream)
        yield SLURM, dump
    else:
        with contextlib.suppress(FileNotFoundError):
            yield SLURM, keep(read_regular(world.root / SLURM, limit=_LIMIT))
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


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[tuple[tarfile.TarFile, Manifest]]:
    """Open a backup whose every byte is as its manifest says."""
    try:
        with tarfile.open(source, "r:gz") as archive:
            manifest = _parse(_content(archive, _MANIFEST), source)
            for name, wanted in manifest.sums.items():
                if _sum_of(_stream(archive, name)) != wanted:
                    raise InputError(f"{source} is damaged: {name} is not what was saved")
            yield archive, manifest
    except FileNotFoundError:
        raise InputError(f"there is no backup at {source}") from None
    except (tarfile.TarError, EOFError, KeyError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{source} is not a backup of gpulab, or is damaged ({error})") from error


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


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o600
    archive.addfile(info, io.BytesIO(data))


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o600
    return info


def _stream(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    member = archive.getmember(name)
    stream = archive.extractfile(member) if member.isreg() else None
    if stream is None:
        raise tarfile.ReadError(f"{name} is not a file")
    return stream


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    data = _stream(archive, name).read(_LIMIT + 1)
    if len(data) > _LIMIT:
        raise tarfile.ReadError(f"{name} is larger than {_LIMIT} bytes")
    return data


def _place(archive: tarfile.TarFile, name: str, root: Path) -> None:
    target = root / name
    target.parent.mkdir(mode=0o755 if name == SHEET else 0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".restore.")
    try:
        with open(descriptor, "wb") as stream:
            source = _stream(archive, name)
            while block := source.read(_BLOCK):
                stream.write(block)
            stream.flush()
            os.fchmod(descriptor, _MODES.get(name, 0o600))
            os.fsync(descriptor)
        os.rename(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _sum(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        return _sum_of(stream)


def _sum_of(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _read_note(path: Path) -> str:
    try:
        return read_regular(path, limit=1024).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _run(command: Sequence[str], *, given: str = "", into: IO[bytes] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            input=given.encode(),
            stdout=into if into is not None else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_DUMP_SECONDS,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise GpulabError(f"{command[0]} could not do its work: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise GpulabError(f"{command[0]} ended with {done.returncode}: {said or 'no message'}")
