"""The list of members, `lab_members`: read strictly, so that nothing in it can surprise the server later.

Everything here is data from a file that people edit by hand. Each refusal names the member, the key, the value and
what to write instead, and nothing has been changed when it is raised.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..names import UID_MIN
from .mig_bindings import parse_place
from .reserved import RESERVED_NAMES
from .ssh_keys import SshKey, parse_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

UID_END = 60000
"""First uid that is not for people any more: 60000-64999 belong to packages, 65534 is nobody (Debian Policy 9.2.2)."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
# ASCII only, and nothing that an alias file or a mailer reads as syntax (a pipe, a path, :include:, an option).
_MAIL = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._%+=-]{0,63}@([A-Za-z0-9][A-Za-z0-9-]*\.)+[A-Za-z][A-Za-z0-9-]+")
_MAIL_LIMIT = 254
_SHELL = re.compile(r"(/[A-Za-z0-9._+-]+)+")
_FULL_NAME_LIMIT = 100
_SHOWN = 60


@dataclass(frozen=True)
class Member:
    """One person of the lab.

    Attributes:
        name: account name.
        uid: account number; None: the one the account has, or the next free one.
        full_name: what the account's comment says; None: leave it as it is.
        mail: where the member's mail goes when the server can send mail out; empty: it stays on the server.
        ssh_keys: public keys that open the account.
        groups: further groups, besides the ones the lab gives to everyone.
        admin: whether the member may become root.
        shell: login shell, an absolute path; None: leave it as it is, or the default for a new account.
        gpu: the MIG instance that is theirs in the light tiers, such as `mig-0-1`; `none` for none, empty for no wish.
        present: False for somebody who left.
    """

    name: str
    uid: int | None = None
    full_name: str | None = None
    mail: str = ""
    ssh_keys: tuple[SshKey, ...] = ()
    groups: tuple[str, ...] = ()
    admin: bool = False
    shell: str | None = None
    gpu: str = ""
    present: bool = True


_KEYS = tuple("state" if item.name == "present" else item.name for item in fields(Member))


def parse_members(raw: Sequence[Mapping[str, Any]]) -> tuple[Member, ...]:
    """Check and read the whole list.

    Args:
        raw: `lab_members` as it stands in the inventory. A key that is None counts as not given.

    Returns:
        The members in the order of the list.

    Raises:
        InputError: something in it cannot be used, two members collide, or no present member is an admin.
    """
    if isinstance(raw, (str, bytes)) or not hasattr(raw, "__iter__") or hasattr(raw, "keys"):
        raise InputError(f"lab_members is {_shown(raw)}; give a list of members, each beginning with `- name:`")
    members = tuple(_member(item, position) for position, item in enumerate(raw, start=1))
    if not members:
        raise InputError("lab_members is empty; list at least the admin, with `admin: true` and an ssh key")
    _refuse_twins(members)
    names = {member.name for member in members}
    for member in members:
        taken = next((group for group in member.groups if group in names), None)
        if taken:
            raise _error(member.name, "groups", taken, "that is another member's own group; choose another group name")
    if not any(member.present and member.admin for member in members):
        raise InputError("lab_members has no present member with `admin: true`; give it to whoever runs the server")
    return members


def require_admin(members: Sequence[Member], lab_admin: str) -> Member:
    """Find the person whom the lab names as its admin.

    Args:
        members: the parsed list.
        lab_admin: the account name given in the inventory.

    Raises:
        InputError: there is no such member, or it cannot act as admin.
    """
    admins = ", ".join(member.name for member in members if member.present and member.admin)
    member = next((member for member in members if member.name == lab_admin), None)
    if member is None:
        raise InputError(f"lab_admin is {_shown(lab_admin)}, who is not in lab_members; name one of: {admins}")
    if not member.present:
        raise InputError(f"lab_admin is {lab_admin}, who left (state: absent); name one of: {admins}")
    if not member.admin:
        raise InputError(f"lab_admin is {lab_admin}, who has no `admin: true` in lab_members; add it or name {admins}")
    return member


def _member(raw: Any, position: int) -> Member:
    if not hasattr(raw, "keys"):
        raise InputError(f"lab_members, entry {position} is {_shown(raw)}; give a mapping that begins with `name:`")
    given = {key: value for key, value in raw.items() if value is not None}
    name = _account_name(given["name"]) if "name" in given else ""
    for key in raw:
        if key not in _KEYS:
            nearest = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"known keys are {', '.join(_KEYS)}"
            where = f"member {name}" if name else f"entry {position}"
            raise InputError(f"lab_members, {where}: the key {_shown(key)} is unknown; {hint}")
    if not name:
        raise InputError(f"lab_members, entry {position}: name is missing; each member needs one (`name: alice`)")
    values: dict[str, Any] = {key: _READERS[key](name, given[key]) for key in _KEYS if key in given and key != "name"}
    if "state" in values:
        values["present"] = values.pop("state") == "present"
    return Member(name=name, **values)


def _account_name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InputError(
            f"lab_members: {_shown(value)} is not a usable name; a name is 1 to 32 characters: a lower-case letter, "
            "then lower-case letters, digits, - and _"
        )
    if value in RESERVED_NAMES:
        raise InputError(f"lab_members: the name {value} belongs to the system; choose another name for this member")
    return value


def _uid(name: str, value: Any) -> int:
    if type(value) is not int:
        raise _error(name, "uid", value, f"give a number from {UID_MIN} to {UID_END - 1}, without quotes")
    if not UID_MIN <= value < UID_END:
        raise _error(name, "uid", value, f"numbers of people go from {UID_MIN} to {UID_END - 1}")
    return value


def _full_name(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _FULL_NAME_LIMIT:
        raise _error(name, "full_name", value, f"give one line of at most {_FULL_NAME_LIMIT} characters")
    # passwd(5): a colon ends the field, commas divide it into name, room and telephone.
    if ":" in value or "," in value:
        raise _error(name, "full_name", value, "the account file has no room for : and , in a name; leave them out")
    return value


def _mail(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAIL_LIMIT or not (value == "" or _MAIL.fullmatch(value)):
        raise _error(name, "mail", value, "give one plain address, such as bob@example.org")
    return value


def _ssh_keys(name: str, value: Any) -> tuple[SshKey, ...]:
    texts = _texts(name, "ssh_keys", value, "give a list of .pub lines")
    return tuple(dict.fromkeys(_ssh_key(name, position, text) for position, text in enumerate(texts, start=1)))


def _ssh_key(name: str, position: int, text: str) -> SshKey:
    try:
        return parse_key(text)
    except InputError as error:
        raise InputError(f"lab_members, member {name}: ssh_keys, key {position} {error}") from error


def _groups(name: str, value: Any) -> tuple[str, ...]:
    groups = _texts(name, "groups", value, "give a list of group names, such as [vision]")
    for group in groups:
        if not _NAME.fullmatch(group):
            raise _error(name, "groups", group, "a group name is a lower-case letter, then letters, digits, - and _")
        if group in RESERVED_NAMES:
            raise _error(name, "groups", group, "that group belongs to the system; use `admin: true` for root's rights")
    return tuple(dict.fromkeys(groups))


def _admin(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _error(name, "admin", value, "give true or false, without quotes")
    return value


def _shell(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _SHELL.fullmatch(value) or ".." in value:
        raise _error(name, "shell", value, "give the absolute path of a shell, such as /bin/bash")
    return value


def _gpu(name: str, value: Any) -> str:
    if value == "":
        return ""
    try:
        parse_place(value)
    except ValueError as error:
        raise _error(name, "gpu", value, str(error)) from None
    return str(value)


def _state(name: str, value: Any) -> str:
    if value not in ("present", "absent"):  # a list given by mistake has no hash: no set here
        raise _error(name, "state", value, "give present or absent")
    return str(value)


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "uid": _uid,
    "full_name": _full_name,
    "mail": _mail,
    "ssh_keys": _ssh_keys,
    "groups": _groups,
    "admin": _admin,
    "shell": _shell,
    "gpu": _gpu,
    "state": _state,
}


def _texts(name: str, key: str, value: Any, remedy: str) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise _error(name, key, value, remedy)
    return list(value)


def _refuse_twins(members: Sequence[Member]) -> None:
    names: dict[str, int] = {}
    uids: dict[int, str] = {}
    for position, member in enumerate(members, start=1):
        if member.name in names:
            first = names[member.name]
            raise InputError(f"lab_members: entries {first} and {position} are both named {member.name}; remove one")
        names[member.name] = position
        if member.uid is None:
            continue
        if member.uid in uids:
            raise InputError(
                f"lab_members: {uids[member.uid]} and {member.name} both have uid {member.uid}; give one another number"
            )
        uids[member.uid] = member.name


def _error(name: str, key: str, value: Any, remedy: str) -> InputError:
    return InputError(f"lab_members, member {name}: {key} is {_shown(value)}; {remedy}")


def _shown(value: Any) -> str:
    """Quote a value for a message: one line, control characters escaped, not endless."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
