"""`python3 -m gpusim` and the zipapp both start here."""

from __future__ import annotations

from .main import run

if __name__ == "__main__":
    run()
