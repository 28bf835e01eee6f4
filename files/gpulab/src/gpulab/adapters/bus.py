"""Calls over the system bus, through systemd's own library (sd-bus(3)).

busctl(1) does the same in a process of its own, which takes ten times as long.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any

from ..errors import GpulabError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARY = "libsystemd.so.0"


class BusError(GpulabError):
    """The bus cannot be reached, or who was called refused."""


class _Error(ctypes.Structure):
    """sd_bus_error of sd-bus.h."""

    _fields_ = (("name", ctypes.c_char_p), ("message", ctypes.c_char_p), ("need_free", ctypes.c_int))


@functools.cache
def _library() -> Any:
    """Return the library, with the types of what is used of it.

    Raises:
        BusError: there is none.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise BusError(f"{_LIBRARY} cannot be loaded ({error}); it comes with systemd") from error
    pointer, text, place = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)
    library.sd_bus_open_system.argtypes = [place]
    library.sd_bus_flush_close_unref.argtypes = [pointer]
    library.sd_bus_flush_close_unref.restype = pointer
    library.sd_bus_message_new_method_call.argtypes = [pointer, place, text, text, text, text]
    library.sd_bus_message_append_basic.argtypes = [pointer, ctypes.c_char, pointer]
    library.sd_bus_message_open_container.argtypes = [pointer, ctypes.c_char, text]
    library.sd_bus_message_close_container.argtypes = [pointer]
    library.sd_bus_message_unref.argtypes = [pointer]
    library.sd_bus_message_unref.restype = pointer
    library.sd_bus_call.argtypes = [pointer, pointer, ctypes.c_uint64, ctypes.POINTER(_Error), place]
    library.sd_bus_error_free.argtypes = [ctypes.POINTER(_Error)]
    library.sd_bus_error_free.restype = None
    return library


def call(destination: str, path: str, method: tuple[str, str], signature: str, *values: Any, seconds: float) -> None:
    """Call a method on the system bus and wait for its answer, which is not read.

    Args:
        destination: well-known name, such as org.freedesktop.systemd1.
        path: of the object.
        method: interface and name.
        signature: types of the values (D-Bus specification), of `s`, `u`, arrays, structures and variants.
        values: strings, numbers, sequences; a variant is a pair of its signature and its value.
        seconds: how long the answer may take.

    Raises:
        BusError: no bus, no answer in time, or a refusal, in the words of who was called.
    """
    library = _library()
    with _opened(library) as bus, _message(library, bus, destination, path, method) as message:
        for part, value in zip(_parts(signature), values, strict=True):
            _append(library, message, part, value)
        error = _Error()
        code = library.sd_bus_call(bus, message, max(1, int(seconds * 1e6)), ctypes.byref(error), None)
        try:
            if code < 0:
                raise BusError((error.message or os.strerror(-code).encode()).decode("utf-8", "replace"))
        finally:
            library.sd_bus_error_free(ctypes.byref(error))


@contextlib.contextmanager
def _opened(library: Any) -> Iterator[ctypes.c_void_p]:
    """Connect; a connection that is kept would have to survive a restart of the bus."""
    bus = ctypes.c_void_p()
    code = library.sd_bus_open_system(ctypes.byref(bus))
    if code < 0:
        raise BusError(f"the system bus cannot be reached ({os.strerror(-code)}); look at `systemctl status dbus`")
    try:
        yield bus
    finally:
        library.sd_bus_flush_close_unref(bus)


@contextlib.contextmanager
def _message(
    library: Any, bus: ctypes.c_void_p, destination: str, path: str, method: tuple[str, str]
) -> Iterator[ctypes.c_void_p]:
    message = ctypes.c_void_p()
    words = (word.encode() for word in (destination, path, *method))
    _check(library.sd_bus_message_new_method_call(bus, ctypes.byref(message), *words))
    try:
        yield message
    finally:
        library.sd_bus_message_unref(message)


def _append(library: Any, message: ctypes.c_void_p, signature: str, value: Any) -> None:
    kind = signature[0]
    if kind == "s":
        text = ctypes.c_char_p(value.encode("utf-8", "replace"))
        _check(library.sd_bus_message_append_basic(message, b"s", text))
        return
    if kind == "u":
        _check(library.sd_bus_message_append_basic(message, b"u", ctypes.byref(ctypes.c_uint32(value))))
        return
    if kind == "a":
        code, inner, parts = b"a", signature[1:], [(signature[1:], each) for each in value]
    elif kind == "(":
        code, inner = b"r", signature[1:-1]
        parts = list(zip(_parts(inner), value, strict=True))
    elif kind == "v":
        code, inner, parts = b"v", value[0], [value]
    else:
        raise ValueError(signature)
    _check(library.sd_bus_message_open_container(message, code, inner.encode()))
    for part, each in parts:
        _append(library, message, part, each)
    _check(library.sd_bus_message_close_container(message))


def _parts(signature: str) -> Iterator[str]:
    """Split a signature into complete types."""
    start = depth = 0
    for end, letter in enumerate(signature, start=1):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0 and letter != "a":
            yield signature[start:end]
            start = end


def _check(code: int) -> None:
    if code < 0:
        raise BusError(f"the call cannot be put together: {os.strerror(-code)}")
