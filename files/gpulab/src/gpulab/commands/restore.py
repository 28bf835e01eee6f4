"""`gpulab restore`: a backup of `gpulab backup`, put back on a new server."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NotPermittedError
from ..services import backup

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str], *, world: backup.World | None = None) -> int:
    """Put a backup back.

    Args:
        argv: arguments after the subcommand.
        world: what is needed of the server.

    Raises:
        GpulabError: the backup is damaged, or the server has data of its own.
        NotPermittedError: the caller is not root.
    """
    parser = argparse.ArgumentParser(
        prog="gpulab restore",
        description="Put a backup's files in place on a new server, before its first run of the playbook. "
        "`make restore` does all steps in their order.",
    )
    parser.add_argument("file", type=Path, help="what gpulab backup wrote")
    parser.add_argument("--passwords", action="store_true", help="the last step, when the accounts are there again")
    options = parser.parse_args(argv)
    if world is None and os.geteuid() != 0:
        raise NotPermittedError("only root can put a backup back; use sudo gpulab restore")
    world = world or backup.World()
    if options.passwords:
        done = backup.restore_passwords(options.file, world)
        print(f"passwords of {', '.join(done)} are back" if done else "nobody lacks a password that the backup has")
        return 0
    manifest, placed = backup.restore(options.file, world)
    if not placed:
        print(f"the backup of {manifest.host}, {manifest.made}, is in place already")
        return 0
    print(f"restored from the backup of {manifest.host}, {manifest.made}:")
    for name in placed:
        print(f"  /{name}")
    return 0
