"""`gpu-run`: a short interactive start on a card, for those who do not want to remember srun's options."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from typing import TYPE_CHECKING, NoReturn

from ..errors import GpulabError, InputError
from .cli import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXAMPLES = """\
examples:
  gpu-run                                a shell on one card, for an hour
  gpu-run --gpus 2 --hours 3             two cards
  gpu-run --type a100_3g.40gb            an instance of this size; `sinfo -o %G` lists the types
  gpu-run -- python train.py --epochs 1  a command instead of a shell

It waits in the queue like every job; `gpu-why` in another window says how it stands. Cards are yours until the command
ends. Long work belongs into a script for sbatch: /home/admin/GPU_SCHEDULE/examples."""

_TYPE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_MOST_CARDS = 64
_MOST_HOURS = 24.0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; `{self.prog} --help` shows how")


def srun_command(argv: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the command line of srun for what was typed.

    Args:
        argv: arguments of gpu-run.
        terminal: whether a person sits at both ends; then the command gets a terminal of its own.

    Raises:
        InputError: it cannot be used.
    """
    parser = _Parser(
        prog="gpu-run",
        description="Start a shell or a command on a card.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="how many cards, 1 when left out")
    parser.add_argument("--hours", type=float, default=1.0, metavar="H", help="how long at most, 1 when left out")
    parser.add_argument("--type", default="", metavar="T", help="only cards or instances of this type")
    parser.add_argument("--partition", default="", metavar="P", help="queue; the usual one when left out")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="what to run, after `--`; your shell if left out")
    options = parser.parse_args(argv)
    if not 1 <= options.gpus <= _MOST_CARDS:
        raise InputError(f"--gpus is {options.gpus}; give a number from 1 to {_MOST_CARDS}")
    if not 0 < options.hours <= _MOST_HOURS:
        raise InputError(f"--hours is {options.hours:g}; give a number above 0, at most {_MOST_HOURS:g}")
    if options.type and not _TYPE.fullmatch(options.type):
        raise InputError(f"--type is {options.type!r}; give a type that `sinfo -o %G` shows, such as a100")
    if options.partition and not _TYPE.fullmatch(options.partition):
        raise InputError(f"--partition is {options.partition!r}; give a name that `sinfo` shows")
    gres = ":".join(filter(None, ["gpu", options.type, str(options.gpus)]))
    command = options.command or [os.environ.get("SHELL", "/bin/bash"), "-l"]
    return [
        "srun",
        f"--gres={gres}",
        f"--time={math.ceil(options.hours * 60)}",
        *([f"--partition={options.partition}"] if options.partition else []),
        *(["--pty"] if terminal else []),
        *command,
    ]


def main(argv: Sequence[str], execute: Callable[[str, list[str]], object] = os.execvp) -> int:
    """Become srun: same process, same terminal, same exit status.

    Raises:
        GpulabError: it cannot be started.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    command = srun_command(argv, terminal=terminal)
    try:
        execute(command[0], command)
    except OSError as error:
        raise GpulabError(f"{command[0]} could not be started: {error.strerror or error}") from error
    return 0


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(guarded("gpu-run", main))
