"""Reads the sample store (schema: adapters/sample_store.py) without ever writing to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ..rules.samples import CardSample, Hold, Runner, Tick, Use
from .sample_store import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

T = TypeVar("T")

_MIB = 1 << 20

_CARDS = """SELECT s.at, c.gpu_index, c.uuid, s.state, s.utilization, s.memory_used, c.memory_total
FROM card_samples s JOIN cards c ON c.id = s.card WHERE s.at >= ? ORDER BY s.at, c.gpu_index"""
_USES = """SELECT s.at, c.gpu_index, s.instance, s.memory, s.sm, s.cpu_ms,
p.pid, p.start_ticks, p.uid, p.user, p.command, p.lease
FROM process_samples s JOIN processes p ON p.id = s.process JOIN cards c ON c.id = s.card
WHERE s.at >= ? AND p.boot = ? ORDER BY s.at, c.gpu_index, p.pid"""
_HOLDS = """SELECT s.at, c.gpu_index, s.lease, s.shared, s.promised, s.asked, s.given,
p.pid, p.start_ticks, p.uid, p.user, p.command, p.lease
FROM lease_samples s JOIN processes p ON p.id = s.process JOIN cards c ON c.id = s.card
WHERE s.at >= ? AND p.boot = ? ORDER BY s.at, s.lease, c.gpu_index"""


def read_looks(path: Path, since: int, boot: str) -> tuple[Tick, ...]:
    """Return the looks since a time, oldest first, with the processes of one boot.

    Args:
        path: the store.
        since: seconds since 1970.
        boot: names the boot (see `sample_store.SampleWriter`).

    Raises:
        FileNotFoundError: there is no store yet.
        DamagedStoreError: the file is broken.
        StoreError: it cannot be read.
    """
    with opened(path) as db:
        reasons = dict(db.execute("SELECT at, reason FROM ticks WHERE at >= ? ORDER BY at", (since,)))
        cards = _by_time(db.execute(_CARDS, (since,)), _card)
        runners: dict[tuple[int, int], Runner] = {}
        uses = _by_time(db.execute(_USES, (since, boot)), lambda *row: _use(runners, *row))
        holds = _by_time(db.execute(_HOLDS, (since, boot)), lambda *row: _hold(runners, *row))
    return tuple(
        Tick(at, tuple(cards.get(at, ())), tuple(uses.get(at, ())), tuple(holds.get(at, ())), reason)
        for at, reason in reasons.items()
    )


def _by_time(rows: Iterable[Any], make: Callable[..., T]) -> dict[int, list[T]]:
    found: dict[int, list[T]] = {}
    for at, *row in rows:
        found.setdefault(at, []).append(make(*row))
    return found


def _card(
    index: int, uuid: str, state: str, utilization: int | None, used: int | None, total: int | None
) -> CardSample:
    return CardSample(index, uuid, state, utilization, _bytes(used), _bytes(total))


def _runner(runners: dict[tuple[int, int], Runner], pid: int, start_ticks: int, *rest: Any) -> Runner:
    return runners.setdefault((pid, start_ticks), Runner(pid, start_ticks, *rest))


def _use(runners: dict[tuple[int, int], Runner], card: int, instance: int, memory: int | None, *rest: Any) -> Use:
    sm, cpu_ms, *who = rest
    return Use(_runner(runners, *who), card, instance, _bytes(memory), sm, cpu_ms)


def _hold(
    runners: dict[tuple[int, int], Runner], card: int, lease: int, shared: int, promised: int, *rest: Any
) -> Hold:
    asked, given, *who = rest
    return Hold(lease, _runner(runners, *who), card, bool(shared), promised * _MIB, asked, given)


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * _MIB
