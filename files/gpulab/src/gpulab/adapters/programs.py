"""Programs of the system that are asked something, without ever being held up by them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class ProgramError(OSError):
    """A program failed; the message is all that it wrote, in one line.

    Attributes:
        reason: the last part of its last line, such as the text of an error of the system.
    """

    def __init__(self, program: str, complaint: str) -> None:
        """Keep what the program wrote on standard error, or on standard output where it wrote nothing there."""
        lines = [line.strip() for line in complaint.splitlines() if line.strip()] or [f"{program} failed"]
        super().__init__("; ".join(lines))
        self.reason = lines[-1].rpartition(": ")[2]


def output_of(arguments: Sequence[str], patience: float, given: str = "") -> str:
    """Run a program in the C locale and return what it prints.

    Args:
        arguments: the program and its arguments.
        patience: seconds it may take.
        given: what it reads from standard input.

    Raises:
        TimeoutError: it did not end in time. It was killed; if the kernel holds it, it is not waited for.
        ProgramError: it failed.
        OSError: there is no such program.
    """
    # Not subprocess.run: after a timeout that waits for the child's end, which may never come.
    try:
        child = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise OSError(f"the program {arguments[0]} is not installed") from error
    try:
        output, complaint = child.communicate(given or None, timeout=patience)
    except subprocess.TimeoutExpired as error:
        child.kill()
        raise TimeoutError(arguments[0]) from error
    if child.returncode:
        raise ProgramError(arguments[0], complaint if complaint.strip() else output)
    return output
