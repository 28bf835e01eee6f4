"""Who is at the other end of a local socket: a process, held for good, and whose it is (unix(7), pidfd_open(2))."""

from __future__ import annotations

import os
import select
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NotPermittedError
from .procfs import account_name, identify

if TYPE_CHECKING:
    from collections.abc import Callable

_SO_PEERPIDFD = getattr(socket, "SO_PEERPIDFD", 77)
"""Linux 6.5 and later; 77 on all machines that NVIDIA has a driver for (asm-generic/socket.h)."""

_UCRED = struct.Struct("3i")
_LIMIT = 1 << 16
_FOUR = 4


@dataclass(frozen=True)
class Peer:
    """The process that made a connection.

    Attributes:
        pid: its number.
        start_ticks: its start time in clock ticks since boot.
        uid: its user id: real, effective and saved are the same.
        user: account name.
        pidfd: a descriptor of exactly this process; whoever has the Peer closes it.
    """

    pid: int
    start_ticks: int
    uid: int
    user: str
    pidfd: int

    def alive(self) -> bool:
        """Tell whether the process has not ended yet: while this holds, its pid is nobody else's."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Let go of the process."""
        os.close(self.pidfd)


def credentials(connection: socket.socket) -> tuple[int, int]:
    """Return pid and effective user id that the process had when it connected (SO_PEERCRED)."""
    pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def identify_peer(
    connection: socket.socket,
    proc_root: Path = Path("/proc"),
    open_pidfd: Callable[[socket.socket, int], int] | None = None,
) -> Peer:
    """Find out who connected.

    A process may connect, and then become another program or die and leave its pid to somebody else's process. So it is
    held by a pidfd, and what it is now is read while the pidfd says that it lives.

    Args:
        connection: the connected socket.
        proc_root: where proc is mounted.
        open_pidfd: returns a pidfd of the peer; None asks the kernel.

    Raises:
        NotPermittedError: it has ended, or runs with the rights of several accounts (setuid programs).
    """
    pid, uid = credentials(connection)
    try:
        pidfd = (open_pidfd or _pidfd)(connection, pid)
    except OSError:
        raise NotPermittedError("the process that asks has ended") from None
    identity = identify(pid, proc_root)
    peer = Peer(pid, identity.start_ticks if identity else 0, uid, account_name(uid), pidfd)
    own = plain(pid, uid, proc_root)
    if identity is None or not peer.alive():
        peer.close()
        raise NotPermittedError("the process that asks has ended")
    if not own:
        peer.close()
        raise NotPermittedError("the process that asks runs with the rights of several accounts; ask from a plain one")
    return peer


def plain(pid: int, uid: int, proc_root: Path = Path("/proc")) -> bool:
    """Tell whether a process has the rights of one account and no other."""
    return _uids(pid, proc_root) == (uid,) * _FOUR


def _pidfd(connection: socket.socket, pid: int) -> int:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        # Before Linux 6.5. Should the peer have died and its pid be another's by now, the check of the user ids lets
        # only a process of the same account pass.
        return os.pidfd_open(pid)


def _uids(pid: int, proc_root: Path) -> tuple[int, ...]:
    """Return real, effective, saved and file system user id (proc_pid_status(5)); empty when the process is gone."""
    try:
        with open(proc_root / str(pid) / "status", "rb") as stream:
            lines = stream.read(_LIMIT).splitlines()
    except OSError:
        return ()
    # `Name:` comes first and has newlines escaped, so no process can write a line of its own here.
    return next((tuple(int(word) for word in line.split()[1:]) for line in lines if line.startswith(b"Uid:")), ())


def stopped(pid: int, proc_root: Path = Path("/proc")) -> bool:
    """Tell whether a process has been stopped (Ctrl-Z, SIGSTOP) or is held by a debugger."""
    try:
        text = (proc_root / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[:1] in (["T"], ["t"])
