"""Close members' sessions to the cards: files, then the kernel, then a proof that it holds; and the way out."""

from __future__ import annotations

import contextlib
import errno
import grp
import hashlib
import os
import pwd
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import device_names, state
from ..adapters.cgroup import device_control, path_of
from ..adapters.files import read_regular, write_atomic
from ..adapters.units import Units
from ..errors import GpulabError, InputError
from ..rules import guard, guard_pam
from ..rules.guard_check import why_not
from .guard_people import open_hands, uncovered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..rules.guard_check import DeviceControl

_LIMIT = 1 << 20
_ROOT = {0: "root"}
_SESSIONS = "user-*.slice"
_IN_FORCE = "run/gpulab-guard.json"
"""What the kernel was made to follow last; gone with a reboot, after which everything starts from the files."""

_PROBE_SLICE = "user-gpulab.slice"
"""A slice like those of users, which no user can have."""

_PROBE = """\
import errno, os, sys
try:
    os.open(sys.argv[1], os.O_RDONLY)
except OSError as error:
    print(errno.errorcode[error.errno])
else:
    print("opened")
"""
_NO_CARD = os.makedev(195, 250)
"""A number of NVIDIA's range behind which there is no card: only a filter answers EPERM."""


@dataclass(frozen=True)
class Wish:
    """What the inventory asks for.

    Attributes:
        devices: what members may open besides systemd's own short list.
        services: further services that start members' processes.
        exempt: further accounts whose sessions keep the cards, besides root and the admins.
    """

    devices: Sequence[str] = ()
    services: Sequence[str] = ()
    exempt: Sequence[str] = ()


@dataclass(frozen=True)
class FileChange:
    """A file that changed, or would.

    Attributes:
        path: where it is.
        before: its text; empty when it was not there.
        after: its text; empty when it is gone.
        exists: whether it is there afterwards.
    """

    path: str
    before: str
    after: str
    exists: bool = True


@dataclass(frozen=True)
class Report:
    """What was done, or would be.

    Attributes:
        files: those that changed, in the order of work.
        warnings: what the guard does not hold, a line each.
    """

    files: tuple[FileChange, ...] = ()
    warnings: tuple[str, ...] = ()


def _admins(group: str) -> frozenset[str]:
    """Return the accounts of a group, those included whose primary group it is; none when there is no such group."""
    try:
        entry = grp.getgrnam(group)
    except KeyError:
        return frozenset()
    return frozenset([*entry.gr_mem, *(each.pw_name for each in pwd.getpwall() if each.pw_gid == entry.gr_gid)])


def _uid(account: str) -> int | None:
    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError:
        return None


@contextlib.contextmanager
def _stand_in() -> Iterator[str]:
    """Make a node of a card that is not there; below /dev, because /run forbids devices."""
    path = f"/dev/gpulab-guard-{os.getpid()}"
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, _NO_CARD)
    except OSError as error:
        raise GpulabError(
            f"whether the guard holds cannot be tried: {path} cannot be made ({error.strerror})"
        ) from error
    try:
        yield path
    finally:
        os.unlink(path)


@dataclass(frozen=True)
class Machine:
    """The outside, as parameters.

    Attributes:
        root: the folder that stands for `/`.
        units: systemd.
        control: tells what the machine has for refusing devices.
        admins: returns the accounts of a group.
        uid: returns the number of an account, None when there is none.
        stand_in: makes the node of a card that is not there, for the proof.
    """

    root: Path = Path("/")
    units: Units = field(default_factory=Units)
    control: Callable[[Path], DeviceControl] = device_control
    admins: Callable[[str], frozenset[str]] = _admins
    uid: Callable[[str], int | None] = _uid
    stand_in: Callable[[], contextlib.AbstractContextManager[str]] = _stand_in

    @property
    def proc_root(self) -> Path:
        """Where proc is mounted."""
        return self.root / "proc"

    def at(self, path: str) -> Path:
        """Return where an absolute path is."""
        return self.root / path.lstrip("/")


def apply(wish: Wish, machine: Machine, *, dry_run: bool) -> Report:
    """Close the sessions of everybody but root, the admins and the exempt accounts.

    Args:
        wish: what the inventory asks for.
        machine: the outside.
        dry_run: only tell.

    Raises:
        InputError: the wish cannot be had; nothing was changed.
        GpulabError: the machine cannot refuse devices (nothing was changed), or the proof failed (files are in place).
        OSError: a file cannot be read or written.
    """
    devices = guard.parse_devices(wish.devices, lambda name: device_names.look(name, machine.root))
    wanted = guard.Guard(devices, guard.parse_services(wish.services), _exempt(wish, machine, dry_run=dry_run))
    reason = why_not(machine.control(machine.proc_root))
    if reason:
        raise GpulabError(f"the cards cannot be closed here: {reason}; or go on without: gpu_guard_enabled: false")
    _require_own_way(wanted.exempt, machine, dry_run=dry_run)
    texts = guard.files(wanted)
    changes = [*_pam_changes(machine, present=True), *_changes(texts, machine)]
    if not dry_run:
        _write(changes, machine)
        _enforce(texts, wanted.closed_services, machine, changed=bool(changes))
        _prove(machine)
    warnings = [*open_hands(wanted.exempt, machine.proc_root), *uncovered(wanted, machine.proc_root)]
    return Report(tuple(changes), tuple(warnings))


def remove(machine: Machine, *, dry_run: bool) -> Report:
    """Take the guard away: every session, the open ones too, can open the cards again.

    Args:
        machine: the outside.
        dry_run: only tell.

    Raises:
        GpulabError: systemd failed.
        OSError: a file cannot be read or removed.
    """
    # The job services lose their filter before their jobs lose the way out of them.
    changes = [*_changes({}, machine), *_pam_changes(machine, present=False)]
    mark = machine.root / _IN_FORCE
    if not dry_run and (changes or mark.exists()):
        services = {
            *guard.ENTRIES,
            *_noted_services(mark),
            *filter(None, (guard.unit_of(each.path) for each in changes)),
        }
        _write(changes, machine)
        _enforce({}, sorted(each for each in services if each.endswith(".service")), machine, changed=True)
        mark.unlink(missing_ok=True)
    return Report(tuple(changes))


def in_force(root: Path) -> bool:
    """Tell whether the guard's files are in place."""
    return (root / guard.drop_in(guard.ALL_SESSIONS).lstrip("/")).exists()


def _exempt(wish: Wish, machine: Machine, *, dry_run: bool) -> dict[int, str]:
    exempt = dict(_ROOT)
    for name in wish.exempt:
        uid = machine.uid(name)
        if uid is None and not dry_run:
            raise InputError(f"gpu_guard_exempt has {name}, but there is no such account; take it out")
        if uid is not None:
            exempt[uid] = name
    for name in machine.admins(names.ADMINS_GROUP):
        uid = machine.uid(name)
        if uid is not None:
            exempt[uid] = name
    return exempt


def _require_own_way(exempt: Mapping[int, str], machine: Machine, *, dry_run: bool) -> None:
    """Refuse to close the session that this very run came through: the next one could not read the cards."""
    if dry_run and not machine.admins(names.ADMINS_GROUP):
        return  # a new server: who is an admin is only known after the accounts are made
    for part in path_of("self", machine.proc_root).split("/"):
        number = part.removeprefix("user-").removesuffix(".slice")
        if part == f"user-{number}.slice" and number.isdecimal() and int(number) not in exempt:
            raise InputError(
                f"this run is logged in as uid {number}, who is neither an admin nor exempt, and would lose the cards "
                "with it; name the account in gpu_guard_exempt, or connect as an admin"
            )


def _changes(texts: Mapping[str, str], machine: Machine) -> list[FileChange]:
    """Compare the guard's own files with what they shall be; those to be removed come last, exemptions at the end."""
    there = {path: _read(machine.at(path)) or "" for path in _own_files(machine)}
    changes = [
        FileChange(path, there.get(path, ""), text)
        for path, text in texts.items()
        if path not in there or there[path] != text
    ]
    stale = [path for path in there if path not in texts]
    first = guard.drop_in(guard.ALL_SESSIONS)
    stale.sort(key=lambda path: (path != first, guard.unit_of(path).endswith(".slice"), path))
    return [*changes, *(FileChange(path, there[path], "", exists=False) for path in stale)]


def _own_files(machine: Machine) -> list[str]:
    folder = machine.at(guard.UNITS_DIR)
    found = [f"{guard.UNITS_DIR}/{path.parent.name}/{path.name}" for path in folder.glob(f"*.d/{guard.DROP_IN}")]
    return [*found, *([guard.LOGIND_FILE] if machine.at(guard.LOGIND_FILE).exists() else [])]


def _pam_changes(machine: Machine, *, present: bool) -> list[FileChange]:
    changes = []
    line = guard_pam.line_for(machine.units.version()) if present else None
    for path in guard_pam.FILES:
        text = _read(machine.at(path))
        if text is None:
            continue  # not installed: its service is closed all the same
        after = guard_pam.without(text) if line is None else guard_pam.with_line(text, line)
        if after != text:
            changes.append(FileChange(path, text, after))
    return changes


def _read(path: Path) -> str | None:
    try:
        return read_regular(path, limit=_LIMIT).decode(errors="surrogateescape")
    except FileNotFoundError:
        return None


def _write(changes: Sequence[FileChange], machine: Machine) -> None:
    for change in changes:
        path = machine.at(change.path)
        if change.exists:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomic(path, change.after.encode(errors="surrogateescape"), mode=0o644)
        else:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody else's drop-ins are there too
                path.parent.rmdir()


def _enforce(texts: Mapping[str, str], services: Sequence[str], machine: Machine, *, changed: bool) -> None:
    """Have what runs already follow the files: after a change, or when an earlier run was cut off before this."""
    digest = hashlib.sha256(repr(sorted(texts.items())).encode(errors="surrogateescape")).hexdigest()
    mark = machine.root / _IN_FORCE
    if not changed and _noted(mark).get("digest") == digest:
        return
    former = _noted_services(mark)
    note = {"digest": "", "services": sorted({*services, *former})}
    state.save(mark, note)
    patterns = [_SESSIONS, *(each.replace("@.", "@*.") for each in note["services"])]
    machine.units.forget(patterns)
    machine.units.reload()
    machine.units.reload_logind()
    machine.units.follow(machine.units.policies(patterns))
    state.save(mark, {"digest": digest, "services": sorted(services)})


def _noted(mark: Path) -> dict[str, object]:
    try:
        document = state.load(mark)
    except state.CorruptStateError:
        return {}
    return document if isinstance(document, dict) else {}


def _noted_services(mark: Path) -> list[str]:
    services = _noted(mark).get("services")
    return [str(each) for each in services] if isinstance(services, list) else []


def _prove(machine: Machine) -> None:
    """Try it: a program in a user's slice must be refused, one in root's must not.

    Raises:
        GpulabError: the guard does not hold, or that cannot be known.
    """
    with machine.stand_in() as node:
        refused, control = (
            machine.units.run_in(where, [sys.executable, "-IS", "-c", _PROBE, node]).strip()
            for where in (_PROBE_SLICE, "user-0.slice")
        )
    denied = errno.errorcode[errno.EPERM]
    if refused != denied:
        raise GpulabError(
            f"the guard's files are in place, but the kernel does not follow them: a program in {_PROBE_SLICE} got "
            f"{refused!r} instead of {denied} for a card's number; look for `device` in journalctl -b _PID=1, "
            "or go on without: gpu_guard_enabled: false"
        )
    if control == denied:
        raise GpulabError(
            "whether the guard holds cannot be known: root's own session is refused the cards as well, by something "
            "around this machine such as a container's device list; open /dev/nvidia* there"
        )
