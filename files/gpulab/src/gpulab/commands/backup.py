"""`gpulab backup`: what people own on the server, in one file."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.clock import server_now
from ..services import backup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime


def main(argv: Sequence[str], *, world: backup.World | None = None, now: Callable[[], datetime] = server_now) -> int:
    """Make a backup.

    Args:
        argv: arguments after the subcommand.
        world: what is needed of the server.
        now: server time, naive.

    Raises:
        GpulabError: something cannot be read or written.
        NotPermittedError: the caller is not root.
    """
    parser = argparse.ArgumentParser(
        prog="gpulab backup",
        description="Save the register of accounts with their passwords, bookings, samples, reports and Slurm's "
        "accounts in one file that only root can read. Homes and /data are not in it.",
    )
    parser.add_argument("file", type=Path, help="where to; a .tar.gz that is not there yet")
    options = parser.parse_args(argv)
    made = backup.make(options.file, socket.gethostname(), now(), world or backup.World())
    print(f"{options.file}: {len(made.sums)} parts, {options.file.stat().st_size // 1024} KiB")
    for name in made.sums:
        print(f"  {name}")
    return 0
