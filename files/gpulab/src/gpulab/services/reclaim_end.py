"""Ends idle holders: exactly the processes that were measured, confirmed by a look right before."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..adapters.processes import Process
from ..adapters.procfs import Identity
from ..rules.idle import LEASE, judge
from ..rules.idle_cases import is_idle_still

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..adapters.processes import ProcessTable
    from ..rules.idle import Finding, Measure
    from ..rules.idle_cases import Terms
    from ..rules.samples import Tick

_POLL_SECONDS = 0.2
_KILL_SECONDS = 5.0
"""How long a process may take to be gone after KILL: the driver takes down what it held."""


@dataclass(frozen=True)
class Ending:
    """What became of some holders.

    Attributes:
        ended: they are gone.
        stuck: they would not go.
        spared: a last look, or a late answer, did not confirm them.
    """

    ended: tuple[Finding, ...] = ()
    stuck: tuple[Finding, ...] = ()
    spared: tuple[Finding, ...] = ()


def confirm(
    targets: Sequence[Finding],
    looks: Sequence[Tick],
    fresh: Tick | None,
    measure: Measure,
    terms: Terms,
    kept: Mapping[str, float],
) -> list[Finding]:
    """Return those that a look taken right now still shows idle, and that nobody keeps.

    Args:
        targets: what is to be ended.
        looks: what the decision came from.
        fresh: a look taken after it; None when it failed: then nobody is confirmed.
        measure: what idle means.
        terms: how long it must have lasted.
        kept: the answers as they are now.
    """
    if fresh is None or not looks or fresh.at <= looks[-1].at:
        return []
    now = {finding.key: finding for finding in judge([*looks, fresh], measure)}
    return [
        target
        for target in targets
        if is_idle_still(now.get(target.key), terms) and kept.get(target.key, 0.0) <= fresh.at
    ]


def end(
    targets: Sequence[Finding],
    table: ProcessTable,
    members_of: Callable[[int], Sequence[int]],
    *,
    grace: float,
) -> Ending:
    """End holders: TERM, time to save their work, then KILL; each signal goes through a pidfd that was checked.

    Args:
        targets: what to end.
        table: the processes of the machine.
        members_of: pids in the scope of a lease.
        grace: seconds between TERM and KILL; less when all end sooner.
    """
    groups = {target.key: _processes(target, table, members_of) for target in targets}
    left = [process for group in groups.values() for process in group]
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILL_SECONDS)):
        for process in left:
            table.send(process, number)
        deadline = table.monotonic() + seconds
        while (left := [process for process in left if table.is_there(process)]) and table.monotonic() < deadline:
            table.sleep(_POLL_SECONDS)
    alive = {id(process) for process in left}
    stuck = [target for target in targets if any(id(process) in alive for process in groups[target.key])]
    return Ending(ended=tuple(each for each in targets if each not in stuck), stuck=tuple(stuck))


def _processes(target: Finding, table: ProcessTable, members_of: Callable[[int], Sequence[int]]) -> list[Process]:
    runner = target.runner
    first = Process(runner.pid, Identity(runner.start_ticks, runner.uid, runner.user, runner.command))
    if target.holds != LEASE or target.lease is None:
        return [first]
    # Nobody in the scope is on a card: what the lease was for is not being done, and it ends with the last of them.
    others = (table.find(pid) for pid in members_of(target.lease) if pid != runner.pid)
    return [first, *(process for process in others if process is not None and process.identity.uid == runner.uid)]
