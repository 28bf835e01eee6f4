"""No new leases for a while, so that the running ones come to their end: before the tier of a server changes.

The end of it is on file from the beginning: a run of the playbook that is killed does not leave the server closed.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import state

if TYPE_CHECKING:
    from collections.abc import Callable

_FILE = "drain"
_SENTENCES = {
    "en": "this server is about to change and starts no new commands on cards (until {until:%H:%M} at the latest)",
    "zh": "服务器即将调整, 暂不在卡上启动新命令 (最晚到 {until:%H:%M})",
}


def begin(until: float, root: Path = Path("/")) -> None:
    """Give no lease until a moment, in seconds since the epoch.

    Raises:
        OSError: it cannot be noted down.
    """
    state.save(_path(root), until)


def end(root: Path = Path("/")) -> None:
    """Give leases again.

    Raises:
        OSError: the note cannot be taken away.
    """
    _path(root).unlink(missing_ok=True)


def reason(now: datetime, language: str, root: Path = Path("/"), log: Callable[[str], None] = print) -> str:
    """Return why nobody is given a card now; empty when leases are given.

    Args:
        now: server time, naive.
        language: `en` or `zh`.
        root: the folder that stands for `/`.
        log: told in one line about a note that cannot be used.
    """
    try:
        noted = state.load(_path(root))
    except (state.CorruptStateError, OSError) as error:
        log(str(error))
        return ""
    if type(noted) not in {int, float} or noted <= now.timestamp():
        return ""
    return _SENTENCES[language].format(until=datetime.fromtimestamp(noted))  # noqa: DTZ006 - server time, as it is shown


def _path(root: Path) -> Path:
    return Path(names.under(root, names.RUN_DIR)) / _FILE
