"""Cards as Slurm hands them out: one line of gres.conf for each, whole cards and MIG instances alike.

The lines are explicit: Debian 12's NVML plugin cannot be installed, and the newer AutoDetect=nvidia does not see MIG. A
card's device file follows from NVML's minor number, which is not its index (gres.conf(5), File and MultipleFiles).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .cards import Card, MigDevice

_GIB = 1 << 30
_MAKERS = {"nvidia", "tesla", "geforce", "quadro", "graphics", "device"}
_SERIES = {"rtx", "gtx", "titan"}
"""Words that name a card only together with the next one, such as `RTX 4090`."""


@dataclass(frozen=True)
class Device:
    """One thing that a job can be given: a whole card, or one MIG instance.

    Attributes:
        kind: type of the resource, such as `a100` or `a100_3g.40gb`; members write `--gres=gpu:a100:1`.
        files: device files that belong to it alone or to its card; a job may open these.
        card: NVML index of its card.
        uuid: `GPU-...` or `MIG-...`.
    """

    kind: str
    files: tuple[str, ...]
    card: int
    uuid: str = ""


@dataclass(frozen=True)
class Inventory:
    """What a node can hand out.

    Attributes:
        devices: by type, the types in the order in which they come first, and within a type in NVML's order. Slurm
            numbers them so, whatever the order of the lines in gres.conf (tried with 24.11).
        problems: cards that are left out, and why, one sentence each.
    """

    devices: tuple[Device, ...] = ()
    problems: tuple[str, ...] = ()


def short_name(model: str) -> str:
    """Return the word by which people call a model: `a100` for `NVIDIA A100-SXM4-80GB`, `rtx_4090`, `rtx_6000_ada`."""
    words = [word for word in re.split(r"[\s_-]+", model.lower()) if word not in _MAKERS]
    if not words:
        return "gpu"
    parts = [words[0]]
    if words[0] in _SERIES and len(words) > 1:
        parts.append(words[1])
    if "ada" in words[len(parts) :]:
        parts.append("ada")
    return re.sub(r"[^a-z0-9_]", "", "_".join(parts)) or "gpu"


def kinds(cards: Iterable[Card], *, chosen: Mapping[str, str]) -> dict[str, str]:
    """Give each model a type name; models that share the short one, as A100 cards of 40 and 80 GB do, get their size.

    Args:
        cards: the cards of all nodes: one name means one model in the whole cluster.
        chosen: model to type name, where the lab has its own idea.
    """
    sizes = {card.name: card.memory_total for card in cards if card.name}
    shared = Counter(short_name(model) for model in sizes)
    names: dict[str, str] = {}
    for model, size in sizes.items():
        short = short_name(model)
        if shared[short] > 1 and size:
            short = f"{short}_{round(size / _GIB)}gb"
        names[model] = chosen.get(model, short)
    return names


def inventory(cards: Sequence[Card], capabilities: Mapping[str, int], names: Mapping[str, str]) -> Inventory:
    """List what a node can hand out.

    Args:
        cards: as NVML sees them.
        capabilities: lines of /proc/driver/nvidia-caps/mig-minors: `gpu0/gi1/access` to a minor number.
        names: model to type name.
    """
    devices: list[Device] = []
    problems: list[str] = []
    for card in cards:
        if card.lost or not card.name:
            problems.append(f"card {card.index} is left out: {card.reason or 'it does not answer'}")
        elif card.minor is None:
            problems.append(f"card {card.index} is left out: the driver does not say which /dev/nvidiaN it is")
        elif not card.mig_enabled:
            devices.append(Device(names[card.name], (f"/dev/nvidia{card.minor}",), card.index, card.uuid))
        else:
            if not card.mig_devices:
                problems.append(f"card {card.index} is left out: MIG is on and it has no instance")
            for instance in card.mig_devices:
                nodes = _nodes(card, instance, capabilities)
                if nodes is None:
                    problems.append(
                        f"instance {instance.uuid} of card {card.index} is left out: "
                        "/proc/driver/nvidia-caps/mig-minors does not list it"
                    )
                else:
                    kind = f"{names[card.name]}_{instance.profile or 'mig'}"
                    devices.append(Device(kind, nodes, card.index, instance.uuid))
    order = list(dict.fromkeys(device.kind for device in devices))
    return Inventory(tuple(sorted(devices, key=lambda device: order.index(device.kind))), tuple(problems))


def _nodes(card: Card, instance: MigDevice, capabilities: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the card's own file and the two capability files of an instance (MIG user guide, "Device nodes")."""
    group = f"gpu{card.minor}/gi{instance.gpu_instance}"
    wanted = (f"{group}/access", f"{group}/ci{instance.compute_instance}/access")
    if not all(name in capabilities for name in wanted):
        return None
    return (f"/dev/nvidia{card.minor}", *(f"/dev/nvidia-caps/nvidia-cap{capabilities[name]}" for name in wanted))


def gres_line(node: str, device: Device) -> str:
    """Return a device's line of gres.conf."""
    key = "File" if len(device.files) == 1 else "MultipleFiles"
    return f"NodeName={node} Name=gpu Type={device.kind} {key}={','.join(device.files)}"


def gres_count(devices: Iterable[Device]) -> str:
    """Return a node's `Gres=` value: how many there are of each type; empty without devices."""
    counted = Counter(device.kind for device in devices)
    return ",".join(f"gpu:{kind}:{number}" for kind, number in counted.items())


def parse_gres(value: str) -> dict[str, int]:
    """Read a `Gres=` value of slurm.conf or scontrol, such as `gpu:a100:3(S:0),gpu:a100_1g.10gb:2`.

    Returns:
        How many there are of each type; a count without type stands under the empty name.
    """
    found: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", value).split(","):
        parts = item.strip().split(":")
        if parts[0] != "gpu":
            continue
        number = int(parts[-1]) if parts[-1].isdecimal() else 1
        kind = parts[1] if len(parts) > 1 and not (len(parts) == 2 and parts[1].isdecimal()) else ""  # noqa: PLR2004 - gpu:N
        found[kind] = found.get(kind, 0) + number
    return found
