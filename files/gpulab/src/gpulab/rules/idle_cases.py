"""From idle to given back: warned, answered or not, and what happens then.

A holder that is idle for long enough becomes a case and its owner is warned. The case is closed when it works again,
ends, or its owner keeps it. When no answer came in time, and it was idle all that time, it is overdue: told to the
admin, or ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .idle import BUSY, IDLE, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .idle import Finding

NOTIFY = "notify"
ENFORCE = "enforce"
OFF = "off"
MODES = (NOTIFY, ENFORCE, OFF)

WARN = "warn"
WARNED = "warned"
OVERDUE = "overdue"
KEPT = "kept"
EXEMPT = "exempt"

_MINUTE = 60


@dataclass(frozen=True)
class Terms:
    """How long what may last.

    Attributes:
        mode: NOTIFY, ENFORCE or OFF.
        idle_minutes: so long idle, then warned.
        answer_minutes: so long no answer, then overdue.
    """

    mode: str = NOTIFY
    idle_minutes: float = 15.0
    answer_minutes: float = 30.0

    @property
    def idle_seconds(self) -> float:
        """The first of the two in seconds."""
        return self.idle_minutes * _MINUTE

    @property
    def answer_seconds(self) -> float:
        """The second in seconds."""
        return self.answer_minutes * _MINUTE


@dataclass(frozen=True)
class Standing:
    """Where a holder stands.

    Attributes:
        finding: what is known about it.
        state: BUSY, UNKNOWN, IDLE (not for long enough yet), WARN (its owner is to be warned now), WARNED, OVERDUE,
            KEPT or EXEMPT.
        until: when the next state comes by itself, seconds since 1970: of IDLE the warning, of WARNED the end of the
            time to answer, of KEPT the end of the keeping; 0 when there is none.
        why: the word of the exemption; empty otherwise.
    """

    finding: Finding
    state: str
    until: float = 0.0
    why: str = ""


def standings(
    findings: Iterable[Finding],
    warned: Mapping[str, float],
    kept: Mapping[str, float],
    terms: Terms,
    exempt: Callable[[Finding], str],
) -> tuple[Standing, ...]:
    """Say where each holder stands.

    Args:
        findings: of one moment.
        warned: when the owner was warned, by key of the holder.
        kept: until when the owner keeps it, by key.
        terms: how long what may last.
        exempt: why a holder is left alone; empty when it is not.
    """
    return tuple(_standing(finding, warned, kept, terms, exempt(finding)) for finding in findings)


def _standing(
    finding: Finding, warned: Mapping[str, float], kept: Mapping[str, float], terms: Terms, why: str
) -> Standing:
    if why:
        return Standing(finding, EXEMPT, why=why)
    until = kept.get(finding.key, 0.0)
    if until > finding.at:
        return Standing(finding, KEPT, until)
    if finding.kind in {BUSY, UNKNOWN}:
        return Standing(finding, finding.kind)
    told = warned.get(finding.key)
    if told is None or told < until:
        due = finding.since + terms.idle_seconds
        return Standing(finding, WARN if finding.at >= due and terms.mode != OFF else IDLE, due)
    # All of the time to answer must have been seen, idle throughout.
    due = max(told, finding.since) + terms.answer_seconds
    return Standing(finding, OVERDUE if finding.at >= due else WARNED, due)


def still_open(warned: Mapping[str, float], now: Iterable[Standing], *, complete: bool) -> dict[str, float]:
    """Return the cases that go on: warned, and neither busy, kept, exempt nor gone.

    Args:
        warned: when each was warned, by key.
        now: where each holder stands.
        complete: whether the look saw everybody; else one that it does not show may still be there.
    """
    seen = {standing.finding.key: standing for standing in now}
    going_on = {WARNED, OVERDUE, UNKNOWN}
    return {key: told for key, told in warned.items() if (seen[key].state in going_on if key in seen else not complete)}


def is_idle_still(finding: Finding | None, terms: Terms) -> bool:
    """Tell whether a look taken right before the end confirms it."""
    return finding is not None and finding.kind == IDLE and finding.seconds >= terms.answer_seconds
