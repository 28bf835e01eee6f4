"""A process that loads the simulated library through nvidia-ml-py and answers calls sent to it.

The tests themselves never load the library: other tests of the same run must find no driver.
Requests and answers are pickles on standard input and output: `(name, arguments)` against `("ok", value)` or
`("error", number)`.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import pickle
import sys
from types import SimpleNamespace
from typing import NamedTuple

try:
    import pynvml
except ImportError:  # the tests import this module for its types only
    pynvml = None


class Handle(NamedTuple):
    """A handle of the library, in a form that can be sent."""

    structure: str
    address: int


def _send(value):
    if isinstance(value, (ctypes.Structure, getattr(pynvml, "_PrintableStructure", ()))):
        return SimpleNamespace(**{name: _send(getattr(value, name)) for name, _ in value._fields_})
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    if isinstance(value, ctypes._Pointer):
        return Handle(type(value)._type_.__name__, ctypes.cast(value, ctypes.c_void_p).value or 0)
    if hasattr(value, "__dict__"):
        return SimpleNamespace(**{name: _send(part) for name, part in vars(value).items()})
    if isinstance(value, (list, tuple)):
        return [_send(part) for part in value]
    return value


def _receive(value):
    if isinstance(value, Handle):
        return ctypes.cast(ctypes.c_void_p(value.address), ctypes.POINTER(getattr(pynvml, value.structure)))
    return value


def _list(call, handle, profile, element):
    """Calls that fill an array have no comfortable form in nvidia-ml-py."""
    array, count = (element * 64)(), ctypes.c_uint(64)
    call(handle, profile, array, ctypes.byref(count))
    return list(array[: count.value])


def gpu_placements(device, profile):
    found = _list(
        pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, device, profile, pynvml.c_nvmlGpuInstancePlacement_t
    )
    return [(place.start, place.size) for place in found]


def compute_placements(instance, profile):
    call = pynvml.nvmlGpuInstanceGetComputeInstancePossiblePlacements
    return [
        (place.start, place.size) for place in _list(call, instance, profile, pynvml.c_nvmlComputeInstancePlacement_t)
    ]


def gpu_instances(device, profile):
    return _list(pynvml.nvmlDeviceGetGpuInstances, device, profile, pynvml.c_nvmlGpuInstance_t)


def compute_instances(instance, profile):
    return _list(pynvml.nvmlGpuInstanceGetComputeInstances, instance, profile, pynvml.c_nvmlComputeInstance_t)


def create_at(device, profile, start, size):
    place = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile, ctypes.byref(place))


def call_bare(name):
    """Call a function without arguments and return what it returns."""
    return pynvml._nvmlGetFunctionPointer(name)()


def size_query(device, room):
    """Ask for compute processes with no array: return code and count."""
    count = ctypes.c_uint(room)
    function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")
    return function(device, ctypes.byref(count), None), count.value


def can_make(device, layouts):
    """For each list of profile ids: whether instances of all can be made in some order. Leaves the card empty."""
    return [any(_make(device, order) for order in set(itertools.permutations(layout))) for layout in layouts]


def _make(device, layout):
    made = []
    try:
        made.extend(pynvml.nvmlDeviceCreateGpuInstance(device, profile) for profile in layout)
    except pynvml.NVMLError_InsufficientResources:
        return False
    finally:
        for instance in made:
            pynvml.nvmlGpuInstanceDestroy(instance)
    return True


def create_at_once(device, profile, count):
    """Let processes try to make an instance of a profile at the same moment; return their return codes, sorted."""
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            instance = pynvml.c_nvmlGpuInstance_t()
            create = pynvml._nvmlGetFunctionPointer("nvmlDeviceCreateGpuInstance")
            os._exit(create(device, profile, ctypes.byref(instance)))
        children.append(child)
    return sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def use_machine(state):
    """Forget the machine used so far and go on with another one."""
    with contextlib.suppress(pynvml.NVMLError_Uninitialized):
        while True:
            pynvml.nvmlShutdown()
    os.environ["GPUSIM_STATE"] = state


def main():
    here = globals()
    sys.modules["nvml_worker"] = sys.modules["__main__"]  # the name under which the tests know Handle
    Handle.__module__ = "nvml_worker"
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        function = here.get(name) or getattr(pynvml, name)
        try:
            answer = ("ok", _send(function(*map(_receive, arguments))))
        except pynvml.NVMLError as error:
            answer = ("error", error.value)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
