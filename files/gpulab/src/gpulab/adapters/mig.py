"""MIG through NVML: what each card can be split into, what it has, and every change to it.

Everything that lists or changes instances needs root, or read access to /dev/nvidia-caps/nvidia-cap1 (NVIDIA MIG user
guide, "Device nodes and capabilities"). Cards are named by UUID: when a mode change resets a card, handles and even its
device minor may change (nvml.h, nvmlDeviceSetMigMode).
"""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..rules.mig_cards import Compute, Instance, MigCard, Profile
from ..rules.mig_known import known_profiles
from .nvml_library import Code, Library, RefusedError, load_binding, started
from .nvml_processes import read_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..rules.cards import Process

IN_USE = 19
_INSUFFICIENT_RESOURCES = 23
_NEEDS_REBOOT = {int(Code.RESET_REQUIRED), int(Code.NOT_SUPPORTED)}
"""How a mode change says that the card cannot be reset from here, as in a virtual machine (nvml.h)."""

_GPU_SLOTS = 24
_COMPUTE_SLOTS = 12
"""NVML numbers profiles from 0; drivers of today have 18 and 9 (nvml.h), and refuse numbers that they do not know."""

_NO_PROFILE = {Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT}

_MOST_PLACES = 64
_COMPUTE_SLOT = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
"""Compute slices: NVML_COMPUTE_INSTANCE_PROFILE_x_SLICE (nvml.h)."""

_ENGINES_SHARED = 0
"""NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, the only one there is."""

_WORDS = {
    int(Code.INVALID_ARGUMENT): "the driver knows no such profile or place (NVML: Invalid Argument)",
    int(Code.NO_PERMISSION): "only root may do this; use sudo",
    int(Code.NOT_FOUND): "it is not there any more (NVML: Not Found)",
    int(Code.FUNCTION_NOT_FOUND): "this driver is too old for it; MIG needs R525 or newer here",
    IN_USE: "it is in use (NVML: In Use)",
    _INSUFFICIENT_RESOURCES: "it does not fit beside what is there (NVML: Insufficient Resources)",
}


def words(refusal: RefusedError) -> str:
    """Return what a refusal means where MIG is concerned, as a clause."""
    return _WORDS.get(int(refusal.code), str(refusal))


@dataclass(frozen=True)
class _ComputeProfile:
    """A kind of compute instance: its id, compute slices, and the most of it in its GPU instance."""

    id: int
    width: int
    maximum: int


class Mig:
    """NVML, started, for all that has to do with MIG.

    Args:
        binding: the module pynvml, or an object that behaves like it.
        library: the same, started.
        proc_root: where proc is mounted.
    """

    def __init__(self, binding: Any, library: Library, proc_root: Path) -> None:
        """Keep what is given; nothing is called yet."""
        self._binding = binding
        self._library = library
        self._proc_root = proc_root
        # What does not change while MIG stays on (nvml.h, nvmlDeviceGetGpuInstanceProfileInfo) is asked once.
        self._profiles: dict[str, tuple[Profile, ...]] = {}
        self._compute_profiles: dict[tuple[str, int], tuple[_ComputeProfile, ...]] = {}

    def read_cards(self) -> tuple[MigCard, ...]:
        """Look at every card; one that cannot be reached is there with the reason.

        Raises:
            RefusedError: the driver does not even say how many there are.
        """
        return tuple(self._read_by_index(index) for index in range(self._library.call("nvmlDeviceGetCount")))

    def read_card(self, card: MigCard) -> MigCard:
        """Look at a card again.

        Raises:
            RefusedError: it does not answer.
        """
        return self._read(card.index, self._handle(card))

    def processes(self, card: MigCard) -> tuple[Process, ...]:
        """Return the processes on a card and on its instances.

        Raises:
            RefusedError: the driver will not say, so that the card may be in use.
        """
        # For root the card's own list has those of its instances (nvml.h, nvmlDeviceGetComputeRunningProcesses).
        return read_processes(self._library, self._handle(card), (), self._proc_root)

    def switch_mode(self, card: MigCard, *, enabled: bool) -> bool:
        """Switch MIG on or off.

        Returns:
            Whether it is so now; False when the mode is noted down and waits for a reboot.

        Raises:
            RefusedError: NVML refused, or the card is in use and could not be reset.
        """
        # The call succeeds also when only half of it did; its value says how the other half went.
        activation = int(self._library.call("nvmlDeviceSetMigMode", self._handle(card), int(enabled)))
        if activation == 0:
            return True
        if activation in _NEEDS_REBOOT and self._mode(card)[1] == enabled:
            return False
        raise RefusedError(activation, "MIG mode was not activated")

    def make_instance(self, card: MigCard, instance: Instance) -> int:
        """Make a GPU instance at its place, without compute instances.

        Returns:
            Its number on the card.

        Raises:
            RefusedError: NVML refused.
        """
        placement = self._binding.c_nvmlGpuInstancePlacement_t(instance.start, instance.size)
        handle = self._library.call(
            "nvmlDeviceCreateGpuInstanceWithPlacement", self._handle(card), instance.profile, ctypes.byref(placement)
        )
        return int(self._library.call("nvmlGpuInstanceGetInfo", handle).id)

    def remove_instance(self, card: MigCard, number: int) -> None:
        """Destroy a GPU instance, which must be empty.

        Raises:
            RefusedError: NVML refused.
        """
        self._library.call("nvmlGpuInstanceDestroy", self._instance_handle(card, number))

    def make_compute(self, card: MigCard, number: int, slices: int, compute: Compute) -> None:
        """Make a compute instance.

        Args:
            card: the card.
            number: GPU instance it goes into.
            slices: compute slices of that.
            compute: width and place.

        Raises:
            RefusedError: NVML refused.
        """
        handle = self._instance_handle(card, number)
        profile = self._library.call(
            "nvmlGpuInstanceGetComputeInstanceProfileInfo", handle, _COMPUTE_SLOT[compute.width], _ENGINES_SHARED
        ).id
        if compute.width == slices:  # only one place, and drivers before R535 cannot be told one
            self._library.call("nvmlGpuInstanceCreateComputeInstance", handle, profile)
            return
        placement = self._binding.c_nvmlComputeInstancePlacement_t(compute.start, compute.width)
        self._library.call(
            "nvmlGpuInstanceCreateComputeInstanceWithPlacement", handle, profile, ctypes.byref(placement)
        )

    def remove_compute(self, card: MigCard, number: int, compute: int) -> None:
        """Destroy a compute instance of a GPU instance.

        Raises:
            RefusedError: NVML refused.
        """
        handle = self._instance_handle(card, number)
        self._library.call(
            "nvmlComputeInstanceDestroy",
            self._library.call("nvmlGpuInstanceGetComputeInstanceById", handle, compute),
        )

    def _handle(self, card: MigCard) -> Any:
        return self._library.call("nvmlDeviceGetHandleByUUID", card.uuid)

    def _instance_handle(self, card: MigCard, number: int) -> Any:
        return self._library.call("nvmlDeviceGetGpuInstanceById", self._handle(card), number)

    def _mode(self, card: MigCard) -> tuple[bool, bool]:
        current, pending = self._library.call("nvmlDeviceGetMigMode", self._handle(card))
        return bool(current), bool(pending)

    def _read_by_index(self, index: int) -> MigCard:
        try:
            return self._read(index, self._library.call("nvmlDeviceGetHandleByIndex", index))
        except RefusedError as refusal:
            return MigCard(index, reason=words(refusal))

    def _read(self, index: int, handle: Any) -> MigCard:
        pci = self._library.call("nvmlDeviceGetPciInfo", handle)
        card = MigCard(
            index=index,
            uuid=_text(self._library.call("nvmlDeviceGetUUID", handle)),
            name=_text(self._library.call("nvmlDeviceGetName", handle)),
            device_id=int(pci.pciDeviceId),
            subsystem_id=int(pci.pciSubSystemId),
            minor=self._minor(handle),
            capable=False,
        )
        try:
            enabled, pending = map(bool, self._library.call("nvmlDeviceGetMigMode", handle))
        except RefusedError as refusal:
            if refusal.code != Code.NOT_SUPPORTED:
                raise
            return card
        measured = self._read_profiles(card.uuid, handle, enabled=enabled)
        return replace(
            card,
            capable=True,
            enabled=enabled,
            pending=pending,
            profiles=measured or known_profiles(card.device_id),
            measured=bool(measured),
            instances=tuple(self._read_instances(card.uuid, handle, measured)) if enabled else (),
        )

    def _minor(self, handle: Any) -> int | None:
        try:
            return int(self._library.call("nvmlDeviceGetMinorNumber", handle))
        except RefusedError as refusal:
            if refusal.code != Code.NOT_SUPPORTED:
                raise
            return None

    def _read_profiles(self, uuid: str, handle: Any, *, enabled: bool) -> tuple[Profile, ...]:
        """Return what the card says it can make; empty when it says nothing, as some do while MIG is off."""
        if enabled and uuid in self._profiles:
            return self._profiles[uuid]
        found = []
        for slot in range(_GPU_SLOTS):
            try:
                info = self._library.call("nvmlDeviceGetGpuInstanceProfileInfo", handle, slot)
            except RefusedError as refusal:
                if refusal.code not in _NO_PROFILE:
                    raise
                if slot == 0 and not enabled:  # the profile that every card has: this one says nothing now
                    return ()
                continue
            try:
                size, starts = self._read_places(handle, info.id)
            except RefusedError as refusal:
                if enabled or refusal.code not in _NO_PROFILE:
                    raise
                return ()
            name = _text(info.name).removeprefix("MIG ")
            found.append(Profile(int(info.id), name, int(info.sliceCount), size, starts, int(info.instanceCount)))
        if enabled and not found:  # instances are found by profile: without any, a full card would look empty
            raise RefusedError(Code.NOT_SUPPORTED, "no profile at all")
        if enabled:
            self._profiles[uuid] = tuple(found)
        return tuple(found)

    def _read_places(self, handle: Any, profile: int) -> tuple[int, tuple[int, ...]]:
        count = ctypes.c_uint(_MOST_PLACES)
        places = (self._binding.c_nvmlGpuInstancePlacement_t * _MOST_PLACES)()
        self._library.call("nvmlDeviceGetGpuInstancePossiblePlacements", handle, profile, places, ctypes.byref(count))
        found = places[: count.value]
        return max((int(each.size) for each in found), default=0), tuple(sorted(int(each.start) for each in found))

    def _read_instances(self, uuid: str, handle: Any, profiles: tuple[Profile, ...]) -> list[Instance]:
        found = []
        for profile in profiles:
            count = ctypes.c_uint(profile.maximum)
            handles = (self._binding.c_nvmlGpuInstance_t * max(profile.maximum, 1))()
            self._library.call("nvmlDeviceGetGpuInstances", handle, profile.id, handles, ctypes.byref(count))
            found += [self._read_instance(uuid, each, profile) for each in handles[: count.value]]
        return sorted(found, key=lambda instance: instance.start)

    def _read_instance(self, uuid: str, handle: Any, profile: Profile) -> Instance:
        info = self._library.call("nvmlGpuInstanceGetInfo", handle)
        key = (uuid, profile.id)
        if key not in self._compute_profiles:
            self._compute_profiles[key] = tuple(self._read_compute_profiles(handle))
        computes = [found for kind in self._compute_profiles[key] for found in self._read_computes(handle, kind)]
        return Instance(
            profile=profile.id,
            name=profile.name,
            slices=profile.slices,
            start=int(info.placement.start),
            size=int(info.placement.size),
            computes=tuple(sorted(computes, key=lambda compute: compute.start)),
            id=int(info.id),
        )

    def _read_compute_profiles(self, handle: Any) -> Iterator[_ComputeProfile]:
        for slot in range(_COMPUTE_SLOTS):
            try:
                info = self._library.call("nvmlGpuInstanceGetComputeInstanceProfileInfo", handle, slot, _ENGINES_SHARED)
            except RefusedError as refusal:
                if refusal.code not in _NO_PROFILE:
                    raise
                continue
            yield _ComputeProfile(int(info.id), int(info.sliceCount), int(info.instanceCount))

    def _read_computes(self, handle: Any, kind: _ComputeProfile) -> list[Compute]:
        count = ctypes.c_uint(kind.maximum)
        handles = (self._binding.c_nvmlComputeInstance_t * max(kind.maximum, 1))()
        self._library.call("nvmlGpuInstanceGetComputeInstances", handle, kind.id, handles, ctypes.byref(count))
        infos = [self._library.call("nvmlComputeInstanceGetInfo_v2", each) for each in handles[: count.value]]
        return [Compute(kind.width, int(info.placement.start), int(info.id)) for info in infos]


@contextlib.contextmanager
def opened(binding: Any = None, proc_root: Path = Path("/proc")) -> Iterator[Mig]:
    """Start NVML for MIG, and shut it down however the block ends.

    Args:
        binding: nvidia-ml-py's module or an object like it; None imports it.
        proc_root: where proc is mounted.

    Raises:
        NoBindingError: nvidia-ml-py is not installed for this Python.
        RefusedError: NVML would not start.
    """
    binding = load_binding() if binding is None else binding
    with started(binding) as library:
        yield Mig(binding, library, proc_root)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
