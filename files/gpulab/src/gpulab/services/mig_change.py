"""The change of one card as a transaction: it ends with the wanted layout or with the former one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..adapters import mig_holders
from ..adapters.mig import IN_USE, words
from ..adapters.nvml_library import RefusedError
from ..rules.mig_check import find_problem
from ..rules.mig_plan import Empty, Fill, Make, Remove, SwitchMode, choose, describe, steps

if TYPE_CHECKING:
    from pathlib import Path

    from ..adapters.mig import Mig
    from ..rules.mig_cards import Goal, MigCard
    from ..rules.mig_layout import Target
    from ..rules.mig_plan import Step
    from .mig_state import Journal

_LIKELY_HOLDERS = "nvidia-persistenced, DCGM, a monitoring exporter or a display server"
_WAITING = (
    "this card cannot be reset from here: MIG goes {} with the next reboot, and gpulab-mig.service then does the rest"
)


class _UnfitError(Exception):
    """The card does not take or does not have what it should; the message is a clause."""


@dataclass(frozen=True)
class Ending:
    """How a change ended.

    Attributes:
        reached: whether the card has what it shall have.
        waiting: whether its new MIG mode is noted down and comes with the next reboot.
        reason: why it has not, in words; empty when it has.
        goal: what it has now, when it has been reached.
    """

    reached: bool
    waiting: bool = False
    reason: str = ""
    goal: Goal | None = None


class Change:
    """Takes one card to a layout, step by step.

    Args:
        mig: NVML.
        card: the card as it is.
        proc_root: where proc is mounted.
    """

    def __init__(self, mig: Mig, card: MigCard, proc_root: Path) -> None:
        """Keep what is given; nothing is changed yet."""
        self._mig = mig
        self._card = card
        self._proc_root = proc_root
        self._step: Step | None = None
        self._doing = ""

    def run(self, target: Target, journal: Journal) -> Ending:
        """Give the card its wanted layout, or its former one back.

        Args:
            target: what it shall have.
            journal: where the former layout is kept meanwhile.

        Raises:
            OSError: the journal cannot be written; nothing was changed.
        """
        uuid = self._card.uuid
        former = journal.former(uuid) or self._card.goal
        journal.note(uuid, former)
        try:
            reached = self._reach_target(target)
        except (RefusedError, _UnfitError) as error:
            reason = self._explain(error)
            trouble = self._go_back(former)
            if trouble:
                return Ending(
                    reached=False, reason=f"{reason}; and the former layout could not be brought back: {trouble}"
                )
            journal.drop(uuid)
            return Ending(reached=False, reason=f"{reason}; the former layout is in place")
        except BaseException:  # Ctrl-C, or systemd stops the service: nobody is left to finish it
            if not self._go_back(former):
                journal.drop(uuid)
            raise
        journal.drop(uuid)
        if reached:
            return Ending(reached=True, goal=self._card.goal)
        return Ending(reached=False, waiting=True, reason=_WAITING.format("on" if target.enabled else "off"))

    def _reach_target(self, target: Target) -> bool:
        if target.enabled and not (self._card.enabled and self._card.pending):
            if not self._take(SwitchMode(enabled=True)):
                return False
            # Only now does every card say what it can make.
            self._doing = "read the card's profiles"
            self._card = self._mig.read_card(self._card)
            problem = find_problem(self._card.profiles, target)
            if problem:
                raise _UnfitError(problem)
        return self._reach(choose(self._card, target))

    def _reach(self, goal: Goal) -> bool:
        for step in steps(self._card, goal):
            if not self._take(step):
                return False
        self._step, self._doing = None, "read the layout back"
        found = self._mig.read_card(self._card)
        if found.goal != goal or found.pending != goal.enabled:
            raise _UnfitError(f"the card has {', '.join(describe(found.goal))} and not {', '.join(describe(goal))}")
        self._card = found
        return True

    def _take(self, step: Step) -> bool:
        """Carry out one step; False when it waits for a reboot."""
        self._step, self._doing = step, step.text
        if isinstance(step, SwitchMode):
            return self._mig.switch_mode(self._card, enabled=step.enabled)
        if isinstance(step, Make):
            number = self._mig.make_instance(self._card, step.instance)
            for compute in step.instance.computes:
                self._mig.make_compute(self._card, number, step.instance.slices, compute)
            return True
        number = _number(step.instance.id)
        if isinstance(step, Fill):
            for compute in step.computes:
                self._mig.make_compute(self._card, number, step.instance.slices, compute)
            return True
        for compute in step.computes if isinstance(step, Empty) else step.instance.computes:
            self._mig.remove_compute(self._card, number, _number(compute.id))
        if isinstance(step, Remove):
            self._mig.remove_instance(self._card, number)
        return True

    def _go_back(self, former: Goal) -> str:
        """Bring the former layout back; return what stands in the way, empty when it is there."""
        self._step, self._doing = None, "look at the card"
        try:
            self._card = self._mig.read_card(self._card)
            return "" if self._reach(former) else "MIG mode waits for a reboot"
        except (RefusedError, _UnfitError) as error:
            return self._explain(error)

    def _explain(self, error: RefusedError | _UnfitError) -> str:
        if not isinstance(error, RefusedError):
            return str(error)
        if error.code != IN_USE or not isinstance(self._step, SwitchMode):
            return f"{self._doing}: {words(error)}"
        minor = self._card.minor
        found = mig_holders.holders(minor, self._proc_root) if minor is not None else ()
        who = f"{', '.join(found)} has" if found else f"another program has, such as {_LIKELY_HOLDERS},"
        return f"{self._doing}: {who} the card open, so it cannot be reset; stop it and try again"


def _number(number: int | None) -> int:
    """Return the number of an instance that is there; one that is only planned has none."""
    if number is None:
        raise _UnfitError("an instance that was only planned was to be changed")
    return number
