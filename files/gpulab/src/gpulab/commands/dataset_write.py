"""`gpulab dataset-write`: root's part of gpu-dataset, for the curator who comes through sudo.

The sudoers rule allows exactly this command line. The request, and the files of a dataset that is added, come on
standard input and are data: who asks is what sudo says, and no path that the curator names is opened here. The answer
is one JSON object on standard output.
"""

from __future__ import annotations

import io
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..adapters.callers import caller
from ..adapters.clock import server_now
from ..errors import NotPermittedError
from ..rules.dataset_wire import LINE_LIMIT, Request, decode_request
from ..services.dataset_receive import receive
from ..services.dataset_store import STAGED, open_store
from ..settings import load
from .root_part import Patient, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

_READ_SECONDS = 300.0
_ROOT = Path("/")


def main(argv: Sequence[str]) -> int:
    """Read a request, do it, answer.

    Raises:
        InputError: there are arguments.
        NotPermittedError: we are not root.
    """

    def work() -> dict[str, Any]:
        # Ctrl-C ends a copy, and what is there of it is removed. Ctrl-Z must not stop us while others wait for our
        # lock.
        for ignored in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(ignored, signal.SIG_IGN)
        stream = io.BufferedReader(Patient(0, seconds=_READ_SECONDS, program="gpu-dataset"), LINE_LIMIT)
        return perform(decode_request(stream.readline(LINE_LIMIT)), stream)

    return serve(argv, "dataset-write", "gpu-dataset", work)


def perform(request: Request, stream: BinaryIO) -> dict[str, Any]:
    """Do a request as root for the person who runs this process.

    Returns:
        `datasets`: the records of those that were asked about.

    Raises:
        GpulabError: it was refused; nothing was changed.
    """
    settings, who, when = load(_ROOT).datasets, caller(), server_now().isoformat(timespec="seconds")
    if who not in ("root", *settings.curators):
        raise NotPermittedError(f"{who} is no curator; ask one of them: {', '.join(settings.curators) or 'nobody yet'}")
    store = open_store(settings.store)
    if request.verb == "add":
        found = [receive(stream, request, store, who=who, when=when)]
    elif request.verb == "publish":
        found = [store.publish(request.name, who=who, when=when)]
    elif request.verb == "remove":
        found = [store.remove(request.name)]
    else:
        found = list(store.records(STAGED))
    return {"datasets": [asdict(record) for record in found]}
