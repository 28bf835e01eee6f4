"""Which file systems can keep limits, what each needs first, and plain answers for those that cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InputError
from . import mounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .mounts import Mount
    from .quota import Folder, Limits, Policy, Project

READY, ENABLE, JOURNAL, WAITING = "ready", "enable", "journal", "waiting"
"""Enforced already; counted, enforcement can be switched on; ext4 that must begin to count; only after a remount."""

JOURNAL_OPTIONS = ("usrjquota=aquota.user", "jqfmt=vfsv1")
_ELSEWHERE = {
    "btrfs": "Btrfs limits subvolumes, not people: see btrfs-quota(8), `btrfs qgroup limit`",
    "nfs": "its limits live on the NFS server: set them there",
    "nfs4": "its limits live on the NFS server: set them there",
    "overlay": "an overlay, as containers have, keeps no limits of its own",
    "tmpfs": "it lives in memory: give it a size when it is mounted",
    "zfs": "ZFS has its own: `zfs set userquota@NAME=200G DATASET`, see zfs-userspace(8)",
}


@dataclass(frozen=True)
class Place:
    """A file system with limits to keep.

    Attributes:
        mount: where and what it is.
        folders: of the policy; more than one only with the same limits.
        projects: of the policy, on this file system.
    """

    mount: Mount
    folders: tuple[Folder, ...] = ()
    projects: tuple[Project, ...] = ()

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.mount.point} ({self.mount.kind} on {self.mount.source})"


def places(policy: Policy, found: Mapping[str, Mount | None]) -> tuple[Place, ...]:
    """Sort a policy by file system.

    Args:
        policy: what is asked for.
        found: the mount of each path of the policy; None where there is no such folder.

    Raises:
        InputError: a folder is not there, its file system keeps no limits, or two folders share one and differ.
    """
    folders: dict[str, list[Folder]] = {}
    projects: dict[str, list[Project]] = {}
    by_device: dict[str, Mount] = {}
    for variable, entries in (("disk_quota_folders", policy.folders), ("disk_quota_projects", policy.projects)):
        for entry in entries:
            mount = found.get(entry.path)
            if mount is None:
                raise InputError(f"{variable}: there is no folder {entry.path}; make it, or take the entry out")
            if mount.kind not in {"ext4", "xfs"}:
                remedy = _ELSEWHERE.get(mount.kind, "gpulab keeps limits on ext4 and XFS")
                raise InputError(
                    f"{variable}: {entry.path} lies on {mount.kind} ({mount.source}), where gpulab cannot keep limits; "
                    f"{remedy}. Take the entry out"
                )
            by_device.setdefault(mount.device, mount)
    for folder in policy.folders:
        folders.setdefault(_device(found, folder.path), []).append(folder)
    for project in policy.projects:
        projects.setdefault(_device(found, project.path), []).append(project)
    for device, sharing in folders.items():
        _agree(policy, sharing, by_device[device])
    return tuple(
        Place(mount, tuple(folders.get(device, ())), tuple(projects.get(device, ())))
        for device, mount in by_device.items()
    )


def _device(found: Mapping[str, Mount | None], path: str) -> str:
    mount = found[path]
    return mount.device if mount else ""


def _agree(policy: Policy, sharing: Sequence[Folder], mount: Mount) -> None:
    """A quota counts all of a file system: two folders on one cannot have limits of their own."""
    first = sharing[0]
    members = {member for member, _ in policy.own or {}}
    for other in sharing[1:]:
        same = (other.limits, other.grace) == (first.limits, first.grace)
        if not same or any(policy.limits(each, first.path) != policy.limits(each, other.path) for each in members):
            raise InputError(
                f"disk_quota_folders: {first.path} and {other.path} are one file system, mounted at {mount.point}, and "
                f"a quota counts both together; give them the same limits, or keep one of the entries"
            )


def judge(place: Place, *, counted: bool, enforced: bool) -> str:
    """Say what has to be done so that limits of members hold: READY, ENABLE, JOURNAL or WAITING."""
    if enforced:
        return READY
    if counted:
        return ENABLE
    return JOURNAL if place.mount.kind == "ext4" else WAITING


def remedy(place: Place, *, fstab: bool) -> str:
    """Say what an admin has to do so that an XFS counts from its next mount on.

    Args:
        place: the file system.
        fstab: whether it is mounted from there, and has the option there now.
    """
    point, options = place.mount.point, mount_options(place)
    if point == "/":
        return (
            f"XFS cannot begin to count while it is mounted: add rootflags={options} to GRUB_CMDLINE_LINUX in "
            f"/etc/default/grub, run update-grub, and reboot when it suits"
        )
    done = "fstab has it now" if fstab else "add it where it is mounted"
    return (
        f"no limits yet: XFS begins to count only when it is mounted anew, with the option {options} ({done}): "
        f"`umount {point} && mount {point}` while nobody is on it, or reboot when it suits"
    )


def feature_remedy(place: Place) -> str:
    """Say what must be done so that an ext4 can have projects."""
    point, command = place.mount.point, f"tune2fs -O project,quota -Q usrquota,prjquota {place.mount.source}"
    if point == "/":
        # Without the module the stock initramfs cannot mount such a root file system.
        return (
            f"ext4 needs the features first: add quota_v2 to /etc/initramfs-tools/modules, run update-initramfs -u, "
            f"and from a rescue system `{command}`"
        )
    return f"ext4 needs the features first, while nobody is on it: `umount {point} && {command} && mount {point}`"


def mount_options(place: Place) -> str:
    """Return the options XFS has to be mounted with."""
    return "uquota,pquota" if place.projects else "uquota"


def fstab_for(place: Place, text: str) -> str:
    """Return fstab as it has to be for a file system to count from its next mount on."""
    return mounts.with_options(
        text, place.mount.point, add=mount_options(place).split(","), remove=("noquota", "uqnoenforce", "pqnoenforce")
    )


def wanted(place: Place, policy: Policy, accounts: Mapping[str, int]) -> dict[int, Limits]:
    """Return the limits of each member on a file system, by uid."""
    if not place.folders:
        return {}
    path = place.folders[0].path
    return {uid: policy.limits(name, path) for name, uid in accounts.items()}
