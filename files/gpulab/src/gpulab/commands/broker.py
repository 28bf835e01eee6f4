"""`gpulab broker`: what gpulab-broker.service runs; it gives cards to those who ask through allocate_gpu."""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters.files import exclusive_lock
from ..adapters.nvml_library import NoBindingError, load_binding
from ..errors import GpulabError
from ..services.broker import Broker
from ..services.broker_server import Server, listening_socket, lock_path
from ..services.broker_world import Unable, World
from ..services.lease_policy import load_policy
from ..settings import load

if TYPE_CHECKING:
    from collections.abc import Sequence

_RELEASE = Path("/opt/gpulab/current")
_IDLE = 600.0
_LOCK_SECONDS = 10.0


def main(argv: Sequence[str]) -> int:
    """Serve until nobody has asked for ten minutes, or another release or other settings are in force.

    Raises:
        GpulabError: not started by systemd, or another broker runs.
    """
    parser = argparse.ArgumentParser(prog="gpulab broker", description=__doc__)
    parser.parse_args(argv)
    listener = listening_socket()
    began_with = _in_force()
    with exclusive_lock(lock_path(Path("/")), timeout=_LOCK_SECONDS):
        server = Server(listener, _broker(), time.monotonic, _IDLE, replaced=lambda: _in_force() != began_with)
        server.run()
    return 0


def _broker() -> Broker | Unable:
    try:
        load_binding()  # once, for the children that read the cards
    except NoBindingError as error:
        _log(str(error))
    try:
        settings = load()
    except GpulabError as error:
        _log(str(error))
        return Unable(f"the settings of the server cannot be used, tell the admin: {error}")
    return Broker(settings.allocator, World(policy=partial(load_policy, Path("/"), settings), log=_log))


def _in_force(root: Path = Path("/")) -> tuple[tuple[str, int], ...]:
    """Return the release in use, and which settings there are and since when."""
    folder = Path(names.under(root, names.SETTINGS_DIR))
    files = [Path(names.under(root, names.SETTINGS_FILE)), *sorted(folder.glob("*.toml"))]
    times = [(str(path), path.stat().st_mtime_ns) for path in files if path.exists()]
    return (os.path.realpath(_RELEASE), 0), *times


def _log(line: str) -> None:
    print(line, flush=True)
