"""Leases and the line of those who wait, as files in /run/gpulab that only root can write.

The kernel is the judge of what is alive: a lease holds while its scope has processes, whatever became of the broker; a
ticket holds while the very process that drew it lives. Files of what is over are left for the broker to sweep up.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters import scopes, state
from ..adapters.procfs import identify
from ..errors import GpulabError
from ..rules.leases import Lease, LeasedCard, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SERIAL = "serial"


@dataclass(frozen=True)
class Ticket:
    """A place in the line.

    Attributes:
        number: tickets are served in this order; a lease keeps the number of its ticket.
        user: account name.
        uid: user id.
        pid: the process that waits.
        start_ticks: its start time in clock ticks since boot.
        request: what it asks for.
        since: when it came, seconds since the epoch.
        command: the command line in short, printable.
    """

    number: int
    user: str
    uid: int
    pid: int
    start_ticks: int
    request: Request
    since: float
    command: str


def live_leases(root: Path = Path("/")) -> tuple[Lease, ...]:
    """Return the leases whose commands run, in order of id.

    Args:
        root: the folder that stands for `/`.

    Raises:
        PermissionError: only root may know.
    """
    return tuple(lease for lease in LeaseStore(root).leases() if alive(lease, root))


def alive(lease: Lease, root: Path = Path("/")) -> bool:
    """Tell whether a lease still has a process: in its scope, or on the way into it."""
    if scopes.pids(lease.scope, root):
        return True
    # The file is written before the process is moved. Once it has been in the scope it cannot get out again.
    return _lives(lease.pid, lease.start_ticks, root) and not scopes.scope_of(lease.pid, root)


def waiting(ticket: Ticket, root: Path = Path("/")) -> bool:
    """Tell whether the process that drew a ticket lives."""
    return _lives(ticket.pid, ticket.start_ticks, root)


def _lives(pid: int, start_ticks: int, root: Path) -> bool:
    identity = identify(pid, root / "proc")
    return identity is not None and identity.start_ticks == start_ticks


class LeaseStore:
    """The files. Only the broker changes them: it holds the lock of /run/gpulab while it runs.

    Args:
        root: the folder that stands for `/`.
        log: told about a file that cannot be read, in one line.
    """

    def __init__(self, root: Path = Path("/"), log: Callable[[str], None] = lambda _: None) -> None:
        """Remember where; nothing is read yet."""
        self._leases = Path(names.under(root, names.LEASES_DIR))
        self._queue = Path(names.under(root, names.QUEUE_DIR))
        self._serial = Path(names.under(root, names.RUN_DIR)) / _SERIAL
        self._log = log

    def leases(self) -> tuple[Lease, ...]:
        """Return every lease on file, alive or not, in order of id."""
        return tuple(self._read(self._leases, _lease))

    def tickets(self) -> tuple[Ticket, ...]:
        """Return every ticket on file, in order of number."""
        return tuple(self._read(self._queue, _ticket))

    def number(self) -> int:
        """Draw a number that was never drawn since the last reboot.

        Raises:
            OSError: it cannot be noted down.
        """
        on_file = [int(path.stem) for path in (*self._files(self._leases), *self._files(self._queue))]
        try:
            last = state.load(self._serial)
        except state.CorruptStateError as error:
            self._log(str(error))
            last = None
        number = max([last if type(last) is int else 0, *on_file]) + 1
        state.save(self._serial, number)
        return number

    def save_lease(self, lease: Lease) -> None:
        """Write a lease down.

        Raises:
            OSError: it cannot be.
        """
        state.save(self._leases / f"{lease.id}.json", asdict(lease))

    def save_ticket(self, ticket: Ticket) -> None:
        """Write a ticket down.

        Raises:
            OSError: it cannot be.
        """
        state.save(self._queue / f"{ticket.number}.json", asdict(ticket))

    def drop_lease(self, number: int) -> None:
        """Forget a lease that is over."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._leases / f"{number}.json")

    def drop_ticket(self, number: int) -> None:
        """Forget a ticket."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._queue / f"{number}.json")

    def _files(self, folder: Path) -> list[Path]:
        try:
            found = [Path(folder, name) for name in os.listdir(folder) if name.endswith(".json")]
        except FileNotFoundError:
            return []
        return sorted((path for path in found if path.stem.isdecimal()), key=lambda path: int(path.stem))

    def _read(self, folder: Path, parse: Callable[[dict[str, Any]], Any]) -> Iterator[Any]:
        for path in self._files(folder):
            found = self._load(path, parse)
            if found is not None:
                yield found

    def _load(self, path: Path, parse: Callable[[dict[str, Any]], Any]) -> Any:
        try:
            document = state.load(path)
            return None if document is None else parse(document)  # None: it has just been dropped
        except (GpulabError, OSError, TypeError, KeyError, ValueError) as error:
            self._log(f"{path} cannot be used and is left alone: {error}")
            return None


def _lease(document: dict[str, Any]) -> Lease:
    return Lease(**{**document, "cards": tuple(LeasedCard(**card) for card in document["cards"])})


def _ticket(document: dict[str, Any]) -> Ticket:
    return Ticket(**{**document, "request": Request(**document["request"])})
