"""The one place that writes the booking sheet: locked, whole or not at all, and with a record of who changed what.

Beside the lock, /var/lib/gpulab/booking (root only) holds:

- `audit.jsonl`: one JSON object a line: every change made here with the SHA-256 of the sheet it leads to, and every
  difference that a hand edit made;
- `written.csv`: the sheet as it was last seen; what differs from it was edited by hand;
- `pending.csv`: the sheet that is about to be written. Whoever finds it finds a change that was cut short, and can
  tell from the sheet whether it happened.

The record is on disk before the sheet changes: a change that cannot be recorded does not happen.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters.files import exclusive_lock, read_regular, write_atomic
from ..errors import GpulabError, UnsafeFileError
from ..rules import sheet as sheets
from ..rules.cells import HEADER, write_booking
from .sheet_file import SHEET_LIMIT, SHEET_MODE, read_bytes, sheet_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..rules.booking import Booking

_LOCK_SECONDS = 60.0
_SETTLE_SECONDS = 0.5
_ATTEMPTS = 20
_MOST_RECORDED = 500
_TAIL = 100  # longer than the end of an entry with its digest, shorter than two


def update(
    edit: Callable[[sheets.Sheet], tuple[sheets.Sheet, dict[str, Any]]],
    *,
    by: str,
    root: Path,
    now: Callable[[], datetime],
) -> None:
    """Change the sheet.

    Args:
        edit: gets the sheet, returns it changed and what to record about it; may be called again when somebody saves
            the sheet by hand meanwhile, and may raise, which changes nothing. A sheet returned as it came is not
            written.
        by: account name of who changes it, for the record.
        root: the folder that stands for `/`.
        now: the clock, for the record.

    Raises:
        NoSheetError: there is none.
        UnsafeFileError: something else stands in its place.
        GpulabError: others held the lock all the time, or something cannot be written; nothing was changed.
    """
    path = sheet_path(root)
    state = Path(names.under(root, names.BOOKING_STATE_DIR))
    try:
        read_bytes(path)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exclusive_lock(state / "lock", timeout=_LOCK_SECONDS):
            log = _Record(state, now)
            for _ in range(_ATTEMPTS):
                data, saved = _settled(path, log)
                log.catch_up(data, saved)
                before = sheets.parse(data)
                after, entry = edit(before)
                if after is before:
                    return
                # An editor may have saved between our reading and now: then decide anew on what it saved.
                if read_bytes(path) == data:
                    log.write(path, sheets.render(after), {"by": by, **entry})
                    return
    except OSError as error:
        where = error.filename or path
        raise GpulabError(f"{where}: {error.strerror or error}; the booking sheet was not changed") from error
    raise GpulabError(f"{path} is being edited by somebody without a pause; try again")


def _settled(path: Path, log: _Record) -> tuple[bytes, datetime]:
    """Read the sheet when nobody is in the middle of saving it: editors write in place, piece by piece.

    Returns:
        Its content, and when it was last saved.
    """
    for _ in range(_ATTEMPTS):
        data = read_bytes(path)
        saved = os.stat(path, follow_symlinks=False).st_mtime
        if data == log.written or not 0 <= time.time() - saved < _SETTLE_SECONDS:
            break
        time.sleep(_SETTLE_SECONDS / 5)
    return data, datetime.fromtimestamp(saved).astimezone()


class _Record:
    """The files beside the lock; only used while it is held."""

    def __init__(self, state: Path, now: Callable[[], datetime]) -> None:
        self._audit = state / "audit.jsonl"
        self._written = state / "written.csv"
        self._pending = state / "pending.csv"
        self._now = now
        self.written = _or_none(self._written)

    def catch_up(self, data: bytes, saved: datetime) -> None:
        """Bring the record up to the sheet as it is: finish what was cut short, note what was edited by hand."""
        pending = _or_none(self._pending)
        if pending is not None and self.written == data:
            if self._ends_with(_digest(pending)):
                self._append({"action": "not done", "note": "the change before this one did not reach the sheet"})
            os.unlink(self._pending)
        elif pending is not None:  # it reached the sheet; what differs from it came later, by hand
            self._promote(pending)
        if self.written == data:
            return
        if self.written is not None:
            self._append({"action": "hand edit", "saved": _stamp(saved), **difference(self.written, data)})
        write_atomic(self._written, data, mode=0o600)
        self.written = data

    def write(self, path: Path, data: bytes, entry: dict[str, Any]) -> None:
        """Record a change and make it."""
        if len(data) > SHEET_LIMIT:
            raise UnsafeFileError(f"{path} would grow over {SHEET_LIMIT} bytes; move old rows to another file")
        write_atomic(self._pending, data, mode=0o600)
        self._append({**entry, "sheet": _digest(data)})
        uid, gid = owner()
        write_atomic(path, data, mode=SHEET_MODE, uid=uid, gid=gid)
        self._promote(data)

    def _promote(self, data: bytes) -> None:
        os.rename(self._pending, self._written)
        self.written = data

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps({"time": _stamp(self._now()), **entry}) + "\n"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._audit, flags, 0o600), "r+b") as stream:
            end = stream.seek(0, os.SEEK_END)
            # A line that a power cut left without its end must not swallow this one.
            if end and os.pread(stream.fileno(), 1, end - 1) != b"\n":
                line = "\n" + line
            stream.write(line.encode("ascii"))
            stream.flush()
            os.fsync(stream.fileno())

    def _ends_with(self, digest: str) -> bool:
        """Tell whether the last entry is about the sheet with this digest; it stands at the entry's end."""
        try:
            with open(self._audit, "rb") as stream:
                stream.seek(-min(_TAIL, stream.seek(0, os.SEEK_END)), os.SEEK_END)
                return digest.encode("ascii") in stream.read()
        except FileNotFoundError:
            return False


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _stamp(moment: datetime) -> str:
    return moment.astimezone().isoformat(timespec="seconds")


def _or_none(path: Path) -> bytes | None:
    try:
        return read_regular(path, limit=2 * SHEET_LIMIT)
    except FileNotFoundError:
        return None


def owner() -> tuple[int | None, int | None]:
    """Return uid and gid of the sheet: root and the admins' group; None for both when we are not root."""
    if os.geteuid() != 0:
        return None, None
    try:
        return 0, grp.getgrnam(names.ADMINS_GROUP).gr_gid
    except KeyError:
        return 0, 0


def difference(before: bytes, after: bytes) -> dict[str, Any]:
    """Say which lines of the sheet came and went, for the record.

    Returns:
        `removed` and `added`: the lines' texts, at most 500 each; `left_out`: how many more there are, when there are.
    """
    old = [row.text for row in sheets.parse(before).rows]
    new = [row.text for row in sheets.parse(after).rows]
    removed = _without(old, new)
    added = _without(new, old)
    left_out = max(0, len(removed) - _MOST_RECORDED) + max(0, len(added) - _MOST_RECORDED)
    found: dict[str, Any] = {"removed": removed[:_MOST_RECORDED], "added": added[:_MOST_RECORDED]}
    return {**found, "left_out": left_out} if left_out else found


def _without(lines: Iterable[str], others: Iterable[str]) -> list[str]:
    spare = Counter(others)
    kept = []
    for line in lines:
        if spare[line]:
            spare[line] -= 1
        else:
            kept.append(line)
    return kept


def as_record(booking: Booking | None) -> dict[str, str] | None:
    """Write a row for the record and for JSON output, by the names of the header."""
    if booking is None:
        return None
    return dict(zip(HEADER, write_booking(booking), strict=True))
