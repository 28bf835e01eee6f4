"""The part of `gpu-schedule` that changes the sheet: members ask root's part through sudo, root does it here."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..rules.booking import check_task_name, show_span
from ..rules.display import printable
from ..rules.schedule_request import ADD, LIMIT, Request, encode
from . import root_part

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from .root_part import Runner

WRITER = ("/usr/bin/sudo", "-n", "/opt/gpulab/current/bin/gpulab", "schedule-write")
"""The only command line that role tier_table's sudoers rule allows members."""

_VERBS = {"add": "booked", "cancel": "cancelled", "done": "finished"}


def main(arguments: argparse.Namespace) -> int:
    """Make the change that was typed and say what came of it.

    Raises:
        GpulabError: it was refused or failed; nothing was changed.
    """
    request = _request(arguments)
    if os.geteuid() == 0:
        from .schedule_write import perform  # noqa: PLC0415 - members do not load root's part

        answer = perform(request)
    else:
        answer = ask(request)
    for row in answer["rows"]:
        print(f"{_VERBS[request.action]}: {_words(row)}")
    if answer["note"]:
        print(f"gpu-schedule: note: {answer['note']}", file=sys.stderr)
    return 0


def _request(arguments: argparse.Namespace) -> Request:
    name = arguments.task_name.strip()
    if arguments.action == ADD:
        request = Request(
            ADD, check_task_name(name), arguments.user, arguments.gpu, start=arguments.start, hours=arguments.hours
        )
        request.begin()
    else:
        request = Request(arguments.action, name, arguments.user)
    if len(encode(request)) > LIMIT:
        raise InputError("what you typed is far too long; nothing was changed")
    return request


def ask(request: Request, runner: Runner = subprocess.run) -> dict[str, Any]:
    """Have root's part make the change.

    Args:
        request: what is wanted.
        runner: runs sudo.

    Raises:
        RefusedError: it said no; nothing was changed.
        GpulabError: sudo does not let this account in, or there is no answer.
    """
    return root_part.ask(WRITER, encode(request), "the booking sheet could not be changed", runner)


def _words(row: Mapping[str, str]) -> str:
    start, end = (datetime.fromisoformat(row[key]) for key in ("start_time", "end_time"))
    return f"card {row['gpu_id']}, {show_span(start, end)}, {row['user']}: {printable(row['task_name'])}"
