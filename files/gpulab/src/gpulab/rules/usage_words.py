"""The words of usage reports, in English and Chinese, and how numbers are written in them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from .lease_words import duration
from .usage_advice import IDLE, LIMIT, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .usage import Period
    from .usage_advice import Advice

LANGUAGES = ("en", "zh")
UNKNOWN = "-"

WORDS: dict[str, dict[str, str]] = {
    "en": {
        "title": "Use of the cards of {lab}, {first} to {last}",
        "sum": "{used} of {watched} watched GPU-hours used ({share}).",
        "nothing": "Nothing was recorded in this time.",
        "members": "Members",
        "member": "member",
        "runs": "jobs",
        "gpu_hours": "GPU-hours",
        "share": "share",
        "wait_mean": "mean wait",
        "wait_p95": "wait of 95 %",
        "utilisation": "utilisation",
        "measured": "measured",
        "idle_hours": "held idle",
        "disk": "disk",
        "hours": "h",
        "places": "Cards",
        "place": "card or node",
        "cards": "cards",
        "occupancy": "occupied",
        "week": "Occupied by hour of the week",
        "windows": "Golden hours",
        "window": "window",
        "outside": "other hours",
        "asked": "asked in it",
        "advice": "Suggestions",
        "no_advice": "None: the numbers call for no change.",
        "too_short": "None: suggestions need records of a week.",
        "paste": "For the inventory:",
        "days": "Mon Tue Wed Thu Fri Sat Sun",
        "anonymous": "member {number}",
        "notes": "A card that several people are on is shared equally between them. What could not be measured (MIG, "
        "drivers that do not say) is no part of utilisation and never idle. 95 % of the waits were not longer than "
        "the wait of 95 %.",
    },
    "zh": {
        "title": "{lab} 显卡使用情况，{first} 至 {last}",
        "sum": "有记录的 {watched} 卡时中使用了 {used} 卡时（{share}）。",
        "nothing": "这段时间没有记录。",
        "members": "成员",
        "member": "成员",
        "runs": "任务数",
        "gpu_hours": "卡时",
        "share": "占比",
        "wait_mean": "平均等待",
        "wait_p95": "95% 等待",
        "utilisation": "利用率",
        "measured": "已测量",
        "idle_hours": "占而不用",
        "disk": "磁盘",
        "hours": "小时",
        "places": "显卡",
        "place": "显卡或节点",
        "cards": "卡数",
        "occupancy": "占用率",
        "week": "一周各小时的占用率",
        "windows": "时段",
        "window": "时段",
        "outside": "其他时间",
        "asked": "提交数",
        "advice": "建议",
        "no_advice": "无：从数字看不需要改动。",
        "too_short": "无：至少要有一周的记录才给建议。",
        "paste": "写入清单（inventory）：",
        "days": "周一 周二 周三 周四 周五 周六 周日",
        "anonymous": "成员 {number}",
        "notes": "多人同用一张卡时平分卡时。无法测量的部分（MIG、驱动不提供）不计入利用率，也不算占而不用。"
        "95% 等待：95% 的等待不超过这个时间。",
    },
}


def hours(value: float) -> str:
    """Write hours with one decimal below 100: `0.3`, `99.5`, `1,234`."""
    return f"{value:,.1f}" if value < 99.95 else f"{value:,.0f}"  # noqa: PLR2004 - as the docstring says


def percent(part: float | None) -> str:
    """Write a part of a whole, 0 to 1, as percent; `-` when unknown."""
    return UNKNOWN if part is None else f"{100 * part:.0f} %"


def wait(seconds: float | None) -> str:
    """Write how long somebody waited; `-` when nobody did."""
    return UNKNOWN if seconds is None else duration(seconds)


def size(count: int | None) -> str:
    """Write bytes as GiB; `-` when unknown."""
    return UNKNOWN if count is None else f"{count / (1 << 30):,.0f} GiB"


def dates(period: Period, clock: Callable[[float], datetime] = datetime.fromtimestamp) -> dict[str, str]:
    """Return the first and the last day of a period, as `first` and `last`."""
    return {"first": f"{clock(period.begin):%Y-%m-%d}", "last": f"{clock(period.end - 1):%Y-%m-%d}"}


def sentence(advice: Advice, language: str) -> str:
    """Return why something is suggested."""
    return _SENTENCES[language][advice.kind](*advice.facts)


def _weights(line: str, joint: str) -> Callable[..., str]:
    def write(week: float, changed: tuple[tuple[str, float, float, float], ...]) -> str:
        parts = [
            line.format(name=name, old=f"{old:g}", new=f"{new:g}", full=percent(full), week=percent(week))
            for name, old, new, full in changed
        ]
        return joint.join(parts)

    return write


_SENTENCES: dict[str, dict[str, Callable[..., str]]] = {
    "en": {
        WEIGHTS: _weights("{name} is {full} occupied, the week {week}: weight {old} to {new}", "; "),
        IDLE: lambda idle, measured: (
            f"{hours(idle)} of {hours(measured)} measured GPU-hours were held idle: let idle reclaim end what nobody "
            "answers for"
        ),
        LIMIT: lambda user, share, waited, cards: (
            f"{user} had {percent(share)} of all GPU-hours while others waited {wait(waited)} on average: at most "
            f"{cards} cards for one member"
        ),
    },
    "zh": {
        WEIGHTS: _weights("{name} 占用率 {full}，全周 {week}：权重由 {old} 改为 {new}", "；"),
        IDLE: lambda idle, measured: (
            f"已测量的 {hours(measured)} 卡时中有 {hours(idle)} 占而不用：让空闲回收结束无人答复的程序"
        ),
        LIMIT: lambda user, share, waited, cards: (
            f"{user} 用了全部卡时的 {percent(share)}，而他人平均等待 {wait(waited)}：每人最多 {cards} 张卡"
        ),
    },
}


def table_rows(document: dict[str, Any], language: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the tables of a report as text, head first, by name: members, places, windows.

    Args:
        document: see services/report.py, describe.
        language: one of LANGUAGES.
    """
    words = WORDS[language]
    members: list[tuple[str, ...]] = [
        tuple(
            words[key]
            for key in (
                *("member", "runs", "gpu_hours", "share", "wait_mean", "wait_p95"),
                *("utilisation", "measured", "idle_hours", "disk"),
            )
        )
    ]
    members += [
        (
            each["user"],
            str(each["runs"]),
            hours(each["gpu_hours"]),
            percent(each["share"]),
            wait(each["wait_mean"]),
            wait(each["wait_p95"]),
            percent(None if each["utilisation"] is None else each["utilisation"] / 100),
            percent(each["measured"]),
            f"{hours(each['idle_hours'])} {words['hours']}",
            size(each["disk"]),
        )
        for each in document["members"]
    ]
    places: list[tuple[str, ...]] = [(words["place"], words["cards"], words["occupancy"])]
    places += [(each["place"], f"{each['cards']:g}", percent(each["total"])) for each in document["places"]]
    windows = [tuple(words[key] for key in ("window", "asked", "wait_mean", "wait_p95", "occupancy"))]
    windows += [
        (
            each["name"] or words["outside"],
            str(each["waits"]),
            wait(each["wait_mean"]),
            wait(each["wait_p95"]),
            percent(each["occupancy"]),
        )
        for each in document["windows"]
    ]
    return {"members": members, "places": places, "windows": windows}
