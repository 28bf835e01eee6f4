"""Why a job waits, or has the priority it has: Slurm's answers turned into sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from .display import printable
from .slurm_why_words import EN, ZH
from .windows import verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from .window_table import Window

_FIELD = re.compile(r"(?:^| )([A-Z][A-Za-z]*(?:/[A-Za-z]+)?)=(.*?)(?= [A-Z][A-Za-z:/]*=|$)")
_TRES_CARDS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_DURATION = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")
_MOST_HOLDERS = 8
_NAME_LIMIT = 40
_WINDOW_REASONS = {"QOSMaxGRESPerJob", "QOSMaxWallDurationPerJobLimit"}


@dataclass(frozen=True)
class Job:
    """A job that waits or runs.

    Attributes:
        number: as members write it.
        user: whose it is.
        state: PENDING, RUNNING, ...
        reason: why it waits, Slurm's word.
        klass: its QOS.
        partition: its partition.
        cards: how many it asks for, or has.
        minutes: longest time it runs; None for no limit.
        since: when it was submitted or started.
        until: when it ends at the latest; empty when unknown.
        start: when Slurm expects to start it; empty when unknown.
        eligible: before that it cannot start.
        dependency: which jobs it waits for.
        priority: as Slurm counts it.
        nice: what is taken off the priority.
    """

    number: str
    user: str
    state: str
    reason: str
    klass: str
    partition: str
    cards: int
    minutes: int | None
    since: str
    until: str = ""
    start: str = ""
    eligible: str = ""
    dependency: str = ""
    priority: int = 0
    nice: int = 0


@dataclass(frozen=True)
class Holder:
    """A running job that has cards."""

    number: str
    user: str
    cards: int
    until: str


@dataclass(frozen=True)
class Waiting:
    """A job in the queue, with its priority."""

    number: str
    user: str
    priority: int


@dataclass(frozen=True)
class Scene:
    """What else counts.

    Attributes:
        cards: how many cards there are.
        holders: who has them.
        queue: waiting jobs that could start, highest priority first.
        factors: name of each part of the priority to its points.
        most: name to the most it can be.
        card_limit: cards that the job's user may have at once; None for no limit.
        job_limit: jobs that the user may run at once; None likewise.
        preemptible: partitions whose jobs make room for others.
        windows: the golden hours.
        now: server time, naive.
    """

    cards: int = 0
    holders: Sequence[Holder] = ()
    queue: Sequence[Waiting] = ()
    factors: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    card_limit: int | None = None
    job_limit: int | None = None
    preemptible: Collection[str] = ()
    windows: Collection[Window] = ()
    now: datetime = datetime.min  # noqa: DTZ901 - naive server time, as everywhere


def parse_job(line: str) -> Job:
    """Read one line of `scontrol --oneliner show job`."""
    fields = dict(_FIELD.findall(line.strip()))
    array = fields.get("ArrayJobId", "")
    number = f"{array}_{fields.get('ArrayTaskId', '')}" if array else fields.get("JobId", "")
    running = fields.get("JobState", "") != "PENDING"
    # Slurm 22.05 has one field for what was asked for and what was given.
    tres = fields.get("AllocTRES" if running else "ReqTRES") or fields.get("TRES", "")
    found = _TRES_CARDS.search(tres)
    return Job(
        number=number,
        user=fields.get("UserId", "").partition("(")[0],
        state=fields.get("JobState", ""),
        reason=fields.get("Reason", "None").partition(",")[0].partition("_of_")[0],
        klass=fields.get("QOS", ""),
        partition=fields.get("Partition", ""),
        cards=int(found[1]) if found else 0,
        minutes=parse_minutes(fields.get("TimeLimit", "")),
        since=_moment(fields.get("StartTime" if running else "SubmitTime", "")),
        until=_moment(fields.get("EndTime", "")),
        start=_moment(fields.get("StartTime", "")),
        eligible=_moment(fields.get("EligibleTime", "")),
        dependency=fields.get("Dependency", "").strip("()"),
        priority=int(fields.get("Priority", "0")),
        nice=int(fields.get("Nice", "0")),
    )


def parse_minutes(text: str) -> int | None:
    """Read a duration such as `1-04:00:00`; None when there is no limit."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + minutes


def _moment(text: str) -> str:
    """Shorten Slurm's `2026-12-01T23:26:34`; empty when there is none."""
    return text[:16].replace("T", " ") if re.match(r"\d{4}-", text) else ""


def explain(job: Job, scene: Scene, *, language: str) -> Iterator[str]:
    """Yield the lines that explain a job.

    Args:
        job: the job.
        scene: what else counts.
        language: `en` or `zh`.
    """
    words = ZH if language == "zh" else EN
    shared = {
        "job": job.number,
        "user": printable(job.user, _NAME_LIMIT),
        "klass": job.klass,
        "cards": count(job.cards, words),
        "length": _length(job.minutes),
        "since": job.since,
        "until": job.until or "?",
        "state": job.state,
    }
    if job.state == "RUNNING":
        yield words["runs"].format_map(shared)
        if job.partition in scene.preemptible:
            yield words["preemptible"]
        return
    if job.state != "PENDING":
        yield words["other"].format_map(shared)
        return
    yield words["waits"].format_map(shared)
    yield _reason(job, scene, words, language)
    if job.reason in {"Resources", "Priority"}:
        yield from _line(job, scene, words)
    if scene.factors:
        yield from _priority(job, scene, words)


def count(cards: int, words: Mapping[str, str]) -> str:
    """Write a number of cards."""
    return words["no cards" if not cards else "card" if cards == 1 else "cards"].format(count=cards)


def _length(minutes: int | None) -> str:
    if minutes is None:
        return "∞"
    return f"{minutes / 60:g} h" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004 - an hour


def _reason(job: Job, scene: Scene, words: Mapping[str, str], language: str) -> str:
    if job.reason in _WINDOW_REASONS:
        hours = None if job.minutes is None else job.minutes / 60
        judged = verdict(scene.windows, cards=job.cards, start=scene.now, hours=hours)
        if judged.rule(language):
            return words["window"].format(rule=judged.rule(language))
    values = {
        "job": job.number,
        "limit": scene.job_limit if job.reason == "AssocMaxJobsLimit" else scene.card_limit,
        "eligible": job.eligible or "?",
        "dependency": job.dependency,
        "reason": printable(job.reason, _NAME_LIMIT),
    }
    return words.get(job.reason, words["unknown"]).format_map(values)


def _line(job: Job, scene: Scene, words: Mapping[str, str]) -> Iterator[str]:
    ahead = [each for each in scene.queue if each.priority > job.priority]
    if ahead:
        first = ahead[0]
        yield words["ahead"].format(
            count=len(ahead),
            first=first.number,
            user=printable(first.user, _NAME_LIMIT),
            priority=first.priority,
            own=job.priority,
        )
    else:
        yield words["first"]
    used = sum(holder.cards for holder in scene.holders)
    if job.cards:
        yield words["free"].format(free=max(0, scene.cards - used), total=scene.cards)
        for holder in scene.holders[:_MOST_HOLDERS]:
            yield words["holder"].format(
                job=holder.number,
                user=printable(holder.user, _NAME_LIMIT),
                cards=count(holder.cards, words),
                until=holder.until or "?",
            )
        if len(scene.holders) > _MOST_HOLDERS:
            yield words["more holders"].format(count=len(scene.holders) - _MOST_HOLDERS)
    if job.start:
        yield words["start"].format(start=job.start)


def _priority(job: Job, scene: Scene, words: Mapping[str, str]) -> Iterator[str]:
    yield words["priority"].format(total=job.priority)
    known = 0
    for name, points in scene.factors.items():
        known += points
        if points or scene.most.get(name):
            said = words[name].format(klass=job.klass, most=scene.most.get(name, 0))
            yield words["factor"].format(points=f"{points:+d}", name=said)
    if job.nice:
        known -= job.nice
        yield words["factor"].format(points=f"{-job.nice:+d}", name=words["nice"])
    if job.priority - known and job.priority > 1:
        yield words["factor"].format(points=f"{job.priority - known:+d}", name=words["rest"])
