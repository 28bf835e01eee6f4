"""`gpulab keep-write`: writes down the answer of a member who comes through sudo.

The sudoers rule allows exactly this command line. The request is one JSON object on standard input and is data: who
asks is what sudo says. The answer is one JSON object on standard output.
"""

from __future__ import annotations

import pwd
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters.callers import caller, in_group
from ..rules.keep_request import LIMIT, KeepRequest, decode
from ..services.keep import keep
from ..settings import load
from .root_part import read_request, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

_READ_SECONDS = 10.0
_ROOT = Path("/")


def main(argv: Sequence[str]) -> int:
    """Read a request, do it, answer.

    Raises:
        InputError: there are arguments.
        NotPermittedError: we are not root.
    """

    def work() -> dict[str, Any]:
        data = read_request(0, seconds=_READ_SECONDS, limit=LIMIT, program="gpu-keep")
        # As in schedule-write: a member's keys and timers must not stop us while we hold a lock.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        return perform(decode(data))

    return serve(argv, "keep-write", "gpu-keep", work)


def perform(request: KeepRequest) -> dict[str, Any]:
    """Do a request as root for the person who runs this process.

    Returns:
        `kept`: pid, command and until (seconds since 1970) of each.

    Raises:
        GpulabError: it was refused; nothing was changed.
    """
    name = caller()
    uid = pwd.getpwnam(name).pw_uid
    kept = keep(
        request,
        uid,
        admin=uid == 0 or in_group(name, names.ADMINS_GROUP),
        root=_ROOT,
        now=time.time(),
        most_hours=load(_ROOT).reclaim.keep_max_hours,
    )
    return {"kept": [{"pid": each.pid, "command": each.command, "until": each.until} for each in kept]}
