"""The broker's socket: many clients, none of which can hold up another.

The socket is of type SOCK_SEQPACKET (unix(7)): a message arrives whole or not at all, so nobody can send half a
request. Reading never waits; a client that does not read its answers, says nothing for too long, or has too many
connections is let go.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import peers
from ..adapters.callers import in_group
from ..errors import GpulabError, NotPermittedError
from ..rules.lease_wire import LARGEST, answer
from .broker_world import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.peers import Peer
    from .broker import Broker
    from .broker_world import Unable

PER_ACCOUNT = 64
"""Connections of one account: enough to queue a night of jobs, too few to keep others out."""

ALTOGETHER = 1024
SILENCE = 10.0
"""Seconds that a client may be connected without asking anything."""

TICK = 0.25
"""Seconds between two looks at the scopes while somebody waits."""

_FIRST_FD = 3


def listening_socket() -> socket.socket:
    """Return the socket that systemd listens on for us (sd_listen_fds(3)).

    Raises:
        GpulabError: systemd did not start this process through its socket unit.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        raise GpulabError("the broker is started by gpulab-broker.socket; try `systemctl start gpulab-broker.socket`")
    os.set_inheritable(_FIRST_FD, False)  # noqa: FBT003 - takes no keyword
    return socket.socket(fileno=_FIRST_FD)


@dataclass(eq=False)
class Connection:
    """One client.

    Attributes:
        peer: the process at the other end.
        socket: the connection.
        since: when it connected, on the monotonic clock.
        asked: whether its request has come.
        closing: to be closed at the next opportunity.
    """

    peer: Peer
    socket: socket.socket
    since: float
    asked: bool = False
    closing: bool = False

    def send(self, data: bytes) -> None:
        """Send one message; a client that does not take it is let go."""
        try:
            self.socket.send(data)
        except OSError:
            self.closing = True

    def close(self) -> None:
        """End the connection after what was sent."""
        self.closing = True


@dataclass
class Server:
    """Serves until nobody needs it any more.

    Attributes:
        listener: the socket that clients connect to.
        broker: answers them.
        monotonic: seconds on a clock that never jumps.
        idle: seconds without any client after which to end; systemd starts a new one for the next.
        replaced: tells whether another release is in use by now; then systemd starts that one for the next.
        member: tells whether an account may ask.
        identify: finds out who connected.
    """

    listener: socket.socket
    broker: Broker | Unable
    monotonic: Callable[[], float]
    idle: float
    replaced: Callable[[], bool] = field(default=lambda: False)
    member: Callable[[str], bool] = field(default=lambda user: in_group(user, names.MEMBERS_GROUP))
    identify: Callable[[socket.socket], Peer] = field(default=peers.identify_peer)
    _open: set[Connection] = field(default_factory=set)

    def run(self) -> None:
        """Serve."""
        self.listener.setblocking(False)  # noqa: FBT003 - takes no keyword
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            busy = self.monotonic()
            while True:
                for key, _ in selector.select(self._patience(busy)):
                    if key.data is None:
                        self._accept(selector)
                    else:
                        self._read(key.data)
                now = self.monotonic()
                self._drop_silent(now)
                self._close(selector)
                if self.broker.due():
                    self.broker.serve()
                self._close(selector)
                if self._open or self.broker.waiting:
                    busy = now
                elif now - busy >= self.idle:
                    return
                if self.replaced():
                    return  # those who wait ask the new one; their tickets are on file

    def _patience(self, busy: float) -> float:
        if self.broker.waiting:
            return TICK
        if self._open:
            return SILENCE / 2
        return max(0.0, busy + self.idle - self.monotonic())

    def _accept(self, selector: selectors.BaseSelector) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except BlockingIOError:
                return
            except OSError:  # the client gave up, or we have no descriptor left: others go on
                return
            connection.setblocking(False)  # noqa: FBT003 - takes no keyword
            try:
                peer = self.identify(connection)
            except NotPermittedError as error:
                _turn_away(connection, str(error))
                continue
            reason = self._objection(peer)
            if reason:
                _turn_away(connection, reason)
                peer.close()
                continue
            client = Connection(peer, connection, self.monotonic())
            self._open.add(client)
            selector.register(connection, selectors.EVENT_READ, client)

    def _objection(self, peer: Peer) -> str:
        if peer.uid != 0 and not self.member(peer.user):
            return f"{peer.user} is no member of the lab (group {names.MEMBERS_GROUP}); ask the admin"
        if Counter(client.peer.uid for client in self._open)[peer.uid] >= PER_ACCOUNT:
            return f"{peer.user} has {PER_ACCOUNT} requests open already; wait until some are done"
        if len(self._open) >= ALTOGETHER:
            return "too many people wait for an answer; try again later"
        return ""

    def _read(self, client: Connection) -> None:
        try:
            data, _, flags, _ = client.socket.recvmsg(LARGEST)  # descriptors sent along are closed by the kernel
        except BlockingIOError:
            return
        except OSError:
            data, flags = b"", 0
        if not data:
            client.closing = True
        elif client.asked or flags & socket.MSG_TRUNC:
            why = "one request a connection" if client.asked else f"a request has at most {LARGEST} bytes"
            client.send(answer("refused", status=FAILED, say=f"{why}; use allocate_gpu or gpu-status"))
            client.closing = True
        else:
            client.asked = True
            self.broker.ask(client, data)

    def _drop_silent(self, now: float) -> None:
        for client in self._open:
            if not client.asked and now - client.since >= SILENCE:
                client.closing = True

    def _close(self, selector: selectors.BaseSelector) -> None:
        for client in [client for client in self._open if client.closing]:
            self._open.remove(client)
            selector.unregister(client.socket)
            client.socket.close()
            client.peer.close()
            self.broker.hang_up(client)


def _turn_away(connection: socket.socket, reason: str) -> None:
    try:
        connection.send(answer("refused", status=FAILED, say=reason))
    except OSError:
        pass  # it did not stay to hear it
    finally:
        connection.close()


def lock_path(root: Path) -> Path:
    """Return the lock that only one broker holds."""
    return Path(names.under(root, names.RUN_DIR)) / "lock"
