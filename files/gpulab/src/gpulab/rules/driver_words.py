"""What is said about the NVIDIA driver: one sentence each, with what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_NAMED = 4


@dataclass(frozen=True)
class Holder:
    """A process that has a card's device node open.

    Attributes:
        pid: its number.
        user: account name.
        command: the program's name.
    """

    pid: int
    user: str
    command: str


@dataclass(frozen=True)
class SecureBoot:
    """What the firmware checks before code may run in the kernel.

    Attributes:
        enabled: whether Secure Boot is on.
        key: the certificate that DKMS signs modules with; empty when there is none yet.
        enrolled: whether the firmware's boot loader (shim) trusts that certificate.
    """

    enabled: bool = False
    key: str = ""
    enrolled: bool = False


def kept(library: str) -> str:
    """Say why a driver is kept and not installed."""
    version = f" ({library})" if library else ""
    return f"there is a driver{version}; set nvidia_driver_install to true for gpulab to see to it"


def in_use(holders: Sequence[Holder], consequence: str) -> str:
    """Say who uses the cards, and what therefore is not done."""
    some = ", ".join(f"{each.user} ({each.command}, PID {each.pid})" for each in holders[:_MOST_NAMED])
    more = f" and {len(holders) - _MOST_NAMED} more" if len(holders) > _MOST_NAMED else ""
    return f"the cards are in use by {some}{more}: {consequence}; run this again when they have ended"


def foreign(version: str) -> str:
    """Say that packages and another way of installing must not be mixed."""
    return (
        f"nvidia_driver_install is true, but there is a driver that belongs to no package ({version}), as NVIDIA's own "
        "installer leaves it; remove it with nvidia-uninstall, or set nvidia_driver_install to false to keep it"
    )


def reboot_first(loaded: str, target: str, *, local: bool) -> str:
    """Say that a change needs a reboot that is not allowed."""
    remedy = (
        "and Ansible runs on the server itself; run it from another machine"
        if local
        else "which is not allowed; set nvidia_driver_allow_reboot to true when the server may be rebooted"
    )
    return f"changing the driver from {loaded} to {target} takes a reboot, {remedy}; nothing was changed"


def mismatch(loaded: str, library: str) -> str:
    """Explain kernel module and library of different versions, and the cure."""
    return (
        f"the NVIDIA kernel module that is loaded is {loaded}, the library is {library}, as after a driver update "
        "without a reboot: programs that start now cannot use the cards, those already running can; reboot the server, "
        "or when nothing uses a card run `modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia`"
    )


def nouveau(*, local: bool) -> str:
    """Say that the free driver has the cards until the next reboot."""
    remedy = "reboot" if local else "reboot, or set nvidia_driver_allow_reboot to true"
    return (
        "the NVIDIA driver is installed and works after the next reboot, since the kernel's own driver nouveau has the "
        f"cards until then; {remedy} when it suits"
    )


def signing(secure_boot: SecureBoot | None) -> str:
    """Explain what Secure Boot asks for; empty where it asks for nothing."""
    if secure_boot is None or not secure_boot.enabled or secure_boot.enrolled:
        return ""
    key = secure_boot.key or "/var/lib/dkms/mok.pub"
    return (
        "Secure Boot is on, and the kernel refuses the NVIDIA module until the key that DKMS signs it with is known: "
        f"run `mokutil --import {key}` (package mokutil), choose a password, reboot, and confirm it at the server's "
        "console under Enroll MOK; or switch Secure Boot off in the firmware"
    )
