"""The two lines that members see at login: which cards are free, and what is theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .calendar_view import ranges
from .display import fit, printable, width
from .overview import BOOKED, BROKEN, FREE, LEASES, RUNNING, SHEET, SLURM, WAITING

if TYPE_CHECKING:
    from datetime import datetime

    from .overview import Overview, Work

LANGUAGES = ("en", "zh")

_COLUMNS = 110
"""The most that one line takes, so that it is two lines on most terminals and never a page."""

_WHAT_COLUMNS = 24
_NAME = 24
_MOST_CARDS = 8
_MOST_WORK = 2
_MOST_DISKS = 2

WORDS: dict[str, dict[str, str]] = {
    "en": {
        "free": "GPU: {free} of {total} {cards} free",
        "none": "GPU: none of {total} {cards} free",
        "all cards": "cards",
        "all instances": "cards and instances",
        "which": ": {names}",
        "broken": "; cannot be used now: {names}",
        "waiting": "; {count} waiting",
        "unknown": "GPU: unknown which cards are free: {reason}",
        "stale": "(as of {time}) {line}",
        "more": " and {count} more",
        "joint": ", ",
        "yours": "Yours: {parts}",
        "part": "; ",
        "nothing table": "Yours: no booking; gpu-schedule add makes one",
        "nothing allocator": "Yours: nothing runs on a card; allocate_gpu gives you one",
        "nothing slurm": "Yours: no job runs or waits; sbatch gives Slurm one",
        "unknown yours": "Yours: unknown",
        "cards": "card {cards}",
        "count": "{count} card(s)",
        "until": " until {end}",
        "from": " from {start}",
        "waits": " waiting since {start}",
        "waits on": " waiting",
        "what": " ({what})",
        "disk": "{path} {share} % full",
    },
    "zh": {
        "free": "GPU：{total} {cards}中 {free} 张空闲",
        "none": "GPU：{total} {cards}都在使用",
        "all cards": "张卡",
        "all instances": "张卡（含 MIG 实例）",
        "which": "：{names}",
        "broken": "；目前不可用：{names}",
        "waiting": "；{count} 个任务在排队",
        "unknown": "GPU：无法得知哪些卡空闲：{reason}",
        "stale": "（{time} 的情况）{line}",
        "more": " 等，另有 {count} 项",
        "joint": "、",
        "yours": "您的：{parts}",
        "part": "；",
        "nothing table": "您的：没有预约；用 gpu-schedule add 预约",
        "nothing allocator": "您的：没有程序占用显卡；用 allocate_gpu 申请",
        "nothing slurm": "您的：没有作业在运行或排队；用 sbatch 提交",
        "unknown yours": "您的：无法得知",
        "cards": "{cards} 号卡",
        "count": "{count} 张卡",
        "until": "，到 {end}",
        "from": "，从 {start} 起",
        "waits": "，{start} 起排队",
        "waits on": "，排队中",
        "what": "（{what}）",
        "disk": "{path} 已用 {share} %",
    },
}

PROBLEMS: dict[str, dict[str, str]] = {
    "en": {
        SHEET: "the booking sheet cannot be read",
        LEASES: "the leases cannot be read",
        SLURM: "Slurm cannot be asked",
    },
    "zh": {
        SHEET: "无法读取预约表",
        LEASES: "无法读取显卡分配记录",
        SLURM: "无法查询 Slurm",
    },
}
"""What could not be asked; see overview.Desk."""


@dataclass(frozen=True)
class Common:
    """What is the same for everybody.

    Attributes:
        line: the first line.
        stale: the first line when it is not new any more; it says of when it is.
        nothing: the second line of those who have nothing.
    """

    line: str
    stale: str
    nothing: str


def common(seen: Overview, language: str) -> Common:
    """Write the line about the cards.

    Args:
        seen: the lab.
        language: one of LANGUAGES.
    """
    words = WORDS[language]
    line = _cut(_free(seen, language))
    nothing = words[f"nothing {seen.tier}"]
    if seen.desk.problem:
        nothing = words["unknown yours"]
    stale = words["stale"].format(time=f"{seen.at:%m-%d %H:%M}", line=line)
    return Common(line, stale, nothing)


def own(seen: Overview, user: str, language: str) -> str:
    """Write one person's line; empty when there is nothing to say of them.

    Args:
        seen: the lab.
        user: account name.
        language: one of LANGUAGES.
    """
    words = WORDS[language]
    work, full = seen.work_of(user), seen.full_of(user)
    parts = [_one(each, seen.at, words) for each in work[:_MOST_WORK]]
    if parts and len(work) > _MOST_WORK:
        parts[-1] += words["more"].format(count=len(work) - _MOST_WORK)
    parts += [words["disk"].format(path=printable(each.path, 30), share=each.share) for each in full[:_MOST_DISKS]]
    return _cut(words["yours"].format(parts=words["part"].join(parts))) if parts else ""


def _free(seen: Overview, language: str) -> str:
    words = WORDS[language]
    waiting = sum(work.state == WAITING for work in seen.desk.work)
    queue = words["waiting"].format(count=waiting) if waiting else ""
    pool = seen.desk.pool
    if pool is not None:
        return (
            words["free" if pool.free else "none"].format(free=pool.free, total=pool.total, cards=words["all cards"])
            + queue
        )
    if not seen.sure:
        reason = printable(seen.reason) or PROBLEMS[language][seen.desk.problem]
        return words["unknown"].format(reason=reason)
    names, broken = ([printable(spot.name, _NAME) for spot in seen.those(state)] for state in (FREE, BROKEN))
    cards = words["all instances" if any(spot.instance for spot in seen.spots) else "all cards"]
    line = words["free" if names else "none"].format(free=len(names), total=len(seen.spots), cards=cards)
    if names:
        line += words["which"].format(names=_some(names, words))
    if broken:
        line += words["broken"].format(names=_some(broken, words))
    return line + queue


def _some(names: list[str], words: dict[str, str]) -> str:
    more = words["more"].format(count=len(names) - _MOST_CARDS) if len(names) > _MOST_CARDS else ""
    return words["joint"].join(names[:_MOST_CARDS]) + more


def _one(work: Work, now: datetime, words: dict[str, str]) -> str:
    text = words["cards"].format(cards=ranges(work.cards)) if work.cards else ""
    if not text and work.count:
        text = words["count"].format(count=work.count)
    start = _when(work.start, now) if work.start else ""
    if work.state == RUNNING:
        text += words["until"].format(end=_when(work.end, now)) if work.end else ""
    elif work.state == BOOKED:
        text += words["from"].format(start=start)
    else:
        text += words["waits"].format(start=start) if start else words["waits on"]
    what = printable(work.what)
    if width(what) > _WHAT_COLUMNS:
        what = fit(what, _WHAT_COLUMNS - 1).rstrip() + "…"
    return text.lstrip(" ，") + words["what"].format(what=what)


def _when(moment: datetime, now: datetime) -> str:
    """Write a time: without the day when that is today."""
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%m-%d %H:%M}"


def _cut(line: str) -> str:
    return line if width(line) <= _COLUMNS else fit(line, _COLUMNS - 1).rstrip() + "…"
