"""Device nodes, and on request /proc/driver, as the real driver's helpers make them.

The nodes have the real numbers and no driver behind them: opening one answers ENXIO, or EPERM where a device cgroup
forbids it, which is what tests of a guard need.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import GpusimError

if TYPE_CHECKING:
    from .records import Machine

_NVIDIA_MAJOR = 195  # Documentation/admin-guide/devices.txt of the kernel, "Nvidia graphics devices"
_CONTROL_MINOR = 255
# Both are given out dynamically by the kernel; these are numbers seen on real servers.
_UVM_MAJOR = 511
_CAPS_MAJOR = 510
_CONFIG, _MONITOR = 1, 2
_LAST_GPU, _LAST_GI, _LAST_CI = 31, 14, 7
_DRIVER_FOLDER = Path("/proc/driver")


def instance_minor(gpu: int, gi: int, ci: int | None = None) -> int:
    """Return the minor of a MIG instance's capability node.

    Args:
        gpu: minor number of the card (gpuN of /proc/driver/nvidia-caps/mig-minors), not its NVML index.
        gi: GPU instance id.
        ci: compute instance id, None for the GPU instance's own node.
    """
    first = _MONITOR + 1 + (_LAST_GI + 1) * (_LAST_CI + 2) * gpu + (_LAST_CI + 2) * gi
    return first if ci is None else first + 1 + ci


def mig_minors() -> str:
    """Return the content of /proc/driver/nvidia-caps/mig-minors: every possible instance, as the driver lists them."""
    lines = [f"config {_CONFIG}", f"monitor {_MONITOR}"]
    for gpu in range(_LAST_GPU + 1):
        for gi in range(_LAST_GI + 1):
            lines.append(f"gpu{gpu}/gi{gi}/access {instance_minor(gpu, gi)}")
            lines += [f"gpu{gpu}/gi{gi}/ci{ci}/access {instance_minor(gpu, gi, ci)}" for ci in range(_LAST_CI + 1)]
    return "".join(f"{line}\n" for line in lines)


def make(machine: Machine, root: Path) -> list[str]:
    """Make the nodes of cards and MIG instances and remove those of instances that are gone.

    Args:
        machine: the machine.
        root: `/dev`, or another folder for tests.

    Returns:
        The paths that now exist.

    Raises:
        GpusimError: this user may not make device nodes.
    """
    minors = {card["index"]: card.number("minor") for card in machine.cards}
    wanted = {root / f"nvidia{minor}": (_NVIDIA_MAJOR, minor, 0o666) for minor in minors.values()}
    wanted[root / "nvidiactl"] = (_NVIDIA_MAJOR, _CONTROL_MINOR, 0o666)
    wanted[root / "nvidia-uvm"] = (_UVM_MAJOR, 0, 0o666)
    caps = root / "nvidia-caps"
    caps.mkdir(exist_ok=True)
    numbers = {_CONFIG: 0o400, _MONITOR: 0o444}
    for instance in machine.all("gi"):
        numbers[instance_minor(minors[instance["card"]], instance.number("id"))] = 0o444
    for instance in machine.all("ci"):
        gpu = minors[instance["card"]]
        numbers[instance_minor(gpu, instance.number("gi"), instance.number("id"))] = 0o444
    wanted |= {caps / f"nvidia-cap{minor}": (_CAPS_MAJOR, minor, mode) for minor, mode in numbers.items()}
    for path in caps.glob("nvidia-cap*"):
        if path not in wanted:
            path.unlink()
    for path, (major, minor, mode) in wanted.items():
        _node(path, major, minor, mode)
    return sorted(str(path) for path in wanted)


def _node(path: Path, major: int, minor: int, mode: int) -> None:
    device = os.makedev(major, minor)
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == device:
            return
        path.unlink()
    try:
        os.mknod(path, stat.S_IFCHR | mode, device)
    except PermissionError as error:
        raise GpusimError(f"{path} cannot be made: {error.strerror}; device nodes need root") from error
    path.chmod(mode)


def mount_proc(machine: Machine) -> None:
    """Lay a small file system over /proc/driver with what the driver shows there.

    Raises:
        GpusimError: this user may not mount.
    """
    if not (_DRIVER_FOLDER / "nvidia-caps").is_dir():
        mount = ["mount", "-t", "tmpfs", "-o", "mode=0755", "gpusim", str(_DRIVER_FOLDER)]
        result = subprocess.run(mount, check=False, capture_output=True, text=True)
        if result.returncode != 0:
            raise GpusimError(f"{_DRIVER_FOLDER} cannot be mounted on: {result.stderr.strip()}")
    write_proc(machine, _DRIVER_FOLDER)


def write_proc(machine: Machine, root: Path) -> None:
    """Write the files that the driver shows below /proc/driver into a folder."""
    version = machine.driver["version"]
    files = {
        "nvidia-caps/mig-minors": mig_minors(),
        "nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  simulated by gpusim\n",
        "nvidia/capabilities/mig/config": _capability(_CONFIG, 0o400),
        "nvidia/capabilities/mig/monitor": _capability(_MONITOR, 0o444),
    }
    for card in machine.cards:
        files[f"nvidia/gpus/{card['bus_id'][4:].lower()}/information"] = (
            f"Model: \t\t {machine.model(card)['name']}\nGPU UUID: \t {card['uuid']}\n"
            f"Bus Location: \t {card['bus_id'][4:].lower()}\nDevice Minor: \t {card['minor']}\n"
        )
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _capability(minor: int, mode: int) -> str:
    return f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode:o}\nDeviceFileModify: 1\n"
