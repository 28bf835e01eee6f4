"""The server's clock on the wall."""

from __future__ import annotations

import os
import time
from datetime import datetime


def server_now() -> datetime:
    """Return the server's local time, naive, whatever TZ says.

    The booking sheet holds the times of the server. A member's TZ must not shift them: sudo passes it on to root's
    part unless told otherwise (sudoers(5), env_check).
    """
    if os.environ.pop("TZ", None) is not None:
        time.tzset()
    return datetime.now()  # noqa: DTZ005 - naive server time is what the sheet holds
