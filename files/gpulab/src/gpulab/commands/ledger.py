"""`gpulab ledger`: rewrite the hardware ledger (GPU_INFO.md) and the card list (gpu_inventory.csv)."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names, settings
from ..adapters.hardware import read_machine
from ..adapters.nvml import read_cards
from ..errors import GpulabError
from ..rules.ledger_page import sentence
from ..services.ledger import PLACES, refresh
from ..services.quota_check import look
from ..services.quota_world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.machine import Machine


def main(argv: Sequence[str]) -> int:
    """Rewrite the pages and say `changed` or `unchanged`, with what changed.

    Raises:
        GpulabError: see `services.ledger.refresh`.
    """
    parser = argparse.ArgumentParser(
        prog="gpulab ledger",
        description=f"Rewrite {names.LEDGER_FILE} and {names.INVENTORY_FILE} from what NVML and the machine say now. "
        "Says `changed` when the hardware, the driver or the MIG layout differs from last time or a page was not as "
        "it had been left; used memory and free space are refreshed without counting as a change.",
    )
    parser.add_argument("--check", action="store_true", help="write nothing, only say what would change")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    arguments = parser.parse_args(argv)
    root = Path("/")
    outcome = refresh(
        root,
        read_cards=read_cards,
        read_machine=_read_machine,
        now=lambda: datetime.now().astimezone(),
        language=settings.load(root).lab.language,
        dry_run=arguments.check,
    )
    changes = [sentence(change) for change in outcome.changes]
    if arguments.json:
        answer = {"changed": outcome.changed, "changes": changes, "cards": outcome.cards, "reason": outcome.reason}
        print(json.dumps(answer, ensure_ascii=False))
        return 0
    print("changed" if outcome.changed else "unchanged")
    for line in changes:
        print(f"  {line}")
    return 0


def _read_machine() -> Machine:
    """Look at the machine, and at how much of their disk limits people use."""
    machine = read_machine(PLACES)
    try:
        seen = look(World())
    except (GpulabError, OSError) as error:
        return replace(machine, quota_reason=str(error).rstrip("."))
    return replace(machine, quotas=(*seen.members, *seen.projects), quota_off=seen.off)
