"""Which card a wanted layout is for: entries by index, model or all, against the cards that are there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .mig_cards import MigCard
    from .mig_layout import Entry, Layout, Target


@dataclass(frozen=True)
class Assignment:
    """What each card shall have.

    Attributes:
        targets: by index, ascending; cards that nothing is asked for are not in it.
        problems: index to a clause that says why a card cannot have what is asked for it.
    """

    targets: dict[int, Target] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)


def assign(layout: Layout, cards: Sequence[MigCard]) -> Assignment:
    """Say what each card shall have.

    Args:
        layout: what is asked for.
        cards: the cards of the machine.

    Raises:
        InputError: the layout contradicts itself, or has nothing for this machine.
    """
    asked, problems = _claims(layout, cards)
    targets: dict[int, Target] = {}
    for index, entry in asked.items():
        if cards[index].capable is not False:
            targets[index] = entry.target
        elif entry.target.enabled and entry.cards is not None:
            problems[index] = "MIG is asked for and the card cannot be split; write off, or leave it out"
        # else it is left out, as nvidia-mig-parted does with `all` and with MIG off
    if targets or problems:
        return Assignment(targets, problems)
    if layout.entries and not asked:
        models = ", ".join(sorted({f"0x{card.device_id:08X} {card.name}" for card in cards})) or "none"
        raise InputError(f"{layout.source} asks for no card of this machine; its cards are {models}")
    if any(entry.target.enabled for entry in asked.values()):
        raise InputError(f"{layout.source} asks for MIG, and no card of this machine can be split")
    return Assignment()


def _claims(layout: Layout, cards: Sequence[MigCard]) -> tuple[dict[int, Entry], dict[int, str]]:
    """Return the entry that is for each card, by index, and why some indexes have none."""
    asked: dict[int, Entry] = {}
    missing: dict[int, str] = {}
    for entry in layout.entries:
        missing |= {
            index: f"it is not there, {_count(len(cards))}" for index in entry.cards or () if index >= len(cards)
        }
        for card in cards:
            if not _concerns(entry, card):
                continue
            other = asked.setdefault(card.index, entry)
            if other.target != entry.target:
                raise InputError(f"{entry.where} and {other.where} ask different things of {card.title}; keep one")
    return dict(sorted(asked.items())), missing


def _count(number: int) -> str:
    if number == 0:
        return "this machine has no card"
    return f"this machine has {number} cards, 0 to {number - 1}" if number > 1 else "this machine has one card, 0"


def _concerns(entry: Entry, card: MigCard) -> bool:
    if entry.cards is not None and card.index not in entry.cards:
        return False
    if not entry.filters or (entry.cards is not None and card.capable is None):
        return True  # the model of a card that cannot be reached is unknown: to leave it out would hide that it is lost
    return any(
        each.device_id == card.device_id and each.subsystem_id in {None, card.subsystem_id} for each in entry.filters
    )
