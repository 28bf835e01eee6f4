"""The table of golden hours, `gpu_windows`: read strictly, from the inventory and from the settings alike."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .window_words import CLASS_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONG = "long"
SHORT = "short"
OFFLINE = "offline"
CLASSES = (LONG, SHORT, OFFLINE)
"""What a window is meant for: long and multi-card work, short interactive work, or work that needs nobody awake."""

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

OUTSIDE_WEIGHT = 1.0
"""Weight of a job that is submitted outside every window."""

DAY = 24 * 60
"""Minutes of a day."""

WEEK = len(DAYS) * DAY
"""Minutes of a week."""

DEFAULT_TABLE: tuple[Mapping[str, Any], ...] = (
    {"name": "morning", "from": "08:00", "to": "12:00", "class": LONG},
    {
        "name": "afternoon",
        "from": "14:00",
        "to": "18:00",
        "class": SHORT,
        "max_cards": 1,
        "max_hours": 4,
        "weight": 0.5,
    },
    {"name": "evening", "from": "20:00", "to": "02:00", "class": OFFLINE, "weight": 1.5},
)
"""The table where the inventory has none, in the form that the inventory has."""

_KEYS = ("name", "from", "to", "days", "class", "max_cards", "max_hours", "weight", "text")
_REQUIRED = ("name", "from", "to", "class")
_TEXT_KEYS = ("en", "zh")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_MIDNIGHT = "24:00"
_LONGEST_NIGHT = 12 * 60
_MOST_WINDOWS = 48
_MOST_CARDS = 10_000
_MOST_HOURS = 100_000.0
_MOST_WEIGHT = 100.0
_LONGEST_TEXT = 120
_SHOWN = 60


@dataclass(frozen=True)
class Window:
    """A stretch of the day that is meant for one kind of work.

    Attributes:
        name: unique, fit for identifiers.
        begin: minutes after midnight.
        end: minutes after the midnight before its beginning; greater than `begin`, and more than a day's 1440 when it
            crosses midnight.
        days: the days it begins on, 0 for Monday, ascending.
        work: one of CLASSES.
        max_cards: most cards of one job; None for no limit.
        max_hours: longest job, hours; None for no limit.
        weight: factor of the submission priority of a job submitted in it (Slurm tier).
        en: what it is for, in English.
        zh: likewise in Chinese.
    """

    name: str
    begin: int
    end: int
    days: tuple[int, ...]
    work: str
    max_cards: int | None = None
    max_hours: float | None = None
    weight: float = OUTSIDE_WEIGHT
    en: str = ""
    zh: str = ""

    @property
    def length(self) -> int:
        """Minutes it lasts."""
        return self.end - self.begin

    @property
    def hours(self) -> str:
        """The hours as people write them, such as `20:00-02:00`."""
        end = self.end if self.end <= DAY else self.end - DAY
        return f"{clock(self.begin)}-{clock(end)}"

    @property
    def starts(self) -> tuple[int, ...]:
        """Minutes of the week at which it begins, 0 for Monday 00:00."""
        return tuple(day * DAY + self.begin for day in self.days)

    def covers(self, minute: int) -> bool:
        """Tell whether a minute of the week belongs to it."""
        return any((minute - start) % WEEK < self.length for start in self.starts)


def clock(minutes: int) -> str:
    """Write minutes after midnight as a time of day."""
    return f"{minutes // 60:02}:{minutes % 60:02}"


def parse_windows(raw: Any, *, source: str = "gpu_windows") -> tuple[Window, ...]:
    """Check and read a table.

    A window whose end lies before its beginning crosses midnight. Where it would last more than 12 hours so, the two
    were exchanged more likely than not, and it is refused; a longer night is written as two windows.

    Args:
        raw: a list of mappings, from YAML, TOML or JSON. A key that is None counts as not given.
        source: what the table is called, for messages.

    Returns:
        The windows in the order of the table; none for an empty list, which means that all hours are equal.

    Raises:
        InputError: something in it cannot be used, or two windows overlap; names entry, key, value and remedy.
    """
    if not isinstance(raw, (list, tuple)):
        raise InputError(f"{source} is {_shown(raw)}; give a list of windows, each beginning with `- name:`, or []")
    if len(raw) > _MOST_WINDOWS:
        raise InputError(f"{source} has {len(raw)} windows; give at most {_MOST_WINDOWS}")
    windows = tuple(_Entry(source, position, item).window() for position, item in enumerate(raw, start=1))
    names: dict[str, int] = {}
    for position, window in enumerate(windows, start=1):
        if window.name in names:
            raise InputError(
                f"{source}: entries {names[window.name]} and {position} are both named {window.name}; rename one"
            )
        names[window.name] = position
    _refuse_overlap(windows, source)
    return windows


def as_raw(window: Window) -> dict[str, Any]:
    """Return a window in the form that the inventory and the settings have; `parse_windows` reads it back."""
    raw: dict[str, Any] = {
        "name": window.name,
        "from": clock(window.begin),
        "to": clock(window.end if window.end <= DAY else window.end - DAY),
        "days": [DAYS[day] for day in window.days],
        "class": window.work,
        "max_cards": window.max_cards,
        "max_hours": window.max_hours,
        "weight": window.weight,
        "text": {"en": window.en, "zh": window.zh},
    }
    return {key: value for key, value in raw.items() if value is not None}


class _Entry:
    """One entry of the table while it is read: knows how to say what is wrong with it."""

    def __init__(self, source: str, position: int, raw: Any) -> None:
        self.where = f"{source}, entry {position}"
        if not hasattr(raw, "keys"):
            raise InputError(f"{self.where} is {_shown(raw)}; give a mapping that begins with `name:`")
        for key in raw:
            if key not in _KEYS:
                near = difflib.get_close_matches(str(key), _KEYS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(_KEYS)}"
                raise InputError(f"{self.where}: the key {_shown(key)} is unknown; {hint}")
        self.given: dict[str, Any] = {key: value for key, value in raw.items() if value is not None}
        for key in _REQUIRED:
            if key not in self.given:
                raise InputError(f"{self.where}: {key} is missing; each window needs {', '.join(_REQUIRED)}")
        if not isinstance(self.given["name"], str) or not _NAME.fullmatch(self.given["name"]):
            raise self.error("name", "give 1 to 32 characters: a lower-case letter, then letters, digits, - and _")
        self.where = f"{source}, window {self.given['name']}"

    def error(self, key: str, remedy: str) -> InputError:
        return InputError(f"{self.where}: {key} is {_shown(self.given.get(key))}; {remedy}")

    def window(self) -> Window:
        begin, end = self.times()
        work = self.given["class"]
        if work not in CLASSES:  # a tuple: a list given by mistake has no hash
            raise self.error("class", f"give one of {', '.join(CLASSES)}")
        en, zh = self.texts(work)
        return Window(
            name=self.given["name"],
            begin=begin,
            end=end,
            days=self.days(),
            work=work,
            max_cards=self.cards(),
            max_hours=self.number("max_hours", _MOST_HOURS),
            weight=self.number("weight", _MOST_WEIGHT) or OUTSIDE_WEIGHT,
            en=en,
            zh=zh,
        )

    def times(self) -> tuple[int, int]:
        begin = self.time("from")
        end = DAY if self.given["to"] == _MIDNIGHT else self.time("to")
        if begin == end:
            raise self.error("to", 'that is when it begins; a whole day is from "00:00" to "24:00"')
        if end > begin:
            return begin, end
        end += DAY
        if end - begin > _LONGEST_NIGHT:
            raise self.error(
                "to",
                f"before its beginning, {clock(begin)}: across midnight that would be {(end - begin) / 60:g} hours; "
                f"exchange the two, or write a night of more than {_LONGEST_NIGHT // 60} hours as two windows, "
                'to "24:00" and from "00:00"',
            )
        return begin, end

    def time(self, key: str) -> int:
        value = self.given[key]
        found = _TIME.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            unquoted = type(value) is int and 0 < value <= DAY
            example = clock(value) if unquoted else "08:00"
            reason = ": YAML reads it as a number without" if unquoted else ""
            raise self.error(key, f'give a time of day in quotes, such as "{example}"{reason}')
        return int(found[1]) * 60 + int(found[2])

    def days(self) -> tuple[int, ...]:
        value = self.given.get("days", list(DAYS))
        if not isinstance(value, (list, tuple)) or not value or not all(day in DAYS for day in value):
            raise self.error("days", f"give the days it begins on, some of [{', '.join(DAYS)}]; leave it out for all")
        return tuple(sorted({DAYS.index(day) for day in value}))

    def cards(self) -> int | None:
        value = self.given.get("max_cards")
        if value is not None and (type(value) is not int or not 1 <= value <= _MOST_CARDS):
            raise self.error("max_cards", "give how many cards one job may take, at least 1; leave it out for any")
        return value

    def number(self, key: str, most: float) -> float | None:
        value = self.given.get(key)
        if value is None:
            return None
        if type(value) not in {int, float} or not 0 < value <= most:  # also refuses NaN
            raise self.error(key, f"give a number above 0, at most {most:g}")
        return float(value)

    def texts(self, work: str) -> tuple[str, str]:
        value = self.given.get("text", {})
        if not isinstance(value, dict) or not all(key in _TEXT_KEYS for key in value):
            raise self.error("text", "give what the window is for as {en: ..., zh: ...}; leave it out for the usual")
        for text in value.values():
            if not isinstance(text, str) or not text.isprintable() or not 0 < len(text.strip()) <= _LONGEST_TEXT:
                raise self.error("text", f"give one line of at most {_LONGEST_TEXT} characters for each language")
        own = next(iter(value.values()), "")
        en, zh = (own, own) if own else CLASS_WORDS[work]
        return value.get("en", en), value.get("zh", zh)


def _refuse_overlap(windows: Sequence[Window], source: str) -> None:
    """Refuse a table in which two windows claim the same minute of the week.

    When any two do, some window also reaches into the one that begins next.
    """
    spans = sorted(((start, window) for window in windows for start in window.starts), key=lambda span: span[0])
    for position, (start, window) in enumerate(spans):
        following, other = spans[(position + 1) % len(spans)]
        gap = (following - start) % WEEK or (WEEK if len(spans) == 1 else 0)
        if window.length > gap:
            day, minute = divmod(following, DAY)
            raise InputError(
                f"{source}: {window.name} ({window.hours}) and {other.name} ({other.hours}) overlap on {DAYS[day]} "
                f"from {clock(minute)}; end the first where the second begins, or give them different days"
            )


def _shown(value: Any) -> str:
    """Quote a value for a message: one line, control characters escaped, not endless."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
