"""Who holds a card without using it: judged from the looks of the sampler, never from one look, never from a gap.

A process is idle at a look when NVML measured it on every card it holds memory on and each measure is below the limit.
It is idle since the first of an unbroken row of such looks. One look at or above the limit ends the row: a job that
works for a moment every few minutes is never idle, one that worked once and then stopped is, however high its average
was. A look that is missing, late, or could not tell ends the row too: unknown is never idle.

A lease is idle in the same way while no process of its owner is on any of its cards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .samples import LISTED, MIG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .samples import Hold, Runner, Tick, Use

BUSY = "busy"
IDLE = "idle"
UNKNOWN = "unknown"

MEMORY = "memory"
LEASE = "lease"

_LATE = 1.9
"""A look that comes after so many times the usual time says nothing about what was before it: one was missed."""


@dataclass(frozen=True)
class Measure:
    """How idleness is measured.

    Attributes:
        percent: below this much SM utilisation a process is idle.
        sample_seconds: usual time between two looks.
        counts: whether a look at a time of day counts; those in exempt hours do not.
    """

    percent: int = 5
    sample_seconds: float = 60.0
    counts: Callable[[int], bool] = field(default=lambda _: True)


@dataclass(frozen=True)
class Finding:
    """What is known about one holder now.

    Attributes:
        runner: the process; of a lease without process on its cards the one it began with.
        holds: MEMORY, or LEASE for a lease whose cards nobody uses.
        kind: BUSY, IDLE or UNKNOWN.
        since: time of the first look of the unbroken row: of idle looks, or when UNKNOWN of looks that were not busy.
        at: time of the last look.
        cards: indexes of the cards.
        uuids: the same cards by UUID.
        memory: bytes on all of them; None when unknown.
        lease: number of the lease; None without.
        cpu_percent: processor time since `since`, percent of one core; None when not measured.
        mig: whether it is unknown because a card of it is split.
    """

    runner: Runner
    holds: str
    kind: str
    since: int
    at: int
    cards: tuple[int, ...]
    uuids: tuple[str, ...] = ()
    memory: int | None = None
    lease: int | None = None
    cpu_percent: float | None = None
    mig: bool = False

    @property
    def key(self) -> str:
        """Names the holder: a process, or a lease as such."""
        return self.runner.key if self.holds == MEMORY else f"lease:{self.lease}:{self.runner.key}"

    @property
    def seconds(self) -> int:
        """How long it has been so, at least."""
        return self.at - self.since


def is_complete(look: Tick) -> bool:
    """Tell whether a look saw every process: only then is one that it does not show gone."""
    return not look.reason and all(card.state in LISTED for card in look.cards)


def judge(looks: Sequence[Tick], measure: Measure, not_before: Mapping[str, int] | None = None) -> tuple[Finding, ...]:
    """Judge everybody who is on a card in the last look.

    Args:
        looks: oldest first; the last is now.
        measure: what idle means.
        not_before: looks before this time do not count for a holder (by key): its owner wants to keep it that long.

    Returns:
        By pid, leases last. Nobody when there are no looks.
    """
    if not looks:
        return ()
    back = _row(looks, measure)
    grouped = [_by_runner(look.uses) for look in back]
    keep = not_before or {}
    order = sorted(grouped[0], key=lambda key: grouped[0][key][0].runner.pid)
    findings = [_process(key, back, grouped, measure, keep.get(key, 0)) for key in order]
    for lease in dict.fromkeys(hold.lease for hold in back[0].holds):
        finding = _lease(lease, back, keep)
        if finding is not None:
            findings.append(finding)
    return tuple(findings)


def _row(looks: Sequence[Tick], measure: Measure) -> list[Tick]:
    """Return the last look and those before it, newest first, as far back as none is missing and all count."""
    row = [looks[-1]]
    for look in reversed(looks[:-1]):
        if row[-1].at - look.at > _LATE * measure.sample_seconds or not measure.counts(look.at):
            break
        row.append(look)
    return row


def _by_runner(uses: Iterable[Use]) -> dict[str, list[Use]]:
    grouped: dict[str, list[Use]] = {}
    for use in uses:
        grouped.setdefault(use.runner.key, []).append(use)
    return grouped


def _kind(uses: Sequence[Use], measure: Measure) -> str:
    if any(use.sm is not None and use.sm >= measure.percent for use in uses):
        return BUSY
    return UNKNOWN if any(use.sm is None for use in uses) else IDLE


def _process(
    key: str, back: Sequence[Tick], grouped: Sequence[Mapping[str, list[Use]]], measure: Measure, not_before: int
) -> Finding:
    now = back[0]
    uses = grouped[0][key]
    kind = _kind(uses, measure)
    wanted = {IDLE: {IDLE}, UNKNOWN: {IDLE, UNKNOWN}, BUSY: {BUSY}}[kind]
    since, cpu_ms = now.at, 0
    for number, older in enumerate(back[1:], start=1):
        then = grouped[number].get(key)
        if then is None or older.at < not_before or _kind(then, measure) not in wanted:
            break
        since = older.at
        cpu_ms += max(use.cpu_ms or 0 for use in grouped[number - 1][key])
    states = {card.index: card for card in now.cards}
    cards = tuple(dict.fromkeys(use.card for use in uses))
    known = [use.memory for use in uses if use.memory is not None]
    return Finding(
        runner=uses[0].runner,
        holds=MEMORY,
        kind=kind,
        since=since,
        at=now.at,
        cards=cards,
        uuids=tuple(states[card].uuid for card in cards if card in states),
        memory=sum(known) if known else None,
        lease=uses[0].runner.lease,
        cpu_percent=cpu_ms / 10 / (now.at - since) if now.at > since else None,
        mig=any(states[card].state == MIG for card in cards if card in states),
    )


def _lease(lease: int, back: Sequence[Tick], keep: Mapping[str, int]) -> Finding | None:
    """Judge a lease whose owner is on none of its cards now; None when somebody of its owner is."""
    now = back[0]
    holds = [hold for hold in now.holds if hold.lease == lease]
    state = _unused(now, holds)
    if state == BUSY:
        return None
    finding = Finding(
        runner=holds[0].holder,
        holds=LEASE,
        kind=state,
        since=now.at,
        at=now.at,
        cards=tuple(hold.card for hold in holds),
        uuids=tuple(card.uuid for card in now.cards if card.index in {hold.card for hold in holds}),
        lease=lease,
    )
    since = now.at
    for look in back[1:]:
        held = any(hold.lease == lease and hold.holder.key == holds[0].holder.key for hold in look.holds)
        if not held or look.at < keep.get(finding.key, 0) or _unused(look, holds) != state:
            break
        since = look.at
    return replace(finding, since=since)


def _unused(look: Tick, holds: Sequence[Hold]) -> str:
    cards = {hold.card for hold in holds}
    if any(use.card in cards and use.runner.uid == holds[0].holder.uid for use in look.uses):
        return BUSY
    listed = {card.index for card in look.cards if card.state in LISTED}
    return IDLE if cards <= listed else UNKNOWN
