"""The hardware ledger as people read it: GPU_INFO.md and gpu_inventory.csv."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from .ledger import SHOWN, Change, mib, mig_layout, mig_state
from .ledger_words import ENGLISH, LANGUAGES
from .quota_warn import SPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .cards import Card, Cards
    from .machine import Disk, Machine
    from .quota_warn import Reading

_CHANGE_WORDS = {"lost": "card lost", "cpu": "cpu changed", "ram": "ram changed"}
"""Kinds of change whose sentence has another name than the kind."""


def inventory(cards: Cards) -> str:
    """Write the card list: the columns of `nvidia-smi --query-gpu=index,name,memory.total,memory.used --format=csv`.

    What is unknown, and a lost card's everything, is `[N/A]` as nvidia-smi writes it.
    """
    rows = ["index, name, memory.total [MiB], memory.used [MiB]"]
    rows += [
        f"{card.index}, {_line(card.name) or '[N/A]'}, {mib(card.memory_total)}, {mib(card.memory_used)}"
        for card in cards.cards
    ]
    return "\n".join(rows) + "\n"


def owners_of(bindings: Mapping[str, str]) -> dict[str, str]:
    """Return UUID of a MIG instance to the account names of those whom it is bound to, from the other way round."""
    owners: dict[str, list[str]] = {}
    for user, uuid in sorted(bindings.items()):
        owners.setdefault(uuid, []).append(user)
    return {uuid: ", ".join(users) for uuid, users in owners.items()}


def page(
    cards: Cards,
    machine: Machine,
    history: Sequence[Change],
    when: str,
    language: str,
    owners: Mapping[str, str] | None = None,
) -> str:
    """Write the ledger in Markdown.

    Args:
        cards: as read.
        machine: as read.
        history: all changes, oldest first.
        when: time of measurement, ISO 8601.
        language: `en` or `zh`; any other is written in English.
        owners: UUID of a MIG instance to the account names of those whom it is bound to.
    """
    words = LANGUAGES.get(language, ENGLISH)
    parts = (
        [f"# {words['title'].format(hostname=machine.hostname)}", "", words["written"].format(when=when)],
        [f"## {words['cards']}", "", *_cards(cards, words)],
        _instances(cards, owners or {}, words),
        [f"## {words['machine']}", "", *_machine(machine, words)],
        [f"## {words['disks']}", "", *_table(words["disk head"], (_disk(disk, words) for disk in machine.disks))],
        _quotas(machine, words),
        [f"## {words['history']}", "", *_history(history, words)],
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def without_measurements(cards: Cards, machine: Machine) -> tuple[Cards, Machine]:
    """Blank what differs from minute to minute, so that two pages differ only when a fact does."""
    still = (
        replace(
            card,
            memory_used=None,
            memory_free=None,
            utilization=None,
            processes=None,
            reason=card.reason if card.lost else "",
            mig_devices=tuple(replace(device, memory_used=None, memory_free=None) for device in card.mig_devices),
        )
        for card in cards.cards
    )
    disks = (replace(disk, total=None, free=None, reason="") for disk in machine.disks)
    quotas = (replace(reading, used=0) for reading in machine.quotas)
    return replace(cards, cards=tuple(still)), replace(
        machine, disks=tuple(disks), quotas=tuple(quotas), quota_reason=""
    )


def _history(history: Sequence[Change], words: Mapping[str, str]) -> Iterator[str]:
    runs = [list(changes) for _, changes in groupby(history[-SHOWN:], key=attrgetter("when"))]
    for changes in reversed(runs):  # the newest run first, within a run from the machine to the last card
        yield from (f"- {sentence(change, words)}" for change in changes)


def sentence(change: Change, words: Mapping[str, str] = ENGLISH) -> str:
    """Say one change: when and what."""
    # A kind that this version does not know may come from a newer one before a rollback.
    text = words.get(_CHANGE_WORDS.get(change.kind, change.kind), "{kind}: {before} -> {after}").format(
        kind=change.kind,
        card=change.card,
        before=_value(change, change.before, words),
        after=_value(change, change.after, words),
    )
    return f"{change.when}: {text}"


def _value(change: Change, value: str, words: Mapping[str, str]) -> str:
    if change.kind == "mig":
        return _mig_words(value, words)
    return _line(value) or words["none"]


def _cards(cards: Cards, words: Mapping[str, str]) -> Iterator[str]:
    if cards.driver_version:
        unknown = words["unknown"]
        yield words["versions"].format(
            driver=cards.driver_version, cuda=cards.cuda_version or unknown, nvml=cards.nvml_version or unknown
        )
        yield ""
    if cards.reason:
        yield words["no cards"].format(reason=_line(cards.reason))
        return
    yield from _table(words["card head"], (_card(card, cards, words) for card in cards.cards))
    notes = [
        f"- {words['card note'].format(index=card.index, reason=_line(card.reason))}"
        for card in cards.cards
        if card.reason
    ]
    if notes:
        yield from ("", *notes)


def _card(card: Card, cards: Cards, words: Mapping[str, str]) -> tuple[str, ...]:
    if card.lost:
        return (str(card.index), card.name or words["lost"], words["lost"], "", "", "", card.uuid)
    return (
        str(card.index),
        card.name or words["unknown"],
        _memory(card.memory_total, words),
        _memory(card.memory_used, words),
        _links(card, cards, words),
        _mig(card, words),
        card.uuid or words["unknown"],
    )


def _links(card: Card, cards: Cards, words: Mapping[str, str]) -> str:
    if not card.nvlinks:
        return words["none"]
    up = [link for link in card.nvlinks if link.active]
    text = words["links"].format(up=len(up), all=len(card.nvlinks))
    numbers = {_bus(other.bus_id): other.index for other in cards.cards if other.bus_id}
    ends = Counter(_bus(link.remote_bus_id) for link in up if link.remote_bus_id)
    where = [
        words["links to card"].format(count=count, card=numbers[bus_id])
        if bus_id in numbers
        else words["links to other"].format(count=count, bus_id=bus_id)
        for bus_id, count in sorted(ends.items())
    ]
    return words["colon"].join((text, words["comma"].join(where))) if where else text


def _bus(bus_id: str) -> str:
    """Write a PCI address one way: NVML gives the domain with 4 or with 8 digits."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.zfill(8)}:{rest}"


def _mig(card: Card, words: Mapping[str, str]) -> str:
    layout = mig_layout(card)
    mode = _mig_words(mig_state(card), words)
    return words["colon"].join((mode, layout)) if layout else mode


def _mig_words(state: str, words: Mapping[str, str]) -> str:
    return words.get(f"mig {state}", words["unknown"])


def _instances(cards: Cards, owners: Mapping[str, str], words: Mapping[str, str]) -> list[str]:
    rows = [
        (
            str(card.index),
            str(device.index),
            device.profile or words["unknown"],
            _memory(device.memory_total, words),
            _memory(device.memory_used, words),
            owners.get(device.uuid, ""),
            device.uuid,
        )
        for card in cards.cards
        for device in card.mig_devices
    ]
    return [f"### {words['instances']}", "", *_table(words["instance head"], rows)] if rows else []


def _machine(machine: Machine, words: Mapping[str, str]) -> Iterator[str]:
    unknown = words["unknown"]
    yield "- " + words["cpu"].format(
        sockets=machine.sockets or 1,
        cpu=_line(machine.cpu) or unknown,
        cores=machine.cores or unknown,
        threads=machine.threads or unknown,
    )
    yield "- " + words["ram"].format(ram=size(machine.memory) or unknown)


def _disk(disk: Disk, words: Mapping[str, str]) -> tuple[str, ...]:
    if disk.total is None or disk.free is None:
        return disk.path, words.get(disk.reason, disk.reason) or words["unknown"], ""
    share = f" ({100 * disk.free // disk.total} %)" if disk.total else ""
    return disk.path, size(disk.total), size(disk.free) + share


def _quotas(machine: Machine, words: Mapping[str, str]) -> list[str]:
    if machine.quota_reason:
        return [f"## {words['quotas']}", "", words["quotas unknown"].format(reason=_line(machine.quota_reason))]
    rows = [
        (
            reading.owner,
            reading.path,
            _amount(reading, reading.used, words),
            _amount(reading, reading.soft, words) if reading.soft else words["none"],
            _amount(reading, reading.hard, words) if reading.hard else words["none"],
            f"{reading.share} %" if reading.hard or reading.soft else "",
        )
        for reading in machine.quotas
    ]
    table = list(_table(words["quota head"], rows)) if rows else []
    off = [words["quotas off"].format(paths=words["comma"].join(map(_line, machine.quota_off)))]
    parts = [part for part in (table, off if machine.quota_off else []) if part]
    return [f"## {words['quotas']}", *(line for part in parts for line in ("", *part))] if parts else []


def _amount(reading: Reading, count: int, words: Mapping[str, str]) -> str:
    return size(count) if reading.what == SPACE else words["files"].format(count=count)


def size(count: int | None) -> str:
    """Write a number of bytes in binary units, such as `1.5 TiB`; empty when unknown."""
    if count is None:
        return ""
    number, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if number < 1024 or unit == "PiB":  # noqa: PLR2004 - what binary units are made of
            break
        number /= 1024
    return f"{number:.0f} {unit}" if number >= 100 or unit == "B" else f"{number:.1f} {unit}"  # noqa: PLR2004 - digits


def _memory(count: int | None, words: Mapping[str, str]) -> str:
    return words["unknown"] if count is None else mib(count)


def _table(head: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {head} |"
    yield "|" + "---|" * (head.count("|") + 1)
    for row in rows:
        yield "| " + " | ".join(_line(cell) for cell in row) + " |"


def _line(text: str) -> str:
    """Keep a value within its line and its cell, whatever it holds."""
    return "".join(character if character.isprintable() else "?" for character in text).replace("|", "/").strip()
