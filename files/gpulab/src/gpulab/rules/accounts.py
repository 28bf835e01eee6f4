"""What the server knows about accounts: plain data, as read from its files or as made up by a test."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..errors import InputError
from ..names import PUBLIC_DIR, STATE_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping

NOLOGIN = "/usr/sbin/nologin"
"""Login shell of somebody who left: says so and ends (nologin(8))."""

EXPIRED_DAY = 1
"""Day of expiry that closes an account, days since 1970-01-01. Not 0: shadow(5) leaves open what 0 means."""

ARCHIVE_FOLDER = ".gpulab-archive"
"""Where homes of people who left are kept: a folder of root's beside the homes, so that moving one is a rename."""

_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/root", "/run", "/sbin", "/sys", "/usr")
_NOT_FOR_HOMES = frozenset([*(PurePosixPath(path) for path in _SYSTEM), PUBLIC_DIR, STATE_DIR])


@dataclass(frozen=True)
class Account:
    """One line of passwd(5) and what shadow(5) says about it; no password, not even its hash.

    Attributes:
        name: account name.
        uid: account number.
        gid: number of its primary group.
        gecos: the comment: full name, then room and telephones after commas.
        home: home folder.
        shell: login shell.
        in_shadow: whether shadow(5) has a line for it.
        locked: whether the password is locked (begins with `!`).
        has_password: whether there is a password, locked or not, that could open it.
        expire_day: when it stops working, days since 1970-01-01; None: never.
    """

    name: str
    uid: int
    gid: int
    gecos: str = ""
    home: str = ""
    shell: str = ""
    in_shadow: bool = True
    locked: bool = False
    has_password: bool = False
    expire_day: int | None = None

    @property
    def full_name(self) -> str:
        """The name in the comment."""
        return self.gecos.partition(",")[0]


@dataclass(frozen=True)
class Group:
    """One line of group(5).

    Attributes:
        name: group name.
        gid: group number.
        members: accounts in it besides those whose primary group it is.
    """

    name: str
    gid: int
    members: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Place:
    """What stands at a path where a home should be.

    Attributes:
        kind: `absent`, `folder`, or `other` (a link, a file, or a path that cannot be looked at).
        uid: owner; None when absent.
        mode: permission bits; 0 when absent.
        mounted: whether a file system is mounted there: it can be closed, but not renamed.
    """

    kind: str = "absent"
    uid: int | None = None
    mode: int = 0
    mounted: bool = False

    @property
    def closed(self) -> bool:
        """Whether it is a folder that only root can enter."""
        return self.kind == "folder" and self.uid == 0 and self.mode == 0o700  # noqa: PLR2004 - rwx for the owner


@dataclass(frozen=True)
class KeyFile:
    """One managed key file.

    Attributes:
        content: what it holds.
        sound: whether it is an ordinary file of root's that sshd can read and nobody else can change.
    """

    content: bytes
    sound: bool = True


@dataclass(frozen=True)
class Traces:
    """What somebody who left still has on the server.

    Attributes:
        uids: numbers its processes run under: its own, and those lent to its containers (subuid(5)).
        crontab: whether it has one.
        at_jobs: file names of its waiting at(1) jobs.
        lingers: whether its services start without a login (loginctl enable-linger).
        processes: how many processes run.
        bookings: how many bookings are active.
    """

    uids: tuple[range, ...] = ()
    crontab: bool = False
    at_jobs: tuple[str, ...] = ()
    lingers: bool = False
    processes: int = 0
    bookings: int = 0

    @property
    def starters(self) -> list[str]:
        """What would start processes again, in words."""
        words = ["crontab"] * self.crontab
        if self.at_jobs:
            words.append(f"{len(self.at_jobs)} at jobs")
        return words + ["lingering"] * self.lingers


@dataclass(frozen=True)
class Host:
    """Everything one look at the server found.

    Attributes:
        accounts: by name.
        groups: by name.
        key_files: managed key files by account name.
        places: homes and where they should be, by path.
        archived: paths of archived homes.
        shells: those of the shells asked about that can be run here.
        traces: of those who left, by name.
        logged_in: uids on whose behalf this very run works (a login that became root).
        aliases: text of the alias file; None when there is none.
        aliases_stale: whether the mailer reads an older, compiled version of it.
        notes: what could not be looked at, one sentence each.
    """

    accounts: Mapping[str, Account] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    key_files: Mapping[str, KeyFile] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    archived: frozenset[str] = frozenset()
    shells: frozenset[str] = frozenset()
    traces: Mapping[str, Traces] = field(default_factory=dict)
    logged_in: frozenset[int] = frozenset()
    aliases: str | None = None
    aliases_stale: bool = False
    notes: tuple[str, ...] = ()

    def groups_of(self) -> dict[str, set[str]]:
        """Return the groups each account was put into, besides its primary one."""
        found: dict[str, set[str]] = {}
        for group in self.groups.values():
            for name in group.members:
                found.setdefault(name, set()).add(group.name)
        return found


def home_mode(text: str) -> int:
    """Read the permission bits of homes, such as `0750`.

    Raises:
        InputError: they are no octal number, or would let others write or keep the owner out.
    """
    bits = int(text, 8) if re.fullmatch("0?[0-7]{3}", text) else 0
    if bits & stat.S_IRWXU != stat.S_IRWXU or bits & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(
            f'members_home_mode is {text!r}; give octal bits that let only the owner write, such as "0750"'
        )
    return bits


def ordinary_home(home: str) -> bool:
    """Tell whether a path is one where a person's home may be made, moved or closed.

    A home of `/`, `/home` or `/usr/share/x` belongs to more than one person, whatever the account file says.
    """
    path = PurePosixPath(home)
    # Two slashes at the front are kept by PurePosixPath (POSIX gives them a meaning of their own), and hide /etc.
    if not home.startswith("/") or home.startswith("//") or home != str(path) or ".." in path.parts:
        return False
    if len(path.parts) < 3:  # noqa: PLR2004 - /, a folder for homes, the home
        return False
    return _NOT_FOR_HOMES.isdisjoint((path, *path.parents))


def archive_base(home: str, name: str) -> str:
    """Return where the home of somebody who leaves is kept."""
    return str(PurePosixPath(home).parent / ARCHIVE_FOLDER / name)
