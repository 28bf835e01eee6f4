"""Members who are here: made, adopted, kept as listed, or welcomed back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import InputError
from ..names import UID_MIN
from .accounts import EXPIRED_DAY, NOLOGIN, Account, Place
from .member_context import Context, Part
from .member_registry import ABSENT, CREATING, LEAVING, PRESENT, Entry
from .member_steps import (
    ChangeFullName,
    ChangeShell,
    CreateAccount,
    MakeHome,
    OpenAccount,
    RemoveKeys,
    ReopenHome,
    RestoreHome,
    Step,
    WriteKeys,
)

if TYPE_CHECKING:
    from .members import Member

_KEYS_HEAD = "# Written from lab_members; change the inventory, not this file.\n"


def arrive(member: Member, context: Context) -> Part:
    """Plan for one present member.

    Raises:
        InputError: the account, its number, its group or its home is somebody else's; or its shell is not there.
    """
    account = context.host.accounts.get(member.name)
    entry = context.registry.get(member.name)
    context.check_identity(member, account, entry)
    if account is None:
        return _new_account(member, entry, context)
    home_steps, warnings = _home(member.name, account.uid, account.home, entry, context, new=False)
    if not _away(entry) and account.expire_day is not None and account.expire_day <= context.options.today:
        warnings.append(
            f"account {member.name} has expired, which this list did not ask for; "
            f"to open it again: chage --expiredate -1 {member.name}"
        )
    steps = [*_change(member, account, entry, context), *_keys(member, context), *home_steps]
    return Part(
        steps=tuple(steps),
        final=_final(member, account.uid, account.home, entry, context, steps),
        warnings=tuple(warnings),
    )


def _new_account(member: Member, entry: Entry | None, context: Context) -> Part:
    name, uid = member.name, context.new_uids[member.name]
    owner = context.uid_owners.get(uid, name)
    if owner != name:
        raise InputError(
            f"lab_members, member {name}: uid {uid} is or was {owner}'s, and files belong to numbers; give another uid"
        )
    group = context.host.groups.get(name)
    if group is not None and (
        group.gid < UID_MIN or group.members or any(a.gid == group.gid for a in context.host.accounts.values())
    ):
        raise InputError(
            f"lab_members, member {name}: the server has a group of that name (gid {group.gid}) that is in use; "
            "choose another name, or rename the group (groupmod --new-name)"
        )
    home = entry.home if entry else f"{context.options.home_root.rstrip('/')}/{name}"
    create = CreateAccount(
        name=name,
        uid=uid,
        home=home,
        shell=_usable_shell(member, context, entry.shell if entry else ""),
        full_name=member.full_name or "",
        own_group=group is None,
    )
    home_steps, warnings = _home(name, uid, home, entry, context, new=True)
    if not member.ssh_keys:
        warnings.append(f"{name} has no ssh_keys in lab_members: nobody can log in to the new account yet")
    steps = [create, *home_steps, *_keys(member, context)]
    return Part(
        steps=tuple(steps),
        intent=_intent(name, uid, home, entry, context),
        final=_final(member, uid, home, entry, context, steps),
        warnings=tuple(warnings),
    )


def _intent(name: str, uid: int, home: str, entry: Entry | None, context: Context) -> Entry:
    if entry is None:
        return Entry(name=name, uid=uid, home=home, state=CREATING, since=context.options.now)
    return entry if _away(entry) else replace(entry, state=CREATING)


def _change(member: Member, account: Account, entry: Entry | None, context: Context) -> list[Step]:
    steps: list[Step] = []
    if member.full_name is not None and member.full_name != account.full_name:
        gecos = member.full_name + account.gecos[len(account.full_name) :]
        steps.append(ChangeFullName(name=member.name, full_name=member.full_name, gecos=gecos))
    closed = account.expire_day == EXPIRED_DAY or account.locked or account.shell == NOLOGIN
    if entry is not None and _away(entry) and closed:
        shell = _usable_shell(member, context, entry.shell)
        steps.append(OpenAccount(name=member.name, shell=shell, has_password=account.has_password))
    elif member.shell is not None and member.shell != account.shell:
        steps.append(ChangeShell(name=member.name, shell=_usable_shell(member, context, "")))
    return steps


def _usable_shell(member: Member, context: Context, earlier: str) -> str:
    if member.shell is None:
        return earlier if earlier in context.host.shells else context.options.default_shell
    if member.shell not in context.host.shells:
        raise InputError(
            f"lab_members, member {member.name}: shell is {member.shell}, which cannot be run on this server; install "
            "it first, or leave shell out"
        )
    return member.shell


def _keys(member: Member, context: Context) -> list[Step]:
    there = context.host.key_files.get(member.name)
    if not member.ssh_keys:
        return [RemoveKeys(name=member.name)] if there else []
    content = (_KEYS_HEAD + "".join(f"{key.line}\n" for key in member.ssh_keys)).encode()
    if there is not None and there.sound and there.content == content:
        return []
    fingerprints = ", ".join(key.fingerprint for key in member.ssh_keys)
    return [WriteKeys(name=member.name, content=content, fingerprints=fingerprints)]


def _home(
    name: str, uid: int, home: str, entry: Entry | None, context: Context, *, new: bool
) -> tuple[list[Step], list[str]]:
    """Return the steps for a home, and what somebody should know.

    Raises:
        InputError: a new account would get a folder that is somebody else's.
    """
    place = context.host.places.get(home, Place())
    if new and place.kind != "absent" and not place.closed and (place.kind != "folder" or place.uid != uid):
        raise InputError(
            f"lab_members, member {name}: {home} is there already and belongs to uid {place.uid}; give `uid: "
            f"{place.uid}` if it is this member's own, or move it away"
        )
    if place.kind != "absent" and not _away(entry):
        return [], []
    obstacle = context.not_just_theirs(name, home)
    if entry is not None and _away(entry) and not obstacle:
        return _welcome_home(name, home, place, entry, context)
    if place.kind != "absent":
        return [], []
    if obstacle:
        return [], [f"{name} has no home: {home} {obstacle}; make one by hand"]
    return [MakeHome(name=name, home=home)], []


def _welcome_home(name: str, home: str, place: Place, entry: Entry, context: Context) -> tuple[list[Step], list[str]]:
    archived = entry.archive in context.host.archived
    if archived and place.kind != "absent":
        return [], [f"{name} came back and has both {home} and the archive {entry.archive}; merge them by hand"]
    if archived:
        return [RestoreHome(name=name, archive=entry.archive, home=home)], []
    if place.closed:
        return [ReopenHome(name=name, home=home)], []
    return [MakeHome(name=name, home=home)] if place.kind == "absent" else [], []


def _away(entry: Entry | None) -> bool:
    return entry is not None and entry.state in {LEAVING, ABSENT}


def _final(member: Member, uid: int, home: str, entry: Entry | None, context: Context, steps: list[Step]) -> Entry:
    now = context.options.now
    new = any(isinstance(step, CreateAccount) for step in steps)
    if entry is None:
        entry = Entry(name=member.name, uid=uid, home=home, state=CREATING, since=now)
        event = "created" if new else "adopted"
    elif _away(entry):
        event = "returned"
        # An archive that is not moved back, because something is in its way, stays on record.
        moved = any(isinstance(step, RestoreHome) for step in steps) or entry.archive not in context.host.archived
        entry = replace(entry, shell="", archive="" if moved else entry.archive)
    elif new or entry.state == CREATING:
        event = "created"
    else:
        event = ""
    entry = replace(entry, home=home, groups=tuple(sorted(member.groups)))
    return entry.turn(PRESENT, event, now) if event else entry
