"""The NVIDIA driver: look and judge, and keep its packages from being moved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters import dpkg, driver, state
from ..adapters.procfs import loaded_driver
from ..adapters.programs import output_of
from ..errors import GpulabError
from ..rules.driver import Found, Plan, Wish, plan
from ..rules.driver_packages import check_version, driver_packages
from ..rules.driver_words import signing

if TYPE_CHECKING:
    from ..adapters.dpkg import Run

RECORD = names.STATE_DIR / "driver" / "record.json"
"""What gpulab did: the names it put on hold, and whether it installed the driver."""

_NOUVEAU_FILE = "etc/modprobe.d/gpulab-nouveau.conf"
_KEEPING_FILES = ("etc/apt/preferences.d/gpulab-nvidia.pref", "etc/apt/apt.conf.d/52gpulab-nvidia")
"""What role nvidia_driver writes to keep the driver from being moved."""


@dataclass(frozen=True)
class World:
    """The outside, as parameters.

    Attributes:
        root: the folder that stands for `/`.
        proc_root: where proc is mounted.
        run: asks a program.
    """

    root: Path = Path("/")
    proc_root: Path = Path("/proc")
    run: Run = output_of


@dataclass(frozen=True)
class Record:
    """What an earlier run did.

    Attributes:
        holds: packages that it put on hold and that were not before, as dpkg tells them apart.
        installed: whether it installed the driver.
    """

    holds: tuple[str, ...] = ()
    installed: bool = False


@dataclass(frozen=True)
class Look:
    """What there is and what shall be done.

    Attributes:
        found: what the server has.
        plan: what shall be done.
        stale: initial RAM disks that lack our setting for nouveau.
    """

    found: Found
    plan: Plan
    stale: tuple[str, ...]


def look(wish: Wish, world: World) -> Look:
    """Look at the server and judge; change nothing.

    Raises:
        InputError: a wish that cannot be understood.
        GpulabError: dpkg or the record of earlier runs cannot be read.
    """
    check_version(wish.version)
    found = read(world)
    return Look(found, plan(found, wish), driver.stale_initramfs(world.root / _NOUVEAU_FILE, world.root))


def read(world: World) -> Found:
    """Read what the server has."""
    record = read_record(world)
    loaded = loaded_driver(world.proc_root)
    library = driver.library_version(world.run)
    differ = bool(loaded and library and loaded != library)
    try:
        packages = dpkg.installed(world.run)
    except OSError as error:
        raise GpulabError(f"the installed packages cannot be listed: {error}") from error
    return Found(
        cards=driver.cards(world.root),
        loaded=loaded,
        library=library,
        # Inside a container, /proc may show another kernel module than the one the library works with.
        mismatch=differ and not driver.library_starts(world.run),
        nouveau=driver.nouveau_loaded(world.root),
        container=driver.in_container(world.root),
        kernel=driver.kernel_release(),
        packages=packages,
        holders=driver.holders(world.proc_root),
        secure_boot=driver.secure_boot(world.root),
        installed_by_us=record is not None and record.installed,
        managed=record is not None or any((world.root / name).exists() for name in _KEEPING_FILES),
    )


def read_record(world: World) -> Record | None:
    """Return what earlier runs did; None when they did nothing.

    Raises:
        CorruptStateError: the file holds something that gpulab did not write.
    """
    path = Path(names.under(world.root, RECORD))
    document = state.load(path)
    if document is None:
        return None
    try:
        return Record(tuple(document["holds"]), bool(document["installed"]))
    except (TypeError, KeyError) as error:
        raise state.CorruptStateError(f"{path} is not a record of gpulab; move it away and try again") from error


@dataclass(frozen=True)
class Holds:
    """Which packages are kept from being moved.

    Attributes:
        changed: whether anything differs from before, or would.
        before: the driver's packages on hold.
        after: the same afterwards.
    """

    changed: bool
    before: tuple[str, ...]
    after: tuple[str, ...]


def hold(world: World, *, wanted: bool, installed: bool, dry_run: bool) -> Holds:
    """Put the driver's packages on hold, or take off the holds that gpulab made.

    Args:
        world: the outside.
        wanted: whether they shall be on hold.
        installed: whether gpulab installed the driver, for the record.
        dry_run: only say what would change.

    Raises:
        GpulabError: dpkg did not do it, or the record cannot be used.
    """
    record = read_record(world)
    packages = driver_packages(dpkg.installed(world.run))
    before = tuple(package.qualified for package in packages if package.held)
    ours = set(record.holds) if record else set()
    loose = [package.qualified for package in packages if not package.held]
    if wanted:
        # Noted down first: a hold that nobody remembers would stay for ever.
        noted = Record(tuple(sorted((ours & set(before)) | set(loose))), installed)
        change, selection, after = loose, "hold", tuple(package.qualified for package in packages)
    else:
        noted = Record((), installed)
        change, selection = [name for name in before if name in ours], "install"
        after = tuple(name for name in before if name not in ours)
    changed = bool(change) or noted != (record or Record())
    if changed and not dry_run:
        if wanted:
            _write(world, noted)
        if change:
            dpkg.select(change, selection, world.run)
        if not wanted:
            _write(world, noted)
    return Holds(changed, before, after)


def release(world: World, *, dry_run: bool) -> Holds:
    """Take off the holds that gpulab made and forget what it did.

    Raises:
        GpulabError: dpkg did not do it, or the record cannot be used.
    """
    known = read_record(world) is not None
    done = hold(world, wanted=False, installed=False, dry_run=dry_run)
    if known and not dry_run:
        Path(names.under(world.root, RECORD)).unlink()
    return Holds(changed=known, before=done.before, after=done.after)


def _write(world: World, record: Record) -> None:
    path = Path(names.under(world.root, RECORD))
    state.save(path, {"holds": list(record.holds), "installed": record.installed})


def to_dict(seen: Look) -> dict[str, Any]:
    """Return a look as module nvidia_driver_plan reports it; warnings and errors apart."""
    found, judged = seen.found, seen.plan
    return {
        "action": judged.action,
        "reason": judged.reason,
        "specifications": list(judged.specifications),
        "headers": list(judged.headers),
        "changes": list(judged.changes),
        "load": judged.load,
        "reboot": judged.reboot,
        "stale": list(seen.stale),
        "managed": found.managed,
        "cards": list(found.cards),
        "loaded": found.loaded,
        "library": found.library,
        "signing": signing(found.secure_boot),
    }
