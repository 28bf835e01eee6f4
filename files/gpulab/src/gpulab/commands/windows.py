"""`gpulab windows`: show the golden hours, and which of them it is now."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..adapters.clock import server_now
from ..rules.display import fit, width
from ..rules.windows import OUTSIDE_WEIGHT, class_at, next_change, rows
from ..settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ..settings import Settings

_HEAD = {
    "en": ("WINDOW", "HOURS", "DAYS", "CLASS", "CARDS", "LONGEST", "WEIGHT", "FOR"),
    "zh": ("时段", "时间", "日期", "类别", "最多卡数", "最长", "权重", "用途"),
}
_WORDS = {
    "en": {
        "any": "any",
        "hours": "{:g} h",
        "now": "Now ({now:%a %H:%M}): {name}, for {text}, until {until:%H:%M}.",
        "outside": "Now ({now:%a %H:%M}) it is outside every window; {name} begins {until:%a %H:%M}.",
        "none": "This server has no windows: all hours are equal.",
        "warn": "A job is judged by the window it starts in, or else by the first one it runs into.\n"
        "One that does not fit gets a warning.",
        "refuse": "A job is judged by the window it starts in, or else by the first one it runs into.\n"
        "One that does not fit is refused.",
        "weight": "Weight: factor of the priority of a job submitted in the window; {:g} outside.",
    },
    "zh": {
        "any": "不限",
        "hours": "{:g} 小时",
        "now": "现在（{now:%H:%M}）：{name}，用于{text}，到 {until:%H:%M} 为止。",
        "outside": "现在（{now:%H:%M}）不在任何时段内；下一个时段 {name} 从 {until:%H:%M} 开始。",
        "none": "本服务器没有划分时段，所有时间一样。",
        "warn": "任务按开始时所在的时段判断；开始时不在任何时段的，按之后最先遇到的时段判断。\n"
        "不符合的任务会收到提醒。",
        "refuse": "任务按开始时所在的时段判断；开始时不在任何时段的，按之后最先遇到的时段判断。\n"
        "不符合的任务会被拒绝。",
        "weight": "权重：在该时段提交的任务的优先级系数；时段之外为 {:g}。",
    },
}


def main(argv: Sequence[str], *, root: Path = Path("/"), now: Callable[[], datetime] = server_now) -> int:
    """Print the table.

    Args:
        argv: arguments after the subcommand.
        root: the folder that stands for `/`.
        now: server time, naive.

    Raises:
        InputError: a settings file cannot be understood.
    """
    parser = argparse.ArgumentParser(
        prog="gpulab windows",
        description="Show the golden hours: which kind of work the hours of the week are meant for, and which of them "
        "it is now. Times are the server's local time.",
    )
    parser.add_argument("--json", action="store_true", help="as JSON; max_cards and max_hours null: no limit")
    options = parser.parse_args(argv)
    settings, moment = load(root), now()
    if options.json:
        print(json.dumps(_document(settings, moment), ensure_ascii=False, indent=2))
    else:
        print("\n".join(_lines(settings, moment)))
    return 0


def _document(settings: Settings, moment: datetime) -> dict[str, Any]:
    windows = settings.windows.table
    present, change = class_at(windows, moment), next_change(windows, moment)
    return {
        "now": moment.isoformat(timespec="seconds"),
        "window": present.name if present else None,
        "class": present.work if present else None,
        "next_change": change.isoformat(timespec="minutes") if change else None,
        "on_break": settings.windows.on_break,
        "windows": rows(windows),
    }


def _lines(settings: Settings, moment: datetime) -> list[str]:
    language = settings.lab.language if settings.lab.language in _WORDS else "en"
    words, windows = _WORDS[language], settings.windows.table
    change = next_change(windows, moment)
    if change is None:
        return [words["none"]]
    present = class_at(windows, moment)
    shown = present or class_at(windows, change)
    sentence = words["now" if present else "outside"]
    text = getattr(shown, language, "")
    begin = sentence.format(now=moment, name=shown.name if shown else "", text=text, until=change)
    weighted = settings.lab.tier == "slurm"  # the other tiers have no priorities
    end = words[settings.windows.on_break]
    return [
        begin,
        "",
        *_table(settings, language, weighted=weighted),
        "",
        words["weight"].format(OUTSIDE_WEIGHT) if weighted else end,
    ]


def _table(settings: Settings, language: str, *, weighted: bool) -> list[str]:
    words = _WORDS[language]
    table = [
        _HEAD[language],
        *(
            (
                row["name"],
                row["hours"],
                row[f"days_{language}"],
                row["class"],
                words["any"] if row["max_cards"] is None else str(row["max_cards"]),
                words["any"] if row["max_hours"] is None else words["hours"].format(row["max_hours"]),
                f"{row['weight']:g}",
                row[language],
            )
            for row in rows(settings.windows.table)
        ),
    ]
    weight = _HEAD["en"].index("WEIGHT")
    cells = [line if weighted else line[:weight] + line[weight + 1 :] for line in table]
    widths = [max(width(line[column]) for line in cells) for column in range(len(cells[0]) - 1)]
    return [
        "  ".join([*(fit(cell, size) for cell, size in zip(line, widths, strict=False)), line[-1]]) for line in cells
    ]
