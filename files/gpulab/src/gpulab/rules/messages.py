"""What check_gpu writes to people: one mail a person a run, short, with the command to type next.

Task names, accounts and commands of processes were chosen by members: they are shown with control characters escaped,
and put into commands as one quoted shell word or not at all.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from .. import names
from . import checks
from .booking import TIME_FORMAT
from .check_words import ENGLISH, WORDS
from .display import fit, printable, width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .booking import Booking
    from .checks import Event
    from .sightings import Sighting

_TASK_LIMIT = 40
_REASON_LIMIT = 300
_MAX_ROWS = 20
_MAX_PARAGRAPHS = 40
_INDENT = "    "
_GIB = 1 << 30
_USUAL_HOURS = 2
"""Length of the booking that is proposed, hours."""

_MERGED = {checks.SOON, checks.RUNNING, checks.UNUSED}
"""A booking of several cards is several rows; its owner reads about it once."""


@dataclass(frozen=True)
class Mail:
    """One mail.

    Attributes:
        recipient: account name.
        subject: one line.
        body: plain text.
        events: what it tells.
    """

    recipient: str
    subject: str
    body: str
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Letterhead:
    """What all mails of a run share.

    Attributes:
        host: the server's name.
        admin: account name of the person to ask.
        language: `en` or `zh`.
        now: server time, naive.
    """

    host: str
    admin: str
    language: str
    now: datetime


def write(events: Iterable[Event], letterhead: Letterhead) -> tuple[Mail, ...]:
    """Write the mails that tell some events, one for each person.

    Args:
        events: what matters most first.
        letterhead: what all mails share.
    """
    by_person: dict[str, list[Event]] = {}
    for event in events:
        by_person.setdefault(event.recipient, []).append(event)
    return tuple(_Writer(letterhead).mail(recipient, told) for recipient, told in by_person.items())


class _Writer:
    """Knows the words of one language."""

    def __init__(self, letterhead: Letterhead) -> None:
        self.letterhead = letterhead
        self.words = WORDS.get(letterhead.language, ENGLISH)

    def mail(self, recipient: str, events: Sequence[Event]) -> Mail:
        groups = _grouped(_worth_saying(events))
        titles = [self.say(f"{group[0].kind} title", group) for group in groups]
        paragraphs = ["\n".join(self.paragraph(group)) for group in groups[:_MAX_PARAGRAPHS]]
        if len(groups) > _MAX_PARAGRAPHS:
            paragraphs.append(self.fill("more", count=len(groups) - _MAX_PARAGRAPHS))
        if len(titles) == 1:
            subject = self.fill("subject", title=titles[0])
        else:
            subject = self.fill("subject more", title=titles[0], count=len(titles) - 1)
        hello = self.fill("hello", recipient=recipient)
        foot = f"{self.fill('foot')}\n{self.fill('foot places', rules=names.HANDBOOK_DIR / 'README.md')}"
        body = "\n\n".join([hello, *paragraphs, foot]) + "\n"
        return Mail(recipient, subject, body, tuple(events))

    def fill(self, word: str, **values: object) -> str:
        shared = {"host": self.letterhead.host, "admin": self.letterhead.admin, "sheet": names.SHEET_FILE}
        return self.words[word].format_map({**shared, **values})

    def say(self, word: str, group: Sequence[Event]) -> str:
        event = group[0]
        values: dict[str, object] = {
            "card": _cards(group),
            "user": printable(event.user, _TASK_LIMIT),
            "line": event.lines[0] if event.lines else "",
            "reason": printable(event.reason.rstrip("."), _REASON_LIMIT),
        }
        if event.booking:
            values |= self.booking(event.booking)
            values["minutes"] = _minutes(self.letterhead.now, event.booking.start)
        if event.cover:
            values |= {f"other_{name}": value for name, value in self.booking(event.cover).items()}
            values["other"] = event.cover.user
        return self.fill(word, **values)

    def booking(self, booking: Booking) -> dict[str, object]:
        return {
            "task": printable(booking.task_name, _TASK_LIMIT),
            "owner": booking.user,
            "start": f"{booking.start:{TIME_FORMAT}}",
            "end": f"{booking.end:{TIME_FORMAT}}",
            "span": self.span(booking),
        }

    def span(self, booking: Booking) -> str:
        same_day = booking.start.date() == booking.end.date()
        end = f"{booking.end:%H:%M}" if same_day else f"{booking.end:{TIME_FORMAT}}"
        return self.words["to"].format(start=f"{booking.start:{TIME_FORMAT}}", end=end)

    def paragraph(self, group: Sequence[Event]) -> list[str]:
        """Say what was seen, where, and what to do."""
        details = {
            checks.OVERRUN: self.uncovered,
            checks.UNBOOKED: self.uncovered,
            checks.OCCUPIED: self.occupied,
            checks.STRANGER: self.stranger,
            checks.UNUSED: self.unused,
            checks.RUNNING: self.running,
            checks.SOON: self.soon,
            checks.NO_CARDS: self.card,
            checks.CARD: self.card,
            checks.SHEET: self.sheet,
            checks.OVERLAP: self.overlap,
            checks.NO_MEMBER: self.impossible,
            checks.NO_SUCH_CARD: self.impossible,
            checks.BAD_ROW: self.bad_row,
            checks.STATE: self.state,
        }
        return [self.say(group[0].kind, group), *details[group[0].kind](group)]

    def uncovered(self, group: Sequence[Event]) -> list[str]:
        """Say how to stay legally, as long as nobody else has the card, and how to go."""
        event = group[0]
        cover = self.words["cover none"]
        hours = float(_USUAL_HOURS)
        if event.cover is not None:
            cover = self.say("cover now" if self.begun(event.cover) else "cover next", group)
            left = (event.cover.start.timestamp() - self.letterhead.now.timestamp()) / 3600
            hours = min(hours, math.floor(left * 2) / 2)
        if hours > 0:
            task = _word(event.booking) or "TASK"
            add = f"gpu-schedule add {task} --gpu {event.gpu_id} --start now --hours {hours:g}"
            stay = [self.words["more time"], _INDENT + add]
        else:
            stay = [self.words["elsewhere"], f"{_INDENT}gpu-schedule free --hours {_USUAL_HOURS}"]
        pids = " ".join(str(process.pid) for process in event.processes[:_MAX_ROWS])
        return [*self.processes(event.processes), cover, *stay, self.words["end them"], f"{_INDENT}kill {pids}"]

    def occupied(self, group: Sequence[Event]) -> list[str]:
        why = self.say("occupied over" if group[0].cover else "occupied none", group)
        return [*self.processes(group[0].processes), why, self.say("occupied do", group)]

    def stranger(self, group: Sequence[Event]) -> list[str]:
        return [*self.processes(group[0].processes), self.say("stranger do", group)]

    def unused(self, group: Sequence[Event]) -> list[str]:
        return [self.say("unused do", group), _command("done", group[0].booking)]

    def running(self, group: Sequence[Event]) -> list[str]:
        # CUDA numbers cards by speed unless told to use the order of the bus, which is NVML's.
        use = f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={_cards(group, ',')} python train.py"
        return [self.words["use"], _INDENT + use, self.words["done early"], _command("done", group[0].booking)]

    def soon(self, group: Sequence[Event]) -> list[str]:
        return [self.words["cancel"], _command("cancel", group[0].booking)]

    def card(self, group: Sequence[Event]) -> list[str]:
        gpu_id = group[0].gpu_id
        more = "" if gpu_id is None else f"; nvidia-smi -q -i {gpu_id}; journalctl -k | grep -i xid"
        return [self.say("card meanwhile", group), self.words["look"], f"{_INDENT}gpulab info{more}"]

    def sheet(self, group: Sequence[Event]) -> list[str]:
        return [self.say("sheet meanwhile", group)]

    def overlap(self, group: Sequence[Event]) -> list[str]:
        rows = {line: row for line, row in zip(group[0].lines, (group[0].booking, group[0].cover), strict=True) if row}
        told = [_INDENT + self.fill("overlap row", line=line, **self.booking(rows[line])) for line in sorted(rows)]
        return [*told, self.words["overlap do"], self.removal(group[0])]

    def impossible(self, group: Sequence[Event]) -> list[str]:
        return [self.say(f"{group[0].kind} do", group), self.removal(group[0])]

    def bad_row(self, group: Sequence[Event]) -> list[str]:
        told = [_INDENT + self.say("bad-row row", [event]) for event in group[:_MAX_ROWS]]
        if len(group) > _MAX_ROWS:
            told.append(_INDENT + self.fill("more", count=len(group) - _MAX_ROWS))
        return [*told, self.words["bad-row do"], f"{_INDENT}gpu-schedule check"]

    def state(self, group: Sequence[Event]) -> list[str]:
        return [self.say("state do", group), f"{_INDENT}rm {shlex.quote(group[0].reason)}"]

    def removal(self, event: Event) -> str:
        """Return the command that takes a booking out of the way; somebody else must say whose it is."""
        if event.booking is None:
            return ""
        options = () if event.recipient == event.booking.user else ("--user", shlex.quote(event.booking.user))
        return _command("done" if self.begun(event.booking) else "cancel", event.booking, *options)

    def begun(self, booking: Booking) -> bool:
        return booking.start.timestamp() <= self.letterhead.now.timestamp()

    def processes(self, processes: Sequence[Sighting]) -> list[str]:
        """List processes in columns."""
        shown = processes[:_MAX_ROWS]
        commands = [printable(process.command, _TASK_LIMIT) for process in shown]
        columns = max(map(width, commands), default=0)
        digits = max((len(str(process.pid)) for process in shown), default=0)
        rows = [
            f"{_INDENT}PID {each.pid:<{digits}}  {fit(command, columns)}  {_memory(each):>9}  {self.since(each)}"
            for each, command in zip(shown, commands, strict=True)
        ]
        if len(processes) > _MAX_ROWS:
            rows.append(_INDENT + self.fill("more", count=len(processes) - _MAX_ROWS))
        return rows

    def since(self, process: Sighting) -> str:
        since = self.words["since unknown"]
        if process.started is not None:
            # The server's own wall clock, as in the sheet.
            since = f"{datetime.fromtimestamp(process.started):{TIME_FORMAT}}"  # noqa: DTZ006 - local time is meant
        return self.words["process"].format(since=since)


def _worth_saying(events: Sequence[Event]) -> list[Event]:
    """Leave out that a booking has begun where the same mail says that it is not used or somebody is in the way."""
    said = {(event.gpu_id, event.booking) for event in events if event.kind in {checks.UNUSED, checks.OCCUPIED}}
    return [event for event in events if event.kind != checks.RUNNING or (event.gpu_id, event.booking) not in said]


def _grouped(events: Sequence[Event]) -> list[list[Event]]:
    groups: dict[object, list[Event]] = {}
    for event in events:
        what: object = event.key
        if event.kind in _MERGED and event.booking:
            what = (event.kind, event.booking.task_name, event.booking.start, event.booking.end)
        elif event.kind == checks.BAD_ROW:
            what = event.kind
        groups.setdefault(what, []).append(event)
    return list(groups.values())


def _cards(group: Sequence[Event], separator: str = ", ") -> str:
    return separator.join(str(number) for number in sorted({e.gpu_id for e in group if e.gpu_id is not None}))


def _minutes(now: datetime, start: datetime) -> int:
    return max(0, round((start.timestamp() - now.timestamp()) / 60))


def _memory(process: Sighting) -> str:
    return "? GiB" if process.memory is None else f"{process.memory / _GIB:.1f} GiB"


def _word(booking: Booking | None) -> str:
    """Return a task name as one shell word; empty when what is shown would not be what the sheet says."""
    if booking is None or not booking.task_name.isprintable():
        return ""
    word = shlex.quote(booking.task_name)
    return f"-- {word}" if word.startswith("-") else word


def _command(verb: str, booking: Booking | None, *options: str) -> str:
    word = _word(booking)
    return _INDENT + (" ".join(["gpu-schedule", verb, *options, word]) if word else "gpu-schedule list")
