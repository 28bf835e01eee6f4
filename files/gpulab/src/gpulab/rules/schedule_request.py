"""What `gpu-schedule` asks of the part that may write the sheet: one small JSON object, checked to the last key.

Nothing in it says who asks; that comes from the operating system.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .cells import LONGEST_NAME, read_time, read_user
from .display import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

LIMIT = 16384
"""Largest request, bytes."""

ADD = "add"
CANCEL = "cancel"
DONE = "done"
NOW = "now"

_CARDS = 1000
_HOURS = 1e6


@dataclass(frozen=True)
class Request:
    """A change that somebody wants.

    Attributes:
        action: `add`, `cancel` or `done`.
        task_name: as typed.
        user: whose booking; None for the caller's own.
        gpu_ids: cards (add only).
        start: `now` or a time as typed (add only).
        hours: how long (add only).
    """

    action: str
    task_name: str
    user: str | None = None
    gpu_ids: tuple[int, ...] = ()
    start: str = NOW
    hours: float = 0.0

    def begin(self) -> datetime | None:
        """Return the start, None for now.

        Raises:
            InputError: it is not a time.
        """
        if self.start.strip().lower() == NOW:
            return None
        try:
            return read_time(self.start)
        except ValueError as error:
            raise InputError(f"--start {error}, or now") from None


def encode(request: Request) -> bytes:
    """Write a request as ASCII JSON; characters that are not text (PEP 383) travel as escapes."""
    fields = asdict(request)
    if request.action != ADD:
        fields = {key: fields[key] for key in ("action", "task_name", "user")}
    return json.dumps(fields).encode("ascii")


def decode(data: bytes) -> Request:
    """Read a request from somebody who is not trusted.

    Args:
        data: what came in.

    Raises:
        InputError: anything about it is unexpected.
    """
    if len(data) > LIMIT:
        raise InputError(f"the request is larger than {LIMIT} bytes; nothing was changed")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InputError("the request is not JSON; use gpu-schedule") from None
    if not isinstance(document, dict):
        raise InputError("the request is not a JSON object; use gpu-schedule")
    action = document.get("action")
    if not isinstance(action, str) or action not in {ADD, CANCEL, DONE}:
        raise InputError(f"action is {_shown(action)}; expected add, cancel or done")
    expected = {"action", "task_name", "user"} | ({"gpu_ids", "start", "hours"} if action == ADD else set())
    if set(document) != expected:
        raise InputError(f"the request has other keys than {', '.join(sorted(expected))}; use gpu-schedule")
    return _checked(document)


def _checked(document: Mapping[str, Any]) -> Request:
    gpu_ids = document.get("gpu_ids", [])
    hours = document.get("hours", 0.0)
    if not isinstance(gpu_ids, list) or not all(type(number) is int and 0 <= number < _CARDS for number in gpu_ids):
        raise InputError(f"gpu_ids is {_shown(gpu_ids)}; expected a list of card numbers")
    if type(hours) not in {int, float} or not 0 <= hours < _HOURS:  # also refuses NaN and numbers too large for a float
        raise InputError(f"hours is {_shown(hours)}; expected a number of hours")
    user = document["user"]
    return Request(
        action=document["action"],
        task_name=_text(document["task_name"], "task_name"),
        user=None if user is None else _account(_text(user, "user")),
        gpu_ids=tuple(gpu_ids),
        start=_text(document.get("start", NOW), "start"),
        hours=float(hours),
    )


def _text(value: object, key: str) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        raise InputError(f"{key} is {_shown(value)}; expected text of at most {LONGEST_NAME} characters")
    return value


def _account(text: str) -> str:
    try:
        return read_user(text)
    except ValueError as error:
        raise InputError(f"--user {error}") from None


def _shown(value: object) -> str:
    return printable(repr(value), 60)
