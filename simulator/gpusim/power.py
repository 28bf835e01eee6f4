"""Resets and reboots: what a card remembers and what it forgets.

Instances never survive. The MIG mode is kept in the InfoROM of Ampere cards and lives only as long as the driver on
Hopper (mig_mode_kept of the card tables; NVIDIA MIG user guide, "Enable MIG mode").
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import faults, processes
from .errors import GpusimError

if TYPE_CHECKING:
    from .records import Machine, Record


def reset(machine: Machine, card: Record) -> None:
    """Reset one card: the pending MIG mode becomes the current one, instances are gone.

    Raises:
        GpusimError: a process uses the card.
    """
    index = card.number("index")
    users = [process.pid for process in processes.living() for use in process.uses if use.card == index]
    if users:
        raise GpusimError(f"card {index} is in use by PID {', '.join(map(str, sorted(set(users))))}; end it first")
    card["mig"] = card["mig_pending"]
    _drop_instances(machine, index)


def reboot(machine: Machine) -> None:
    """Reboot the machine: every card is reset and answers again, injected faults are gone."""
    kept = read_inforom(machine)
    for card in machine.cards:
        remembered = kept.get(card["uuid"], card["mig_pending"])
        mode = remembered if machine.model(card)["mig_mode_kept"] == "1" else "0"
        card.update(mig=mode, mig_pending=mode, persistence="0", compute_mode="0")
        card.update(busy_sm="0", busy_memory="0", busy_mib="0", temperature_c="0")
        card["power_limit_w"] = machine.model(card)["power_limit_w"]
        _drop_instances(machine, card.number("index"))
    faults.clear(machine)


def read_inforom(machine: Machine) -> dict[str, str]:
    """Return the MIG mode that each card wrote into its InfoROM, by UUID; empty when the machine keeps none."""
    path = machine.driver["inforom"]
    if not path:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return {uuid: mode for uuid, _, mode in (line.partition(" ") for line in lines) if mode in {"0", "1"}}


def _drop_instances(machine: Machine, index: int) -> None:
    machine.remove("ci", card=index)
    machine.remove("gi", card=index)
