"""Take the overview: the cards, people's work, the disks. Whatever may hang is asked in a child with a deadline."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.apart import Apart
from ..adapters.clock import server_now
from ..errors import GpulabError
from ..rules.leases import on_place
from ..rules.machine import Disk
from ..rules.overview import Overview, Spot
from . import lease_view, quota_world, tier_work
from .leases import live_leases
from .ledger import PLACES
from .quota import read_note
from .quota_check import account_ids, read_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ..rules.cards import Cards
    from ..rules.quota_warn import Reading
    from .lease_view import View

_PATIENCE = 5.0
_CARD = "card "


@dataclass(frozen=True)
class World:
    """The outside.

    Attributes:
        root: the folder that stands for `/` where gpulab keeps its files.
        places: folders whose file systems are of interest, besides those with limits.
        apart: calls what may hang.
        look: reads the cards; gets a function that calls another apart.
        quotas: where disk limits are read.
        now: the server's clock, naive.
        patience: seconds that a file system may take to answer.
    """

    root: Path = Path("/")
    places: tuple[str, ...] = PLACES
    apart: Apart = field(default_factory=Apart)
    look: Callable[[Callable[..., Cards]], Cards] = lambda run: lease_view.look(run=run)
    quotas: quota_world.World = field(default_factory=quota_world.World)
    now: Callable[[], datetime] = server_now
    patience: float = _PATIENCE


def take(world: World, tier: str) -> Overview:
    """Look at everything once. Never raises for what cannot be read: that is said in the overview.

    Args:
        world: the outside.
        tier: `table`, `allocator` or `slurm`.
    """
    now = world.now()
    cards = world.look(partial(world.apart.run, "the cards"))
    try:
        leases = live_leases(world.root)
    except (OSError, GpulabError):
        leases = ()  # the broker tells of broken ones; who works on a card is seen there too
    seen = lease_view.view(cards, leases, lease_view.holders(leases, world.root))
    disks, quotas = _disks(world)
    return Overview(
        at=now,
        tier=tier,
        spots=tuple(_spots(seen)),
        reason=cards.reason,
        desk=tier_work.BY_TIER[tier](world.root, now, world.apart),
        disks=disks,
        quotas=quotas,
    )


def _spots(seen: View) -> list[Spot]:
    spots = []
    for place in seen.places:
        try:
            model = seen.device(place.uuid)[0].name
        except KeyError:
            model = ""
        holders = [f"{lease.user} ({lease.command})" for lease, _ in on_place(place.uuid, seen.leases)]
        spots.append(
            Spot(
                place.index,
                place.name.removeprefix(_CARD),
                model,
                None if place.reason else place.used,
                None if place.reason else place.total,
                (*holders, *place.strangers),
                place.reason,
                place.instance,
            )
        )
    return spots


@dataclass(frozen=True)
class _Folder:
    """What a file system answers: which it is, how full, and who uses how much; None without limits."""

    device: int
    disk: Disk
    readings: list[Reading] | None


def _disks(world: World) -> tuple[tuple[Disk, ...], tuple[Reading, ...]]:
    """Ask each file system once, each in its own time: one that hangs takes nothing from the others."""
    try:
        note = read_note(world.root)
        limited = [folder.path for folder in note[0].folders] if note else []
        accounts = account_ids(note[1], world.quotas) if note else {}
    except (OSError, GpulabError):
        limited, accounts = [], {}
    disks: list[Disk] = []
    quotas: list[Reading] = []
    devices: set[int] = set()
    counted: set[int] = set()
    for path in dict.fromkeys([*world.places, *limited]):
        question = partial(_ask, path, accounts if path in limited else {}, world.quotas)
        try:
            found = world.apart.run(f"file system {path}", question, patience=world.patience)
        except TimeoutError:
            disks.append(Disk(path, reason=f"the file system does not answer within {world.patience:g} s"))
            continue
        except ChildProcessError as error:
            disks.append(Disk(path, reason=str(error)))
            continue
        if found is None:
            continue
        if found.device not in devices:
            disks.append(found.disk)
        if found.readings and found.device not in counted:
            quotas += found.readings
            counted.add(found.device)
        devices.add(found.device)
    return tuple(disks), tuple(quotas)


def _ask(path: str, accounts: Mapping[str, int], quotas: quota_world.World) -> _Folder | None:
    """Ask a file system, in a child; None when there is no such folder."""
    try:
        device = os.stat(path).st_dev
    except FileNotFoundError:
        return None
    numbers = os.statvfs(path)
    disk = Disk(path, total=numbers.f_frsize * numbers.f_blocks, free=numbers.f_frsize * numbers.f_bavail)
    try:
        readings = read_folder(quotas, path, accounts) if accounts else None
    except OSError:
        readings = None  # limits are told of elsewhere (gpulab quota check); how full it is, is known
    return _Folder(device, disk, readings)
