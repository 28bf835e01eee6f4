"""`gpusim status`: what the simulated machine looks like, for people and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import processes

if TYPE_CHECKING:
    from .records import Machine


def as_json(machine: Machine) -> str:
    """Return everything as one JSON document."""
    running = list(processes.living())
    cards = [_card(machine, index, running) for index in range(len(machine.cards))]
    faults = [dict(fault) for fault in machine.all("fault")]
    return json.dumps({"driver": dict(machine.driver), "cards": cards, "faults": faults}, indent=2)


def as_text(machine: Machine) -> str:
    """Return a short table: a line per card, then its instances and processes."""
    driver = machine.driver
    lines = [
        f"driver {driver['version']}, library {driver['library']}, loaded {'yes' if driver['loaded'] == '1' else 'no'}"
    ]
    for card in json.loads(as_json(machine))["cards"]:
        mode = {"00": "", "11": "  MIG", "01": "  MIG after reset", "10": "  MIG until reset"}
        lost = "  LOST" if machine.one("fault", call="*", card=card["index"]) else ""
        lines.append(
            f"card {card['index']}  /dev/nvidia{card['minor']}  {card['bus_id']}  {card['name']}"
            f"{mode[card['mig'] + card['mig_pending']]}{lost}"
        )
        lines += [f"  GI {device['gi']} CI {device['id']}  {device['uuid']}" for device in card["compute_instances"]]
        lines += [
            f"  PID {process['pid']}  {process['mib']} MiB  {process['sm']} %"
            + (f"  GI {process['gi']} CI {process['ci']}" if process["gi"] >= 0 else "")
            for process in card["processes"]
        ]
    lines += [f"fault {' '.join(f'{key}={value}' for key, value in fault.items())}" for fault in machine.all("fault")]
    return "\n".join(lines)


def _card(machine: Machine, index: int, running: list[processes.Process]) -> dict[str, Any]:
    card = machine.card(index)
    uses = [
        {"pid": process.pid, "mib": use.mib, "sm": use.sm, "gi": use.gi, "ci": use.ci, "kind": use.kind}
        for process in running
        for use in process.uses
        if use.card == index
    ]
    return {
        **card,
        "name": machine.model(card)["name"],
        "gpu_instances": [dict(record) for record in machine.all("gi", card=index)],
        "compute_instances": [dict(record) for record in machine.all("ci", card=index)],
        "processes": uses,
    }
