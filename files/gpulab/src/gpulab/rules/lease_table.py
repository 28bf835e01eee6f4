"""What gpu-status prints: every device, who has it, and who waits, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .display import fit, printable, width
from .lease_words import duration, gib

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_HEAD = ("card", "device", "used", "promised", "total", "who")
_RIGHT = {"used", "promised", "total"}
_GAP = "  "
_UNKNOWN = "?"


def table(document: Mapping[str, Any], columns: int) -> list[str]:
    """Write the broker's picture as lines of at most so many columns.

    Args:
        document: see services/lease_view.py, describe.
        columns: of the terminal.
    """
    leases = {lease["id"]: lease for lease in document["leases"]}
    rows = [row for device in document["devices"] for row in _rows(device, leases)]
    lines = [f"no cards: {_clean(document['reason'])}"] if document["reason"] else []
    if rows:
        lines += _aligned([_HEAD, *rows], columns)
        lines.append("memory in GiB; promised: what leases may use")
    lines += _line(document["queue"], columns)
    return lines


def _rows(device: Mapping[str, Any], leases: Mapping[int, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    who = [_holder(leases[number], device["uuid"]) for number in device["leases"] if number in leases]
    who += [f"without a lease: {_clean(stranger)}" for stranger in device["strangers"]]
    if device["reason"]:
        who.insert(0, f"cannot be given: {_clean(device['reason'])}")
    promised = gib(device["memory_promised"]) if device["leases"] else "-"
    first = (
        str(device["card"]),
        _device_name(device),
        _size(device["memory_used"]),
        promised,
        _size(device["memory_total"]),
        who[0] if who else "free",
    )
    return [first, *(("", "", "", "", "", text) for text in who[1:])]


def _device_name(device: Mapping[str, Any]) -> str:
    if device["mig"] and "(" in device["name"]:
        return _clean(f"MIG {device['name'].rpartition('(')[2].rstrip(')')}")
    return _clean(device["model"].removeprefix("NVIDIA ")) or _UNKNOWN


def _holder(lease: Mapping[str, Any], uuid: str) -> str:
    place = next(part for part in lease["devices"] if part["uuid"] == uuid)
    share = ""
    if place["shared"]:
        share = f" (shared, {_size(place['memory_used'])} of {gib(place['memory_promised'])})"
    if lease["stray"]:
        return f"{_clean(lease['user'])}: ended, but {_clean(lease['stray'])} has the card open"
    planned = f" of {lease['hours']:g} h" if lease["hours"] else ""
    return f"{_clean(lease['user'])}{share} for {duration(lease['seconds'])}{planned}: {_clean(lease['command'])}"


def _line(queue: Sequence[Mapping[str, Any]], columns: int) -> list[str]:
    if not queue:
        return []
    lines = [f"{len(queue)} waiting:"]
    for ticket in queue:
        memory = (
            "" if ticket["memory"] is None else f", {gib(ticket['memory'])} GiB{' shared' if ticket['shared'] else ''}"
        )
        cards = "1 card" if ticket["cards"] == 1 else f"{ticket['cards']} cards"
        why = f" ({_clean(ticket['why'])})" if ticket["why"] else ""
        text = (
            f"{ticket['position']:>4}. {_clean(ticket['user'])}, {cards}{memory}, for {duration(ticket['seconds'])}: "
            f"{_clean(ticket['command'])}{why}"
        )
        lines.append(fit(text, columns).rstrip())
    return lines


def _aligned(rows: Iterable[tuple[str, ...]], columns: int) -> list[str]:
    rows = list(rows)
    widths = [max(width(row[number]) for row in rows) for number in range(len(_HEAD) - 1)]
    lines = []
    for row in rows:
        cells = [
            " " * (size - width(cell)) + cell if name in _RIGHT else fit(cell, size)
            for name, cell, size in zip(_HEAD, row, widths, strict=False)
        ]
        lines.append(fit(_GAP.join([*cells, row[-1]]), columns).rstrip())
    return lines


def _size(size: int | None) -> str:
    return _UNKNOWN if size is None else gib(size)


def _clean(text: str) -> str:
    return printable(text)
