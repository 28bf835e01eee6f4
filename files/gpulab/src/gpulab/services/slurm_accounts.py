"""Bring Slurm's users and accounts in line with the list of members: read once, write what differs, read again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..adapters.slurm import change_accounts, read_tree, run
from ..rules.slurm_accounts import Difference, Wish, compare, foresee, view

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..adapters.slurm import Run
    from ..rules.slurm_tree import Tree

_POLL = 0.5
_END_SECONDS = 90.0
"""A job that is cancelled gets KillWait, 30 s, between TERM and KILL."""

_MOST_LEFT = 3


@dataclass(frozen=True)
class World:
    """The outside, as parameters.

    Attributes:
        run: runs Slurm's commands.
        sleep: waits, seconds.
        monotonic: a clock, seconds.
    """

    run: Run = run
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Outcome:
    """What was done, or would be.

    Attributes:
        actions: what was done to which user, account or QOS.
        differences: name, before, after.
        warnings: what somebody should know.
        errors: what failed; the next run tries it again.
    """

    actions: dict[str, list[str]] = field(default_factory=dict)
    differences: list[tuple[str, str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether anything differs from before."""
        return bool(self.actions)


def reconcile(wanted: Wish, world: World, *, dry_run: bool) -> Outcome:
    """Do all of it, or with dry_run only say what would be done.

    Args:
        wanted: what the inventory asks for.
        world: the outside.
        dry_run: change nothing.

    Raises:
        SlurmError: slurmdbd or slurmctld does not answer; nothing was changed.
    """
    before = read_tree(wanted.cluster, world.run)
    difference = compare(wanted, before)
    if dry_run or not (difference.steps or difference.cancel):
        return _outcome(difference, before, foresee(wanted, before, difference))
    errors = _end_jobs(difference.cancel, world)
    errors += change_accounts([step.command for step in difference.steps], world.run)
    after = read_tree(wanted.cluster, world.run)
    left = compare(wanted, after)
    errors += [f"{', '.join(step.names[:_MOST_LEFT])}: still to do: {step.what}" for step in left.steps[:_MOST_LEFT]]
    outcome = _outcome(difference, before, after)
    # A complaint about something that came true all the same, such as a user added meanwhile, is no failure.
    outcome.errors.extend(errors if left.steps else [])
    return outcome


def _end_jobs(leavers: Sequence[str], world: World) -> list[str]:
    """Cancel the jobs of members who left and wait for their end: Slurm keeps a user who has jobs."""
    for name in leavers:
        world.run(["scancel", f"--user={name}"])
    if not leavers:
        return []
    deadline = world.monotonic() + _END_SECONDS
    while True:
        remaining = set(world.run(["squeue", "--noheader", "--all", "--format=%u"]).split()) & set(leavers)
        if not remaining:
            return []
        if world.monotonic() >= deadline:
            return [f"{name}: jobs did not end within {_END_SECONDS:g} s; run this again" for name in sorted(remaining)]
        world.sleep(_POLL)


def _outcome(difference: Difference, before: Tree, after: Tree) -> Outcome:
    outcome = Outcome(warnings=list(difference.warnings))
    for name in difference.cancel:
        outcome.actions.setdefault(name, []).append("cancel all jobs")
    for step in difference.steps:
        for name in step.names:
            outcome.actions.setdefault(name, []).append(step.what)
    old, new = view(before, outcome.actions), view(after, outcome.actions)
    outcome.differences.extend((name, old[name], new[name]) for name in outcome.actions if old[name] != new[name])
    return outcome
