"""`gpusim run`: be a program that uses a card, as a CUDA program would.

The card is the one named, or what CUDA_VISIBLE_DEVICES names, or card 0. As with CUDA, the device node must be
openable, the memory must be free, and the device that is asked for must exist.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import processes, store
from .errors import GpusimError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .records import Machine, Record

_NO_DEVICE = "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
_NODE = "/dev/nvidia{}"


@dataclass(frozen=True)
class Target:
    """A device a program can be given.

    Attributes:
        card: index of the card.
        gi: GPU instance id, -1 for the whole card.
        ci: compute instance id, -1 for the whole card.
    """

    card: int
    gi: int = -1
    ci: int = -1


def choose(machine: Machine, gpu: str | None, mig: str | None) -> tuple[Target, ...]:
    """Find the devices a program is to use.

    Args:
        machine: the machine.
        gpu: card indexes with commas between, None when not given.
        mig: UUID of a MIG device, None when not given.

    Raises:
        GpusimError: there is no such device, or the card is in MIG mode and has no MIG device.
    """
    if mig is not None:
        return (_mig_device(machine, mig),)
    if gpu is not None:
        return tuple(dict.fromkeys(_whole_card(machine, _index(word)) for word in gpu.split(",")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return (_whole_card(machine, 0),)
    return _visible_devices(machine, visible)


def reserve(machine: Machine, targets: Sequence[Target], use: processes.Use) -> None:
    """Check that each device can be opened and has the memory, and register the calling process.

    Args:
        machine: the machine as it stands; the caller holds the lock.
        targets: the devices.
        use: memory, load and kind, the same for each device.

    Raises:
        GpusimError: there is no usable driver, or a device may not be opened, is lost, or has too little free memory.
    """
    driver = machine.driver
    if driver["loaded"] != "1":
        raise GpusimError(f"{_NO_DEVICE} (the kernel module is not loaded)")
    if driver["version"] != driver["library"]:
        raise GpusimError(
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: "
            f"the kernel module is {driver['version']}, the library {driver['library']}; reboot"
        )
    running = list(processes.living())
    for target in targets:
        card = machine.card(target.card)
        if machine.one("fault", call="*", card=target.card):
            raise GpusimError(f"CUDA_ERROR_DEVICE_UNAVAILABLE: card {target.card} does not answer")
        _check_node(card)
        free = free_mib(machine, target, running)
        if use.mib > free:
            raise GpusimError(
                f"CUDA_ERROR_OUT_OF_MEMORY: out of memory on card {target.card}: "
                f"{use.mib} MiB asked for, {free} MiB free"
            )
    processes.register(
        tuple(
            processes.Use(target.card, use.mib, use.sm, use.memory, target.gi, target.ci, use.kind)
            for target in targets
        )
    )


def free_mib(machine: Machine, target: Target, running: Sequence[processes.Process]) -> int:
    """Return the free memory of a card or of the GPU instance a target lies in, MiB."""
    uses = [use for process in running for use in process.uses if use.card == target.card]
    card = machine.card(target.card)
    if target.gi < 0:
        model = machine.model(card)
        total = model.number("memory_mib") - model.number("reserved_mib") - card.number("busy_mib")
    else:
        uses = [use for use in uses if use.gi == target.gi]
        total = instance_profile(machine, target.card, target.gi).number("memory_mib")
    return total - sum(use.mib for use in uses)


def instance_profile(machine: Machine, card: int, gi: int) -> Record:
    """Return the profile record of a GPU instance.

    Raises:
        GpusimError: there is no such instance.
    """
    instance = machine.one("gi", card=card, id=gi)
    family = machine.model(machine.card(card))["mig_family"]
    profile = machine.one("profile", family=family, id=instance["profile"]) if instance else None
    if profile is None:
        raise GpusimError(f"card {card} has no GPU instance {gi}")
    return profile


def _check_node(card: Record) -> None:
    """Refuse when the device node is there and may not be opened; a missing driver behind it (ENXIO) is expected."""
    path = _NODE.format(card["minor"])
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in {errno.EPERM, errno.EACCES}:
            raise GpusimError(f"{_NO_DEVICE} ({path}: {error.strerror})") from error


def _whole_card(machine: Machine, index: int) -> Target:
    card = machine.card(index)
    if card["mig"] == "1":
        first = next(machine.all("ci", card=index), None)
        if first is None:
            raise GpusimError(f"{_NO_DEVICE} (card {index} is in MIG mode and has no MIG device)")
        return Target(index, first.number("gi"), first.number("id"))
    return Target(index)


def _mig_device(machine: Machine, uuid: str) -> Target:
    for device in machine.all("ci"):
        if device["uuid"] == uuid:
            return Target(device.number("card"), device.number("gi"), device.number("id"))
    raise GpusimError(f'{_NO_DEVICE} (there is no MIG device "{uuid}")')


def _visible_devices(machine: Machine, visible: str) -> tuple[Target, ...]:
    """Read CUDA_VISIBLE_DEVICES: what comes after the first word that names no device is not seen (CUDA C guide)."""
    found: list[Target] = []
    for word in visible.split(","):
        target = _visible(machine, word.strip())
        if target is None:
            break
        found.append(target)
    if not found:
        raise GpusimError(f'{_NO_DEVICE} (CUDA_VISIBLE_DEVICES is "{visible}")')
    return tuple(dict.fromkeys(found))


def _visible(machine: Machine, word: str) -> Target | None:
    if word.startswith("MIG-"):
        return _mig_device(machine, word) if machine.one("ci", uuid=word) else None
    if word.startswith("GPU-"):
        found = [card for card in machine.cards if card["uuid"].startswith(word)]
        return _whole_card(machine, found[0].number("index")) if len(found) == 1 else None
    return _whole_card(machine, int(word)) if word.isdecimal() and machine.one("card", index=int(word)) else None


def _index(word: str) -> int:
    if not word.isdecimal():
        raise GpusimError(f'"{word}" is not a card index; write for instance --gpu 0 or --gpu 0,1')
    return int(word)


def execute(command: Sequence[str]) -> None:
    """Become the command: same PID, its own signals and exit status. Does not return.

    Raises:
        GpusimError: there is no such program.
    """
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - becoming the program is what `run` is for
    except OSError as error:
        processes.forget_own()
        raise GpusimError(f"{command[0]} cannot be started: {error.strerror}") from error


def lock_and_reserve(gpu: str | None, mig: str | None, use: processes.Use) -> None:
    """Choose the devices and register, with nobody in between who could take the same memory.

    Raises:
        GpusimError: see choose and reserve.
    """
    with store.locked():
        machine = store.read()
        processes.sweep()
        reserve(machine, choose(machine, gpu, mig), use)
