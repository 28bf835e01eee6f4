"""What slurmd needs of the cards of this machine before it starts: their device files, and their UUIDs for tasks.

slurmd waits 20 s for a device file that its gres.conf names, and then ends. Slurm numbers what a job has, 0, 1, 2; CUDA
knows a MIG instance by its UUID only, and that one changes when an instance is made anew, as at each boot.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import device_nodes
from ..adapters.files import write_atomic
from ..adapters.nvml import read_cards
from ..errors import GpulabError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..rules.cards import Card, Cards, MigDevice

_MODE = 0o644


def prepare(
    root: Path = Path("/"),
    read: Callable[..., Cards] = read_cards,
    make_missing: Callable[..., str] = device_nodes.make_missing,
) -> list[str]:
    """Make device files that are missing, and write down which one belongs to which UUID.

    Each line of the table is the last device file of a card or instance, as in its line of gres.conf, and its UUID.

    Args:
        root: the folder that stands for `/`.
        read: asks NVML.
        make_missing: makes the device files of a card or instance; see `device_nodes.make_missing`.

    Returns:
        What could not be done, one sentence each; slurmd will say what that means for it.

    Raises:
        OSError: the table cannot be written.
    """
    reading = read(nvlinks=False)
    problems = [reading.reason] if reading.reason else []
    lines: list[str] = []
    for card in reading.cards:
        if not card.lost:
            for instance in card.mig_devices if card.mig_enabled else (None,):
                try:
                    lines.append(f"{_last_file(card, instance, root)} {(instance or card).uuid}\n")
                    problem = make_missing(card, instance, root)
                except GpulabError as error:
                    problem = str(error)
                problems += [problem] if problem else []
    table = Path(names.under(root, names.SLURM_CARDS_FILE))
    table.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_atomic(table, "".join(lines).encode(), mode=_MODE)
    return problems


def _last_file(card: Card, instance: MigDevice | None, root: Path) -> str:
    return device_nodes.nodes_of(card, instance, root)[-1]
