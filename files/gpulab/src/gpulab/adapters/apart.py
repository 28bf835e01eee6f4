"""Run a function in a child process with a time limit: what hangs in a sick driver must not hang the caller.

The child also takes everything along that a library opened or allocated when it ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

_CHUNK = 1 << 16
_GRACE = 50
"""Milliseconds that a child which has answered, or was killed, may take to end."""


def run_apart(function: Callable[[], Result], *, patience: float) -> Result:
    """Call a function in a child process and return its result.

    Args:
        function: takes nothing; what it returns must be picklable.
        patience: seconds it may take.

    Raises:
        TimeoutError: it took longer. The child was killed; one that the kernel holds is left behind.
        ChildProcessError: the child died, or the function raised.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _child(function, writer)
    os.close(writer)
    try:
        data = _read(reader, time.monotonic() + patience)
    except TimeoutError:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(reader)
        _reap(child)
    if not data:
        raise ChildProcessError("the child process died")
    fine, value = pickle.loads(data)  # noqa: S301 - our own child wrote it
    if not fine:
        raise ChildProcessError(value)
    result: Result = value
    return result


def _child(function: Callable[[], Result], writer: int) -> None:
    """Send the result and end, without anything that the parent would do at its own end."""
    os.closerange(3, writer)
    os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))
    try:
        try:
            data = pickle.dumps((True, function()))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent is told
            data = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        with open(writer, "wb") as stream:
            stream.write(data)
    finally:
        os._exit(0)


def _read(reader: int, deadline: float) -> bytes:
    chunks: list[bytes] = []
    poll = select.poll()
    poll.register(reader, select.POLLIN | select.POLLHUP)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError
        chunk = os.read(reader, _CHUNK)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


def _reap(child: int) -> None:
    """Collect the child; one that the kernel holds does not stop us."""
    with contextlib.suppress(OSError):  # collected already
        handle = os.pidfd_open(child)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(_GRACE)
        os.close(handle)
        os.waitpid(child, os.WNOHANG)
