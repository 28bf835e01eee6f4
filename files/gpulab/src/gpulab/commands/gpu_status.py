"""`gpu-status`: every card, who has it, how much memory is used and promised, and who waits."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING

from ..errors import GpulabError
from ..rules.lease_table import table
from .allocate_gpu import SOCKET, Stop, ask
from .cli import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE = 40.0
_WIDE = 200  # columns where there is no terminal


def main(argv: Sequence[str], path: str = SOCKET) -> int:
    """Ask the broker, because members cannot open NVML themselves where the guard is on.

    Returns:
        1 when there are no cards to show, else 0.

    Raises:
        GpulabError: the broker does not answer.
    """
    parser = argparse.ArgumentParser(
        prog="gpu-status", description="Show every card, who has it, and who waits.", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="as JSON; memory in bytes, unknown is null")
    arguments = parser.parse_args(argv)
    try:
        answer = ask("status", {}, _PATIENCE, path)
    except Stop as stop:
        raise GpulabError(stop.args[0]) from None
    except TimeoutError:
        raise GpulabError(
            f"the broker did not answer within {_PATIENCE:g} s; see journalctl -u gpulab-broker"
        ) from None
    document = json.loads(answer["document"])
    if arguments.json:
        print(json.dumps(document, indent=2))
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE
        print("\n".join(table(document, columns)))
    return 1 if document["reason"] else 0


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(guarded("gpu-status", main))
