"""Which systemd units the guard closes to the cards, and what their drop-ins say.

A unit with `DevicePolicy=closed` gets a device filter from systemd: its processes, and those of every group below it,
open the few nodes that are listed and no others (systemd.resource-control(5)). Every login session, user manager and
job of an account lies below `user-UID.slice` (systemd-logind), so one drop-in for all of those slices closes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GUARDED_TIERS = ("allocator", "slurm")
"""The tiers that hand out cards, in which nobody is to take one by himself."""

VARIABLES = ("gpu_guard_devices", "gpu_guard_enabled", "gpu_guard_exempt", "gpu_guard_services")
"""The variables of role gpu_guard; preflight must not take them for misspelt lab-wide ones."""

DROP_IN = "60-gpulab-guard.conf"
UNITS_DIR = "/etc/systemd/system"
LOGIND_FILE = f"/etc/systemd/logind.conf.d/{DROP_IN}"

ALL_SESSIONS = "user-.slice"
"""The prefix of every `user-UID.slice`: its drop-ins hold for all of them (systemd.unit(5))."""

ENTRIES = (
    "atd.service",
    "cron.service",
    "ssh.service",
    "sshd-unix-local@.service",
    "sshd-vsock@.service",
    "sshd@.service",
)
"""Services that start members' processes. pam_systemd moves each into its user's slice; what it did not is closed too.

A drop-in of a service that is not installed does no harm, and holds as soon as it is.
"""

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
"""Open to everybody: without them programs report a broken driver, with them they report that there is no card.

Neither gives access to a card: the driver makes a device object only for a process that has that card's own node open
(NVIDIA's open kernel modules: deviceConstruct_IMPL asks osIsGpuAccessible, which looks through the open files).
"""

NVIDIA_VENDOR = "0x10de"
"""PCI vendor of NVIDIA, as in sysfs."""

_DEVICE = re.compile(r"/dev(/[A-Za-z0-9][A-Za-z0-9._+-]*)+|(char|block)-[A-Za-z0-9][A-Za-z0-9_./-]*")
_SERVICE = re.compile(r"[A-Za-z0-9_.-]+@?\.service")
_NEEDS_CARDS = ("docker", "gpulab", "nvidia", "slurm")
_NOTE = "# Written by gpulab (role gpu_guard); the next run of the playbook replaces what is changed here.\n"


@dataclass(frozen=True)
class Node:
    """What is behind a name below /dev.

    Attributes:
        driver: name of its device group, as in /proc/devices; empty when unknown.
        vendor: PCI vendor of the device behind it, such as `0x10de`; empty when it is no PCI device.
    """

    driver: str = ""
    vendor: str = ""


@dataclass(frozen=True)
class Guard:
    """What the guard shall be.

    Attributes:
        devices: nodes and groups that members may open, besides systemd's own short list.
        services: further services that start members' processes.
        exempt: uid and name of the accounts whose sessions keep the cards, root among them.
    """

    devices: tuple[str, ...]
    services: tuple[str, ...]
    exempt: Mapping[int, str]

    @property
    def closed_services(self) -> tuple[str, ...]:
        """All services that are closed, in order."""
        return tuple(sorted({*ENTRIES, *self.services}))


def parse_devices(raw: Sequence[str], look: Callable[[str], Node | None]) -> tuple[str, ...]:
    """Check which devices members shall be able to open.

    Args:
        raw: names as in DeviceAllow=, without access letters: `/dev/fuse`, `char-ttyUSB`.
        look: tells what is behind a path; None when nothing is there.

    Raises:
        InputError: a name that systemd would not understand, or one that would open a card.
    """
    for name in raw:
        if not _DEVICE.fullmatch(name):
            raise InputError(
                f"gpu_guard_devices has {name!r}; write a path such as /dev/kvm, or a group such as char-ttyUSB"
            )
        if _opens_a_card(name, look):
            raise InputError(
                f"gpu_guard_devices has {name}, which leads to a card; take it out: cards are asked for, not listed"
            )
    return tuple(dict.fromkeys([*raw, *CONTROL_NODES]))


def _opens_a_card(name: str, look: Callable[[str], Node | None]) -> bool:
    if name in CONTROL_NODES:
        return False
    if name.startswith(("/dev/nvidia", "char-nvidia")):
        return True
    node = look(name) if name.startswith("/") else None
    return node is not None and (node.driver.startswith("nvidia") or node.vendor == NVIDIA_VENDOR)


def parse_services(raw: Sequence[str]) -> tuple[str, ...]:
    """Check which further services shall be closed.

    Raises:
        InputError: no name of a service, or one that needs the cards itself.
    """
    for name in raw:
        if not _SERVICE.fullmatch(name):
            raise InputError(f"gpu_guard_services has {name!r}; write a service's name, such as jupyterhub.service")
        if name.startswith(_NEEDS_CARDS):
            raise InputError(f"gpu_guard_services has {name}, which must open the cards itself; take it out")
    return tuple(raw)


def drop_in(unit: str) -> str:
    """Return the path of the guard's drop-in for a unit."""
    return f"{UNITS_DIR}/{unit}.d/{DROP_IN}"


def unit_of(path: str) -> str:
    """Return the unit that a drop-in of the guard is for; empty for any other path."""
    folder = path.removeprefix(f"{UNITS_DIR}/").removesuffix(f".d/{DROP_IN}")
    return "" if "/" in folder else folder


def files(guard: Guard) -> dict[str, str]:
    """Return the text of every file that makes the guard, by its path, in the order in which they are to be written.

    Exemptions come first: a run that is cut off never closes root's own sessions.
    """
    allowed = "".join(f"DeviceAllow={name} rw\n" for name in guard.devices)
    closed = f"DevicePolicy=closed\n{allowed}"
    found = {drop_in(f"user-{uid}.slice"): _open_text(name) for uid, name in sorted(guard.exempt.items())}
    found[LOGIND_FILE] = _LOGIND
    for service in guard.closed_services:
        found[drop_in(service)] = f"{_NOTE}{_SERVICE_REASON}[Service]\n{closed}"
    found[drop_in(ALL_SESSIONS)] = f"{_NOTE}{_SLICE_REASON}[Slice]\n{closed}"
    return found


def _open_text(name: str) -> str:
    reason = f"# {name} keeps the cards: this file stands in for the one of the same name in {ALL_SESSIONS}.d.\n"
    return f"{_NOTE}{reason}[Slice]\nDevicePolicy=auto\n"


_SLICE_REASON = """\
# Sessions, cron jobs and services of members cannot open the cards; allocate_gpu and Slurm have programs run elsewhere,
# with exactly the cards they were given.
"""

_SERVICE_REASON = """\
# What pam_systemd has not moved into its user's slice stays here, and must not open the cards either.
"""

_LOGIND = f"""{_NOTE}\
# A program on a card runs outside its user's sessions. With logind's default its shared memory (/dev/shm) would be
# removed as soon as its user logs out (logind.conf(5)).
[Login]
RemoveIPC=no
"""
