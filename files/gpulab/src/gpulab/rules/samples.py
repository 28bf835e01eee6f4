"""One look at the cards, as the sampler takes it every minute: plain data, unknown is None and never 0.

Slots and short names, because a process of the sampler holds hundreds of these and makes them every minute.
"""

from __future__ import annotations

from dataclasses import dataclass

OK = "ok"
"""The card answers for itself and for each process."""

MIG = "mig"
"""The card is split: NVML measures no utilisation then (nvml.h, nvmlDeviceGetProcessUtilization)."""

UNMEASURED = "unmeasured"
"""The card says who uses it, but not how much each process does."""

UNREADABLE = "unreadable"
"""The card does not say who uses it."""

LOST = "lost"
"""It fell off the bus."""

LISTED = frozenset({OK, MIG, UNMEASURED})
"""States in which a process that is not listed is not there."""

NO_INSTANCE = -1


@dataclass(frozen=True, slots=True)
class CardSample:
    """One card at one moment.

    Attributes:
        index: NVML index.
        uuid: `GPU-...`; empty when the card is lost.
        state: one of the words above.
        utilization: percent of the last moment in which a kernel ran; None when unknown.
        memory_used: bytes; None when unknown.
        memory_total: bytes; None when unknown.
        reason: why something is unknown, one clause; empty otherwise.
    """

    index: int
    uuid: str
    state: str
    utilization: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Runner:
    """A process that holds memory on a card, named for good.

    Attributes:
        pid: process id.
        start_ticks: start, clock ticks since boot; with the pid never used twice.
        uid: real user id.
        user: account name, or the number as text.
        command: the program's name (comm), cleaned of control characters.
        lease: number of the lease it runs under; None without.
    """

    pid: int
    start_ticks: int
    uid: int
    user: str
    command: str
    lease: int | None = None

    @property
    def key(self) -> str:
        """Its name in state files."""
        return f"{self.pid}:{self.start_ticks}"


@dataclass(frozen=True, slots=True)
class Use:
    """What one process does on one card, or on one MIG instance of it.

    Attributes:
        runner: the process.
        card: index of the card.
        instance: MIG GPU instance id; NO_INSTANCE without MIG.
        memory: bytes; None when the driver does not say.
        sm: percent of the time since the last look in which its kernels ran; None when unknown.
        cpu_ms: processor time since the last look, milliseconds; None at the first look at this process.
    """

    runner: Runner
    card: int
    instance: int = NO_INSTANCE
    memory: int | None = None
    sm: int | None = None
    cpu_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """One card that a lease gives to somebody, used or not.

    Attributes:
        lease: number of the lease.
        holder: the process that the lease began with.
        card: index of the card.
        shared: whether others may be on it too.
        promised: GPU memory that was promised, bytes; 0 for the whole card.
        asked: when it was asked for, seconds since 1970; None when not known.
        given: when it was given, likewise.
    """

    lease: int
    holder: Runner
    card: int
    shared: bool = False
    promised: int = 0
    asked: int | None = None
    given: int | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """One look.

    Attributes:
        at: when, whole seconds since 1970.
        cards: in order of index.
        uses: by card and pid.
        holds: what leases give away.
        reason: why no card could be looked at; empty otherwise.
    """

    at: int
    cards: tuple[CardSample, ...] = ()
    uses: tuple[Use, ...] = ()
    holds: tuple[Hold, ...] = ()
    reason: str = ""
