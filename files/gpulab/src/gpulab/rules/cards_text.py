"""Cards as plain text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cards import Card, Cards, MigDevice, Process


def describe(cards: Cards) -> str:
    """Write what is known of each card, its MIG instances and its processes, one line each."""
    lines = []
    if cards.driver_version:
        cuda = f", CUDA up to {cards.cuda_version}" if cards.cuda_version else ""
        lines.append(f"driver {cards.driver_version}{cuda}")
    if cards.reason:
        lines.append(f"no cards: {cards.reason}")
    for card in cards.cards:
        lines.extend(_card(card))
    return "\n".join(lines)


def _card(card: Card) -> Iterator[str]:
    if card.lost:
        yield f"card {card.index}  LOST  {card.name}  {card.uuid}".rstrip()
    else:
        busy = "?" if card.utilization is None else card.utilization
        used, total = _mib(card.memory_used), _mib(card.memory_total)
        yield f"card {card.index}  {card.name or '?'}  {used} of {total} MiB  {busy} %  {card.uuid or '?'}"
    for device in card.mig_devices:
        yield _device(device)
    for process in card.processes or ():
        yield _process(process)
    if card.reason:
        yield f"    note: {card.reason}"


def _device(device: MigDevice) -> str:
    used, total = _mib(device.memory_used), _mib(device.memory_total)
    return f"    MIG {device.index}  {device.profile or '?'}  {used} of {total} MiB  {device.uuid}"


def _process(process: Process) -> str:
    place = "" if process.gpu_instance is None else f"  GI {process.gpu_instance} CI {process.compute_instance}"
    user, command = process.user or "?", process.command or "(ended)"
    return f"    pid {process.pid}  {user}  {process.kind}  {_mib(process.memory)} MiB{place}  {command}"


def _mib(size: int | None) -> str:
    return "?" if size is None else str(size >> 20)
