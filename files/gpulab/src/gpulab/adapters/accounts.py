"""The account files, read as they are, and the system's own tools, which change them under their own locks.

Formats: passwd(5), shadow(5), group(5), subuid(5). Only the local files count: what a directory service adds is not
ours to manage. Tools get argument lists; no name ever meets a shell.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GpulabError
from ..rules.accounts import EXPIRED_DAY, NOLOGIN, Account, Group
from .files import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Runner = Callable[[Sequence[str]], None]

_LIMIT = 64 << 20
_SECONDS = 120
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_PASSWD_FIELDS = 7
_SHADOW_FIELDS = 8
_GROUP_FIELDS = 4
_SUBUID_FIELDS = 3
_EXPIRE_FIELD = 7


def run_command(argv: Sequence[str], seconds: float = _SECONDS) -> None:
    """Run one of the system's tools.

    Args:
        argv: the command line.
        seconds: the longest it may take.

    Raises:
        GpulabError: it is not there, took too long, or ended with an error; with the last line it said.
    """
    try:
        done = subprocess.run(
            argv, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except FileNotFoundError as error:
        raise GpulabError(f"{argv[0]} is not installed; install the package that has it") from error
    except subprocess.TimeoutExpired as error:
        raise GpulabError(f"{argv[0]} did not end within {seconds:g} s and was stopped; try again") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise GpulabError(f"{' '.join(argv[:1])} ended with {done.returncode}: {said[-1] if said else 'no message'}")


def read_accounts(root: Path = Path("/")) -> dict[str, Account]:
    """Read passwd and shadow.

    Args:
        root: the folder that stands for `/`.

    Raises:
        OSError: a file cannot be read.
        UnsafeFileError: a file is not an ordinary one.
    """
    shadow = {fields[0]: fields for fields in _records(root / "etc/shadow", _SHADOW_FIELDS)}
    accounts: dict[str, Account] = {}
    for fields in _records(root / "etc/passwd", _PASSWD_FIELDS):
        name, _, uid, gid, gecos, home, shell = fields[:_PASSWD_FIELDS]
        if not uid.isdecimal() or not gid.isdecimal():
            continue
        secret = shadow[name][1] if name in shadow else ""
        expire = shadow[name][_EXPIRE_FIELD] if name in shadow else ""
        # The first line of a name is the one that counts, as getpwnam(3) reads them.
        accounts.setdefault(
            name,
            Account(
                name=name,
                uid=int(uid),
                gid=int(gid),
                gecos=gecos,
                home=home,
                shell=shell or "/bin/sh",
                in_shadow=name in shadow,
                locked=secret.startswith("!"),
                # crypt(5): a hash begins with $, or is the traditional one; `*` alone opens nothing.
                has_password=secret.lstrip("!") not in {"", "*"},
                expire_day=int(expire) if expire.isdecimal() and int(expire) > 0 else None,
            ),
        )
    return accounts


def read_secrets(root: Path = Path("/")) -> dict[str, str]:
    """Read the second field of shadow for each name: a hash as crypt(5) makes it, or what opens nothing.

    Errors as with read_accounts.
    """
    return {fields[0]: fields[1] for fields in _records(root / "etc/shadow", _SHADOW_FIELDS)}


def read_groups(root: Path = Path("/")) -> dict[str, Group]:
    """Read group; errors as with read_accounts."""
    groups: dict[str, Group] = {}
    for name, _, gid, members in _records(root / "etc/group", _GROUP_FIELDS):
        if gid.isdecimal():
            groups.setdefault(name, Group(name, int(gid), frozenset(filter(None, members.split(",")))))
    return groups


def read_subuids(root: Path = Path("/")) -> dict[str, list[range]]:
    """Read which further numbers an account may use inside user namespaces; empty when there is no such file."""
    found: dict[str, list[range]] = {}
    try:
        for name, start, count in _records(root / "etc/subuid", _SUBUID_FIELDS):
            if start.isdecimal() and count.isdecimal():
                found.setdefault(name, []).append(range(int(start), int(start) + int(count)))
    except FileNotFoundError:
        return {}
    return found


def runnable(root: Path, shells: Iterable[str]) -> frozenset[str]:
    """Return those of the shells that can be run."""
    found = {shell: root / shell.lstrip("/") for shell in shells if shell.startswith("/")}
    return frozenset(shell for shell, path in found.items() if path.is_file() and os.access(path, os.X_OK))


def create_account(run: Runner, name: str, *, uid: int, home: str, shell: str, full_name: str, own_group: bool) -> None:
    """Make an account that no password opens, without a home; useradd(8) also lends it its range of sub-uids.

    `*` rather than `!`: without PAM sshd takes `!` for "locked" and refuses keys as well (sshd(8), LOGIN PROCESS).
    """
    group = ["--user-group"] if own_group else ["--no-user-group", f"--gid={name}"]
    run(
        [
            *("useradd", f"--uid={uid}", *group, "--no-create-home", f"--home-dir={home}", f"--shell={shell}"),
            *(f"--comment={full_name}", "--password=*", name),
        ]
    )


def set_gecos(run: Runner, name: str, gecos: str) -> None:
    """Set an account's comment (usermod(8))."""
    run(["usermod", f"--comment={gecos}", name])


def set_shell(run: Runner, name: str, shell: str) -> None:
    """Set an account's login shell (usermod(8))."""
    run(["usermod", f"--shell={shell}", name])


def close_account(run: Runner, name: str) -> None:
    """Refuse every login, with a key or without.

    Locking the password alone would leave keys working; what closes the account for every service is the day of
    expiry. It is given as a number: shadow reads a date in the server's time zone and may end at day 0, "never".
    """
    run(["usermod", f"--expiredate={EXPIRED_DAY}", "--lock", f"--shell={NOLOGIN}", name])


def open_account(run: Runner, name: str, *, shell: str, has_password: bool) -> None:
    """Undo close_account; somebody without a password gets none."""
    run(["usermod", "--expiredate=", *(["--unlock"] if has_password else ["--password=*"]), f"--shell={shell}", name])


def create_group(run: Runner, name: str, *, system: bool) -> None:
    """Make a group (groupadd(8)); `system`: with a number below those of people."""
    run(["groupadd", *(["--system"] if system else []), name])


def change_group(run: Runner, name: str, *, add: Iterable[str], remove: Iterable[str], root: Path = Path("/")) -> None:
    """Put accounts into a group and take others out, with one call of gpasswd(1) however many they are.

    That call checks every name it is given. Should the group hold somebody who has no local account, such as a
    directory service's, accounts go in and out one by one, and the others are not touched.
    """
    groups = read_groups(root)
    if name not in groups:
        raise GpulabError(f"there is no group {name}")
    there = groups[name].members
    wanted = (there | set(add)) - set(remove)
    if wanted <= read_accounts(root).keys():
        run(["gpasswd", "--members", ",".join(sorted(wanted)), name])
        return
    for account in sorted(wanted - there):
        run(["gpasswd", "--add", account, name])
    for account in sorted(there - wanted):
        run(["gpasswd", "--delete", account, name])


def _records(path: Path, fields: int) -> Iterator[list[str]]:
    """Yield the lines that have that many fields; others (NIS's `+`, comments) are not accounts."""
    for line in read_regular(path, limit=_LIMIT).decode(errors="surrogateescape").split("\n"):
        parts = line.split(":")
        if len(parts) >= fields and parts[0]:
            yield parts if fields == _SHADOW_FIELDS else parts[:fields]
