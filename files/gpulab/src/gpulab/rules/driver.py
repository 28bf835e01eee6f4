"""What shall be done about the NVIDIA driver, judged from what the server has and what is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import driver_words as words
from .driver_packages import Package, driver_packages, headers, missing, specification, upstream

if TYPE_CHECKING:
    from .driver_words import Holder, SecureBoot

INSTALL = "install"
KEEP = "keep"
LEAVE = "leave"

AUTO = "auto"
NEVER = "false"


@dataclass(frozen=True)
class Found:
    """What the server has.

    Attributes:
        cards: PCI addresses of its NVIDIA cards.
        loaded: version of the kernel module that is loaded; empty when none is.
        library: version that libnvidia-ml.so.1 tells of itself; empty when there is none.
        mismatch: whether the library refuses to work with the kernel module because it is of another version.
        nouveau: whether the free driver of the kernel is loaded.
        container: whether this is a container, whose kernel and driver are its host's.
        kernel: release of the running kernel.
        packages: every installed package.
        holders: who has a card open, persistence daemon apart.
        secure_boot: what the firmware checks.
        installed_by_us: whether an earlier run installed the driver.
        managed: whether an earlier run left anything of its own.
    """

    cards: tuple[str, ...] = ()
    loaded: str = ""
    library: str = ""
    mismatch: bool = False
    nouveau: bool = False
    container: bool = False
    kernel: str = ""
    packages: tuple[Package, ...] = ()
    holders: tuple[Holder, ...] = ()
    secure_boot: SecureBoot | None = None
    installed_by_us: bool = False
    managed: bool = False

    @property
    def driver(self) -> tuple[Package, ...]:
        """The packages of the driver."""
        return driver_packages(self.packages)


@dataclass(frozen=True)
class Wish:
    """What is asked for.

    Attributes:
        install: `auto`, `true` or `false`.
        version: driver version, with or without the revision of the package; empty for any.
        packages: those that carry the driver's version.
        tools: those with versions of their own, such as nvidia-persistenced on Debian.
        allow_reboot: whether the server may be rebooted.
        local: whether Ansible runs on the server itself, which then cannot be rebooted under it.
    """

    install: str = AUTO
    version: str = ""
    packages: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    allow_reboot: bool = False
    local: bool = False


@dataclass(frozen=True)
class Plan:
    """What shall be done.

    Attributes:
        action: `install` the driver and keep it, `keep` the one that is there from being moved, or `leave` all alone.
        reason: why, in words.
        specifications: what to tell apt.
        headers: packages with kernel headers.
        changes: packages that are not installed, or not as wanted.
        load: whether the kernel module only needs to be loaded.
        reboot: whether a reboot is needed and allowed.
        warnings: what is worth knowing but stops nothing.
        errors: what must be settled first; nothing may be changed.
    """

    action: str
    reason: str
    specifications: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    load: bool = False
    reboot: bool = False
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = field(default=())


def plan(found: Found, wish: Wish) -> Plan:
    """Judge.

    Args:
        found: what the server has.
        wish: what is asked for.
    """
    action, reason = _action(found, wish)
    version = wish.version or next((upstream(each.version) for each in found.driver if each.name in wish.packages), "")
    changes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    if action == INSTALL:
        changes = missing(found.driver, wish.packages, version) + missing(found.driver, wish.tools, "")
        errors = _refusals(found, wish, changes, upstream(version))
    works = _works(found, wish, action)
    return Plan(
        action=action,
        reason=reason,
        specifications=tuple(specification(name, version) for name in wish.packages) + wish.tools,
        headers=() if found.container else headers(found.kernel, [package.name for package in found.packages]),
        changes=changes,
        load=works.load,
        reboot=works.reboot,
        warnings=works.warnings,
        errors=errors or works.errors,
    )


def _action(found: Found, wish: Wish) -> tuple[str, str]:
    if wish.install == NEVER:
        return LEAVE, "nvidia_driver_install is false"
    if wish.install != AUTO:
        return INSTALL, "nvidia_driver_install is true"
    if found.installed_by_us:
        return INSTALL, "an earlier run installed the driver"
    return _action_for_what_is_there(found)


def _action_for_what_is_there(found: Found) -> tuple[str, str]:
    if found.driver:
        return KEEP, words.kept(found.library)
    if found.loaded or found.library:
        return LEAVE, f"there is a driver that belongs to no package ({found.library or found.loaded})"
    if found.container:
        return LEAVE, "this is a container, whose driver is its host's"
    if not found.cards:
        return LEAVE, "there is no NVIDIA card"
    return INSTALL, f"NVIDIA cards: {len(found.cards)}, and no driver"


def _refusals(found: Found, wish: Wish, changes: tuple[str, ...], target: str) -> tuple[str, ...]:
    """Return why packages must not be touched now."""
    if not found.driver and (found.library or (found.loaded and not found.container)):
        return (words.foreign(found.library or found.loaded),)
    if not changes:
        return ()
    if found.holders:
        return (words.in_use(found.holders, "the driver is not changed"),)
    moves = found.loaded and target and target != found.loaded
    if moves and not (wish.allow_reboot and not wish.local):
        return (words.reboot_first(found.loaded, target, local=wish.local),)
    return ()


@dataclass(frozen=True)
class _Works:
    """Whether the driver that is installed can work, and what it takes."""

    load: bool = False
    reboot: bool = False
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def _works(found: Found, wish: Wish, action: str) -> _Works:
    may_reboot = wish.allow_reboot and not wish.local and action != LEAVE
    if found.mismatch:
        text = words.mismatch(found.loaded, found.library)
        if may_reboot and not found.holders:
            return _Works(reboot=True, warnings=(text,))
        if may_reboot:
            text = f"{text}; {words.in_use(found.holders, 'the server is not rebooted')}"
        return _Works(errors=(text,))
    if action != INSTALL or found.loaded or not found.cards or not found.driver:
        return _Works()
    signing = tuple(filter(None, [words.signing(found.secure_boot)]))
    if found.nouveau:
        if may_reboot:
            return _Works(reboot=True, warnings=signing)
        return _Works(warnings=(words.nouveau(local=wish.local), *signing))
    return _Works(load=not found.container, warnings=signing)
