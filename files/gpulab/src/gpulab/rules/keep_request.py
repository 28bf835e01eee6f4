"""What `gpu-keep` asks of root's part: one small JSON object, checked to the last key. Who asks it does not say."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from ..errors import InputError

LIMIT = 16384
"""Largest request, bytes."""

_MOST_PIDS = 1000
_LARGEST_PID = 1 << 22
"""PID_MAX_LIMIT (proc_sys_kernel(5))."""


@dataclass(frozen=True)
class KeepRequest:
    """An answer.

    Attributes:
        hours: for how long; None for the longest that is allowed.
        pids: which processes; empty for all of the caller's that gpulab has asked about.
    """

    hours: float | None = None
    pids: tuple[int, ...] = ()


def encode(request: KeepRequest) -> bytes:
    """Write a request."""
    return json.dumps(asdict(request)).encode("ascii")


def decode(data: bytes) -> KeepRequest:
    """Read a request from somebody who is not trusted.

    Raises:
        InputError: anything about it is unexpected.
    """
    if len(data) > LIMIT:
        raise InputError(f"the request is larger than {LIMIT} bytes; nothing was changed")
    try:
        document = json.loads(data)
        hours, pids = document["hours"], document["pids"]
        known = set(document) == {"hours", "pids"}
    except (ValueError, RecursionError, KeyError, TypeError):
        raise InputError("the request is not what gpu-keep sends; use gpu-keep") from None
    good_hours = hours is None or (type(hours) in {int, float} and math.isfinite(hours) and hours > 0)
    good_pids = (
        isinstance(pids, list)
        and len(pids) <= _MOST_PIDS
        and all(type(pid) is int and 0 < pid <= _LARGEST_PID for pid in pids)
    )
    if not (known and good_hours and good_pids):
        raise InputError("the request is not what gpu-keep sends; use gpu-keep")
    return KeepRequest(None if hours is None else float(hours), tuple(pids))
