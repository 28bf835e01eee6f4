"""A line on a person's terminals, as write(1) puts it there: only where they take messages, and only text."""

from __future__ import annotations

import glob
import os
import stat
from typing import TYPE_CHECKING

from ..rules.display import printable

if TYPE_CHECKING:
    from pathlib import Path

_PLACES = ("dev/pts/[0-9]*", "dev/tty[0-9]*")


def tell(uid: int, line: str, root: Path) -> int:
    """Write a line on every terminal of a person that takes messages (mesg(1)).

    Args:
        uid: whose terminals: those the account owns.
        line: what to say; what is not printable is shown as an escape, so that it cannot steer the terminal.
        root: the folder that stands for `/`.

    Returns:
        On how many terminals it is. One that is stopped (Ctrl-S) or has gone is passed over.
    """
    data = f"\r\n{printable(line)}\r\n".encode()
    return sum(_write(path, uid, data) for place in _PLACES for path in sorted(glob.glob(str(root / place))))


def _write(path: str, uid: int, data: bytes) -> bool:
    try:
        if os.lstat(path).st_uid != uid:
            return False
        # O_NONBLOCK: a terminal that nobody reads must not hold us up.
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Asked again of what was opened: the number may have become somebody else's terminal in between.
        status = os.fstat(descriptor)
        takes_messages = stat.S_ISCHR(status.st_mode) and status.st_uid == uid and status.st_mode & stat.S_IWGRP
        return bool(takes_messages) and os.write(descriptor, data) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)
