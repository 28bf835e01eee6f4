"""What leases give away, in the words of the sampler. The only place here that asks the broker's module."""

from __future__ import annotations

import importlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters.procfs import identify
from ..errors import GpulabError
from ..rules.samples import Hold, Runner

if TYPE_CHECKING:
    from collections.abc import Callable


def holds(root: Path, proc_root: Path = Path("/proc")) -> tuple[Hold, ...]:
    """Return the cards that living leases hold; none where no tier makes leases, or when they cannot be read.

    A lease that is not seen is judged by nobody: that is the safe side. The broker tells of broken leases.

    Args:
        root: the folder that stands for `/`.
        proc_root: where proc is mounted.
    """
    if not os.path.isdir(names.under(root, names.LEASES_DIR)):
        return ()  # nothing is imported for it either
    leases = importlib.import_module(".leases", __package__)
    try:
        living = leases.live_leases(root)
    except (OSError, GpulabError):
        return ()
    found = []
    for lease in living:
        who = identify(lease.pid, proc_root)
        command = who.command if who else ""
        holder = Runner(lease.pid, lease.start_ticks, lease.uid, lease.user, command, lease.id)
        asked = None if lease.asked is None else int(lease.asked)
        found += [
            Hold(lease.id, holder, card.index, card.shared, card.memory, asked, int(lease.since))
            for card in lease.cards
        ]
    return tuple(found)


def reader(root: Path) -> Callable[[], tuple[Hold, ...]]:
    """Return the function the sampler calls at every look."""
    return partial(holds, root)
