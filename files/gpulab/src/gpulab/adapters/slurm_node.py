"""What a machine offers to Slurm: processors, memory, and which limits its kernel can enforce."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ..rules.slurm_node import CGROUP_V1, CGROUP_V2, NO_CGROUP, Confinement, Topology

_V1_NEEDED = {"cpuset", "devices", "freezer", "memory"}
"""Controllers that task/cgroup and proctrack/cgroup of Slurm's cgroup/v1 plugin use (cgroup.conf(5))."""

_V2_NEEDED = {"cpu", "cpuset", "memory"}
_TYPE_FIELD, _OPTION_FIELD = 2, 3
_ELSEWHERE = ("192.0.2.1", 9)
"""An address that is nobody's (RFC 5737), reached by the default route."""


def read_topology(sys_root: Path = Path("/sys")) -> Topology:
    """Return the processors as slurmd counts them: those that are on line.

    Raises:
        OSError: sysfs cannot be read.
    """
    cpus: set[int] = set()
    cores: set[tuple[str, str]] = set()
    sockets: set[str] = set()
    for number in _numbers((sys_root / "devices/system/cpu/online").read_text(encoding="ascii")):
        folder = sys_root / f"devices/system/cpu/cpu{number}/topology"
        try:
            socket = (folder / "physical_package_id").read_text(encoding="ascii").strip()
            core = (folder / "core_id").read_text(encoding="ascii").strip()
        except FileNotFoundError:  # some virtual machines have no topology
            socket, core = "0", str(number)
        cpus.add(number)
        sockets.add(socket)
        cores.add((socket, core))
    return Topology(cpus=len(cpus), sockets=len(sockets), cores=len(cores))


def read_memory(proc_root: Path = Path("/proc")) -> int:
    """Return the RAM that the kernel manages, MiB.

    Raises:
        OSError: proc cannot be read.
    """
    for line in (proc_root / "meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024  # kB, which there means 1024 bytes (proc(5))
    raise OSError(f"{proc_root}/meminfo does not say how much memory there is")


def read_confinement(root: Path = Path("/"), proc_root: Path = Path("/proc")) -> Confinement:
    """Find out by which cgroup tree, if any, Slurm can confine jobs here.

    The whole of v2 must be there: Slurm's plugin for it refuses a kernel that keeps controllers on v1, which shows as
    more than one line in /proc/self/cgroup. Then v1 serves, where its controllers are mounted below one folder.
    """
    lines = (proc_root / "self/cgroup").read_text(encoding="utf-8").splitlines()
    try:
        v2 = set((root / "sys/fs/cgroup/cgroup.controllers").read_text(encoding="ascii").split())
    except FileNotFoundError:
        v2 = set()
    if len(lines) == 1 and v2 >= _V2_NEEDED:
        return Confinement(CGROUP_V2)
    folders = _v1_folders(proc_root)
    for folder, controllers in sorted(folders.items()):
        if controllers >= _V1_NEEDED:
            return Confinement(CGROUP_V1, folder)
    reason = (
        f"cgroup v2 lacks the controllers {', '.join(sorted(_V2_NEEDED - v2))}"
        if len(lines) == 1
        else "cgroup v1 and v2 are mixed (boot with systemd.unified_cgroup_hierarchy=1)"
    )
    return Confinement(NO_CGROUP, reason=reason)


def _v1_folders(proc_root: Path) -> dict[str, set[str]]:
    """Return which v1 controllers are mounted below which folder, under their own names as Slurm looks for them."""
    found: dict[str, set[str]] = {}
    for line in (proc_root / "self/mounts").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields[_TYPE_FIELD] == "cgroup":
            folder, _, name = fields[1].rpartition("/")
            if name in fields[_OPTION_FIELD].split(","):
                found.setdefault(folder, set()).add(name)
    return found


def _numbers(text: str) -> list[int]:
    """Read a list of CPUs such as `0-3,8`."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def short_hostname() -> str:
    """Return the machine's name as slurmd compares it with NodeName: without its domain."""
    return os.uname().nodename.partition(".")[0]


def read_address() -> str:
    """Return the address from which this machine reaches the others; its name when it has no route out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)  # nothing is sent: the kernel only picks the source address
        except OSError:
            return short_hostname()
        return str(probe.getsockname()[0])
