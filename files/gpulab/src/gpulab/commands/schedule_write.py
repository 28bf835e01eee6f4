"""`gpulab schedule-write`: changes the booking sheet for a member who comes through sudo.

The sudoers rule allows exactly this command line. The request is one JSON object on standard input and is data: who
asks is what sudo says. The answer is one JSON object on standard output.
"""

from __future__ import annotations

import pwd
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters.callers import caller, in_group
from ..adapters.clock import server_now
from ..rules.booking import Actor, Limits
from ..rules.schedule_request import LIMIT, decode
from ..services import booking
from ..services.sheet_store import as_record
from ..settings import load
from .root_part import read_request, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.schedule_request import Request

_READ_SECONDS = 10.0
_ROOT = Path("/")


def main(argv: Sequence[str]) -> int:
    """Read a request, do it, answer.

    Raises:
        InputError: there are arguments.
        NotPermittedError: we are not root.
    """

    def work() -> dict[str, Any]:
        data = read_request(0, seconds=_READ_SECONDS, limit=LIMIT, program="gpu-schedule")
        # The keys of the member's terminal (Ctrl-C, Ctrl-Z) and timers that outlive exec (setitimer(2)) reach us as
        # signals. None may stop us while we hold the lock that everybody waits for.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        return perform(decode(data))

    return serve(argv, "schedule-write", "gpu-schedule", work)


def perform(request: Request) -> dict[str, Any]:
    """Do a request as root for the person who runs this process.

    Returns:
        `rows`: the rows added or changed, by the names of the header; `note`: a sentence to pass on, may be empty.

    Raises:
        GpulabError: it was refused or failed; nothing was changed.
    """
    name = caller()
    actor = Actor(name, admin=pwd.getpwnam(name).pw_uid == 0 or in_group(name, names.ADMINS_GROUP))
    settings = load(_ROOT)
    rules = settings.booking
    rule = booking.judge(request, actor, settings.windows, now=server_now(), language=settings.lab.language)
    rows = booking.apply(
        request,
        actor,
        root=_ROOT,
        now=server_now,
        limits=Limits(rules.max_hours, rules.max_days_ahead, rules.grace_minutes),
        is_member=lambda user: in_group(user, names.MEMBERS_GROUP),
    )
    notes = [rule] if rule else []
    if request.gpu_ids and booking.read_cards(_ROOT) is None:
        notes.append(f"{names.INVENTORY_FILE} is not there yet, so nobody checked that the card exists")
    return {"rows": [as_record(row) for row in rows.values()], "note": "; ".join(notes)}
