"""`gpulab leases`: who has which card, from the files; gives no new ones for a while. For root, without the broker."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..errors import NotPermittedError
from ..rules.lease_words import duration
from ..services import lease_drain
from ..services.leases import live_leases

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST = 7 * 24 * 60


def main(argv: Sequence[str]) -> int:
    """List the leases whose commands run.

    Raises:
        NotPermittedError: the caller is not root.
    """
    parser = argparse.ArgumentParser(prog="gpulab leases", description=__doc__)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--drain", type=_minutes, metavar="MINUTES", help="give no new ones for so long; 0: again")
    arguments = parser.parse_args(argv)
    try:
        if arguments.drain:
            lease_drain.begin(time.time() + 60 * arguments.drain)
        elif arguments.drain == 0:
            lease_drain.end()
        leases = live_leases()
    except PermissionError:
        raise NotPermittedError("only root may read and write the files of the leases; use gpu-status") from None
    if arguments.json:
        print(json.dumps([asdict(lease) for lease in leases], indent=2))
        return 0
    for lease in leases:
        cards = ", ".join(str(card.index) for card in lease.cards)
        print(
            f"{lease.user}: card {cards} for {duration(time.time() - lease.since)} (PID {lease.pid}: {lease.command})"
        )
    return 0


def _minutes(text: str) -> int:
    minutes = int(text)
    if not 0 <= minutes <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {_LONGEST} (a week)")
    return minutes
