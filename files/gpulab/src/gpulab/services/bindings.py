"""Whose MIG instance is which: a note that outlives a boot, and the UUIDs of now for logins and the allocator."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from .. import names
from ..adapters import files
from ..errors import UnsafeFileError
from ..rules.cards import Cards
from ..rules.mig_bindings import Place, Wishes, check, distribute, parse_place, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..rules.mig_layout import Target

NOTE_FILE = PurePosixPath("/etc/gpulab/bindings.json")
"""Account name to instance, such as `mig-0-1`; written by module mig_layout, read after each change of a layout."""

_MODE = 0o644
_LIMIT = 1 << 20
_PARTS = 2


@dataclass(frozen=True)
class Bound:
    """Who has which instance.

    Attributes:
        changed: whether the note or the UUIDs changed, or would.
        places: account name to instance.
        uuids: account name to UUID; who has an instance that is not there is not in it.
        before: how it was, a line for each member.
    """

    changed: bool = False
    places: Mapping[str, Place] = field(default_factory=dict)
    uuids: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()

    @property
    def after(self) -> tuple[str, ...]:
        """How it is, a line for each member."""
        return _lines(self.places, self.uuids)

    @property
    def missing(self) -> tuple[str, ...]:
        """One line for each member whose instance is not there."""
        return tuple(
            f"{user} is bound to {place}, which is not there now; until it is, {user} gets no instance"
            for user, place in self.places.items()
            if user not in self.uuids
        )


def choose(root: Path, wishes: Wishes, targets: Mapping[int, Target], *, source: str) -> dict[str, Place]:
    """Say who shall have which instance of a layout.

    Args:
        root: the folder that stands for `/`.
        wishes: who shall be bound.
        targets: what each card shall have, by index.
        source: what the layout is called, for messages.

    Raises:
        InputError: the layout cannot fulfil a wish.
    """
    counts = {index: len(target.names) for index, target in targets.items()}
    check(wishes, counts, source=source)
    return distribute(wishes, counts, read_places(root))


def keep(root: Path, places: Mapping[str, Place] | None, look: Callable[[], Cards], *, dry_run: bool = False) -> Bound:
    """Note down who has which instance, and write the UUIDs of now.

    Args:
        root: the folder that stands for `/`.
        places: account name to instance; None for those that are noted down.
        look: reads the cards; not called when nobody is bound.
        dry_run: write nothing, only say whether something would change.

    Raises:
        OSError: a file cannot be written.
    """
    before = _lines(read_places(root), read_bindings(root))
    noted = places is not None and write_places(root, places, dry_run=dry_run)
    places = read_places(root) if places is None else places
    cards = look() if places else Cards()
    written = write_bindings(root, places, cards, dry_run=dry_run)
    return Bound(noted or written, places, resolve(places, cards.cards), before)


def _lines(places: Mapping[str, Place], uuids: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{user} {place} {uuids.get(user, '-')}" for user, place in sorted(places.items()))


def binding_of(root: Path, user: str) -> str | None:
    """Return the UUID of a member's own MIG instance, `MIG-...`; None when they have none now.

    Args:
        root: the folder that stands for `/`.
        user: account name.
    """
    return read_bindings(root).get(user)


def read_bindings(root: Path) -> dict[str, str]:
    """Return account name to UUID for everybody who has an instance now; nobody when there is no such file."""
    try:
        text = files.read_regular(Path(names.under(root, names.BINDINGS_FILE)), limit=_LIMIT).decode(errors="replace")
    except (FileNotFoundError, UnsafeFileError):
        return {}
    return dict(words for words in map(str.split, text.splitlines()) if len(words) == _PARTS)


def read_places(root: Path) -> dict[str, Place]:
    """Return account name to instance as it was noted down; what cannot be read is nobody's."""
    try:
        document = json.loads(files.read_regular(Path(names.under(root, NOTE_FILE)), limit=_LIMIT))
        found = {user: parse_place(text) for user, text in document.items()}
    except (FileNotFoundError, UnsafeFileError, ValueError, AttributeError, RecursionError):
        return {}
    return {user: place for user, place in found.items() if place is not None}


def write_places(root: Path, places: Mapping[str, Place], *, dry_run: bool) -> bool:
    """Note down who has which instance; without anybody the note goes.

    Args:
        root: the folder that stands for `/`.
        places: account name to instance.
        dry_run: only say whether the note would change.

    Returns:
        Whether it changed.

    Raises:
        OSError: it cannot be written.
    """
    data = json.dumps({user: str(place) for user, place in sorted(places.items())}, indent=2).encode() + b"\n"
    return _replace(Path(names.under(root, NOTE_FILE)), data if places else None, dry_run=dry_run)


def write_bindings(root: Path, places: Mapping[str, Place], cards: Cards, *, dry_run: bool) -> bool:
    """Write the UUIDs that programs are to use now; without anybody bound the file goes.

    Where the cards cannot be read at all the file stays as it is: their instances may well be the same.

    Args:
        root: the folder that stands for `/`.
        places: account name to instance.
        cards: as NVML shows them now.
        dry_run: only say whether the file would change.

    Returns:
        Whether it changed.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(names.under(root, names.BINDINGS_FILE))
    if not places:
        return _replace(path, None, dry_run=dry_run)
    if cards.reason:
        return False
    lines = (f"{user} {uuid}\n" for user, uuid in resolve(places, cards.cards).items())
    return _replace(path, "".join(lines).encode(), dry_run=dry_run)


def _replace(path: Path, data: bytes | None, *, dry_run: bool) -> bool:
    """Give a file its content, or take it away; return whether that changed anything, or would."""
    found = None
    with contextlib.suppress(FileNotFoundError, UnsafeFileError):  # a link in its place is replaced
        if path.lstat().st_mode & 0o7777 == _MODE:
            found = files.read_regular(path, limit=_LIMIT)
    if found == data and (data is not None or not _exists(path)):
        return False
    if dry_run:
        return True
    if data is None:
        path.unlink()
        return True
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o755)  # whatever the umask, members must get through
    files.write_atomic(path, data, mode=_MODE)
    return True


def _exists(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        path.lstat()
        return True
    return False
