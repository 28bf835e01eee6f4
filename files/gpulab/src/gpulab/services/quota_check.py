"""Look how much of their limits people use: for the mails, for `gpu-quota`, for the hardware ledger."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import state
from ..adapters.accounts import read_accounts
from ..adapters.files import exclusive_lock
from ..adapters.mail import MailError
from ..errors import GpulabError, NotPermittedError
from ..rules import quota_warn as warn
from .quota import PROJECT, USER, read_note
from .quota_world import find_mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..rules.quota import Folder, Policy
    from ..rules.quota_warn import Reading
    from ..settings import Settings
    from .quota_world import World

OFF = "off"
"""Key of what the admin hears when limits are not enforced."""

_LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Look:
    """What a look found.

    Attributes:
        members: how much each uses, in the order of the list.
        projects: likewise for shared folders.
        off: folders whose limits the kernel does not enforce now.
        on: those whose limits it does.
    """

    members: tuple[Reading, ...] = ()
    projects: tuple[Reading, ...] = ()
    off: tuple[str, ...] = ()
    on: tuple[str, ...] = ()


def look(world: World) -> Look:
    """Read everybody's use of what is limited; empty when nothing is.

    Raises:
        GpulabError: the note of the limits cannot be understood.
        OSError: the caller is not root, or a file system does not answer.
    """
    note = read_note(world.root)
    if note is None:
        return Look()
    policy, members = note
    known = read_accounts(world.root)
    accounts = {name: known[name].uid for name in members if name in known}
    found: list[Reading] = []
    off: list[str] = []
    on: list[str] = []
    for folder in unique(policy, world):
        (on if _enforced(world, folder.path, USER) else off).append(folder.path)
        if folder.path in on:
            usages = world.kernel.usages(folder.path, USER, list(accounts.values()))
            for name, uid in accounts.items():
                found += warn.readings(name, folder.path, usages[uid])
    shared: list[Reading] = []
    for project in policy.projects:
        number = world.project_of(project.path) if _enforced(world, project.path, PROJECT) else 0
        if number:
            (usage,) = world.kernel.usages(project.path, PROJECT, [number]).values()
            shared += warn.readings(project.path, project.path, usage)
    return Look(tuple(found), tuple(shared), tuple(off), tuple(on))


def own(world: World, uid: int, name: str) -> tuple[Reading, ...] | None:
    """Return how much one account uses, which everybody may ask for themselves; None when nothing is limited.

    Raises:
        GpulabError: as with `look`.
        OSError: as with `look`.
    """
    note = read_note(world.root)
    if note is None:
        return None
    found: list[Reading] = []
    for folder in unique(note[0], world):
        if _enforced(world, folder.path, USER):
            found += warn.readings(name, folder.path, world.kernel.usages(folder.path, USER, [uid])[uid])
    return tuple(found)


def unique(policy: Policy, world: World) -> Iterable[Folder]:
    """Return the folders that are there, one for each file system."""
    mounts = find_mounts([folder.path for folder in policy.folders], world)
    devices: dict[str, Folder] = {}
    for folder in policy.folders:
        mount = mounts[folder.path]
        if mount is not None:
            devices.setdefault(mount.device, folder)
    return devices.values()


def _enforced(world: World, path: str, kind: int) -> bool:
    return os.path.isdir(path) and world.kernel.flags(path, kind)[1]


@dataclass(frozen=True)
class Letter:
    """One mail."""

    recipient: str
    subject: str
    body: str
    keys: tuple[tuple[tuple[str, str, str], int], ...]


def check(
    world: World, settings: Settings, send: Callable[[str, str, str], None], host: str, *, dry_run: bool = False
) -> tuple[Letter, ...]:
    """Mail whoever has come near a limit, each step once.

    Args:
        world: the outside.
        settings: who the admin is, the language.
        send: hands a mail (recipient, subject, body) to the MTA; raises MailError.
        host: the server's name.
        dry_run: only return the mails.

    Returns:
        The mails, sent unless dry_run.

    Raises:
        NotPermittedError: the caller is not root.
        MailError: a mail was not taken; the next run tries it again. The others were sent.
        GpulabError: the note or the memory of what was told cannot be used.
    """
    path = Path(names.under(world.root, names.QUOTA_STATE_DIR / "told.json"))
    try:
        if dry_run:
            return _letters(world, settings, host, _told(path))[0]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exclusive_lock(path.with_name("check.lock"), timeout=_LOCK_SECONDS):
            letters, standing = _letters(world, settings, host, _told(path))
            return _deliver(letters, standing, path, send)
    except PermissionError as error:
        raise NotPermittedError(f"{error.filename}: only root may see everybody's use; use sudo") from error
    except OSError as error:
        raise GpulabError(f"disk use cannot be read: {error.filename}: {error.strerror}") from error


def _letters(
    world: World, settings: Settings, host: str, told: dict[tuple[str, str, str], int]
) -> tuple[tuple[Letter, ...], dict[tuple[str, str, str], int]]:
    seen = look(world)
    note = read_note(world.root)
    graces = {folder.path: folder.grace.space for folder in note[0].folders} if note else {}
    homes = {name: account.home for name, account in read_accounts(world.root).items()}
    fresh, standing = warn.news({key: value for key, value in told.items() if key[2] != OFF}, seen.members)
    letters = []
    for owner in dict.fromkeys(reading.owner for reading in fresh):
        mine = [reading for reading in fresh if reading.owner == owner]
        subject, body = warn.letter(
            mine,
            host=host,
            admin=settings.lab.admin,
            language=settings.lab.language,
            grace=min(graces[reading.path] for reading in mine),
            home=homes[owner],
        )
        letters.append(Letter(owner, subject, body, tuple((each.key, warn.level(each)) for each in mine)))
    admin = settings.lab.admin
    for path in seen.off:
        key = (admin, path, OFF)
        if key in told:
            standing[key] = told[key]
        else:
            letters.append(
                Letter(admin, *warn.off_letter(path, host=host, language=settings.lab.language), ((key, warn.HARD),))
            )
    return tuple(letters), standing


def _deliver(
    letters: tuple[Letter, ...],
    standing: dict[tuple[str, str, str], int],
    path: Path,
    send: Callable[[str, str, str], None],
) -> tuple[Letter, ...]:
    failed: list[MailError] = []
    # Before the first mail: a memory that cannot be written must not become the same mail every hour.
    _remember(path, standing)
    for letter in letters:
        try:
            send(letter.recipient, letter.subject, letter.body)
        except MailError as error:
            failed.append(error)
            continue
        standing.update(letter.keys)
        _remember(path, standing)
    if failed:
        raise MailError(f"{failed[0]}; it is tried again in the next run")
    return letters


def _told(path: Path) -> dict[tuple[str, str, str], int]:
    """Read what was told; a damaged memory is put aside: one mail too many is better than none."""
    try:
        document = state.load(path) or []
        return {(owner, folder, what): int(value) for owner, folder, what, value in document}
    except (state.CorruptStateError, TypeError, ValueError):
        state.set_aside(path)
        return {}


def _remember(path: Path, told: dict[tuple[str, str, str], int]) -> None:
    state.save(path, [[*key, value] for key, value in sorted(told.items())])
