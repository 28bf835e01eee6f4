"""What allocate_gpu and the broker say to each other: one datagram a message, a verb and `key=value` lines.

The client must start fast and uses no module but this one's mirror image in commands/allocate_gpu.py; everything is
checked here, on the broker's side, because anybody may send anything.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import InputError
from .display import printable
from .leases import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST = 4096
"""Bytes of the largest request; the client cuts its command line short."""

LEASE, PLAN, STATUS = "lease", "plan", "status"
"""What can be asked: cards, what would be given, how things stand."""

_KEYS = ("cards", "mem", "hours", "share", "wait", "again", "command")
_FLAGS = ("share", "wait", "again")
_SIZE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)\s?([MGT])(?:i?B)?", re.IGNORECASE)
_UNITS = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MOST_CARDS = 1024
_MOST_HOURS = 24 * 366
_COMMAND_SHOWN = 120


@dataclass(frozen=True)
class Message:
    """A request as it came.

    Attributes:
        verb: LEASE, PLAN or STATUS.
        request: what is asked for; the default one for STATUS.
        wait: whether to stand in line when it cannot be given at once.
        again: the broker was lost while the answer was awaited.
        command: the command line in short, printable.
    """

    verb: str
    request: Request = field(default_factory=Request)
    wait: bool = False
    again: bool = False
    command: str = ""


def parse(data: bytes) -> Message:
    """Read a request.

    Raises:
        InputError: it is not one.
    """
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    verb = lines[0]
    if verb not in {LEASE, PLAN, STATUS}:
        raise InputError("this is not a request that the broker knows; use allocate_gpu or gpu-status")
    values: dict[str, str] = {}
    for line in lines[1:]:
        key, equals, value = line.partition("=")
        if not equals or key not in _KEYS or key in values:
            raise InputError(f"{printable(line, 40)} is not part of a request; use allocate_gpu or gpu-status")
        values[key] = value
    flags = {key: _flag(values, key) for key in _FLAGS}
    memory = parse_size(values["mem"]) if "mem" in values else None
    if flags["share"] and memory is None:
        raise InputError("--share needs --mem: how much memory on the card is to be yours, such as --share --mem 20G")
    request = Request(
        cards=_count(values.get("cards", "1")), memory=memory, share=flags["share"], hours=_hours(values.get("hours"))
    )
    command = printable(values.get("command", ""), _COMMAND_SHOWN)
    return Message(verb, request, wait=flags["wait"], again=flags["again"], command=command)


def parse_size(text: str) -> int:
    """Read an amount of memory, such as `20G`; the units are powers of two, as in nvidia-smi.

    Raises:
        InputError: it is not one, or nothing.
    """
    match = _SIZE.fullmatch(text)
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size <= 0:
        raise InputError(
            f"--mem {printable(text, 40)!r} is not an amount of memory; give a number and a unit: 20G, 512M"
        )
    return size


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_CARDS)) and 1 <= int(text) <= _MOST_CARDS):
        raise InputError(f"--gpus {printable(text, 40)!r} is not a number of cards; give a whole number from 1")
    return int(text)


def _hours(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours <= _MOST_HOURS:  # NaN fails every comparison
        raise InputError(f"--hours {printable(text, 40)!r} is not a time; give hours, such as 4 or 1.5")
    return hours


def _flag(values: Mapping[str, str], key: str) -> bool:
    if values.get(key, "1") != "1":
        raise InputError(f"{key}={printable(values[key], 40)} is not part of a request; use allocate_gpu")
    return key in values


def answer(verb: str, **values: object) -> bytes:
    """Write an answer: a verb and `key=value` lines; line breaks inside values become spaces."""
    lines = [verb, *(f"{key}={str(value).replace(chr(10), ' ')}" for key, value in values.items())]
    return "\n".join(lines).encode("utf-8", "backslashreplace")
