"""From what a card has to what it shall have, in as few steps as possible."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .mig_cards import Compute, Goal, Instance
from .mig_check import group, shape_of
from .mig_fit import arrange, place
from .mig_known import compute_shapes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .mig_cards import MigCard, Profile
    from .mig_check import Group
    from .mig_layout import Target


@dataclass(frozen=True)
class SwitchMode:
    """Switch MIG on or off."""

    enabled: bool

    @property
    def text(self) -> str:
        """The step in words."""
        return f"switch MIG {'on' if self.enabled else 'off'}"


@dataclass(frozen=True)
class Remove:
    """Destroy a GPU instance and the compute instances in it."""

    instance: Instance

    @property
    def text(self) -> str:
        """The step in words."""
        return f"remove {self.instance.name} at {self.instance.start}"


@dataclass(frozen=True)
class Empty:
    """Destroy compute instances of a GPU instance that stays."""

    instance: Instance
    computes: tuple[Compute, ...]

    @property
    def text(self) -> str:
        """The step in words."""
        return f"remove compute instances {_widths(self.computes)} of {self.instance.name} at {self.instance.start}"


@dataclass(frozen=True)
class Make:
    """Make a GPU instance at its place, with its compute instances."""

    instance: Instance

    @property
    def text(self) -> str:
        """The step in words."""
        instance = self.instance
        whole = instance.widths == (instance.slices,)
        inside = "" if whole else f" with compute instances {_widths(instance.computes) or 'none'}"
        return f"make {instance.name} at {instance.start}{inside}"


@dataclass(frozen=True)
class Fill:
    """Make compute instances in a GPU instance that is there."""

    instance: Instance
    computes: tuple[Compute, ...]

    @property
    def text(self) -> str:
        """The step in words."""
        return f"make compute instances {_widths(self.computes)} in {self.instance.name} at {self.instance.start}"


Step = SwitchMode | Remove | Empty | Make | Fill


def _widths(computes: Iterable[Compute]) -> str:
    return ", ".join(f"{compute.width}c" for compute in computes)


def choose(card: MigCard, target: Target) -> Goal:
    """Find a place for everything wanted, where possible the place it has already.

    Args:
        card: the card, its profiles known and the target found possible (`mig_check.find_problem`).
        target: what it shall have.

    Raises:
        ValueError: the target is not possible on this card.
    """
    if not target.enabled:
        return Goal(enabled=False)
    wanted = list(group(card.profiles, target))
    profiles = {each.profile.id: each.profile for each in wanted}
    shapes = {number: shape_of(profile) for number, profile in profiles.items()}
    present = [(instance.profile, instance.start) for instance in card.instances]
    complete = {(each.profile.id, each.widths) for each in wanted}
    favourites = frozenset(
        position for position, instance in enumerate(card.instances) if (instance.profile, instance.widths) in complete
    )
    arrangement = arrange([each.profile.id for each in wanted], shapes, present, favourites)
    if arrangement is None:
        raise ValueError(f"{target.text} does not fit on {card.title}")
    kept = [card.instances[position] for position in arrangement.kept]
    # Those that are complete first: they must not get the wish of one whose compute instances differ.
    kept.sort(key=lambda instance: (instance.profile, instance.widths) not in complete)
    instances = [
        replace(instance, computes=_computes(_take(wanted, instance.profile, instance.widths), instance))
        for instance in kept
    ]
    instances += [_new(_take(wanted, number, ()), start) for number, start in arrangement.added]
    return Goal(enabled=True, instances=tuple(sorted(instances, key=lambda instance: instance.start)))


def _take(wanted: list[Group], profile: int, widths: tuple[int, ...]) -> Group:
    """Take a wish for a profile off the list, the one most like the compute instances that are there."""
    there = Counter(widths)
    same = [each for each in wanted if each.profile.id == profile]
    chosen = max(same, key=lambda each: (each.widths == widths, sum((Counter(each.widths) & there).values())))
    wanted.remove(chosen)
    return chosen


def _new(wish: Group, start: int) -> Instance:
    profile = wish.profile
    return Instance(profile.id, profile.name, profile.slices, start, profile.size, _lay_out(profile, wish.widths))


def _lay_out(profile: Profile, widths: tuple[int, ...]) -> tuple[Compute, ...]:
    shapes = compute_shapes(profile.slices)
    starts = place([shapes[width] for width in widths])
    if starts is None:
        raise ValueError(f"compute instances {widths} do not fit into {profile.name}")
    return tuple(sorted(map(Compute, widths, starts), key=lambda compute: compute.start))


def _computes(wish: Group, instance: Instance) -> tuple[Compute, ...]:
    """Return the compute instances that a kept GPU instance shall have, those it has where they will do."""
    present = [(compute.width, compute.start) for compute in instance.computes]
    arrangement = arrange(wish.widths, compute_shapes(wish.profile.slices), present)
    if arrangement is None:
        return _lay_out(wish.profile, wish.widths)
    kept = [instance.computes[position] for position in arrangement.kept]
    added = [Compute(width, start) for width, start in arrangement.added]
    return tuple(sorted((*kept, *added), key=lambda compute: compute.start))


def steps(card: MigCard, goal: Goal) -> tuple[Step, ...]:
    """Return what turns the card as it is into the goal; nothing when it is that already.

    What must go goes first, and nothing is made before everything in its way is gone.
    """
    wanted = {(instance.profile, instance.start): instance for instance in goal.instances}
    found: list[Step] = []
    makes: list[Step] = []
    for instance in card.instances:
        goal_instance = wanted.pop((instance.profile, instance.start), None)
        if goal_instance is None or not goal.enabled:
            found.append(Remove(instance))
            continue
        extra = tuple(compute for compute in instance.computes if compute not in goal_instance.computes)
        lacking = tuple(compute for compute in goal_instance.computes if compute not in instance.computes)
        if extra:
            found.append(Empty(instance, extra))
        if lacking:
            makes.append(Fill(instance, lacking))
    makes += [Make(instance) for instance in wanted.values()]
    switch: list[Step] = []
    if (card.enabled, card.pending) != (goal.enabled, goal.enabled):
        switch.append(SwitchMode(goal.enabled))
    return tuple([*switch, *found, *makes] if goal.enabled else [*found, *switch])


def foresee(card: MigCard, target: Target) -> tuple[Step, ...]:
    """Return the steps for a target, as far as they are known before MIG is on.

    A card that says nothing while MIG is off, and is in no table, is only known to be switched on.
    """
    if target.enabled and not card.profiles:
        return steps(card, Goal(enabled=True))
    return steps(card, choose(card, target))


def describe(goal: Goal) -> tuple[str, ...]:
    """Return a layout as lines of text: the mode, then each GPU instance with its place."""
    lines = [f"MIG {'on' if goal.enabled else 'off'}"]
    for instance in goal.instances:
        whole = instance.widths == (instance.slices,)
        inside = "" if whole else f", compute instances {_widths(instance.computes) or 'none'}"
        lines.append(f"{instance.name} at {instance.start}{inside}")
    return tuple(lines)
