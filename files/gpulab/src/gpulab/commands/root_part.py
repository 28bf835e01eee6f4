"""Commands of members that have root do something: a fixed command line through sudo, a JSON request, a JSON answer."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import time
from typing import IO, TYPE_CHECKING, Any

from ..errors import GpulabError, InputError, NotPermittedError
from ..rules.display import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Runner = Callable[..., subprocess.CompletedProcess[bytes]]
    """Called like subprocess.run."""


class RefusedError(GpulabError):
    """Root's part refused; carries its exit status."""

    def __init__(self, message: str, exit_status: int) -> None:
        """Keep the message and the exit status."""
        super().__init__(message)
        self.exit_status = exit_status


def ask(writer: Sequence[str], request: bytes, failed: str, runner: Runner = subprocess.run) -> dict[str, Any]:
    """Have root's part do something.

    Args:
        writer: the command line that a sudoers rule allows members, beginning with sudo.
        request: what is wanted.
        failed: what could not be done when there is no answer, such as `the booking sheet could not be changed`.
        runner: runs sudo.

    Raises:
        RefusedError: it said no; nothing was changed.
        GpulabError: sudo does not let this account in, or there is no answer.
    """
    try:
        result = runner(writer, input=request, capture_output=True, check=False)
    except OSError as error:
        raise GpulabError(f"{writer[0]}: {error.strerror or error}; ask the admin to install sudo") from error
    hint = "is your account in group gpu-members? Groups count from the next login; else ask the admin"
    return _answer(result, failed, hint)


def converse(writer: Sequence[str], feed: Callable[[IO[bytes]], None], failed: str, hint: str) -> dict[str, Any]:
    """Have root's part do something with more than fits in a request.

    Args:
        writer: as with ask.
        feed: writes request and data; when it raises, root's part sees an early end.
        failed: as with ask.
        hint: what to look at when sudo does not let this account in.

    Raises:
        RefusedError: as with ask.
        GpulabError: as with ask.
    """
    try:
        process = subprocess.Popen(writer, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise GpulabError(f"{writer[0]}: {error.strerror or error}; ask the admin to install sudo") from error
    with process:
        if process.stdin is None:
            raise GpulabError(f"{writer[0]} has no standard input")
        with contextlib.suppress(BrokenPipeError):  # it has answered already
            feed(process.stdin)
        stdout, stderr = process.communicate()
    return _answer(subprocess.CompletedProcess(writer, process.returncode, stdout, stderr), failed, hint)


def _answer(result: subprocess.CompletedProcess[bytes], failed: str, hint: str) -> dict[str, Any]:
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        said = printable(result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2], 200)
        raise GpulabError(f"{failed} ({said or f'exit status {result.returncode}'}); {hint}") from None
    if "error" in answer:
        raise RefusedError(answer["error"], result.returncode or 1)
    return dict(answer)


def serve(argv: Sequence[str], name: str, program: str, perform: Callable[[], dict[str, Any]]) -> int:
    """Be root's part: do what was asked and print the answer, or why not, as one JSON object.

    Args:
        argv: arguments after the subcommand; there may be none, the request comes on standard input.
        name: of the subcommand.
        program: what members type.
        perform: reads the request, does it and returns the answer; after a GpulabError or OSError nothing was changed.

    Returns:
        The exit status.

    Raises:
        InputError: there are arguments.
        NotPermittedError: we are not root.
    """
    if argv:
        raise InputError(f"{name} takes no arguments; use {program}")
    if os.geteuid() != 0:
        raise NotPermittedError(f"{name} is for root; use {program}")
    os.chdir("/")
    os.umask(0o022)
    try:
        answer, status = perform(), 0
    except GpulabError as error:
        answer, status = {"error": str(error)}, error.exit_status
    except OSError as error:
        answer, status = {"error": f"{error}; nothing was changed"}, 1
    print(json.dumps(answer))
    return status


def read_request(descriptor: int, *, seconds: float, limit: int, program: str) -> bytes:
    """Read a request to its end; who sends nothing does not keep a root process alive.

    Args:
        descriptor: where it comes from.
        seconds: the longest wait for all of it.
        limit: bytes; one more is read, for the decoder to see that there are too many.
        program: what members type.

    Raises:
        InputError: it did not come in time.
    """
    deadline = time.monotonic() + seconds
    data = b""
    while len(data) <= limit:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise InputError(f"no complete request came within {seconds:g} s; use {program}")
        chunk = os.read(descriptor, limit + 1)
        if not chunk:
            break
        data += chunk
    return data


class Patient(io.RawIOBase):
    """A descriptor to read from that gives up when nothing comes for a while, as read_request does.

    Raises:
        InputError: on reading, when nothing came in time.
    """

    def __init__(self, descriptor: int, *, seconds: float, program: str) -> None:
        """Keep what to read, how long to wait, and what members type."""
        self.descriptor, self.seconds, self.program = descriptor, seconds, program

    def readable(self) -> bool:
        """Tell that it is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with what there is."""
        ready, _, _ = select.select([self.descriptor], [], [], self.seconds)
        if not ready:
            raise InputError(f"nothing came for {self.seconds:g} s; use {self.program}")
        data = os.read(self.descriptor, len(buffer))
        buffer[: len(data)] = data
        return len(data)
