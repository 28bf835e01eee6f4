"""`gpu-keep`: a member's answer to "your process is idle, do you still need it?"."""

from __future__ import annotations

import argparse
import math
import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import InputError
from ..rules.display import printable
from ..rules.keep_request import KeepRequest, encode
from . import root_part
from .cli import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

WRITER = ("/usr/bin/sudo", "-n", "/opt/gpulab/current/bin/gpulab", "keep-write")
"""The only command line that role idle_reclaim's sudoers rule allows members."""

_EXAMPLES = """\
examples:
  gpu-keep                keep everything of mine that gpulab has asked about, for as long as is allowed
  gpu-keep --hours 3      the same for three hours
  gpu-keep 12345          keep this process, asked about or not

When the time is over and the process is still idle, you are asked again. Exit status: 0 done, 1 failed, 2 cannot be
done as asked, 3 not yours."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; `gpu-keep --help` shows how")


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not (math.isfinite(hours) and hours > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours; give one such as 3 or 0.5")
    return hours


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) <= 1 << 22):
        raise argparse.ArgumentTypeError(f"{text!r} is not a process id")
    return int(text)


def main(argv: Sequence[str]) -> int:
    """Send the answer and say what came of it.

    Raises:
        GpulabError: it was refused or failed; nothing was changed.
    """
    parser = _Parser(
        prog="gpu-keep",
        description="Keep processes that hold a card without using it: gpulab leaves them alone for that long.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--hours", type=_hours, metavar="H", help="for how long; the most that is allowed when left out"
    )
    parser.add_argument("pids", nargs="*", type=_pid, metavar="PID", help="only these processes")
    arguments = parser.parse_args(argv)
    request = KeepRequest(arguments.hours, tuple(arguments.pids))
    if os.geteuid() == 0:
        from .keep_write import perform  # noqa: PLC0415 - members do not load root's part

        answer = perform(request)
    else:
        answer = root_part.ask(WRITER, encode(request), "the answer could not be written down")
    show(answer["kept"])
    return 0


def show(kept: Sequence[dict[str, Any]]) -> None:
    """Say what is kept until when, in the server's wall clock."""
    for each in kept:
        until = datetime.fromtimestamp(each["until"])  # noqa: DTZ006 - the server's wall clock is meant
        print(f"kept until {until:%Y-%m-%d %H:%M}: PID {each['pid']} ({printable(each['command'])})")
    if not kept:
        print("nothing of yours has been asked about; to keep a process beforehand: gpu-keep PID")


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(guarded("gpu-keep", main))
