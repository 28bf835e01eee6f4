"""`gpulab overview`: write the login messages and the board once, or for ever as gpulab-overview.service."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.resident import notify, up_to_date
from ..errors import GpulabError, InputError, NotPermittedError
from ..rules.login_message import common
from ..services.overview import World, take
from ..services.overview_files import Publisher
from ..settings import load
from .check_gpu import read_members

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..rules.overview import Overview

_USAGE = """\
usage: gpulab overview [--forever]

Look at the cards, at people's bookings or jobs and at the disks, and write what members see at login
(/run/gpulab/login) and the board (/run/gpulab/board, where board_enabled is true). --forever is for
gpulab-overview.service, which does so every minute."""

_ROOT = Path("/")
_SECONDS = 60


def main(argv: Sequence[str]) -> int:
    """Write once, or again and again.

    Raises:
        InputError: an unknown argument.
        NotPermittedError: we are not root.
        GpulabError: the files cannot be written.
    """
    if list(argv) in (["-h"], ["--help"]):
        print(_USAGE)
        return 0
    if list(argv) not in ([], ["--forever"]):
        raise InputError("overview takes --forever or nothing; `gpulab overview --help`")
    if os.geteuid() != 0:
        raise NotPermittedError("only root may write what others read at login; use sudo")
    current = up_to_date(_ROOT, "board")
    settings = load(_ROOT)
    world, publisher = World(), Publisher(_ROOT, _uptime)

    def look() -> Overview:
        seen = take(world, settings.lab.tier)
        try:
            publisher.publish(seen, read_members(), settings)
        except OSError as error:
            raise GpulabError(f"{error.filename}: {error.strerror}; see to it, it is tried again") from error
        return seen

    if argv:
        run(look, current, notify)
    else:
        print(common(look(), settings.lab.language).line)
    return 0


def run(
    look: Callable[[], object],
    is_current: Callable[[], bool],
    tell: Callable[[str], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> None:
    """Look now and at every full minute, until a new process shall take over: release or settings have changed.

    Args:
        look: takes the overview and writes it.
        is_current: whether release and settings are still those this process began with.
        tell: tells the service manager that we live (sd_notify(3)).
        sleep: waits.
        clock: seconds since 1970.
    """
    look()
    tell("READY=1")
    while True:
        sleep(_SECONDS - clock() % _SECONDS)
        if not is_current():
            return
        look()
        tell("WATCHDOG=1")


def _uptime() -> float:
    with open("/proc/uptime", encoding="ascii") as stream:
        return float(stream.read().split()[0])
