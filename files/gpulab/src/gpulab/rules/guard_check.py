"""Whether a machine can refuse the cards at all, and whom the guard does not hold; what preflight says about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNIFIED = "unified"
HYBRID = "hybrid"
LEGACY = "legacy"
ABSENT = "absent"

ROOT_GROUPS = {
    "disk": "reads and writes every disk",
    "docker": "starts containers as root",
    "incus-admin": "starts containers as root",
    "libvirt": "starts virtual machines with any device",
    "lxd": "starts containers as root",
    "root": "writes what root owns",
    "sudo": "may become root",
    "wheel": "may become root",
}
"""Groups whose members can become root, and so step out of the guard; how."""


@dataclass(frozen=True)
class DeviceControl:
    """What a machine has for refusing devices.

    Attributes:
        layout: of /sys/fs/cgroup: UNIFIED, HYBRID, LEGACY or ABSENT.
        refusal: why the kernel does not take a device filter, as an error name such as `EPERM`; empty when it does or
            when it could not be asked.
    """

    layout: str
    refusal: str = ""


def why_not(control: DeviceControl) -> str:
    """Say why the guard cannot be enforced here and what to do; empty when it can."""
    if control.layout in {HYBRID, LEGACY}:
        return (
            f"control groups are in the {control.layout} layout (version 1), where device filters cannot be relied on; "
            "take systemd.unified_cgroup_hierarchy=0 off the kernel's command line and reboot"
        )
    if control.layout == ABSENT:
        return "no control groups are mounted on /sys/fs/cgroup; boot the machine with systemd and cgroup v2"
    if control.refusal in {"EPERM", "EACCES"}:
        return (
            f"the kernel lets nobody here load a device filter (bpf: {control.refusal}), as in a container; "
            "allow the bpf system call, or install gpulab on the machine itself"
        )
    if control.refusal:
        return f"the kernel has no device filters (bpf: {control.refusal}); boot one that has CONFIG_CGROUP_BPF"
    return ""


def unheld(people: Iterable[str], groups: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Name the people whom the guard does not hold, each with the groups that make them root, such as `bob (docker)`.

    Args:
        people: account names of those who are to be held.
        groups: members of each group of the machine.
    """
    roots = {name: frozenset(members) for name, members in groups.items() if name in ROOT_GROUPS}
    found = {person: [name for name, members in sorted(roots.items()) if person in members] for person in people}
    return tuple(f"{person} ({', '.join(names)})" for person, names in sorted(found.items()) if names)


def unenforced_words(reason: str) -> str:
    """Return the line for the plan of a machine that cannot refuse the cards."""
    return (
        f"RISK  the cards cannot be closed to members' sessions: {reason}; or go on without: gpu_guard_enabled: false"
    )


def disabled_words(tier: str) -> str:
    """Return the line for the plan of a lab that does not want the guard."""
    way = "a Slurm job" if tier == "slurm" else "allocate_gpu"
    return f"RISK  gpu_guard_enabled is false: members can open every card without {way}, and nothing stops them"
