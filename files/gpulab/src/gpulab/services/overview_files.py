"""Write the overview where shells and nginx read it: in /run, each file by rename, each of them small."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters.files import write_atomic
from ..rules import board_page
from ..rules.login_message import LANGUAGES, common, own

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..rules.overview import Overview
    from ..settings import Settings

_MODE = 0o644
_MEMBERS = "members"
_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,63}")
"""Account names that may become file names; users of the booking sheet are whatever somebody typed there."""


class Publisher:
    """Writes files and remembers what is in them.

    Args:
        root: the folder that stands for `/`.
        uptime: seconds since boot, which shells can read without starting a program (proc_uptime(5)).
    """

    def __init__(self, root: Path, uptime: Callable[[], float]) -> None:
        """Nothing is written yet."""
        self._login = Path(names.under(root, names.LOGIN_DIR))
        self._board = Path(names.under(root, names.BOARD_FILE))
        self._uptime = uptime
        self._written: dict[str, bytes] = {}

    def publish(self, seen: Overview, members: Collection[str], settings: Settings) -> None:
        """Write all of it. What belongs to everybody comes last: its time says that the rest is as new.

        Args:
            seen: the lab.
            members: who may have a file of their own.
            settings: whose lab it is, and whether there is a board.

        Raises:
            OSError: a file cannot be written.
        """
        since = int(self._uptime())
        self._own_lines(seen, members)
        for language in LANGUAGES:
            told = common(seen, language)
            self._write(self._login / language, f"{since}\n{told.line}\n{told.stale}\n{told.nothing}\n")
        if settings.board.enabled:
            self._write(self._board, board_page.render(seen, settings.lab.name, settings.lab.language))
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._board)

    def _own_lines(self, seen: Overview, members: Collection[str]) -> None:
        folder = self._login / _MEMBERS
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        wanted: dict[str, bytes] = {}
        for user in seen.concerned & set(members):
            if _NAME.fullmatch(user):
                for language in LANGUAGES:
                    line = own(seen, user, language)
                    if line:
                        wanted[f"{user}.{language}"] = _encoded(f"{line}\n")
        for name in set(os.listdir(folder)) - wanted.keys():
            os.unlink(folder / name)
            self._written.pop(name, None)
        for name, data in wanted.items():
            if self._written.get(name) != data:
                write_atomic(folder / name, data, mode=_MODE)
                self._written[name] = data

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_atomic(path, _encoded(text), mode=_MODE)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
