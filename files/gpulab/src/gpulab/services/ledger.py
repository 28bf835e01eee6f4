"""Keep the hardware ledger: compare with last time, remember what changed, write the pages."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters import state
from ..adapters.files import exclusive_lock, read_regular, write_atomic
from ..errors import GpulabError, NotPermittedError, UnsafeFileError
from ..rules.ledger import KEPT, Change, Facts, compare, facts_of, from_document, to_document
from ..rules.ledger_page import inventory, owners_of, page, without_measurements
from .bindings import read_bindings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ..rules.cards import Cards
    from ..rules.machine import Machine

PLACES = ("/home", "/data")
"""Folders whose free space the ledger shows."""

_MODE = 0o644
_LIMIT = 4 << 20
_LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a run of the ledger came to.

    Attributes:
        changed: a fact differs from last time, or a page is not as it was left; new measurements are no change.
        changes: what the history gained.
        cards: how many cards were found.
        reason: why no card could be read; empty when they could.
    """

    changed: bool
    changes: tuple[Change, ...]
    cards: int
    reason: str


@dataclass(frozen=True)
class _Memory:
    """What the last run left: facts, history, and fingerprints of the pages."""

    facts: Facts | None = None
    history: tuple[Change, ...] = ()
    fingerprints: Any = None
    unreadable: bool = False


def refresh(
    root: Path,
    *,
    read_cards: Callable[[], Cards],
    read_machine: Callable[[], Machine],
    now: Callable[[], datetime],
    language: str,
    dry_run: bool = False,
) -> Outcome:
    """Look at the hardware and bring the ledger's pages up to date.

    Args:
        root: the folder that stands for `/`.
        read_cards: looks at the cards.
        read_machine: looks at the rest.
        now: the clock; times on the pages carry its time zone.
        language: of the page, `en` or `zh`.
        dry_run: write nothing, only say what would change.

    Raises:
        NotPermittedError: a file may not be written; the ledger is root's.
        GpulabError: another run holds the ledger, or a file cannot be written.
    """
    with _explained(), contextlib.nullcontext() if dry_run else _alone(root):
        memory = _recall(root, dry_run=dry_run)
        cards, machine = read_cards(), read_machine()
        when = now().isoformat(sep=" ", timespec="seconds")
        facts = facts_of(cards, machine, memory.facts)
        begin = (Change(when, "anew"),) if memory.unreadable else ()
        changes = begin + compare(memory.facts, facts, when)
        history = (memory.history + changes)[-KEPT:]

        owners = owners_of(read_bindings(root))
        still = page(*without_measurements(cards, machine), history, "", language, owners)
        info = page(cards, machine, history, when, language, owners).encode(errors="replace")
        listing = inventory(cards).encode(errors="replace")
        outcome = Outcome(
            changed=bool(changes) or memory.fingerprints != _fingerprints(root, still),
            changes=changes,
            cards=len(cards.cards),
            reason=cards.reason,
        )
        if not dry_run:
            _publish(root, names.LEDGER_FILE, info)
            _publish(root, names.INVENTORY_FILE, listing)
            document = {**to_document(facts, history), "fingerprints": _fingerprints(root, still)}
            # Last: a run that is killed before this line is simply done again, with the same comparison.
            state.save(_state_file(root), document)
        return outcome


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except PermissionError as error:
        raise NotPermittedError(f"{error.filename} may not be opened; run `gpulab ledger` as root") from error
    except OSError as error:
        raise GpulabError(f"the ledger cannot be written: {error.filename}: {error.strerror}") from error


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    folder = Path(names.under(root, names.LEDGER_STATE_DIR))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive_lock(folder / "lock", timeout=_LOCK_SECONDS):
        yield


def _state_file(root: Path) -> Path:
    return Path(names.under(root, names.LEDGER_STATE_DIR / "ledger.json"))


def _recall(root: Path, *, dry_run: bool) -> _Memory:
    """Read what the last run left; what cannot be read is put aside, and the history says so."""
    path = _state_file(root)
    try:
        document = state.load(path)
        if document is None:
            return _Memory()
        facts, history = from_document(document)
        return _Memory(facts, history, document.get("fingerprints"))
    except (state.CorruptStateError, ValueError, TypeError):
        if not dry_run:
            state.set_aside(path)
        return _Memory(unreadable=True)


def _publish(root: Path, name: Any, data: bytes) -> None:
    path = Path(names.under(root, name))
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_atomic(path, data, mode=_MODE)


def _fingerprints(root: Path, still: str) -> dict[str, str]:
    """Tell the page's lasting content, and each file as it lies on the disk, by short digests."""
    pages = (names.LEDGER_FILE, names.INVENTORY_FILE)
    files = {name.name: _file_digest(Path(names.under(root, name))) for name in pages}
    return {"still": _digest(still.encode(errors="replace")), **files}


def _file_digest(path: Path) -> str:
    try:
        data = read_regular(path, limit=_LIMIT)
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except (FileNotFoundError, UnsafeFileError):
        return ""
    return f"{mode:o} {_digest(data)}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
