"""`gpu-why`."""

from __future__ import annotations

import sys


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(0)
