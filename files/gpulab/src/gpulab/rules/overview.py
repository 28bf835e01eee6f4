"""The lab at one moment: what the login message and the board show. Plain data; unknown is None and never "free"."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .quota_warn import NEAR, level

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from .machine import Disk
    from .quota_warn import Reading

SHEET, LEASES, SLURM = "sheet", "leases", "slurm"
"""What could not be asked about people's work."""

RUNNING, BOOKED, WAITING = "running", "booked", "waiting"
"""What becomes of a piece of work: it has its cards now, has them later, or stands in line for them."""

FREE, USED, TAKEN, BROKEN, UNSURE = "free", "used", "taken", "broken", "unsure"
"""What a device is: nobody's, somebody's, booked by somebody who is not there, of no use now, or not known."""


@dataclass(frozen=True)
class Spot:
    """One device that can be given to somebody: a whole card, or a MIG instance.

    Attributes:
        index: NVML index of the card.
        name: for people, such as `0` or `0 (3g.40gb)`.
        model: such as `NVIDIA A100-SXM4-80GB`; empty when unknown.
        used: bytes in use; None when unknown.
        total: bytes; None when unknown.
        people: who is on it, each as `bob (python)`.
        reason: why it cannot be used or read, one clause; empty when it can.
        instance: a MIG instance.
    """

    index: int
    name: str
    model: str = ""
    used: int | None = None
    total: int | None = None
    people: tuple[str, ...] = ()
    reason: str = ""
    instance: bool = False


@dataclass(frozen=True)
class Work:
    """One piece of work, or a booking for one.

    Attributes:
        user: account name.
        what: task name, command line or job number, as its owner wrote it.
        state: RUNNING, BOOKED or WAITING.
        cards: the cards it has or will have; empty when that is not known yet.
        count: how many those are, or are asked for.
        start: when it began, begins, or was asked for; naive server time.
        end: when it ends at the latest; None when nobody has said.
    """

    user: str
    what: str
    state: str
    cards: tuple[int, ...] = ()
    count: int = 0
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class Pool:
    """Cards as a scheduler counts them, where it alone knows which are free.

    Attributes:
        free: how many nobody has.
        total: how many there are.
    """

    free: int
    total: int


@dataclass(frozen=True)
class Desk:
    """What a tier knows of people's work.

    Attributes:
        work: all of it that is or will be.
        pool: the cards as the tier counts them; None where what is on each card tells.
        problem: SHEET, LEASES or SLURM when that could not be asked; empty otherwise.
        detail: why, one sentence.
    """

    work: tuple[Work, ...] = ()
    pool: Pool | None = None
    problem: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Overview:
    """Everything at one moment.

    Attributes:
        at: server time, naive.
        tier: `table`, `allocator` or `slurm`.
        spots: in order of card.
        reason: why no card could be read, one sentence; empty when they could.
        desk: people's work.
        disks: file systems that members write to, each once.
        quotas: how much of their limits members use.
    """

    at: datetime
    tier: str
    spots: tuple[Spot, ...] = ()
    reason: str = ""
    desk: Desk = Desk()
    disks: tuple[Disk, ...] = ()
    quotas: tuple[Reading, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether it can be said which cards are free."""
        return not self.reason and not self.desk.problem

    def state_of(self, spot: Spot) -> str:
        """Return FREE, USED, TAKEN, BROKEN, or UNSURE."""
        if spot.reason:
            return BROKEN
        if spot.people:
            return USED
        if not self.sure or self.desk.pool is not None:  # without the sheet, or beside a scheduler, nobody is not free
            return UNSURE
        running = {card for work in self.desk.work if work.state == RUNNING for card in work.cards}
        # Bookings are of whole cards; a lease of an instance says nothing of those beside it, its holder tells.
        return TAKEN if self.tier == "table" and spot.index in running else FREE

    def those(self, state: str) -> tuple[Spot, ...]:
        """Return the devices in a state."""
        return tuple(spot for spot in self.spots if self.state_of(spot) == state)

    def work_of(self, user: str) -> tuple[Work, ...]:
        """Return one person's work: what runs, then what is booked, then what waits."""
        order = (RUNNING, BOOKED, WAITING)
        return tuple(
            sorted(
                (work for work in self.desk.work if work.user == user),
                key=lambda work: (order.index(work.state), work.start.timestamp() if work.start else 0.0),
            )
        )

    def full_of(self, user: str) -> tuple[Reading, ...]:
        """Return the limits of one person that are used to 80 % and more, the fullest first."""
        near = [each for each in self.quotas if each.owner == user and level(each) >= NEAR]
        return tuple(sorted(near, key=lambda each: -each.share))

    @property
    def concerned(self) -> frozenset[str]:
        """Everybody who has work or a disk that is nearly full."""
        near = {each.owner for each in self.quotas if level(each) >= NEAR}
        return frozenset({work.user for work in self.desk.work} | near)


def joined(work: Iterable[Work]) -> tuple[Work, ...]:
    """Put the rows of a booking of several cards together; the order of their first rows stays."""
    cards: dict[Work, list[int]] = defaultdict(list)
    for each in work:
        cards[replace(each, cards=(), count=0)] += each.cards
    return tuple(replace(each, cards=tuple(sorted(set(found))), count=len(set(found))) for each, found in cards.items())
