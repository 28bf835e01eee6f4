"""One mail for one event: what is news, what has been told already, and what is over.

An event is told when it is first found and then remembered for as long as it holds. When it is over it is forgotten, so
that the same thing happening again is news again. Where a look could not tell, nothing is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import checks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .checks import Event, Findings, Key

_NEEDS_BOOKINGS = {
    checks.SOON, checks.RUNNING, checks.UNUSED, checks.UNCOVERED, checks.OCCUPIED,
    checks.BAD_ROW, checks.NO_MEMBER, checks.NO_SUCH_CARD, checks.OVERLAP,
}  # fmt: skip
_NEEDS_PROCESSES = {checks.UNUSED, checks.UNCOVERED, checks.OCCUPIED, checks.STRANGER}
_NEEDS_READING = {checks.CARD}
_NEEDS_CARD_LIST = {checks.NO_SUCH_CARD}


@dataclass(frozen=True)
class Plan:
    """What a run has to do.

    Attributes:
        news: events to tell now.
        standing: events that hold and were told before.
        remembered: keys that stay told.
        ended: keys to forget.
    """

    news: tuple[Event, ...]
    standing: tuple[Event, ...]
    remembered: frozenset[Key]
    ended: frozenset[Key]


def compare(told: Iterable[Key], findings: Findings) -> Plan:
    """Compare what was found with what was told.

    Args:
        told: keys of the events told so far and not yet over.
        findings: one look.
    """
    told = frozenset(told)
    remembered = frozenset(key for key in told if key in findings.keys or _undecided(key, findings))
    return Plan(
        news=tuple(event for event in findings.events if event.key not in told),
        standing=tuple(event for event in findings.events if event.key in told),
        remembered=remembered,
        ended=told - remembered,
    )


def _undecided(key: Key, findings: Findings) -> bool:
    """Tell whether the look could not show that an event is over."""
    kind, _, card, *_ = key
    return (
        (kind in _NEEDS_BOOKINGS and not findings.bookings_known)
        or (kind in _NEEDS_PROCESSES and card not in map(str, findings.clear))
        or (kind in _NEEDS_READING and card not in map(str, findings.readable))
        or (kind in _NEEDS_CARD_LIST and not findings.readable)
    )
