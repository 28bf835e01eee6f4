"""Takes one look at the cards and at who uses them: everything the sample store keeps, as cheaply as NVML allows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..rules.samples import LOST, MIG, NO_INSTANCE, OK, UNMEASURED, UNREADABLE, CardSample, Runner, Tick, Use
from .nvml_library import Code, Library, RefusedError, started
from .nvml_processes import Entry, read_entries
from .procfs import cgroup, cpu_ticks, identify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..rules.samples import Hold
    from .nvml_processes import Place

    Leases = Callable[[], tuple[Hold, ...]]

_MEMORY_V2 = 0x02000028
"""Version word of nvmlMemory_v2_t (nvml.h NVML_STRUCT_VERSION)."""

_SCOPE = re.compile(r"/gpulab-lease-(\d+)\.scope(?:/|$)")
_FULL = 100
"""Percent. Some drivers answer more while a process ends; such a number means nothing."""

_BUSY_PERCENT = 5
"""A card that runs kernels for so much of the last moment while no process of it has a sample: samples are missing."""


class Sampler:
    """Looks at the cards again and again; remembers processes, so that each is asked who it is only once.

    Args:
        binding: nvidia-ml-py's module or `nvml_light.Binding`.
        proc_root: where proc is mounted.
        ticks_per_second: sysconf(_SC_CLK_TCK).
        leases: what leases give away now.
    """

    def __init__(self, binding: Any, proc_root: Path, ticks_per_second: int, leases: Leases) -> None:
        """Remember nothing yet."""
        self._binding = binding
        self._proc_root = proc_root
        self._proc_text = str(proc_root)
        self._ms_per_tick = 1000 // ticks_per_second
        self._leases = leases
        self._known: dict[int, tuple[Runner, int]] = {}

    def look(self, at: int, since: float) -> Tick:
        """Take one look.

        Args:
            at: the time it is, whole seconds since 1970.
            since: start of the time that utilisation is asked for, seconds since 1970.

        Returns:
            What was seen. When NVML would not start there are no cards and the reason says why.
        """
        seen: dict[int, tuple[Runner, int]] = {}
        try:
            with started(self._binding) as library:
                count = library.call("nvmlDeviceGetCount")
                found = [self._card(library, index, int(since * 1e6), seen) for index in range(count)]
        except RefusedError as refusal:
            return Tick(at, reason=str(refusal))
        self._known = seen
        return Tick(
            at,
            cards=tuple(card for card, _ in found),
            uses=tuple(use for _, uses in found for use in uses),
            holds=self._leases(),
            reason="" if found else "the driver runs but sees no card",
        )

    def _card(
        self, library: Library, index: int, since_us: int, seen: dict[int, tuple[Runner, int]]
    ) -> tuple[CardSample, list[Use]]:
        uuid = ""
        try:
            handle = library.call("nvmlDeviceGetHandleByIndex", index)
            uuid = library.call("nvmlDeviceGetUUID", handle)
            mig = _is_split(library, handle)
            entries = read_entries(library, handle, self._places(library, handle) if mig else ())
            memory = _memory(library, handle)
            rate = None if mig else _rate(library, handle)
            load, reason = (None, "") if mig else _load(library, handle, since_us)
        except RefusedError as refusal:
            state = LOST if refusal.code == Code.GPU_IS_LOST else UNREADABLE
            return CardSample(index, uuid, state, reason=str(refusal)), []
        if load is not None and not load and entries and (rate is None or rate >= _BUSY_PERCENT):
            load, reason = None, "the card works, but NVML has no sample of any process"
        state = MIG if mig else UNMEASURED if load is None else OK
        uses = [
            use
            for place in sorted(entries, key=lambda place: (place[0], place[1] or 0))
            if (use := self._use(index, place, entries[place], load, seen)) is not None
        ]
        return CardSample(index, uuid, state, rate, memory.used, memory.total, reason), uses

    @staticmethod
    def _places(library: Library, handle: Any) -> list[tuple[int, int, Any]]:
        places = []
        for number in range(library.call("nvmlDeviceGetMaxMigDeviceCount", handle)):
            try:
                device = library.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            except RefusedError as refusal:
                if refusal.code in {Code.NOT_FOUND, Code.INVALID_ARGUMENT}:
                    continue  # instances may leave gaps in the numbering
                raise
            instance = library.call("nvmlDeviceGetGpuInstanceId", device)
            places.append((instance, library.call("nvmlDeviceGetComputeInstanceId", device), device))
        return places

    def _use(
        self,
        card: int,
        place: Place,
        entry: Entry,
        load: dict[int, int | None] | None,
        seen: dict[int, tuple[Runner, int]],
    ) -> Use | None:
        pid, instance, _ = place
        before = self._known.get(pid)
        runner, ticks = seen.get(pid) or self._identify(pid, before)
        if runner is None:
            return None  # it ended while it was looked at
        seen[pid] = runner, ticks
        passed = None if before is None or before[0] is not runner else (ticks - before[1]) * self._ms_per_tick
        # A client of the Multi-Process Service works through the server: without a sample of its own nothing is known.
        default = None if "M" in entry.lists else 0
        return Use(
            runner,
            card,
            NO_INSTANCE if instance is None else instance,
            entry.memory,
            None if load is None else load.get(pid, default),
            passed,
        )

    def _identify(self, pid: int, before: tuple[Runner, int] | None) -> tuple[Any, int]:
        now = cpu_ticks(pid, self._proc_text)
        if now is None:
            return None, 0
        if before is not None and before[0].start_ticks == now[0]:
            return before[0], now[1]
        who = identify(pid, self._proc_root)
        if who is None:
            return None, 0
        scope = _SCOPE.search(cgroup(pid, self._proc_root))
        return Runner(pid, who.start_ticks, who.uid, who.user, who.command, int(scope[1]) if scope else None), now[1]


def _is_split(library: Library, handle: Any) -> bool:
    try:
        return bool(library.call("nvmlDeviceGetMigMode", handle)[0])
    except RefusedError as refusal:
        if refusal.code in {Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND}:
            return False
        raise


def _memory(library: Library, handle: Any) -> Any:
    try:
        return library.call("nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2)
    except RefusedError as refusal:
        if refusal.code not in {Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH, Code.NOT_SUPPORTED}:
            raise
        return library.call("nvmlDeviceGetMemoryInfo", handle)


def _rate(library: Library, handle: Any) -> int | None:
    """Return percent of the last moment in which a kernel ran."""
    try:
        return int(library.call("nvmlDeviceGetUtilizationRates", handle).gpu)
    except RefusedError as refusal:
        if refusal.code == Code.GPU_IS_LOST:
            raise
        return None


def _load(library: Library, handle: Any, since_us: int) -> tuple[dict[int, int | None] | None, str]:
    """Return the highest sample of each process, percent; None with a reason when the card has no samples at all."""
    try:
        samples = library.call("nvmlDeviceGetProcessUtilization", handle, since_us)
    except RefusedError as refusal:
        if refusal.code == Code.NOT_FOUND:  # nobody did anything (nvml.h, nvmlDeviceGetProcessUtilization)
            return {}, ""
        if refusal.code == Code.GPU_IS_LOST:
            raise
        return None, f"utilisation of processes: {refusal}"
    load: dict[int, int | None] = {}
    for sample in samples:
        if sample.timeStamp <= since_us:
            continue
        percent = sample.smUtil if sample.smUtil <= _FULL else None
        before = load.get(sample.pid, 0)
        load[sample.pid] = None if percent is None or before is None else max(percent, before)
    return load, ""
