"""What the table of golden hours says to people, in English and Chinese."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from .windows import Window

CLASS_WORDS = {
    "long": ("long, large-batch and multi-card work", "长任务、大批量、多卡训练"),
    "short": ("short jobs, debugging, preprocessing", "短任务、调试、数据预处理"),
    "offline": ("offline inference and parameter search", "离线推理与超参搜索"),
}
"""Class: what a window of this class is for where the table does not say, in English and Chinese."""

_DAYS_EN = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAYS_ZH = "一二三四五六日"
_FEWEST_IN_A_ROW = 3


def day_words(days: Sequence[int]) -> tuple[str, str]:
    """Write some days of the week, 0 for Monday, in English and Chinese, such as `Mon-Fri` and `周一至周五`."""
    if len(days) == len(_DAYS_EN):
        return "every day", "每天"
    if len(days) >= _FEWEST_IN_A_ROW and days[-1] - days[0] == len(days) - 1:
        first, last = days[0], days[-1]
        return f"{_DAYS_EN[first]}-{_DAYS_EN[last]}", f"周{_DAYS_ZH[first]}至周{_DAYS_ZH[last]}"
    return ", ".join(_DAYS_EN[day] for day in days), "周" + "、".join(_DAYS_ZH[day] for day in days)


def judgement(
    window: Window, *, cards: int, job_hours: float | None, start: datetime, better: datetime | None
) -> tuple[str, str]:
    """Say which rules of a window a job breaks, and when it fits, in English and Chinese.

    Args:
        window: the window that judges.
        cards: how many cards the job takes.
        job_hours: how long it is meant to run; None when unknown.
        start: when it starts, server time.
        better: when it may start instead; None when no window of the week lets it.
    """
    en: list[str] = []
    zh: list[str] = []
    if window.max_cards is not None and cards > window.max_cards:
        en.append(f"at most {window.max_cards} card{'s' if window.max_cards > 1 else ''} a job, not {cards}")
        zh.append(f"每个任务最多 {window.max_cards} 张卡，而不是 {cards} 张")
    if window.max_hours is not None and job_hours is not None and job_hours > window.max_hours:
        en.append(f"at most {window.max_hours:g} h a job, not {job_hours:g}")
        zh.append(f"每个任务最多 {window.max_hours:g} 小时，而不是 {job_hours:g} 小时")
    if better is None:
        fits_en, fits_zh = "it fits in no window of the week", "一周内没有合适的时段"
    else:
        moment = f"{better:{'%H:%M' if better.date() == start.date() else '%Y-%m-%d %H:%M'}}"
        fits_en, fits_zh = f"it fits from {moment} on", f"{moment} 起可以"
    return (
        f"window {window.name} ({window.hours}: {window.en}) allows {' and '.join(en)}; {fits_en}",
        f"时段 {window.name}（{window.hours}：{window.zh}）规定{'，'.join(zh)}；{fits_zh}",
    )
