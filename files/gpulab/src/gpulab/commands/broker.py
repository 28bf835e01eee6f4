"""`gpulab broker`: what gpulab-broker.service runs; it gives cards to those who ask through allocate_gpu."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.files import exclusive_lock
from ..adapters.nvml_library import NoBindingError, load_binding
from ..services.broker import Broker
from ..services.broker_server import Server, listening_socket, lock_path
from ..services.broker_world import World
from ..settings import load

if TYPE_CHECKING:
    from collections.abc import Sequence

_CURRENT = "/opt/gpulab/current"
_IDLE = 600.0
_LOCK_SECONDS = 10.0


def main(argv: Sequence[str]) -> int:
    """Serve until nobody has asked for ten minutes.

    Raises:
        GpulabError: not started by systemd, another broker runs, or the settings cannot be understood.
    """
    parser = argparse.ArgumentParser(prog="gpulab broker", description=__doc__)
    parser.parse_args(argv)
    settings = load().allocator
    listener = listening_socket()
    with exclusive_lock(lock_path(Path("/")), timeout=_LOCK_SECONDS):
        try:
            load_binding()  # once, for the children that read the cards
        except NoBindingError as error:
            _log(str(error))
        ours = os.path.realpath(_CURRENT)
        broker = Broker(settings, World(log=_log))
        Server(listener, broker, time.monotonic, _IDLE, replaced=lambda: os.path.realpath(_CURRENT) != ours).run()
    return 0


def _log(line: str) -> None:
    print(line, flush=True)
