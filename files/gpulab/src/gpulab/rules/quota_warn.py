"""When somebody hears of their disk limits: at 80 %, at the soft limit, at the hard limit, once each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .quota import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .quota import Limits, Usage

SPACE, FILES = "space", "files"
FINE, NEAR, SOFT, HARD = 0, 1, 2, 3
"""How bad it is."""

_NEAR = 0.8
_FULL = 0.99
"""A write that does not fit fails as a whole: the hard limit itself is hardly ever reached to the byte."""

_SLACK = 1.05
"""Who falls a little below a threshold and rises again is not told again."""


@dataclass(frozen=True)
class Reading:
    """How much of a limit is used.

    Attributes:
        owner: member, or path of a project.
        path: the folder the limit is named for.
        what: SPACE (bytes) or FILES.
        used: how much.
        soft: 0 is none.
        hard: 0 is none.
    """

    owner: str
    path: str
    what: str
    used: int
    soft: int
    hard: int

    @property
    def key(self) -> tuple[str, str, str]:
        """What is told once."""
        return self.owner, self.path, self.what

    @property
    def share(self) -> int:
        """Per cent of the hard limit, or of the soft one where there is no other; 0 without limits."""
        limit = self.hard or self.soft
        return 100 * self.used // limit if limit else 0

    def show(self, count: int) -> str:
        """Write one of the numbers with its unit."""
        return size(count) if self.what == SPACE else f"{count} files"


def readings(owner: str, path: str, usage: Usage) -> tuple[Reading, ...]:
    """Return what there is to say about an owner's use: space always, files where they are limited."""
    limits: Limits = usage.limits
    space = Reading(owner, path, SPACE, usage.used, limits.soft, limits.hard)
    files = Reading(owner, path, FILES, usage.files, limits.files_soft, limits.files_hard)
    return (space, files) if files.soft or files.hard else (space,)


def level(reading: Reading, *, slack: float = 1.0) -> int:
    """Say how bad it is."""
    used = reading.used * slack
    if reading.hard and used >= reading.hard * _FULL:
        return HARD
    if reading.soft and used > reading.soft:
        return SOFT
    limit = reading.soft or reading.hard
    return NEAR if limit and used >= limit * _NEAR else FINE


def news(
    told: Mapping[tuple[str, str, str], int], seen: Iterable[Reading]
) -> tuple[tuple[Reading, ...], dict[tuple[str, str, str], int]]:
    """Compare with what was told.

    Args:
        told: the level that each was told last.
        seen: all that could be read now; what could not is neither news nor over.

    Returns:
        What to tell now, and what is told already and still holds.
    """
    fresh: list[Reading] = []
    standing = dict(told)
    for reading in seen:
        before = told.get(reading.key, FINE)
        if level(reading) > before:
            fresh.append(reading)
        standing[reading.key] = min(before, level(reading, slack=_SLACK))
    return tuple(fresh), {key: value for key, value in standing.items() if value > FINE}


WORDS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "subject": "{host}: your disk space at {path} is {share} % used",
        "hello": "Hello {owner},",
        "1": "{path}: you use {used} of {limit}. At the limit writing fails.",
        "2": "{path}: you use {used}, more than your soft limit of {soft}. Unless you delete something within\n"
        "the grace time ({grace}), writing fails then; at {hard} it fails at once.",
        "3": "{path}: you use {used} and your limit is {hard}. Writing fails now with `Disk quota exceeded`.",
        "none": "no limit",
        "days": "{count} days",
        "hours": "{count} hours",
        "find": "What takes the most:",
        "foot": "`gpu-quota` shows where you stand. Ask {admin} if you need more. Each of these mails is sent once.",
        "off subject": "{host}: disk limits at {path} are not enforced",
        "off": "The kernel does not enforce the disk limits at {path}, perhaps because it was mounted anew.\n"
        "`sudo gpulab quota apply` brings them back, or says what to do.",
    },
    "zh": {
        "subject": "{host}：您在 {path} 的磁盘空间已用 {share} %",
        "hello": "{owner}，您好：",
        "1": "{path}：您已用 {used}，上限 {limit}。到达上限后将无法写入。",
        "2": "{path}：您已用 {used}，超过软限额 {soft}。请在宽限期（{grace}）内删除部分数据，否则到期后无法写入；\n"
        "达到 {hard} 时立即无法写入。",
        "3": "{path}：您已用 {used}，限额为 {hard}。现在写入会失败（Disk quota exceeded）。",
        "none": "无限制",
        "days": "{count} 天",
        "hours": "{count} 小时",
        "find": "查看占用最多的目录：",
        "foot": "用 `gpu-quota` 查看当前用量。需要更多空间请联系 {admin}。每种提醒只发一次。",
        "off subject": "{host}：{path} 的磁盘限额未生效",
        "off": "内核没有执行 {path} 的磁盘限额，可能是因为它被重新挂载过。\n"
        "`sudo gpulab quota apply` 会恢复限额，或说明该怎么做。",
    },
}


def letter(found: Sequence[Reading], *, host: str, admin: str, language: str, grace: int, home: str) -> tuple[str, str]:
    """Write one mail to one member: subject and body.

    Args:
        found: what is news, at least one.
        host: the server's name.
        admin: whom to ask.
        language: `en` or `zh`.
        grace: how long the soft limit may be exceeded, seconds.
        home: the member's home.
    """
    words = WORDS.get(language, WORDS["en"])
    worst = max(found, key=lambda each: (level(each), each.share))
    days, hours = grace // 86400, -(-grace // 3600)
    time = words["days"].format(count=days) if days and not grace % 86400 else words["hours"].format(count=hours)
    lines = [words["hello"].format(owner=worst.owner), ""]
    for each in found:
        limits = {name: each.show(value) if value else words["none"] for name, value in _limits(each).items()}
        text = words[str(level(each))].format(path=each.path, used=each.show(each.used), grace=time, **limits)
        lines += [text, ""]
    lines += [
        words["find"],
        f"    du -xh --max-depth=2 {home} | sort -h | tail",
        "",
        words["foot"].format(admin=admin),
        "",
    ]
    return words["subject"].format(host=host, path=worst.path, share=worst.share), "\n".join(lines)


def _limits(reading: Reading) -> dict[str, int]:
    return {"soft": reading.soft, "hard": reading.hard, "limit": reading.hard or reading.soft}


def off_letter(path: str, *, host: str, language: str) -> tuple[str, str]:
    """Write to the admin that limits are not enforced: subject and body."""
    words = WORDS.get(language, WORDS["en"])
    return words["off subject"].format(host=host, path=path), words["off"].format(path=path) + "\n"
