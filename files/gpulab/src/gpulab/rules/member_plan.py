"""From the list of members, the register and one look at the server to a plan of steps.

Pure: the same input gives the same plan, which is what `--check --diff` shows. Every step follows from what was seen
on the server, not from what an earlier run meant to do; that is why a run that was killed can simply be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError
from ..names import ADMINS_GROUP, MEMBERS_GROUP, UID_MIN
from .accounts import ordinary_home
from .aliases import block_of, merge
from .member_arrival import arrive
from .member_context import Context, Options, Part
from .member_leaving import leave
from .member_registry import CREATING, LEAVING, PRESENT
from .member_steps import (
    ArchiveHome,
    ChangeFullName,
    ChangeGroup,
    ChangeShell,
    CloseAccount,
    CloseHome,
    CreateAccount,
    CreateGroup,
    EndBookings,
    EndJobs,
    EndProcesses,
    MakeHome,
    OpenAccount,
    Plan,
    RemoveKeys,
    ReopenHome,
    RestoreHome,
    Step,
    WriteAliases,
    WriteKeys,
)
from .members import require_admin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .accounts import Host
    from .member_registry import Registry
    from .members import Member

ORDER: tuple[type[Step], ...] = (
    CreateGroup,
    CloseAccount,
    RemoveKeys,
    CreateAccount,
    ChangeFullName,
    ChangeShell,
    ChangeGroup,
    MakeHome,
    RestoreHome,
    ReopenHome,
    WriteKeys,
    OpenAccount,
    EndJobs,
    EndProcesses,
    EndBookings,
    ArchiveHome,
    CloseHome,
    WriteAliases,
)
"""Doors close before anything else, and open when the home behind them is ready. Who left cannot start anything any
more when the processes end, and no process is left when the home moves."""


def make_plan(members: Sequence[Member], registry: Registry, host: Host, options: Options) -> Plan:
    """Work out what brings the server in line with the list.

    Args:
        members: the parsed list.
        registry: accounts that gpulab manages.
        host: what the server looks like.
        options: the lab's other choices.

    Raises:
        InputError: the list asks for something that would take what is not the lab's; nothing was changed.
    """
    require_admin(members, options.lab_admin)
    _check_options(options, host)
    context = Context(members, registry, host, options)
    parts = [(member.name, arrive(member, context) if member.present else leave(member, context)) for member in members]
    parts += [("", _groups(context)), ("", _aliases(context))]
    intent, final = dict(registry), dict(registry)
    for name, part in parts:
        if part.intent is not None:
            intent[name] = part.intent
        if part.final is not None:
            final[name] = part.final
    rank = {kind: position for position, kind in enumerate(ORDER)}
    return Plan(
        steps=tuple(sorted((step for _, part in parts for step in part.steps), key=lambda step: rank[type(step)])),
        intent=intent,
        final=final,
        warnings=(*host.notes, *(warning for _, part in parts for warning in part.warnings), *_strangers(context)),
    )


def _check_options(options: Options, host: Host) -> None:
    if not ordinary_home(f"{options.home_root.rstrip('/')}/x"):
        raise InputError(f"members_home_root is {options.home_root!r}; give a folder for homes, such as /home")
    if options.default_shell not in host.shells:
        raise InputError(
            f"members_default_shell is {options.default_shell!r}, which cannot be run on this server; install it or "
            "give another, such as /bin/bash"
        )


def _groups(context: Context) -> Part:
    host = context.host
    current = host.groups_of()
    wanted: dict[str, set[str]] = {MEMBERS_GROUP: set(), ADMINS_GROUP: set()}
    remove: dict[str, set[str]] = {}
    for member in context.members:
        mine = {MEMBERS_GROUP, *member.groups} if member.present else set()
        if member.present and member.admin:
            mine.add(ADMINS_GROUP)
        for group in mine:
            _check_group(member.name, group, context)
            wanted.setdefault(group, set()).add(member.name)
        for group in current.get(member.name, set()) - mine:
            if not member.present or group in context.given_groups(member.name):
                remove.setdefault(group, set()).add(member.name)
    steps: list[Step] = []
    for name in sorted(wanted.keys() | remove.keys()):
        there = host.groups.get(name)
        if there is None:
            steps.append(CreateGroup(name="", group=name, system=name in {MEMBERS_GROUP, ADMINS_GROUP}))
        inside = {account.name for account in host.accounts.values() if there and account.gid == there.gid}
        add = frozenset(wanted.get(name, set()) - inside - (there.members if there else frozenset()))
        out = frozenset(remove.get(name, set()))
        if add or out:
            steps.append(ChangeGroup(name="", group=name, add=add, remove=out))
    return Part(steps=tuple(steps))


def _check_group(member: str, name: str, context: Context) -> None:
    if name in {MEMBERS_GROUP, ADMINS_GROUP}:
        return
    group = context.host.groups.get(name)
    if group is not None and group.gid < UID_MIN:
        raise InputError(
            f"lab_members, member {member}: group {name} belongs to the system here (gid {group.gid}), and with it "
            "come rights that the list must not give; choose another name"
        )
    if name in context.host.accounts:
        raise InputError(
            f"lab_members, member {member}: group {name} is the own group of the account {name}; choose another name"
        )


def _aliases(context: Context) -> Part:
    options = context.options
    wanted = {"root": options.lab_admin}
    if options.mail_forward:
        wanted |= {member.name: member.mail for member in context.members if member.present and member.mail}
    before = context.host.aliases
    merged = merge(before, wanted)
    warnings = tuple(
        f"{options.aliases_file} line {line} already says where mail for {name} goes; it stays as it is"
        for name, line in merged.left_out.items()
    )
    if merged.text == (before or "") and not context.host.aliases_stale:
        return Part(warnings=warnings)
    step = WriteAliases(name="", text=merged.text, before=block_of(before), after=merged.block)
    return Part(steps=(step,), warnings=warnings)


def _strangers(context: Context) -> list[str]:
    """Name those whom the list forgot: nothing is done about them, somebody has to decide."""
    listed = {member.name for member in context.members}
    forgotten = [
        f"{name} is managed here but no longer in lab_members; nothing was changed. To close the account and archive "
        f"the home, list it with `state: absent`"
        for name, entry in context.registry.items()
        if name not in listed and entry.state in {CREATING, PRESENT, LEAVING}
    ]
    for group_name in (ADMINS_GROUP, MEMBERS_GROUP):
        group = context.host.groups.get(group_name)
        forgotten += [
            f"{name} is in group {group_name} without being in lab_members; unless that is meant: "
            f"gpasswd --delete {name} {group_name}"
            for name in sorted(group.members if group else ())
            if name not in listed and name not in context.registry
        ]
    return forgotten
