"""A new machine from a list of cards: indexes, minors, PCI addresses, UUIDs and NVLink wiring."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from . import catalogue
from .errors import GpusimError
from .records import Machine, Record, Value

MAX_CARDS = 32  # GPUSIM_MAX_CARDS of nvml/state.h, and what mig-minors numbers (gpu0 to gpu31)
_LARGEST_DIRECT_BOARD = 4  # HGX A100 and H100 boards with 4 cards wire every pair; with 8 all links go to NVSwitch
# PCI bus numbers as such boards show them; more cards than that are counted on from here.
_BUSES = {4: (0x01, 0x41, 0x81, 0xC1), 8: (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)}
_NVSWITCH_BUS_ID = "00000000:C4:00.0"


@dataclass(frozen=True)
class Plan:
    """What `gpusim init` was asked for.

    Attributes:
        models: model name of each card, in order of index.
        minors: minor number of each card's device node; empty for 0, 1, 2...
        driver: version of kernel module and library.
        cuda: newest CUDA version the driver serves, such as `12.4`.
        seed: makes UUIDs and serial numbers; the same seed gives the same ones.
        caps: folder with the nvidia-caps nodes.
        inforom: file that keeps what a card remembers without power; empty for none.
        devnodes: make device nodes and /proc/driver too, now and at every boot.
    """

    models: tuple[str, ...]
    minors: tuple[int, ...] = ()
    driver: str = "550.163.01"
    cuda: str = "12.4"
    seed: str = "gpusim"
    caps: str = "/dev/nvidia-caps"
    inforom: str = ""
    devnodes: bool = False


def parse_cards(text: str) -> tuple[str, ...]:
    """Read `name:count,name:count`; a count of one may be left out.

    Raises:
        GpusimError: an entry is not understood, or there are more cards than a machine can have.
    """
    models: list[str] = []
    for entry in text.split(","):
        name, _, count = entry.partition(":")
        if not (count or "1").isdecimal() or int(count or "1") < 1:
            raise GpusimError(f'"{entry}" in --cards is not name:count; write for instance a100-sxm4-80gb:4')
        models += [catalogue.model(name)["id"]] * min(int(count or "1"), MAX_CARDS + 1)
    if len(models) > MAX_CARDS:
        raise GpusimError(f"--cards asks for more than {MAX_CARDS} cards, the most a simulated machine has")
    return tuple(models)


def build(plan: Plan) -> Machine:
    """Return the records of a new machine.

    Raises:
        GpusimError: the minors do not fit the cards, or the CUDA version is not understood.
    """
    count = len(plan.models)
    minors = plan.minors or tuple(range(count))
    if len(set(minors)) != count or len(minors) != count or max(minors) >= MAX_CARDS:
        raise GpusimError(f"--minors must name {count} different numbers below {MAX_CARDS}, one for each card")
    major, _, minor = plan.cuda.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise GpusimError(f'--cuda is "{plan.cuda}"; write a version such as 12.4')
    driver = Record(
        "driver",
        loaded=1,
        version=plan.driver,
        library=plan.driver,
        cuda=int(major) * 1000 + int(minor) * 10,
        seed=plan.seed,
        serial=1,
        caps=plan.caps,
        inforom=plan.inforom,
    )
    models = [catalogue.model(name) for name in dict.fromkeys(plan.models)]
    cards = [
        _card(plan, index, name, minor, next(model for model in models if model["id"] == name))
        for index, (name, minor) in enumerate(zip(plan.models, minors, strict=True))
    ]
    links = _links(cards, {model["id"]: model for model in models})
    families = (model["mig_family"] for model in models)
    return Machine([driver, *models, *catalogue.profiles(families), *cards, *links])


def _card(plan: Plan, index: int, name: str, minor: int, model: Record) -> Record:
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{plan.seed}/{index}/{name}")
    fields: dict[str, Value] = {
        "index": index,
        "model": name,
        "minor": minor,
        "uuid": f"GPU-{identity}",
        "serial": str(identity.int % 10**13).zfill(13),
        "bus_id": _bus_id(index, len(plan.models)),
        "mig": 0,
        "mig_pending": 0,
        "persistence": 0,
        "compute_mode": 0,
        "ecc": model["ecc"],
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "power_limit_w": model["power_limit_w"],
        "busy_sm": 0,
        "busy_memory": 0,
        "busy_mib": 0,
        "temperature_c": 0,
        "fan_percent": model["fan_percent"],
    }
    return Record("card", fields)


def _bus_id(index: int, count: int) -> str:
    buses = _BUSES[4] if count <= len(_BUSES[4]) else _BUSES[8]
    bus = buses[index] if index < len(buses) else buses[-1] + 1 + index
    return f"00000000:{bus:02X}:00.0"


def _links(cards: list[Record], models: dict[str, Record]) -> list[Record]:
    """Wire cards of one model: each pair directly on a small board, all links to NVSwitch on a large one."""
    links = []
    for card in cards:
        model = models[card["model"]]
        board = [other for other in cards if other["model"] == card["model"]]
        peers = [other for other in board if other is not card]
        for number in range(model.number("nvlinks")):
            if len(board) > _LARGEST_DIRECT_BOARD:
                remote, kind = _NVSWITCH_BUS_ID, "switch"
            elif peers and number < model.number("nvlinks") // len(peers) * len(peers):
                remote, kind = peers[number // (model.number("nvlinks") // len(peers))]["bus_id"], "gpu"
            else:
                remote, kind = "", "none"
            active = int(kind != "none")
            links.append(Record("link", card=card["index"], number=number, active=active, kind=kind, remote=remote))
    return links
