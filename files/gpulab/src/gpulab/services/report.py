"""Usage reports: gather what was recorded, add it up, and put it into the form that pages and programs read.

Both sources are read wherever they are: samples of the light tiers, Slurm's accounting. So a report goes seamlessly
over a change of tier. Idle reclaim's sampler does not run in the slurm tier, so nothing is counted twice.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters import sacct
from ..adapters.sample_store import opened
from ..adapters.sample_usage import read_looks, read_waits
from ..rules import usage_jobs, usage_samples
from ..rules.quota_warn import SPACE
from ..rules.usage import HOUR, Stretch, Tally, Wait, Watch
from ..rules.usage_advice import LEAST_SECONDS, advise
from ..rules.usage_words import WORDS, dates, hours, percent, sentence
from .quota_check import look
from .quota_world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..rules.usage import Period, Usage, Waits
    from ..rules.usage_advice import Advice
    from ..settings import Settings

_GAP = HOUR
"""Seconds without a record that are a gap and not a pause of the machine."""


@dataclass(frozen=True)
class Sources:
    """Where records come from.

    Attributes:
        root: the folder that stands for `/`.
        slurm: whether Slurm's commands are here.
        job_lines: asks sacct for a time.
        node_cards: asks Slurm how many cards each node has.
        kept_since: asks Slurm since when its accounting is kept.
        disk: tells how many bytes members have on disk, by account; empty where nobody counts them.
    """

    root: Path = Path("/")
    slurm: Callable[[], bool] = field(default=sacct.installed)
    job_lines: Callable[[int, int], str] = field(default=sacct.job_lines)
    node_cards: Callable[[], Mapping[str, int]] = field(default=sacct.node_cards)
    kept_since: Callable[[], int | None] = field(default=sacct.kept_since)
    disk: Callable[[], Mapping[str, int]] = field(default=lambda: disk_use(World()))


@dataclass(frozen=True)
class Report:
    """A report in numbers.

    Attributes:
        usage: the sums.
        advice: suggestions.
        recorded: for how many seconds of the period there are records.
        disk: bytes that members have on disk now, by account.
    """

    usage: Usage
    advice: tuple[Advice, ...]
    recorded: float
    disk: Mapping[str, int] = field(default_factory=dict)


def make(
    period: Period,
    settings: Settings,
    now: int,
    sources: Sources | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Report:
    """Add up a period.

    Args:
        period: what it is about.
        settings: the server's.
        now: until when running jobs count, seconds since 1970.
        sources: where records come from.
        progress: told how much is done, 0 to 1, now and then.

    Raises:
        GpulabError: a source is there and cannot be read.
    """
    sources = sources or Sources()
    sums = Tally(period, settings.windows.table, settings.reclaim.percent)
    recorded = _Recorded()
    path = Path(names.under(sources.root, names.SAMPLES_FILE))
    if path.exists():
        distance = settings.reclaim.sample_seconds
        with opened(path) as db:
            looks = read_looks(db, int(period.begin), int(period.end + distance), progress)
            _add(sums, usage_samples.records(looks, distance), recorded)
            _add(sums, usage_samples.waits(read_waits(db, period.begin, period.end)), recorded)
    if sources.slurm():
        jobs = usage_jobs.parse(sources.job_lines(period.begin, period.end))
        sampled = recorded.stretches()
        _add(sums, usage_jobs.records(jobs, now, sources.node_cards(), sources.kept_since(), sampled), recorded)
    usage = sums.total()
    seconds = recorded.within(period)
    advice = advise(
        usage,
        tier=settings.lab.tier,
        windows=settings.windows.table,
        reclaim_mode=settings.reclaim.mode,
        watched_seconds=seconds,
    )
    return Report(usage, advice, seconds, sources.disk())


def disk_use(world: World) -> dict[str, int]:
    """Return how many bytes members have on the file systems with limits (role disk_quota), by account.

    Raises:
        GpulabError: the note of the limits cannot be understood.
        OSError: the caller is not root, or a file system does not answer.
    """
    used: Counter[str] = Counter()
    for reading in look(world).members:
        if reading.what == SPACE:
            used[reading.owner] += reading.used
    return dict(used)


class _Recorded:
    """When there are records; what is missing for less than an hour is no gap."""

    def __init__(self) -> None:
        self._stretches: list[tuple[float, float]] = []

    def add(self, watch: Watch) -> None:
        if self._stretches and self._stretches[-1][0] <= watch.begin <= self._stretches[-1][1] + _GAP:
            begin, end = self._stretches[-1]
            self._stretches[-1] = (begin, max(end, watch.end))
        else:
            self._stretches.append((watch.begin, watch.end))

    def stretches(self) -> list[tuple[float, float]]:
        """Return them in order and apart, seconds since 1970."""
        found: list[tuple[float, float]] = []
        for begin, end in sorted(self._stretches):
            if found and begin <= found[-1][1] + _GAP:
                found[-1] = (found[-1][0], max(found[-1][1], end))
            else:
                found.append((begin, end))
        return found

    def within(self, period: Period) -> float:
        found = self.stretches()
        return max(0.0, min(found[-1][1], period.end) - max(found[0][0], period.begin)) if found else 0.0


def _add(sums: Tally, records: Iterable[Stretch | Watch | Wait], recorded: _Recorded) -> None:
    for each in records:
        if isinstance(each, Stretch):
            sums.had(each)
        elif isinstance(each, Watch):
            sums.watched(each)
            recorded.add(each)
        else:
            sums.waited(each)


def describe(report: Report, lab: str, language: str, *, only: str | None = None) -> dict[str, Any]:
    """Put a report into the form that pages and programs read; what is unknown is None, never 0.

    Args:
        report: from `make`.
        lab: name of the lab.
        language: `en` or `zh`.
        only: the member who will read it: everybody else stays nameless, and suggestions are left out.
    """
    words, usage = WORDS[language], report.usage
    used, watched = usage.gpu_hours, usage.watched_hours
    share = percent(min(1.0, used / watched) if watched else None)
    members = []
    for number, each in enumerate(usage.members, start=1):
        shown = only is None or each.user == only
        members.append(
            {
                "user": each.user if shown else words["anonymous"].format(number=number),
                "runs": each.runs,
                "gpu_hours": each.gpu_hours,
                "share": each.share,
                **_waits(each.waits),
                "utilisation": each.utilisation,
                "measured": each.measured,
                "idle_hours": each.idle_hours,
                "disk": report.disk.get(each.user) if shown else None,
            }
        )
    return {
        "title": words["title"].format(lab=lab, **dates(usage.period)),
        "sum": words["sum"].format(used=hours(used), watched=hours(watched), share=share)
        if usage.members
        else words["nothing"],
        "begin": usage.period.begin,
        "end": usage.period.end,
        "recorded_hours": report.recorded / HOUR,
        "gpu_hours": used,
        "watched_hours": watched,
        "members": members,
        "places": [
            {"place": each.place, "cards": each.cards, "total": each.total, "occupancy": list(each.occupancy)}
            for each in usage.places
        ],
        "windows": [{"name": each.name, **_waits(each.waits), "occupancy": each.occupancy} for each in usage.windows],
        "advice": None
        if only is not None
        else [{"why": sentence(each, language), "inventory": list(each.inventory)} for each in report.advice],
        "no_advice": words["too_short" if report.recorded < LEAST_SECONDS else "no_advice"],
    }


def _waits(waits: Waits) -> dict[str, Any]:
    return {"waits": waits.count, "wait_mean": waits.mean, "wait_p95": waits.p95}


def table(document: dict[str, Any]) -> str:
    """Write the members of a report as CSV, for spreadsheet programs: head line, then one line each.

    A cell that a spreadsheet program would take for a formula begins with an apostrophe (OWASP, CSV injection).
    """
    columns = (
        *("user", "runs", "gpu_hours", "share", "waits", "wait_mean", "wait_p95"),
        *("utilisation", "measured", "idle_hours", "disk"),
    )
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(columns)
    for each in document["members"]:
        writer.writerow([_cell(each[column]) for column in columns])
    return stream.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return f"'{text}" if text[:1] in {"=", "+", "-", "@"} else text
