"""`gpu-quota`: how much disk space you have left."""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from typing import TYPE_CHECKING

from ..rules.quota_warn import FINE, HARD, NEAR, SOFT, level
from ..services.quota_check import own
from ..services.quota_world import World
from .cli import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.quota_warn import Reading

_REMARKS = {
    FINE: "",
    NEAR: "; nearly full",
    SOFT: "; over the soft limit: delete something, or writing fails when the grace time is over",
    HARD: "; full: writing fails now",
}


def main(argv: Sequence[str]) -> int:
    """Print the caller's use of each limited folder.

    Returns:
        0, or 1 when a limit is exceeded, so that a job can ask before it begins.

    Raises:
        GpulabError: the note of the limits cannot be understood.
    """
    parser = argparse.ArgumentParser(
        prog="gpu-quota",
        description="How much disk space and how many files you use, and may. Ends with 1 when a limit is exceeded.",
    )
    parser.parse_args(argv)
    uid = os.getuid()
    found = own(World(), uid, pwd.getpwuid(uid).pw_name)
    if not found:
        print("There are no disk limits on this server." if found is None else "No disk limits are in force now.")
        return 0
    for reading in found:
        print(line(reading))
    return int(any(level(reading) >= SOFT for reading in found))


def line(reading: Reading) -> str:
    """Say one use in words."""
    if not (reading.hard or reading.soft):
        return f"{reading.path}: {reading.show(reading.used)}, no limit"
    soft = f" (soft limit {reading.show(reading.soft)})" if reading.soft and reading.hard else ""
    limit = reading.show(reading.hard or reading.soft)
    return f"{reading.path}: {reading.show(reading.used)} of {limit}{soft}, {reading.share} %{_REMARKS[level(reading)]}"


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(guarded("gpu-quota", main))
