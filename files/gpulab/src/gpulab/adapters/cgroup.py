"""Control groups of this machine: their layout, the group of a process, and whether device filters are possible."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from typing import TYPE_CHECKING

from ..rules.guard_check import ABSENT, HYBRID, LEGACY, UNIFIED, DeviceControl

if TYPE_CHECKING:
    from pathlib import Path

_MOUNT = "/sys/fs/cgroup"

# bpf(2): numbers of the call by machine (syscalls(2)), BPF_PROG_LOAD, BPF_PROG_TYPE_CGROUP_DEVICE (linux/bpf.h).
_BPF_CALL = {"aarch64": 280, "ppc64le": 361, "riscv64": 280, "s390x": 351, "x86_64": 321}
_PROG_LOAD = 5
_TYPE_CGROUP_DEVICE = 15
# The smallest program: r0 = 1, exit. systemd asks with the same one whether it can filter devices.
_TRIVIAL = bytes.fromhex("b700000001000000 9500000000000000")


class _LoadAttributes(ctypes.Structure):
    """The beginning of union bpf_attr for BPF_PROG_LOAD; the kernel takes the rest for zero."""

    _fields_ = (
        ("prog_type", ctypes.c_uint32),
        ("insn_cnt", ctypes.c_uint32),
        ("insns", ctypes.c_uint64),
        ("license", ctypes.c_uint64),
        ("log_level", ctypes.c_uint32),
        ("log_size", ctypes.c_uint32),
        ("log_buf", ctypes.c_uint64),
        ("kern_version", ctypes.c_uint32),
        ("prog_flags", ctypes.c_uint32),
    )


def device_control(proc_root: Path) -> DeviceControl:
    """Tell what the machine has for refusing devices; changes nothing.

    Args:
        proc_root: where proc is mounted.
    """
    return DeviceControl(_layout(proc_root), _filter_refusal())


def _layout(proc_root: Path) -> str:
    """Return the layout that systemd runs in, which it tells from the mount on /sys/fs/cgroup as well (cgroups(7))."""
    try:
        lines = (proc_root / "self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ABSENT
    kinds: dict[str, str] = {}
    for line in lines:
        place, _, rest = line.partition(" - ")
        kinds[place.split()[4]] = rest.split()[0]  # a later mount on the same place covers the earlier one
    if _MOUNT not in kinds:
        return ABSENT
    if kinds[_MOUNT] == "cgroup2":
        return UNIFIED
    return HYBRID if kinds.get(f"{_MOUNT}/unified") == "cgroup2" else LEGACY


def _filter_refusal() -> str:
    """Load a filter that is attached to nothing and gone at once; return the name of the error, if any."""
    number = _BPF_CALL.get(platform.machine())
    if number is None:
        return ""
    program = ctypes.create_string_buffer(_TRIVIAL, len(_TRIVIAL))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = _LoadAttributes(
        prog_type=_TYPE_CGROUP_DEVICE,
        insn_cnt=len(_TRIVIAL) // 8,
        insns=ctypes.addressof(program),
        license=ctypes.addressof(licence),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, _PROG_LOAD, ctypes.byref(attributes), ctypes.sizeof(attributes))
    if descriptor < 0:
        return errno.errorcode.get(ctypes.get_errno(), "unknown")
    os.close(descriptor)
    return ""


def path_of(pid: int | str, proc_root: Path) -> str:
    """Return the group of a process in systemd's tree, such as `/user.slice/user-1001.slice/session-3.scope`.

    Args:
        pid: the process, or `self`.
        proc_root: where proc is mounted.

    Returns:
        Empty when it is gone.
    """
    try:
        text = (proc_root / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return ""
    groups = dict(line.split(":", 2)[1:] for line in text.splitlines())
    return groups.get("") or groups.get("name=systemd", "")
