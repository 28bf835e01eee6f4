"""What the hardware ledger remembers: facts that stay until somebody changes the machine, and how they changed.

Used memory, free space and running processes are measurements, not facts: that they differ from last time is no change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .cards import Card, Cards
    from .machine import Machine

SHOWN = 20
"""How many changes the page shows, the newest ones."""

KEPT = 200
"""How many changes are kept."""

_RAM_TOLERANCE = 0.02
"""The kernel keeps a little memory for itself, and another kernel another little: that is no new memory."""


@dataclass(frozen=True)
class CardFacts:
    """What stays true of a card.

    Attributes:
        index: NVML index.
        uuid: empty when it was never read.
        name: model, likewise.
        memory: bytes, None when never read.
        nvlinks: links that are up.
        mig: empty when unknown, `no` when the card cannot, else `off`, `on`, `off, on after reset` or
            `on, off after reset`.
        layout: profiles of its MIG instances, such as `1g.10gb, 2 x 3g.40gb`; empty without any.
        lost: fallen off the bus.
    """

    index: int
    uuid: str = ""
    name: str = ""
    memory: int | None = None
    nvlinks: int = 0
    mig: str = ""
    layout: str = ""
    lost: bool = False

    @property
    def label(self) -> str:
        """Name and UUID, as the history shows a card."""
        return f"{self.name} ({self.uuid})" if self.uuid else "?"


@dataclass(frozen=True)
class Facts:
    """What stays true of the machine.

    Attributes:
        driver: driver version; the last one known while the cards cannot be read.
        unreadable: why no card can be read; empty when they can.
        cards: in order of index; the last ones known while they cannot be read.
        cpu: processor model.
        ram: bytes, None when unknown.
    """

    driver: str = ""
    unreadable: str = ""
    cards: tuple[CardFacts, ...] = ()
    cpu: str = ""
    ram: int | None = None


@dataclass(frozen=True)
class Change:
    """One line of history, in no language yet.

    Attributes:
        when: local time with its offset, ISO 8601.
        kind: which sentence; `ledger_words` has them.
        card: the card's index; None when it is not about one.
        before: what was.
        after: what is.
    """

    when: str
    kind: str
    card: int | None = None
    before: str = ""
    after: str = ""


def mig_state(card: Card) -> str:
    """Say a card's MIG capability and mode; see `CardFacts.mig` for the words."""
    if card.mig_capable is None or (card.mig_capable and card.mig_enabled is None):
        return ""
    if not card.mig_capable:
        return "no"
    current, pending = ("on" if mode else "off" for mode in (card.mig_enabled, card.mig_pending))
    return current if current == pending else f"{current}, {pending} after reset"


def mig_layout(card: Card) -> str:
    """Say which MIG instances a card has, equal ones counted."""
    counts = Counter(device.profile or "?" for device in card.mig_devices)
    return ", ".join(profile if count == 1 else f"{count} x {profile}" for profile, count in sorted(counts.items()))


def facts_of(cards: Cards, machine: Machine, previous: Facts | None) -> Facts:
    """Pick the facts from what was read; what could not be read now keeps its last known value.

    Args:
        cards: as read.
        machine: as read.
        previous: facts of the last time; None the first time.
    """
    known = previous.cards if previous else ()
    by_uuid = {card.uuid: card for card in known}
    by_index = {card.index: card for card in known}
    seen = tuple(
        replace(by_index[card.index], lost=card.lost)
        if not card.uuid and card.index in by_index
        else _card_facts(card, by_uuid.get(card.uuid))
        for card in cards.cards
    )
    return Facts(
        driver=cards.driver_version or (previous.driver if previous else ""),
        unreadable=cards.reason,
        cards=known if cards.reason else seen,
        cpu=machine.cpu or (previous.cpu if previous else ""),
        ram=machine.memory or (previous.ram if previous else None),
    )


def _card_facts(card: Card, previous: CardFacts | None) -> CardFacts:
    mig = mig_state(card)
    return CardFacts(
        index=card.index,
        uuid=card.uuid,
        name=card.name,
        memory=card.memory_total if card.memory_total is not None or previous is None else previous.memory,
        nvlinks=sum(link.active for link in card.nvlinks),
        mig=mig if mig or previous is None else previous.mig,
        layout=mig_layout(card) if mig or previous is None else previous.layout,
        lost=card.lost,
    )


def compare(before: Facts | None, after: Facts, when: str) -> tuple[Change, ...]:
    """List what changed, in the order that a reader wants it: the whole machine first, then card by card.

    Args:
        before: the facts of the last time; None the first time.
        after: the facts of now.
        when: local time with its offset, ISO 8601.
    """
    if before is None:
        return (Change(when, "begun", after=after.unreadable or str(len(after.cards))),)
    return tuple(replace(change, when=when) for change in (*_of_machine(before, after), *_of_cards(before, after)))


def _of_machine(before: Facts, after: Facts) -> Iterable[Change]:
    if before.unreadable != after.unreadable:
        kind = "unreadable" if after.unreadable else "readable"
        yield Change("", kind, before=before.unreadable, after=after.unreadable)
    if before.driver != after.driver:
        yield Change("", "driver", before=before.driver, after=after.driver)
    if before.cpu != after.cpu:
        yield Change("", "cpu", before=before.cpu, after=after.cpu)
    if before.ram and after.ram and abs(after.ram - before.ram) > _RAM_TOLERANCE * before.ram:
        yield Change("", "ram", before=_gib(before.ram), after=_gib(after.ram))


def _of_cards(before: Facts, after: Facts) -> Iterable[Change]:
    old = {_key(card): card for card in before.cards}
    new = {_key(card): card for card in after.cards}
    gone = {card.index: card for key, card in old.items() if key not in new}
    fresh = {card.index: card for key, card in new.items() if key not in old}
    for index in sorted(gone.keys() | fresh.keys()):
        if index in gone and index in fresh:
            # A card without UUID was lost when the ledger began: now it can be told which one it is.
            kind = "swapped" if gone[index].uuid else "back"
            yield Change("", kind, index, gone[index].label, fresh[index].label)
        elif index in gone:
            yield Change("", "removed", index, before=gone[index].label)
        else:
            yield Change("", "added", index, after=fresh[index].label)
    for key, card in new.items():
        if key in old:
            yield from _of_card(old[key], card)


def _of_card(old: CardFacts, new: CardFacts) -> Iterable[Change]:
    if old.index != new.index:
        yield Change("", "moved", new.index, str(old.index), new.label)
    if old.lost != new.lost:
        yield Change("", "lost" if new.lost else "back", new.index, after=new.label)
    if old.memory != new.memory:
        yield Change("", "memory", new.index, mib(old.memory), mib(new.memory))
    if old.nvlinks != new.nvlinks:
        yield Change("", "nvlinks", new.index, str(old.nvlinks), str(new.nvlinks))
    if old.mig != new.mig:
        yield Change("", "mig", new.index, old.mig, new.mig)
    if old.layout != new.layout:
        yield Change("", "layout", new.index, old.layout, new.layout)


def _key(card: CardFacts) -> str:
    return card.uuid or f"card {card.index}"


def mib(size: int | None) -> str:
    """Write a card's memory as nvidia-smi does, such as `81920 MiB`; `[N/A]` when unknown."""
    return "[N/A]" if size is None else f"{size >> 20} MiB"


def _gib(size: int) -> str:
    return f"{size / 2**30:.0f} GiB"


def to_document(facts: Facts, history: Iterable[Change]) -> dict[str, Any]:
    """Return facts and history as plain data for a JSON file."""
    return {"facts": asdict(facts), "history": [asdict(change) for change in history]}


def from_document(document: Mapping[str, Any]) -> tuple[Facts, tuple[Change, ...]]:
    """Take facts and history back from plain data, also from that of an older or newer gpulab.

    Raises:
        ValueError: it is not what `to_document` made.
    """
    try:
        facts = dict(document["facts"])
        facts["cards"] = tuple(_build(CardFacts, card) for card in facts["cards"])
        return _build(Facts, facts), tuple(_build(Change, change) for change in document["history"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a ledger: {error!r}") from error


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    return kind(**{item.name: values[item.name] for item in fields(kind) if item.name in values})
