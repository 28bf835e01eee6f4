"""The store of samples: one SQLite file that root writes every minute and admins may read.

Schema, version 2 (`PRAGMA user_version`). Times are whole seconds since 1970, memory is MiB, percents are 0-100,
unknown is NULL.

| table | a row is | columns |
|---|---|---|
| `ticks` | one look | `at`; `reason` why no card could be looked at, else empty |
| `cards` | a card ever seen | `id`, `uuid`, its last `gpu_index` and `memory_total` |
| `card_samples` | a card at a look | `at`, `card`, `state` (rules/samples.py), `utilization`, `memory_used` |
| `processes` | a process ever seen | `id`, `boot`, `pid`, `start_ticks`, `uid`, `user`, `command`, `lease` or NULL |
| `process_samples` | a process on a card at a look | `at`, `process`, `card`, `instance` (of MIG, or -1), `memory`,
  `sm` (NULL: unknown), `cpu_ms` since the look before |
| `lease_samples` | a leased card at a look | `at`, `lease`, `process` (its holder), `card`, `shared`, `promised`,
  `asked` and `given` (when the lease was; NULL: unknown) |

A row of `process_samples` stands for the time since the look before; where looks are further apart than usual, nothing
was seen in between. Size: a row takes about 30 bytes, so 8 cards and 100 processes make 4.5 MB a day, 400 MB in 90
days; 4 cards and 10 processes 50 MB. That needs no thinning: old rows are deleted, and SQLite uses their room again.

The journal is the plain one, not WAL: whoever reads a WAL database must be able to write beside it, and admins may only
read. Each look is one transaction, written through (`synchronous=FULL`): at one a minute that costs nothing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..errors import GpulabError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..rules.samples import Runner, Tick

VERSION = 2
_BUSY_SECONDS = 5.0
_MIB = 1 << 20
_MODE = 0o640
_BATCH = 60
"""Looks deleted in one transaction: the sampler must not wait long behind the tidying."""

_SCHEMA = """
CREATE TABLE ticks (at INTEGER PRIMARY KEY, reason TEXT NOT NULL);
CREATE TABLE cards (id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE, gpu_index INTEGER NOT NULL,
  memory_total INTEGER);
CREATE TABLE card_samples (at INTEGER NOT NULL, card INTEGER NOT NULL, state TEXT NOT NULL,
  utilization INTEGER, memory_used INTEGER, PRIMARY KEY (at, card)) WITHOUT ROWID;
CREATE TABLE processes (id INTEGER PRIMARY KEY, boot TEXT NOT NULL, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL,
  uid INTEGER NOT NULL, user TEXT NOT NULL, command TEXT NOT NULL, lease INTEGER, UNIQUE (boot, pid, start_ticks));
CREATE TABLE process_samples (at INTEGER NOT NULL, process INTEGER NOT NULL, card INTEGER NOT NULL,
  instance INTEGER NOT NULL, memory INTEGER, sm INTEGER, cpu_ms INTEGER,
  PRIMARY KEY (at, process, card, instance)) WITHOUT ROWID;
CREATE TABLE lease_samples (at INTEGER NOT NULL, lease INTEGER NOT NULL, process INTEGER NOT NULL,
  card INTEGER NOT NULL, shared INTEGER NOT NULL, promised INTEGER NOT NULL, asked INTEGER, given INTEGER,
  PRIMARY KEY (at, lease, card)) WITHOUT ROWID;
"""

_FROM_1 = "ALTER TABLE lease_samples ADD COLUMN asked INTEGER; ALTER TABLE lease_samples ADD COLUMN given INTEGER;"


class StoreError(GpulabError):
    """The store cannot be read or written; the message says why. Nothing is decided without it."""


class DamagedStoreError(StoreError):
    """The file is not the store, or its content is broken."""


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system complain about into a StoreError that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)  # Python 3.11 and later
        words = str(error)
        damaged = (code is not None and code & 0xFF in {11, 26}) or "malformed" in words or "not a database" in words
        raise (DamagedStoreError if damaged else StoreError)(f"{path}: {words}") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the store for reading; all that is read is of one moment.

    Raises:
        FileNotFoundError: there is no store.
        DamagedStoreError: the file is broken.
        StoreError: it cannot be read.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    address = f"file:{quote(str(path))}?mode=ro"
    with (
        explained(path),
        contextlib.closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as db,
    ):
        db.execute("BEGIN")
        yield db


class SampleWriter:
    """Writes looks. A failure leaves the store as it was and the writer closed; the next look opens it again.

    Args:
        path: the file; its folder must exist.
        boot: names this boot of the machine, so that pids and start times mean one process.
        gid: group that may read; None for the folder's own.
    """

    def __init__(self, path: Path, boot: str, gid: int | None = None) -> None:
        """Open nothing yet."""
        self._path = path
        self._boot = boot
        self._gid = gid
        self._connection: sqlite3.Connection | None = None
        self._cards: dict[str, int] = {}
        self._processes: dict[str, int] = {}

    def write(self, tick: Tick) -> None:
        """Add one look; one that is not later than the last changes nothing.

        Raises:
            DamagedStoreError: the file is broken.
            StoreError: it cannot be written: full disk, read-only, locked for long.
        """
        try:
            with explained(self._path):
                self._write(self._open(), tick)
        except StoreError:
            self.close()
            raise

    def last(self) -> int:
        """Return the time of the last look, seconds since 1970; 0 when there is none.

        Raises:
            StoreError: as for `write`.
        """
        try:
            with explained(self._path):
                return int(self._open().execute("SELECT coalesce(max(at), 0) FROM ticks").fetchone()[0])
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file and of what was known about it."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
        self._cards.clear()
        self._processes.clear()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._gid is not None:  # before there is anything in it
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                try:
                    os.fchown(descriptor, -1, self._gid)
                    os.fchmod(descriptor, _MODE)
                finally:
                    os.close(descriptor)
            connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
            self._connection = connection
            connection.execute("PRAGMA journal_mode=TRUNCATE")
            connection.execute("PRAGMA synchronous=FULL")
            _prepare(connection)
        return self._connection

    def _write(self, connection: sqlite3.Connection, tick: Tick) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.execute("INSERT OR IGNORE INTO ticks VALUES (?, ?)", (tick.at, tick.reason)).rowcount:
                self._write_samples(connection, tick)
            connection.execute("COMMIT")
        except BaseException:
            # The numbers of cards and processes that this look added are gone with it.
            self._cards.clear()
            self._processes.clear()
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _write_samples(self, connection: sqlite3.Connection, tick: Tick) -> None:
        at = tick.at
        cards = {card.index: self._card(connection, card.uuid, card.index, card.memory_total) for card in tick.cards}
        connection.executemany(
            "INSERT INTO card_samples VALUES (?, ?, ?, ?, ?)",
            [(at, cards[each.index], each.state, each.utilization, _mib(each.memory_used)) for each in tick.cards],
        )
        connection.executemany(
            "INSERT INTO process_samples VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET memory = memory + excluded.memory",
            [
                (
                    at,
                    self._process(connection, use.runner),
                    cards[use.card],
                    use.instance,
                    _mib(use.memory),
                    use.sm,
                    use.cpu_ms,
                )
                for use in tick.uses
            ],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO lease_samples VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    at,
                    hold.lease,
                    self._process(connection, hold.holder),
                    cards[hold.card],
                    hold.shared,
                    hold.promised >> 20,
                    hold.asked,
                    hold.given,
                )
                for hold in tick.holds
                if hold.card in cards
            ],
        )
        # Others may be deleted with their last look (forget_before); whoever is in this look is not.
        keys = {use.runner.key for use in tick.uses} | {hold.holder.key for hold in tick.holds}
        self._processes = {key: number for key, number in self._processes.items() if key in keys}

    def _card(self, connection: sqlite3.Connection, uuid: str, index: int, memory_total: int | None) -> int:
        name = uuid or f"lost-{index}"
        if name not in self._cards:
            connection.execute(
                "INSERT INTO cards (uuid, gpu_index, memory_total) VALUES (?, ?, ?) ON CONFLICT (uuid) DO UPDATE SET"
                " gpu_index = excluded.gpu_index, memory_total = coalesce(excluded.memory_total, memory_total)",
                (name, index, _mib(memory_total)),
            )
            self._cards[name] = connection.execute("SELECT id FROM cards WHERE uuid = ?", (name,)).fetchone()[0]
        return self._cards[name]

    def _process(self, connection: sqlite3.Connection, runner: Runner) -> int:
        number = self._processes.get(runner.key)
        if number is None:
            connection.execute(
                "INSERT OR IGNORE INTO processes (boot, pid, start_ticks, uid, user, command, lease)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (self._boot, runner.pid, runner.start_ticks, runner.uid, runner.user, runner.command, runner.lease),
            )
            row = connection.execute(
                "SELECT id FROM processes WHERE boot = ? AND pid = ? AND start_ticks = ?",
                (self._boot, runner.pid, runner.start_ticks),
            ).fetchone()
            number = self._processes[runner.key] = int(row[0])
        return number


def _prepare(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return
    if version == 1:
        connection.executescript(f"BEGIN EXCLUSIVE; {_FROM_1} PRAGMA user_version = {VERSION}; COMMIT;")
        return
    if version != 0:
        raise StoreError(f"the store has version {version}, this gpulab writes {VERSION}; move it away to begin anew")
    connection.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")


def _mib(memory: int | None) -> int | None:
    return None if memory is None else memory // _MIB


def forget_before(path: Path, at: int) -> int:
    """Delete looks older than a time, in small transactions, and processes that no look names any more.

    Args:
        path: the store.
        at: seconds since 1970; what is older goes.

    Returns:
        How many looks went.

    Raises:
        StoreError: it cannot be written.
    """
    gone = 0
    with explained(path), contextlib.closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
        while True:
            old = [row[0] for row in db.execute("SELECT at FROM ticks WHERE at < ? ORDER BY at LIMIT ?", (at, _BATCH))]
            if not old:
                break
            db.execute("BEGIN IMMEDIATE")
            for table in ("process_samples", "card_samples", "lease_samples", "ticks"):
                db.execute(f"DELETE FROM {table} WHERE at <= ?", (old[-1],))  # noqa: S608 - names from the line above
            db.execute("COMMIT")
            gone += len(old)
        if gone:
            db.execute(
                "DELETE FROM processes WHERE id NOT IN (SELECT process FROM process_samples UNION"
                " SELECT process FROM lease_samples)"
            )
    return gone


def set_aside(path: Path) -> Path:
    """Move a damaged store out of the way, in place of an earlier one; its journal goes with it.

    Returns:
        Where it is now.

    Raises:
        OSError: it cannot be moved.
    """
    aside = path.with_name(f"{path.name}.corrupt")
    os.replace(path, aside)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path.with_name(f"{path.name}-journal"))
    return aside
