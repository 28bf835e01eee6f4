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


class HeldError(TimeoutError):
    """A child took too long and is still there after it was killed: the kernel holds it.

    Attributes:
        pid: the child.
    """

    def __init__(self, pid: int) -> None:
        """Say which."""
        super().__init__(f"process {pid} is held by the kernel")
        self.pid = pid


def run_apart(function: Callable[[], Result], *, patience: float, kill: Callable[[int, int], None] = os.kill) -> Result:
    """Call a function in a child process and return its result.

    Args:
        function: takes nothing; what it returns must be picklable.
        patience: seconds it may take.
        kill: sends a signal, see os.kill.

    Raises:
        HeldError: it took longer, and the kernel holds the child, which is left behind.
        TimeoutError: it took longer. The child was killed.
        ChildProcessError: the child died, or the function raised.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _child(function, writer)
    os.close(writer)
    late = False
    try:
        data = _read(reader, time.monotonic() + patience)
    except TimeoutError:
        late = True
        kill(child, signal.SIGKILL)
    finally:
        os.close(reader)
        ended = _reap(child)
    if late:
        raise TimeoutError if ended else HeldError(child)
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


def _reap(child: int) -> bool:
    """Collect the child; return whether it has ended. One that the kernel holds does not stop us."""
    with contextlib.suppress(OSError):  # collected already
        handle = os.pidfd_open(child)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(_GRACE)
        os.close(handle)
    return _ended(child)


def _ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


class Apart:
    """Calls functions apart, again and again, each under a name.

    While the kernel holds the last child of a name no other is begun under it: a file system that hangs for a day costs
    one process, not one for each look.

    Args:
        kill: sends a signal, see os.kill.
    """

    def __init__(self, kill: Callable[[int, int], None] = os.kill) -> None:
        """Nothing is held yet."""
        self._kill = kill
        self._held: dict[str, int] = {}

    def run(self, name: str, function: Callable[[], Result], *, patience: float) -> Result:
        """Call a function as run_apart does.

        Args:
            name: of what may hang.
            function: see run_apart.
            patience: likewise.

        Raises:
            HeldError: it took longer, or the last child of that name still hangs.
            TimeoutError: it took longer.
            ChildProcessError: see run_apart.
        """
        child = self._held.get(name)
        if child is not None:
            if not _ended(child):
                raise HeldError(child)
            del self._held[name]
        try:
            return run_apart(function, patience=patience, kill=self._kill)
        except HeldError as error:
            self._held[name] = error.pid
            raise
