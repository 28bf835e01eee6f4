"""What idle reclaim remembers between runs: who was asked, what was kept, what the admin has been told.

All of it is about processes of this boot and lies in /run/gpulab/reclaim. A full disk cannot take it away.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters import state
from ..adapters.files import exclusive_lock
from ..rules.idle import Finding
from ..rules.samples import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION = 1
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Note:
    """One holder and a moment: when its owner was asked, or when it was ended.

    Attributes:
        finding: what was known then.
        at: seconds since 1970.
    """

    finding: Finding
    at: float


@dataclass(frozen=True)
class Memory:
    """All of it but what members keep.

    Attributes:
        warned: whose owner was asked and has not answered, by key of the holder.
        ended: what was ended since the last digest.
        stuck: what would not end, by key.
        digest_at: when the last digest went out, seconds since 1970; 0 for never.
        digest_told: keys of what digests have told and still holds.
        troubles: keys of the troubles that have been told and still hold.
        tidied: day of the last tidying of the store, days since 1970.
    """

    warned: dict[str, Note] = field(default_factory=dict)
    ended: tuple[Note, ...] = ()
    stuck: dict[str, Note] = field(default_factory=dict)
    digest_at: float = 0.0
    digest_told: frozenset[str] = frozenset()
    troubles: frozenset[str] = frozenset()
    tidied: int = 0


def folder(root: Path) -> Path:
    """Return the folder of the memory."""
    return Path(names.under(root, names.RECLAIM_RUN_DIR))


def load(root: Path) -> Memory:
    """Read the memory; one that is not ours is as none: whoever is idle is asked once more.

    Raises:
        OSError: it cannot be read.
    """
    try:
        document = state.load(folder(root) / "state.json")
        return Memory() if document is None else _parse(document)
    except (state.CorruptStateError, KeyError, TypeError, ValueError, AttributeError):
        return Memory()


def save(root: Path, memory: Memory) -> None:
    """Write the memory.

    Raises:
        OSError: it cannot be written.
    """
    document = {
        "version": _VERSION,
        "warned": [_note(note) for note in memory.warned.values()],
        "ended": [_note(note) for note in memory.ended],
        "stuck": [_note(note) for note in memory.stuck.values()],
        "digest_at": memory.digest_at,
        "digest_told": sorted(memory.digest_told),
        "troubles": sorted(memory.troubles),
        "tidied": memory.tidied,
    }
    state.save(folder(root) / "state.json", document)


def _note(note: Note) -> dict[str, Any]:
    return {**asdict(note.finding), "noted": note.at}


def _parse(document: dict[str, Any]) -> Memory:
    if document["version"] != _VERSION:
        return Memory()
    warned, ended, stuck = ([_read_note(row) for row in document[name]] for name in ("warned", "ended", "stuck"))
    return Memory(
        warned={note.finding.key: note for note in warned},
        ended=tuple(ended),
        stuck={note.finding.key: note for note in stuck},
        digest_at=float(document["digest_at"]),
        digest_told=frozenset(document["digest_told"]),
        troubles=frozenset(document["troubles"]),
        tidied=int(document["tidied"]),
    )


def _read_note(row: dict[str, Any]) -> Note:
    fields = dict(row)
    at = float(fields.pop("noted"))
    fields["runner"] = Runner(**fields["runner"])
    fields["cards"] = tuple(fields["cards"])
    fields["uuids"] = tuple(fields["uuids"])
    return Note(Finding(**fields), at)


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Let one run at a time decide.

    Raises:
        GpulabError: another one takes too long.
        OSError: the folder cannot be made.
    """
    folder(root).mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive_lock(folder(root) / "lock", timeout=_LOCK_SECONDS):
        yield


def kept(root: Path) -> dict[str, float]:
    """Return until when members keep what, by key of the holder.

    Raises:
        OSError: it cannot be read.
    """
    try:
        document = state.load(folder(root) / "kept.json") or {}
        return {str(key): float(until) for key, until in document.items()}
    except (state.CorruptStateError, AttributeError, TypeError, ValueError):
        return {}


@contextmanager
def change_kept(root: Path) -> Iterator[dict[str, float]]:
    """Give the answers to change, and write them when that went well; its lock is never held for long.

    Raises:
        GpulabError: another one takes too long.
        OSError: they cannot be written.
    """
    folder(root).mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive_lock(folder(root) / "kept.lock", timeout=_LOCK_SECONDS):
        answers = kept(root)
        yield answers
        state.save(folder(root) / "kept.json", answers)


def with_since(finding: Finding, memory: Memory) -> Finding:
    """Let a holder whose owner was asked be idle since it was found so, however long ago."""
    note = memory.warned.get(finding.key)
    return finding if note is None else replace(finding, since=min(finding.since, note.finding.since))


def pid_of(key: str) -> int:
    """Return the pid in a holder's key, `PID:START` or `lease:NUMBER:PID:START`."""
    return int(key.split(":")[-2])


def is_process(key: str) -> bool:
    """Tell whether a key names a process, not a lease."""
    return not key.startswith("lease:")
