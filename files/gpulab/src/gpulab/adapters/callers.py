"""Who runs a command, and which groups an account is in, as the operating system says."""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING

from ..errors import NotPermittedError

if TYPE_CHECKING:
    from collections.abc import Mapping


def caller(environ: Mapping[str, str] = os.environ) -> str:
    """Return the account name of the person who runs this process.

    Root's word for who it works for is SUDO_UID (sudo(8)), which sudo sets itself; for everybody else the variable
    means nothing and the real user id counts.

    Args:
        environ: the environment.

    Raises:
        NotPermittedError: there is no such account.
    """
    uid = os.getuid()
    sudo_uid = environ.get("SUDO_UID", "")
    if uid == 0 and sudo_uid:
        if not (sudo_uid.isascii() and sudo_uid.isdigit()):
            raise NotPermittedError("SUDO_UID is not a number; run the command through sudo or as root")
        uid = int(sudo_uid)
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        raise NotPermittedError(f"user id {uid} has no account on this server") from None


def in_group(user: str, group: str) -> bool:
    """Tell whether an account is in a Unix group, as its primary or as a further one."""
    try:
        entry = grp.getgrnam(group)
        return user in entry.gr_mem or pwd.getpwnam(user).pw_gid == entry.gr_gid
    except KeyError:
        return False
