"""What the broker has to do with: clients, the cards, systemd, the clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..adapters.device_nodes import make_missing
from ..adapters.scopes import Mover
from ..rules.lease_wire import answer
from . import lease_view
from .lease_policy import Policy
from .lease_strays import strays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..adapters.peers import Peer
    from ..rules.cards import Card, Cards, MigDevice
    from ..rules.lease_wire import Message

BUSY = 75
"""Exit status when no card is free: sysexits.h EX_TEMPFAIL, "temporary failure; the user is invited to retry"."""

FAILED = 125
"""Exit status when allocate_gpu itself fails, as with env(1), nohup(1) and timeout(1)."""


class Channel(Protocol):
    """The way back to a client."""

    @property
    def peer(self) -> Peer:
        """The process at the other end."""

    def send(self, data: bytes) -> None:
        """Send one message; a client that does not take it is let go."""

    def close(self) -> None:
        """End the connection after what was sent."""


@dataclass(frozen=True)
class World:
    """The outside.

    Attributes:
        root: the folder that stands for `/`.
        look: reads the cards.
        mover: puts processes into scopes.
        strays: finds who has nodes of ended leases open; see lease_strays.strays.
        make_nodes: makes the device nodes of a card or instance that are not there yet; returns what failed.
        policy: reads the rules of the house.
        now: seconds since the epoch.
        monotonic: seconds on a clock that never jumps.
        log: takes one line for the journal.
    """

    root: Path = Path("/")
    look: Callable[[], Cards] = field(default=lease_view.look)
    mover: Mover = field(default_factory=Mover)
    strays: Callable[[Mapping[int, Sequence[str]], Mapping[int, int]], Mapping[int, str]] = field(default=strays)
    make_nodes: Callable[[Card, MigDevice | None], str] = field(default=make_missing)
    policy: Callable[[], Policy] = field(default=Policy)
    now: Callable[[], float] = field(default=time.time)
    monotonic: Callable[[], float] = field(default=time.monotonic)
    log: Callable[[str], None] = field(default=print)


@dataclass
class Caller:
    """A connected client that stands in line.

    Attributes:
        channel: the way back to it.
        message: what it asked.
        known: it has had its ticket before, and asks again.
        fresh: it has not been looked at yet.
        told: position and reason that it was told last.
    """

    channel: Channel
    message: Message
    known: bool = False
    fresh: bool = True
    told: tuple[int, str] = (0, "")


class Unable:
    """Stands in for a broker that cannot work, and tells everybody why.

    Args:
        why: one line.
    """

    waiting = False

    def __init__(self, why: str) -> None:
        """Remember why."""
        self._why = why

    def ask(self, channel: Channel, _data: bytes) -> None:
        """Refuse."""
        channel.send(answer("refused", status=FAILED, say=self._why))
        channel.close()

    def hang_up(self, _channel: Channel) -> None:
        """Nothing is known of anybody."""

    @staticmethod
    def due() -> bool:
        """There is never anything to do."""
        return False

    def serve(self) -> None:
        """Everybody has been answered."""
