"""Reads the sample store for reports: who was on which card at each look, one look at a time.

Unlike `sample_history` it goes over all boots and a long time, so nothing is kept that a report has no use for.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from .. import names
from ..rules.usage_samples import Look, Seen

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

# The tables' keys begin with the time, so rows come in its order without sorting.
_TICKS = "SELECT at FROM ticks WHERE at > ? AND at <= ? ORDER BY at"
_CARDS = """SELECT s.at, c.gpu_index, s.state FROM card_samples s JOIN cards c ON c.id = s.card
WHERE s.at > ? AND s.at <= ? ORDER BY s.at"""
_USES = """SELECT s.at, c.gpu_index, p.user, p.boot, p.lease, p.pid, p.start_ticks, s.sm
FROM process_samples s JOIN processes p ON p.id = s.process JOIN cards c ON c.id = s.card
WHERE s.at > ? AND s.at <= ? AND p.uid >= ? ORDER BY s.at"""
_HOLDS = """SELECT s.at, c.gpu_index, p.user, p.boot, s.lease
FROM lease_samples s JOIN processes p ON p.id = s.process JOIN cards c ON c.id = s.card
WHERE s.at > ? AND s.at <= ? AND p.uid >= ? ORDER BY s.at"""
_LEASES = """SELECT DISTINCT p.user, p.boot, s.lease, s.asked, s.given
FROM lease_samples s JOIN processes p ON p.id = s.process
WHERE s.at > ? AND s.at <= ? AND p.uid >= ? AND s.asked IS NOT NULL AND s.given IS NOT NULL"""


def read_looks(
    db: sqlite3.Connection, begin: int, end: int, progress: Callable[[float], None] = lambda _: None
) -> Iterator[Look]:
    """Yield the looks of a time, oldest first; only what accounts of people did.

    Args:
        db: from `sample_store.opened`.
        begin: looks later than this, seconds since 1970.
        end: up to this.
        progress: told how much is done, 0 to 1, now and then.
    """
    span = (begin, end)
    cards = _by_time(db.execute(_CARDS, span))
    uses = _by_time(db.execute(_USES, (*span, names.UID_MIN)))
    holds = _by_time(db.execute(_HOLDS, (*span, names.UID_MIN)))
    for number, (at,) in enumerate(db.execute(_TICKS, span)):
        if number % 1000 == 0:
            progress((at - begin) / (end - begin))
        used = [_use(*row) for row in uses(at)]
        leased = {(seen.card, seen.run) for seen in used}
        held = (Seen(card, user, _lease(boot, lease), 0.0, process=False) for card, user, boot, lease in holds(at))
        yield Look(at, dict(cards(at)), (*used, *(each for each in held if (each.card, each.run) not in leased)))


def read_waits(db: sqlite3.Connection, begin: int, end: int) -> list[tuple[str, int, int]]:
    """Return user, time of asking and time of giving of the leases that were seen in a time, each once."""
    rows = db.execute(_LEASES, (begin, end, names.UID_MIN))
    return [(user, asked, given) for user, _, _, asked, given in rows]


def _use(card: int, user: str, boot: str, lease: int | None, pid: int, start_ticks: int, load: int | None) -> Seen:
    run = f"{boot} {pid}:{start_ticks}" if lease is None else _lease(boot, lease)
    return Seen(card, user, run, load)


def _lease(boot: str, lease: int) -> str:
    return f"{boot} lease {lease}"


def _by_time(rows: Iterator[Any]) -> Callable[[int], list[Any]]:
    """Return a function that gives the rest of the rows of a time; it is asked with ascending times."""
    groups = groupby(rows, key=itemgetter(0))
    ahead: defaultdict[int, list[Any]] = defaultdict(list)

    def at(time: int) -> list[Any]:
        while not ahead or max(ahead) < time:
            found = next(groups, None)
            if found is None:
                break
            ahead[found[0]] = [row[1:] for row in found[1]]
        return ahead.pop(time, [])

    return at
