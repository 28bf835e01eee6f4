"""The door to NVML: calls by name, and every refusal in words.

NVML (NVIDIA Management Library, libnvidia-ml.so.1) is reached through NVIDIA's own Python binding, the package
nvidia-ml-py. Return codes and what they mean are those of nvml.h, nvmlReturn_t; they are stable.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Code(IntEnum):
    """The NVML return codes that are told apart here (nvml.h, nvmlReturn_t)."""

    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIBRARY_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25
    UNKNOWN = 999


LOST = (
    "the card has fallen off the bus (NVML: GPU is lost); look for `NVRM: Xid` in dmesg and reboot, and if it stays "
    "away check its power and seating"
)

_WORDS: dict[int, str] = {
    Code.NOT_SUPPORTED: "not supported by this card or driver",
    Code.NO_PERMISSION: "not permitted for this account",
    Code.DRIVER_NOT_LOADED: (
        "the NVIDIA library is installed but the kernel module is not loaded; run `modprobe nvidia` as root, "
        "and if that fails look at dmesg"
    ),
    Code.TIMEOUT: "the driver did not answer in time",
    Code.LIBRARY_NOT_FOUND: "there is no NVIDIA driver (libnvidia-ml.so.1 was not found); install the driver",
    Code.FUNCTION_NOT_FOUND: "this driver is too old to answer",
    Code.GPU_IS_LOST: LOST,
    Code.RESET_REQUIRED: "the card must be reset before it answers",
    Code.LIBRARY_MISMATCH: (
        "the NVIDIA library and the loaded kernel module are of different versions, as after a driver update; reboot, "
        "or unload and reload the nvidia modules while nothing uses a card"
    ),
    Code.UNKNOWN: "the driver answered `Unknown Error`; look for lines with NVRM in dmesg",
}


class RefusedError(Exception):
    """An NVML call that gave no answer; the message is a clause for the person who reads it.

    Attributes:
        code: NVML's return code.
    """

    def __init__(self, code: int, text: str) -> None:
        """Remember the code; known codes get our words, others NVML's own text."""
        super().__init__(_WORDS.get(code) or f"NVML error {code} ({text})")
        self.code = code


class NoBindingError(Exception):
    """nvidia-ml-py is not installed for this Python; the message says what to do."""


class Library:
    """NVML, started.

    Args:
        binding: the module pynvml, or an object that behaves like it.
    """

    def __init__(self, binding: Any) -> None:
        """Keep the binding; nothing is called yet."""
        self._binding = binding
        # Raised instead of NVMLError when a versioned function is missing in the driver's library.
        self._mismatch = getattr(binding, "NVMLLibraryMismatchError", ())

    def call(self, function: str, *arguments: Any) -> Any:
        """Call an NVML function by name.

        Raises:
            RefusedError: NVML returned an error, or the binding or the driver's library lacks the function.
        """
        target = getattr(self._binding, function, None)
        if target is None:
            raise RefusedError(Code.FUNCTION_NOT_FOUND, function)
        try:
            return target(*arguments)
        except self._binding.NVMLError as error:
            raise RefusedError(int(error.value), str(error)) from error
        except self._mismatch as error:
            raise RefusedError(Code.FUNCTION_NOT_FOUND, function) from error

    def constant(self, name: str, default: int) -> int:
        """Return a constant of the binding, or the default when this version of it has none."""
        return int(getattr(self._binding, name, default))


def load_binding() -> Any:
    """Import nvidia-ml-py's module.

    Raises:
        NoBindingError: it is not installed for this Python.
    """
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise NoBindingError(
            f"{sys.executable or 'this Python'} has no nvidia-ml-py; use /opt/gpulab/current/bin/python "
            "or install the package nvidia-ml-py"
        ) from error


@contextlib.contextmanager
def started(binding: Any) -> Iterator[Library]:
    """Start NVML, and shut it down however the block ends.

    Args:
        binding: see `Library`.

    Raises:
        RefusedError: NVML would not start.
    """
    library = Library(binding)
    library.call("nvmlInit")
    try:
        yield library
    finally:
        with contextlib.suppress(RefusedError):
            library.call("nvmlShutdown")
