"""`gpulab info`: the cards as NVML sees them, or the reason why there are none."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ..adapters.nvml import read_cards
from ..rules.cards import to_dict
from ..rules.cards_text import describe

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Print the cards; that there are none is an answer too, not a failure."""
    parser = argparse.ArgumentParser(
        prog="gpulab info", description="Show the cards, who is on them, or the reason why none can be shown."
    )
    parser.add_argument("--json", action="store_true", help="print everything NVML said as JSON; unknown is null")
    arguments = parser.parse_args(argv)
    cards = read_cards()
    print(json.dumps(to_dict(cards), ensure_ascii=False, indent=2) if arguments.json else describe(cards))
    return 0
