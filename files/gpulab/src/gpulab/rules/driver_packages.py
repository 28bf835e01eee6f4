"""Which packages make up the NVIDIA driver, in which version they are wanted, and which kernel headers they need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SOURCES = (
    "nvidia-graphics-drivers*",  # Debian; Ubuntu and NVIDIA's own archive add the branch: -535, -580-server
    "nvidia-open-gpu-kernel-modules*",
    "nvidia-persistenced*",
    "nvidia-modprobe*",
    "nvidia-fabricmanager*",  # must be of the driver's very version; Ubuntu calls it fabric-manager-580
    "fabric-manager*",
    "cuda-drivers*",
    "nvidia-kmod*",
)
"""Source packages of the driver. By source, since binary names range from libcuda1 to firmware-nvidia-gsp, while
nvidia-cuda-toolkit and nvidia-container-toolkit are programs that use the driver."""

_PREBUILT = ("linux-restricted-modules*", "linux-meta*")
"""Ubuntu's modules built for one kernel each, and the metapackages that bring kernels: they only move together."""

_VERSION = re.compile(r"\d+\.\d+(\.\d+)?(-[A-Za-z0-9.+~]+)?")
_META_IMAGE = re.compile(r"linux-image-(?P<flavour>[a-z][a-z0-9.-]*)")
_DEBIAN_KERNEL = re.compile(r"\d+(\.\d+)+(\+[a-z0-9.]+)?(-\d+)?-(?P<flavour>[a-z][a-z0-9-]*)")
"""Such as 6.1.0-37-amd64, 6.12.43+deb13-cloud-amd64, 6.8.0-45-generic."""


@dataclass(frozen=True)
class Package:
    """An installed package.

    Attributes:
        name: without architecture.
        qualified: name as dpkg tells it apart, such as `libcuda1:amd64`.
        version: Debian version, such as `550.163.01-2`.
        source: the source package it was built from.
        held: whether dpkg's selection is `hold`.
    """

    name: str
    qualified: str
    version: str
    source: str
    held: bool = False


def driver_packages(installed: Iterable[Package]) -> tuple[Package, ...]:
    """Return the installed packages that must stay as they are for the driver to stay as it is."""
    everything = tuple(installed)
    prebuilt = any(package.name.startswith("linux-modules-nvidia-") for package in everything)
    sources = _SOURCES + (_PREBUILT if prebuilt else ())
    return tuple(package for package in everything if any(fnmatchcase(package.source, each) for each in sources))


def upstream(version: str) -> str:
    """Return NVIDIA's part of a package version: `550.163.01` of `550.163.01-2`."""
    return version.partition(":")[2].partition("-")[0] if ":" in version else version.partition("-")[0]


def check_version(version: str) -> str:
    """Return a wanted version if it can be one.

    Raises:
        InputError: it cannot.
    """
    if version and not _VERSION.fullmatch(version):
        raise InputError(
            f'nvidia_driver_version is "{version}"; give a whole driver version such as 550.163.01, '
            "or leave it empty to keep what is installed or take what the distribution has"
        )
    return version


def fits(package: Package, version: str) -> bool:
    """Say whether an installed package is of a wanted version; a wanted one without `-` leaves the revision open."""
    return not version or package.version == version or upstream(package.version) == version


def specification(name: str, version: str) -> str:
    """Return what to tell apt: `nvidia-smi=550.163.01-*`."""
    if not version:
        return name
    return f"{name}={version}" if "-" in version else f"{name}={version}-*"


def headers(kernel: str, installed: Iterable[str]) -> tuple[str, ...]:
    """Return the packages with the headers that DKMS builds the kernel module against.

    Those of the running kernel, for now; and beside each metapackage that brings new kernels the one that brings
    their headers, so that the module is built again for each (linux-image-amd64: linux-headers-amd64).

    Args:
        kernel: release of the running kernel, as `uname -r` tells it.
        installed: names of all installed packages.

    Returns:
        None for a kernel that came from no package: its headers have none either.
    """
    present = set(installed)
    running: tuple[str, ...] = ()
    if present & {f"linux-image-{kernel}", f"linux-image-unsigned-{kernel}"}:
        running = (f"linux-headers-{kernel}",)
    flavours = [found["flavour"] for name in sorted(present) if (found := _META_IMAGE.fullmatch(name))]
    metas = tuple(
        f"linux-headers-{flavour}"
        for flavour in flavours
        if not flavour.endswith("-dbg") and not flavour.startswith(("unsigned-", "extra-"))
    )
    if running and not metas and (parsed := _DEBIAN_KERNEL.fullmatch(kernel)):
        metas = (f"linux-headers-{parsed['flavour']}",)
    return running + metas


def missing(installed: Sequence[Package], names: Iterable[str], version: str) -> tuple[str, ...]:
    """Return which of the named packages are not installed, or not in the wanted version."""
    known = {package.name: package for package in installed}
    return tuple(name for name in names if name not in known or not fits(known[name], version))
