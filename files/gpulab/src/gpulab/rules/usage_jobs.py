"""From Slurm's accounting to time: `sacct --allocations --duplicates --parsable2` (Slurm 21.08 to 24.11)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .usage import Stretch, Wait, Watch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

FIELDS = ("JobIDRaw", "User", "Eligible", "Start", "End", "AllocTRES", "NodeList")
"""What is asked of sacct, in this order; times as seconds since 1970 (SLURM_TIME_FORMAT=%s)."""

_BRACKETS = re.compile(r"([^,\[]*)\[([^\]]*)\]([^,\[]*)|([^,\[]+)")
_GPU = "gres/gpu"
_MOST_NODES = 10_000


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a job; a requeued job has several with the same number.

    Attributes:
        number: job id.
        user: account name.
        eligible: when it could have started, seconds since 1970; None when Slurm does not say.
        start: seconds since 1970; None when it never started.
        end: seconds since 1970; None while it runs.
        cards: how many cards (or MIG instances) it has.
        nodes: where.
    """

    number: str
    user: str
    eligible: int | None
    start: int | None
    end: int | None
    cards: int
    nodes: tuple[str, ...]


def parse(text: str) -> Iterator[Job]:
    """Read sacct's lines; those that are not of our fields are passed over."""
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == len(FIELDS):
            number, user, eligible, start, end, resources, nodes = parts
            yield Job(number, user, _time(eligible), _time(start), _time(end), _cards(resources), expand(nodes))


def _time(text: str) -> int | None:
    """Read a time; Slurm writes Unknown, None or nothing for what has not happened."""
    return int(text) if text.isdigit() and text != "0" else None


def _cards(resources: str) -> int:
    """Count the cards of `billing=4,gres/gpu:a100=2,gres/gpu=2,mem=8G`: the sum if there is one, else by type."""
    counts = dict(part.partition("=")[::2] for part in resources.split(","))
    if _GPU in counts:
        return _number(counts[_GPU])
    return sum(_number(count) for name, count in counts.items() if name.startswith(f"{_GPU}:"))


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def expand(nodes: str) -> tuple[str, ...]:
    """Write out Slurm's short form of host names: `a[1-3,07],b` (slurm.conf(5), NodeName)."""
    found: list[str] = []
    for head, inside, tail, plain in _BRACKETS.findall(nodes):
        if plain:
            found.append(plain)
            continue
        for part in inside.split(","):
            first, _, last = part.partition("-")
            if first.isdigit() and (last or first).isdigit() and int(last or first) - int(first) < _MOST_NODES:
                numbers = range(int(first), int(last or first) + 1)
                found += [f"{head}{number:0{len(first)}}{tail}" for number in numbers]
    return tuple(name for name in found if name and name != "None assigned")


def records(
    jobs: Iterable[Job],
    now: int,
    cards: Mapping[str, int],
    since: int | None = None,
    elsewhere: Collection[tuple[float, float]] = (),
) -> Iterator[Stretch | Watch | Wait]:
    """Turn jobs into time.

    Each run of a requeued job counts with its own time and its own wait. A node's cards are taken for watched since the
    accounting is kept, or from the first job on that has any, if that was earlier; but not while somebody else watched
    them: then Slurm was away.

    Args:
        jobs: from `parse`.
        now: until when running jobs count, seconds since 1970.
        cards: how many cards each node has.
        since: since when the accounting is kept, seconds since 1970; None when that is not known.
        elsewhere: stretches that another record covers, in order and apart, seconds since 1970.
    """
    first = now if since is None else min(since, now)
    for job in jobs:
        if job.start is None or not job.cards or not job.nodes:
            continue
        first = min(first, job.start)
        end = now if job.end is None else max(job.start, job.end)
        for node in job.nodes:
            yield Stretch(job.user, f"job {job.number}", node, job.start, end, job.cards / len(job.nodes))
        if job.eligible is not None:
            yield Wait(job.user, job.eligible, max(0, job.start - job.eligible))
    watched = _without(first, now, elsewhere)
    for node, count in cards.items():
        if count:
            yield from (Watch(node, begin, end, count) for begin, end in watched)


def _without(begin: float, end: float, holes: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return what is left of a stretch of time."""
    left = []
    for hole_begin, hole_end in holes:
        if begin < min(hole_begin, end):
            left.append((begin, min(hole_begin, end)))
        begin = max(begin, hole_end)
    return [*left, (begin, end)] if begin < end else left
