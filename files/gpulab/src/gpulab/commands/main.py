"""`gpulab`: the admin's command; each subcommand is a module that is imported only when asked for."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from .. import __version__
from ..errors import InputError
from .cli import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

SUBCOMMANDS = {
    "backup": ("backup", "save accounts, bookings, samples and Slurm's accounting in one file"),
    "broker": ("broker", "give cards to those who ask through allocate_gpu (internal)"),
    "check-gpu": ("check_gpu", "compare bookings with what runs on the cards; mail who should know"),
    "dataset-write": (
        "dataset_write",
        "add, publish or remove a dataset for the curator who calls through sudo (internal)",
    ),
    "datasets": ("datasets", "look for published data that members have in their homes too"),
    "info": ("info", "show the cards as NVML sees them, or the reason why there are none"),
    "keep-write": ("keep_write", "write down the answer of the member who calls through sudo (internal)"),
    "leases": ("leases", "list the commands that allocate_gpu gave a card"),
    "ledger": ("ledger", "rewrite the hardware ledger and the card list"),
    "members": ("members", "list the accounts that gpulab manages"),
    "mig": ("mig", "split cards into MIG instances: show, plan, apply"),
    "net": ("net", "share the network line between members; who uses it now"),
    "overview": ("overview", "write the login messages, and the board; every minute as a service"),
    "quota": ("quota", "disk limits: who uses how much, bring them back, mail who is near one"),
    "reclaim": ("reclaim", "ask the owners of idle processes; show who is idle since when"),
    "report": ("report", "show who used the cards, how well, and what to change"),
    "restore": ("restore", "put a backup back on a new server"),
    "sample": ("sample", "look at the cards and keep what runs on them; every minute as a service"),
    "settings": ("settings", "print the settings in force, or check a file"),
    "slurm": ("slurm", "put the golden hours of this moment into Slurm; make its cards ready"),
    "windows": ("windows", "show the golden hours, and which of them it is now"),
    "schedule-write": ("schedule_write", "change the booking sheet for the member who calls through sudo (internal)"),
}
"""Subcommand name: module in this package (it has `main(argv) -> int`), one line of help."""


def usage() -> str:
    """Return the help text."""
    width = max(map(len, SUBCOMMANDS))
    rows = [f"  {name:<{width}}  {summary}" for name, (_, summary) in SUBCOMMANDS.items()]
    return "\n".join(["usage: gpulab SUBCOMMAND [--help] ...", "", *rows])


def main(argv: Sequence[str]) -> int:
    """Dispatch to a subcommand.

    Raises:
        InputError: there is no such subcommand.
    """
    if not argv or argv[0] in {"-h", "--help"}:
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"gpulab {__version__}")
        return 0
    if argv[0] not in SUBCOMMANDS:
        raise InputError(f"there is no subcommand {argv[0]!r}; `gpulab --help` lists them")
    module = importlib.import_module(f"..{SUBCOMMANDS[argv[0]][0]}", __name__)
    status: int = module.main(argv[1:])
    return status


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(guarded("gpulab", main))
