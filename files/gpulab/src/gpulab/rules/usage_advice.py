"""What the numbers of a report suggest to change in the inventory, each by a rule that fits in a sentence.

- **Weights.** A golden hour that is fuller than the week gets less weight, an emptier one more: the present weight
  times the square root of (occupancy of the week / occupancy of the window), by at most a quarter a report, in steps
  of 0.05, within 0.25 and 4. Weights move submissions; small steps let people follow before the next report.
- **Idle cards.** Where at least a tenth of the measured GPU-hours, and ten hours, were held idle, idle reclaim may end
  what nobody answers for.
- **One for many.** Where one member used more than half of all GPU-hours, at least two others used some, and some
  member waited an hour or more on average, a limit of half the cards for one member leaves the rest room.

Nothing is suggested on less than a week of records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .usage import HOUR, OUTSIDE
from .windows import as_raw

if TYPE_CHECKING:
    from collections.abc import Collection

    from .usage import Usage
    from .window_table import Window

LEAST_SECONDS = 6.5 * 24 * HOUR
_STEP = 0.05
_FASTEST = 1.25
_LEAST, _MOST = 0.25, 4.0
_IDLE_PART, _IDLE_HOURS = 0.1, 10.0
_TOO_MUCH = 0.5
_LONG_WAIT = HOUR
_OTHERS = 2

WEIGHTS = "weights"
IDLE = "idle"
LIMIT = "limit"


@dataclass(frozen=True)
class Advice:
    """One suggestion.

    Attributes:
        kind: WEIGHTS, IDLE or LIMIT.
        facts: the numbers it follows from, for the sentence in rules/usage_words.py.
        inventory: lines to paste into the inventory, YAML.
    """

    kind: str
    facts: tuple[object, ...]
    inventory: tuple[str, ...]


def advise(
    usage: Usage, *, tier: str, windows: Collection[Window], reclaim_mode: str, watched_seconds: float
) -> tuple[Advice, ...]:
    """Return what the numbers suggest.

    Args:
        usage: the report.
        tier: `table`, `allocator` or `slurm`.
        windows: the golden hours in force.
        reclaim_mode: `off`, `notify` or `enforce`.
        watched_seconds: for how long of the period there are records.
    """
    if watched_seconds < LEAST_SECONDS:
        return ()
    found = [_idle(usage, tier, reclaim_mode), _limit(usage, tier)]
    if tier == "slurm":  # the other tiers have no priorities
        found.insert(0, _weights(usage, windows))
    return tuple(each for each in found if each is not None)


def new_weight(present: float, week: float, window: float) -> float:
    """Return the weight of a window for the next weeks; see the module.

    Args:
        present: its weight now.
        week: occupancy of the whole week, 0 to 1.
        window: occupancy of the window, 0 to 1.
    """
    factor = math.sqrt(week / window) if window else _FASTEST
    factor = min(_FASTEST, max(1 / _FASTEST, factor))
    return round(min(_MOST, max(_LEAST, round(present * factor / _STEP) * _STEP)), 2)


def _weights(usage: Usage, windows: Collection[Window]) -> Advice | None:
    week = usage.gpu_hours / usage.watched_hours if usage.watched_hours else 0.0
    occupancy = {use.name: use.occupancy for use in usage.windows if use.name != OUTSIDE}
    changed = []
    table = []
    for window in windows:
        full = occupancy.get(window.name)
        weight = window.weight if full is None or not week else new_weight(window.weight, week, full)
        if weight != window.weight and full is not None:
            changed.append((window.name, window.weight, weight, full))
        table.append(replace(window, weight=weight))
    if not changed:
        return None
    lines = ["gpu_windows:"]
    for window in table:
        items = as_raw(window).items()
        lines += [f"  {'  ' if number else '- '}{key}: {_yaml(value)}" for number, (key, value) in enumerate(items)]
    return Advice(WEIGHTS, (week, tuple(changed)), tuple(lines))


def _yaml(value: object) -> str:
    """Write a value of the table in YAML's flow style; times such as 08:00 must not be read as numbers."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return f"{value:g}" if isinstance(value, float) else str(value)


def _idle(usage: Usage, tier: str, mode: str) -> Advice | None:
    measured = sum(member.gpu_hours * member.measured for member in usage.members)
    idle = sum(member.idle_hours for member in usage.members)
    if tier == "slurm" or mode == "enforce" or idle < _IDLE_HOURS or idle < _IDLE_PART * measured:
        return None
    return Advice(IDLE, (idle, measured), ("idle_reclaim_mode: enforce",))


def _limit(usage: Usage, tier: str) -> Advice | None:
    if not usage.members or tier == "table":
        return None
    first, *rest = usage.members
    others = [member for member in rest if member.gpu_hours > 0]
    waits = [member.waits.mean for member in usage.members if member.waits.mean is not None]
    if first.share <= _TOO_MUCH or len(others) < _OTHERS or max(waits, default=0.0) < _LONG_WAIT:
        return None
    cards = max(1, int(sum(place.cards for place in usage.places)) // 2)
    line = f"tier_slurm_limits: {{cards: {cards}}}" if tier == "slurm" else f"tier_allocator_max_cards: {cards}"
    return Advice(LIMIT, (first.user, first.share, max(waits), cards), (line,))
