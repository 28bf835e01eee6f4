"""`gpulab leases`: who has which card, from the files; works without the broker, for root."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..errors import NotPermittedError
from ..rules.lease_words import duration
from ..services.leases import live_leases

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """List the leases whose commands run.

    Raises:
        NotPermittedError: the caller is not root.
    """
    parser = argparse.ArgumentParser(prog="gpulab leases", description=__doc__)
    parser.add_argument("--json", action="store_true", help="as JSON")
    arguments = parser.parse_args(argv)
    try:
        leases = live_leases()
    except PermissionError:
        raise NotPermittedError("only root may read the files of the leases; use gpu-status") from None
    if arguments.json:
        print(json.dumps([asdict(lease) for lease in leases], indent=2))
        return 0
    for lease in leases:
        cards = ", ".join(str(card.index) for card in lease.cards)
        print(
            f"{lease.user}: card {cards} for {duration(time.time() - lease.since)} (PID {lease.pid}: {lease.command})"
        )
    return 0
