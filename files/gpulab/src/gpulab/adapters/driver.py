"""What the server has of NVIDIA's driver: cards, kernel module, library, who uses them, Secure Boot."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..names import UID_MIN
from ..rules.driver_words import Holder, SecureBoot
from .open_devices import open_devices
from .procfs import identify
from .programs import output_of

if TYPE_CHECKING:
    from .dpkg import Run

_PATIENCE = 10.0

_NVIDIA = "0x10de"  # PCI vendor id
_DISPLAY = "0x03"  # PCI class: display controllers, of which compute cards are the 3D kind

# Both are asked in a process of their own: a sick card can hold up whoever asks. The version needs neither nvmlInit nor
# a kernel module (tried with Debian's libnvidia-ml1 550.163.01).
_ASK_VERSION = """
import ctypes
library, text = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(80)
library.nvmlSystemGetNVMLVersion(text, len(text))
print(text.value.decode())
"""
_ASK_START = 'import ctypes; print(ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2())'
_STARTED = "0"  # NVML_SUCCESS of nvml.h

_EFI = "sys/firmware/efi/efivars"
_SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_TRUSTED_KEYS = "MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23"  # what shim trusts, as the running kernel sees it
_EFI_ATTRIBUTES = 4  # bytes in front of each variable's value (efivarfs of the kernel's documentation)
_SIGNING_KEYS = ("var/lib/dkms/mok.pub", "var/lib/shim-signed/mok/MOK.der")  # Debian's dkms; Ubuntu's shim-signed

_INITRAMFS_TOOL = "usr/sbin/update-initramfs"
_CONTAINER_MARKS = ("run/systemd/container", "run/.containerenv", ".dockerenv")
_DAEMON = "nvidia-persistenced"


def cards(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the PCI addresses of NVIDIA's cards, with or without a driver."""
    devices = root / "sys/bus/pci/devices"
    return tuple(
        device.name
        for device in sorted(devices.glob("*"))
        if _text(device / "vendor") == _NVIDIA and _text(device / "class").startswith(_DISPLAY)
    )


def nouveau_loaded(root: Path = Path("/")) -> bool:
    """Say whether the kernel's own driver for the cards is loaded."""
    return (root / "sys/module/nouveau").exists()


def in_container(root: Path = Path("/")) -> bool:
    """Say whether this is a container, as systemd, podman or docker tell."""
    return any((root / mark).exists() for mark in _CONTAINER_MARKS)


def library_version(run: Run = output_of) -> str:
    """Ask the library that programs get (libnvidia-ml.so.1) for the driver version it belongs to; empty without one."""
    try:
        answer = run([sys.executable, "-c", _ASK_VERSION], _PATIENCE, "")
    except OSError:
        return ""
    return answer.strip().partition(".")[2]  # `12.550.163.01`: the CUDA version it serves stands in front


def library_starts(run: Run = output_of) -> bool:
    """Say whether the library works with the kernel module; not when it does not answer."""
    try:
        return run([sys.executable, "-c", _ASK_START], _PATIENCE, "").strip() == _STARTED
    except OSError:
        return False


def holders(proc_root: Path = Path("/proc")) -> tuple[Holder, ...]:
    """Return who has a card open, in order of pid, the persistence daemon apart: it stops when its package changes."""
    found = []
    for pid, _ in open_devices("/dev/nvidia", proc_root):
        who = identify(pid, proc_root)
        if who is None:
            continue
        # By uid too: anybody can call a program so.
        if who.command != _DAEMON[:15] or who.uid >= UID_MIN:
            found.append(Holder(pid, who.user, who.command))
    return tuple(found)


def secure_boot(root: Path = Path("/")) -> SecureBoot | None:
    """Return what the firmware checks; None where there is no EFI to ask."""
    state = _value(root / _EFI / _SECURE_BOOT)
    if not state:
        return None
    certificate = next((path for name in _SIGNING_KEYS if (path := root / name).exists()), None)
    trusted = _value(root / _EFI / _TRUSTED_KEYS)
    return SecureBoot(
        enabled=state[0] == 1,
        key=f"/{certificate.relative_to(root)}" if certificate else "",
        enrolled=certificate is not None and certificate.read_bytes() in trusted,
    )


def stale_initramfs(configuration: Path, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the initial RAM disks that were made before a file in /etc/modprobe.d was written.

    None where there is no update-initramfs to make them again.

    Args:
        configuration: that file.
        root: the folder that stands for `/`.
    """
    if not (root / _INITRAMFS_TOOL).exists() or not configuration.exists():
        return ()
    written = configuration.stat().st_mtime
    return tuple(str(path) for path in sorted(root.glob("boot/initrd.img-*")) if path.stat().st_mtime < written)


def kernel_release() -> str:
    """Return the running kernel's release, as `uname -r` does."""
    return os.uname().release


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _value(path: Path) -> bytes:
    try:
        return path.read_bytes()[_EFI_ATTRIBUTES:]
    except OSError:
        return b""
