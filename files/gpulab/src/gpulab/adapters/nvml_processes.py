"""Who holds memory on a card: NVML's process lists, joined by pid and completed from /proc."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..rules.cards import MigDevice, Process
from .nvml_library import Code, Library, RefusedError
from .procfs import identify

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_LISTS = {
    "C": "nvmlDeviceGetComputeRunningProcesses",
    "G": "nvmlDeviceGetGraphicsRunningProcesses",
    "M": "nvmlDeviceGetMPSComputeRunningProcesses",
}
_NO_INSTANCE = 0xFFFFFFFF
"""What NVML gives as instance id when there is none (nvml.h, nvmlProcessInfo_t)."""

_TRIES = 3
"""The list is read in two calls; a process that starts in between makes it not fit."""


Place = tuple[int, int | None, int | None]
"""Pid, GPU instance and compute instance; the latter two None without MIG."""


@dataclass
class Entry:
    """What the lists say about one process on one instance.

    Attributes:
        memory: GPU memory, bytes; None when the driver does not say.
        lists: letters of the lists that have it.
    """

    memory: int | None = None
    lists: set[str] = field(default_factory=set)

    def kind(self) -> str:
        """Return the letters as nvidia-smi shows them."""
        # A client of the Multi-Process Service computes, whether the compute list has it or not.
        shown = self.lists | ({"C"} if "M" in self.lists else set())
        return "+".join(letter for letter in "MCG" if letter in shown)


def read_processes(
    library: Library, handle: Any, mig_devices: Iterable[tuple[MigDevice, Any]], proc_root: Path
) -> tuple[Process, ...]:
    """List the processes of a card.

    Under MIG the card's own list names all processes only to privileged callers, so each MIG device is asked too.

    Args:
        library: NVML, started.
        handle: the card.
        mig_devices: its MIG devices with their handles.
        proc_root: where proc is mounted.

    Raises:
        RefusedError: a list could not be read: some processes would be missing.
    """
    places = tuple((device.gpu_instance, device.compute_instance, each) for device, each in mig_devices)
    entries = read_entries(library, handle, places)
    return tuple(
        _process(key, entries[key], proc_root)
        for key in sorted(entries, key=lambda key: (key[0], key[1] or 0, key[2] or 0))
    )


def read_entries(library: Library, handle: Any, mig_places: Sequence[tuple[int, int, Any]]) -> dict[Place, Entry]:
    """Read the lists of a card and of its MIG devices, without asking /proc who the processes are.

    Args:
        library: NVML, started.
        handle: the card.
        mig_places: GPU instance, compute instance and handle of its MIG devices.

    Raises:
        RefusedError: a list could not be read: some processes would be missing.
    """
    entries: dict[Place, Entry] = {}
    for letter, running in _running(library, handle, optional=bool(mig_places)):
        place = (_instance(running, "gpuInstanceId"), _instance(running, "computeInstanceId"))
        _add(entries, (running.pid, *place), letter, running.usedGpuMemory)
    for gpu_instance, compute_instance, device_handle in mig_places:
        for letter, running in _running(library, device_handle):
            _add(entries, (running.pid, gpu_instance, compute_instance), letter, running.usedGpuMemory)
    placed = {pid for pid, gpu_instance, _ in entries if gpu_instance is not None}
    return {key: entry for key, entry in entries.items() if key[1] is not None or key[0] not in placed}


def _running(library: Library, handle: Any, *, optional: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield each list's letter and its processes; `optional`: a list that the caller may not read is left out."""
    for letter, function in _LISTS.items():
        try:
            listed = _list(library, function, handle)
        except RefusedError as refusal:
            # Cards without a display engine or MPS have no such lists; the compute list is the one that must be there.
            if letter != "C" and refusal.code in {Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND}:
                continue
            if optional and refusal.code == Code.NO_PERMISSION:
                continue
            raise
        for running in listed:
            yield letter, running


def _list(library: Library, function: str, handle: Any, tries: int = _TRIES) -> Any:
    try:
        return library.call(function, handle)
    except RefusedError as refusal:
        if refusal.code == Code.FUNCTION_NOT_FOUND and not function.endswith("_v2"):
            # nvidia-ml-py asks for version 3 of the list; drivers before R510 have version 2 (R460 and later).
            return _list(library, f"{function}_v2", handle)
        if refusal.code == Code.INSUFFICIENT_SIZE and tries > 1:
            return _list(library, function, handle, tries - 1)
        raise


def _instance(running: Any, name: str) -> int | None:
    number = getattr(running, name, _NO_INSTANCE)
    return None if number == _NO_INSTANCE else int(number)


def _add(entries: dict[Place, Entry], key: Place, letter: str, memory: int | None) -> None:
    entry = entries.setdefault(key, Entry())
    entry.lists.add(letter)
    if memory is not None:
        # Each list gives the process's whole use: the same number again, not one to add.
        entry.memory = max(entry.memory or 0, memory)


def _process(key: Place, entry: Entry, proc_root: Path) -> Process:
    pid, gpu_instance, compute_instance = key
    who = identify(pid, proc_root)
    return Process(
        pid=pid,
        start_ticks=who.start_ticks if who else None,
        uid=who.uid if who else None,
        user=who.user if who else None,
        command=who.command if who else "",
        memory=entry.memory,
        kind=entry.kind(),
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
    )
