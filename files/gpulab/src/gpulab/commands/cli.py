"""What every command shares: errors become one line on stderr and an exit status."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import GpulabError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def guarded(program: str, main: Callable[[Sequence[str]], int]) -> int:
    """Run a command's main with the process's arguments.

    Args:
        program: the name that people typed; errors begin with it.
        main: takes the arguments after the name, returns the exit status.

    Returns:
        The exit status: main's own, or the error's.
    """
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except GpulabError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        # The reader (head, less) went away: not an error. Python would complain again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return status


def table(rows: Sequence[Sequence[str]]) -> str:
    """Write rows of the same length as columns."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
