"""A small binding to NVML for what runs every minute: a tenth of nvidia-ml-py's start-up time and memory.

Importing nvidia-ml-py takes about 100 ms of processor time and 20 MiB, much more than a look at eight cards. This
object offers the few functions the sampler needs under nvidia-ml-py's names and with its errors, so that
`nvml_library.Library` takes either. Structures are those of nvml.h (R510 and later); the driver keeps them stable by
versioned names.
"""

# ruff: noqa: N802 - the functions have nvidia-ml-py's names

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARY = "libnvidia-ml.so.1"
_LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND, _INSUFFICIENT_SIZE = 12, 13, 7
_UUID_SIZE = 96
"""NVML_DEVICE_UUID_V2_BUFFER_SIZE."""

_NOT_AVAILABLE = (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE of an unsigned long long."""

_ROOM = 256
"""Processes that one call has room for at first; with more the call is repeated with the room NVML asks for."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _MemoryV2(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("_used", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )

    @property
    def usedGpuMemory(self) -> int | None:
        """Bytes; NVML_VALUE_NOT_AVAILABLE, all bits set, is None as in nvidia-ml-py."""
        return None if self._used == _NOT_AVAILABLE else int(self._used)


class _Sample(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("timeStamp", ctypes.c_ulonglong),
        ("smUtil", ctypes.c_uint),
        ("memUtil", ctypes.c_uint),
        ("encUtil", ctypes.c_uint),
        ("decUtil", ctypes.c_uint),
    )


class NVMLError(Exception):
    """An NVML call that gave an error.

    Attributes:
        value: nvmlReturn_t.
    """

    def __init__(self, value: int) -> None:
        """Keep the code."""
        super().__init__(f"nvmlReturn_t {value}")
        self.value = value


class Binding:
    """NVML's functions under the names of nvidia-ml-py.

    The library is opened by nvmlInit and stays mapped: after a driver upgrade it no longer fits the loaded module, and
    only a new process gets the new one.
    """

    NVMLError = NVMLError

    def __init__(self) -> None:
        """Open nothing yet."""
        self._library: Any = None
        self._functions: dict[str, Callable[..., int]] = {}

    def _call(self, name: str, *arguments: Any) -> None:
        function = self._functions.get(name)
        if function is None:
            try:
                function = getattr(self._library, name)
            except AttributeError:
                raise NVMLError(_FUNCTION_NOT_FOUND) from None
            self._functions[name] = function
        code = function(*arguments)
        if code:
            raise NVMLError(code)

    def nvmlInit(self) -> None:
        """Open the library when it is not, and start NVML."""
        if self._library is None:
            try:
                self._library = ctypes.CDLL(LIBRARY)
            except OSError:
                raise NVMLError(_LIBRARY_NOT_FOUND) from None
        self._call("nvmlInit_v2")

    def nvmlShutdown(self) -> None:
        """End what nvmlInit began; the driver's device files are closed."""
        self._call("nvmlShutdown")

    def _number(self, name: str, *arguments: Any) -> int:
        answer = ctypes.c_uint()
        self._call(name, *arguments, ctypes.byref(answer))
        return answer.value

    def nvmlDeviceGetCount(self) -> int:
        """Return how many cards there are, lost ones included."""
        return self._number("nvmlDeviceGetCount_v2")

    def _handle(self, name: str, *arguments: Any) -> Any:
        answer = ctypes.c_void_p()
        self._call(name, *arguments, ctypes.byref(answer))
        return answer

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        """Return the card's handle."""
        return self._handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index))

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:
        """Return the handle of a MIG device of the card."""
        return self._handle("nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(index))

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        """Return the UUID of a card or MIG device."""
        text = ctypes.create_string_buffer(_UUID_SIZE)
        self._call("nvmlDeviceGetUUID", handle, text, ctypes.c_uint(_UUID_SIZE))
        return text.value.decode(errors="replace")

    def nvmlDeviceGetMigMode(self, handle: Any) -> tuple[int, int]:
        """Return current and pending MIG mode, 1 for on."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        self._call("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
        return current.value, pending.value

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        """Return how many MIG devices the card can have."""
        return self._number("nvmlDeviceGetMaxMigDeviceCount", handle)

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:
        """Return the GPU instance of a MIG device."""
        return self._number("nvmlDeviceGetGpuInstanceId", handle)

    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int:
        """Return the compute instance of a MIG device."""
        return self._number("nvmlDeviceGetComputeInstanceId", handle)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        """Return total and used, bytes; with a version word the second version of the structure."""
        memory: Any = _Memory() if version is None else _MemoryV2(version=version)
        self._call(f"nvmlDeviceGetMemoryInfo{'' if version is None else '_v2'}", handle, ctypes.byref(memory))
        return memory

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        """Return percents: gpu, memory."""
        rates = _Rates()
        self._call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates))
        return rates

    def _list(self, name: str, handle: Any, kind: Any, *more: Any) -> list[Any]:
        room = _ROOM
        while True:
            found, count = (kind * room)(), ctypes.c_uint(room)
            try:
                self._call(name, handle, *self._order(name, found, ctypes.byref(count)), *more)
            except NVMLError as error:
                if error.value != _INSUFFICIENT_SIZE or count.value <= room:
                    raise
                room = count.value + _ROOM  # some more may start before the next call
                continue
            return list(found[: count.value])

    @staticmethod
    def _order(name: str, found: Any, count: Any) -> tuple[Any, Any]:
        """Return list and count in the order that the function takes them."""
        return (found, count) if name == "nvmlDeviceGetProcessUtilization" else (count, found)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        """Return who computes on a card or MIG device."""
        return self._list("nvmlDeviceGetComputeRunningProcesses_v3", handle, _Process)

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: Any) -> list[Any]:
        """Return the same from drivers before R510."""
        return self._list("nvmlDeviceGetComputeRunningProcesses_v2", handle, _Process)

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: Any) -> list[Any]:
        """Return who draws on a card or MIG device."""
        return self._list("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, _Process)

    def nvmlDeviceGetGraphicsRunningProcesses_v2(self, handle: Any) -> list[Any]:
        """Return the same from drivers before R510."""
        return self._list("nvmlDeviceGetGraphicsRunningProcesses_v2", handle, _Process)

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: Any) -> list[Any]:
        """Return who computes through the Multi-Process Service."""
        return self._list("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle, _Process)

    def nvmlDeviceGetMPSComputeRunningProcesses_v2(self, handle: Any) -> list[Any]:
        """Return the same from drivers before R510."""
        return self._list("nvmlDeviceGetMPSComputeRunningProcesses_v2", handle, _Process)

    def nvmlDeviceGetProcessUtilization(self, handle: Any, since: int) -> list[Any]:
        """Return a sample for each process that did something since a time, microseconds since 1970."""
        return self._list("nvmlDeviceGetProcessUtilization", handle, _Sample, ctypes.c_ulonglong(since))
