"""The cards as NVML sees them; whatever it refuses to say becomes None and a reason, never an exception.

All calls work for ordinary users: MIG instances are found through MIG device handles, not through the GPU instance
functions, which need root (NVIDIA MIG user guide, "Device nodes and capabilities").
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..rules.cards import Card, Cards, MigDevice, NvLink
from .nvml_library import LOST, Code, Library, NoBindingError, RefusedError, load_binding, started
from .nvml_processes import read_processes
from .procfs import loaded_driver

if TYPE_CHECKING:
    from collections.abc import Callable

_MEMORY_V2 = 0x02000028
"""Version word of nvmlMemory_v2_t: size 40, version 2 (nvml.h NVML_STRUCT_VERSION)."""

_MAX_LINKS = 18
"""NVML_NVLINK_MAX_LINKS of drivers up to R570; newer bindings say more."""

_MEMORY_SLICES = 8
"""MIG profile names count a card's memory in eighths (NVIDIA MIG user guide, "GPU memory slice")."""

_NO_SUCH_PART = {Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FUNCTION_NOT_FOUND}

_NO_VERSION_2 = {
    Code.FUNCTION_NOT_FOUND,
    Code.NOT_SUPPORTED,
    Code.INVALID_ARGUMENT,
    Code.ARGUMENT_VERSION_MISMATCH,
}


class _Interview:
    """Puts questions to one card and remembers why some have no answer.

    Attributes:
        lost: the card stopped answering altogether; nothing more is asked.
    """

    def __init__(self, library: Library, handle: Any) -> None:
        self.library = library
        self.handle = handle
        self.lost = False
        self._refusals: dict[str, list[str]] = {}

    def refused(self, what: str, refusal: RefusedError) -> None:
        self.lost = self.lost or refusal.code == Code.GPU_IS_LOST
        self.note(what, str(refusal))

    def note(self, what: str, why: str) -> None:
        topics = self._refusals.setdefault(why, [])
        if what not in topics:
            topics.append(what)

    def ask(self, what: str, question: Callable[[], Any]) -> Any:
        """Return the answer, or None after noting why there is none."""
        if self.lost:
            return None
        try:
            return question()
        except RefusedError as refusal:
            self.refused(what, refusal)
            return None

    def get(self, what: str, function: str, *arguments: Any) -> Any:
        """Ask an NVML function about the card."""
        return self.ask(what, partial(self.library.call, function, self.handle, *arguments))

    def get_numbered(self, what: str, function: str, number: int) -> Any:
        """Ask about a numbered part of the card; a part that it does not have is None without a reason."""

        def question() -> Any:
            try:
                return self.library.call(function, self.handle, number)
            except RefusedError as refusal:
                if refusal.code in _NO_SUCH_PART:
                    return None
                raise

        return self.ask(what, question)

    def reason(self) -> str:
        return "; ".join(f"{', '.join(topics)}: {why}" for why, topics in self._refusals.items())


def read_cards(pynvml_module: Any = None, proc_root: Path = Path("/proc"), *, nvlinks: bool = True) -> Cards:
    """Look at all cards of this machine once.

    Args:
        pynvml_module: nvidia-ml-py's module or an object like it; None imports it.
        proc_root: where proc is mounted; tests give their own.
        nvlinks: whether to ask about them too: that is most of the calls.

    Returns:
        The cards in order of NVML index. When NVML cannot be used at all there are none, and the reason says why.
    """
    try:
        binding = load_binding() if pynvml_module is None else pynvml_module
        with started(binding) as library:
            return _read_all(library, proc_root, nvlinks=nvlinks)
    except NoBindingError as error:
        return Cards(reason=str(error))
    except RefusedError as refusal:
        loaded = loaded_driver(proc_root) if refusal.code == Code.LIBRARY_MISMATCH else ""
        return Cards(reason=f"{refusal} (loaded: {loaded})" if loaded else str(refusal))


def _read_all(library: Library, proc_root: Path, *, nvlinks: bool) -> Cards:
    cuda = _version(library, "nvmlSystemGetCudaDriverVersion_v2")
    found = Cards(
        driver_version=_text(_version(library, "nvmlSystemGetDriverVersion")),
        nvml_version=_text(_version(library, "nvmlSystemGetNVMLVersion")),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
    )
    try:
        count = library.call("nvmlDeviceGetCount")
    except RefusedError as refusal:
        return replace(found, reason=f"number of cards: {refusal}")
    if not count:
        return replace(found, reason="the driver runs but sees no card; compare with `lspci | grep -i nvidia`")
    return replace(found, cards=tuple(_read_card(library, index, proc_root, nvlinks=nvlinks) for index in range(count)))


def _version(library: Library, function: str) -> Any:
    try:
        return library.call(function)
    except RefusedError:  # the cards matter more than a version: it stays empty
        return None


def _read_card(library: Library, index: int, proc_root: Path, *, nvlinks: bool) -> Card:
    try:
        handle = library.call("nvmlDeviceGetHandleByIndex", index)
    except RefusedError as refusal:
        # A card off the bus answers "GPU is lost" or, depending on driver and model, "Unknown Error".
        return Card(index=index, lost=refusal.code != Code.NO_PERMISSION, reason=str(refusal))
    card = _Interview(library, handle)
    identity = Card(
        index=index,
        uuid=_text(card.get("UUID", "nvmlDeviceGetUUID")),
        name=_text(card.get("model", "nvmlDeviceGetName")),
        minor=card.get("device minor", "nvmlDeviceGetMinorNumber"),
        bus_id=_bus_id(card.get("PCI address", "nvmlDeviceGetPciInfo")),
    )
    memory = card.ask("memory", partial(_memory, library, handle))
    capable, enabled, pending = _mig_mode(card)
    devices = _mig_devices(card, memory.total if memory else None) if enabled else ()
    seen = replace(
        identity,
        memory_total=memory.total if memory else None,
        memory_used=memory.used if memory else None,
        memory_free=memory.free if memory else None,
        utilization=_utilization(card, mig=enabled),
        nvlinks=_nvlinks(card) if nvlinks else (),
        mig_capable=capable,
        mig_enabled=enabled,
        mig_pending=pending,
        mig_devices=tuple(device for device, _ in devices),
        processes=card.ask("processes", partial(read_processes, library, handle, devices, proc_root)),
    )
    return replace(identity, lost=True, reason=LOST) if card.lost else replace(seen, reason=card.reason())


def _memory(library: Library, handle: Any) -> Any:
    """Return an object with total, used and free, bytes; version 2 counts out what the driver reserves (R510 on)."""
    try:
        return library.call("nvmlDeviceGetMemoryInfo", handle, library.constant("nvmlMemory_v2", _MEMORY_V2))
    except RefusedError as refusal:
        if refusal.code not in _NO_VERSION_2:
            raise
        return library.call("nvmlDeviceGetMemoryInfo", handle)


def _utilization(card: _Interview, *, mig: bool | None) -> int | None:
    if mig:
        # nvml.h, nvmlDeviceGetUtilizationRates: "On MIG-enabled GPUs, querying device utilization rates is not
        # currently supported". Not asked: a driver that answers 0 would make a busy card look idle.
        card.note("utilisation", "not measured by NVML while MIG is on")
        return None
    rates = card.get("utilisation", "nvmlDeviceGetUtilizationRates")
    return int(rates.gpu) if rates is not None else None


def _nvlinks(card: _Interview) -> tuple[NvLink, ...]:
    links = []
    for number in range(card.library.constant("NVML_NVLINK_MAX_LINKS", _MAX_LINKS)):
        state = card.get_numbered("NVLink", "nvmlDeviceGetNvLinkState", number)
        if state is None:
            continue
        peer = card.get_numbered("NVLink", "nvmlDeviceGetNvLinkRemotePciInfo", number) if state else None
        links.append(NvLink(link=number, active=bool(state), remote_bus_id=_bus_id(peer)))
    return tuple(links)


def _mig_mode(card: _Interview) -> tuple[bool | None, bool | None, bool | None]:
    """Return whether the card can do MIG, whether it is on, and whether it will be after the next reset."""
    if card.lost:
        return None, None, None
    try:
        current, pending = card.library.call("nvmlDeviceGetMigMode", card.handle)
    except RefusedError as refusal:
        if refusal.code == Code.NOT_SUPPORTED:
            return False, None, None
        card.refused("MIG mode", refusal)
        return None, None, None
    return True, bool(current), bool(pending)


def _mig_devices(card: _Interview, card_memory: int | None) -> tuple[tuple[MigDevice, Any], ...]:
    """Return each MIG device with its handle, in NVML order."""
    devices = []
    for index in range(card.get("MIG instances", "nvmlDeviceGetMaxMigDeviceCount") or 0):
        handle = card.get_numbered("MIG instances", "nvmlDeviceGetMigDeviceHandleByIndex", index)
        if handle is None:  # instances may leave gaps in the numbering
            continue
        device = card.ask("MIG instances", partial(_mig_device, card.library, index, handle, card_memory))
        if device is not None:
            devices.append((device, handle))
    return tuple(devices)


def _mig_device(library: Library, index: int, handle: Any, card_memory: int | None) -> MigDevice:
    try:
        memory = _memory(library, handle)
    except RefusedError as refusal:
        if refusal.code == Code.GPU_IS_LOST:
            raise
        memory = None
    return MigDevice(
        index=index,
        uuid=_text(library.call("nvmlDeviceGetUUID", handle)),
        profile=_profile(library, handle, card_memory),
        gpu_instance=library.call("nvmlDeviceGetGpuInstanceId", handle),
        compute_instance=library.call("nvmlDeviceGetComputeInstanceId", handle),
        memory_total=memory.total if memory else None,
        memory_used=memory.used if memory else None,
        memory_free=memory.free if memory else None,
    )


def _profile(library: Library, handle: Any, card_memory: int | None) -> str:
    """Name the profile of a MIG device.

    The name of a MIG device ends with it (`NVIDIA A100-SXM4-80GB MIG 3g.40gb`; nvml.h, nvmlDeviceGetName). Where the
    driver leaves it out it is made from the device's attributes: slices of compute, and the memory in eighths of the
    card, rounded to whole GB, which is how the names come to be (NVIDIA MIG user guide, "MIG device names").
    """
    try:
        name = re.search(r"MIG (\S+)$", _text(library.call("nvmlDeviceGetName", handle)))
        if name:
            return name[1]
        attributes = library.call("nvmlDeviceGetAttributes", handle)
    except RefusedError as refusal:
        if refusal.code == Code.GPU_IS_LOST:
            raise
        return ""
    if not card_memory:
        return ""
    eighths = math.ceil(_MEMORY_SLICES * attributes.memorySizeMB * 2**20 / card_memory)
    gigabytes = math.floor(eighths / _MEMORY_SLICES * math.ceil(card_memory / 2**30) + 0.5)
    gpu_slices, compute_slices = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    part = "" if compute_slices == gpu_slices else f"{compute_slices}c."
    return f"{part}{gpu_slices}g.{gigabytes}gb"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def _bus_id(pci: Any) -> str:
    return _text(pci.busId) if pci is not None else ""
