"""Members who left: every door closed, everything of theirs ended, everything they made kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import InputError
from .accounts import EXPIRED_DAY, NOLOGIN, Account, Place, Traces, archive_base
from .member_context import Context, Part
from .member_registry import ABSENT, CREATING, LEAVING, Entry, Event
from .member_steps import (
    ArchiveHome,
    CloseAccount,
    CloseHome,
    EndBookings,
    EndJobs,
    EndProcesses,
    RemoveKeys,
    Step,
)

if TYPE_CHECKING:
    from .members import Member


def leave(member: Member, context: Context) -> Part:
    """Plan for one member with `state: absent`.

    Raises:
        InputError: the account is the system's or another than the managed one, or this run is logged in as it.
    """
    name, host = member.name, context.host
    account, entry = host.accounts.get(name), context.registry.get(name)
    steps: list[Step] = [RemoveKeys(name=name)] if name in host.key_files else []
    if account is None and entry is None:
        return Part(steps=tuple(steps))
    context.check_identity(member, account, entry)
    now = context.options.now
    if entry is None:
        assert account is not None  # noqa: S101 - for the type checker: both None returned above
        adopted = (Event(at=now, what="adopted"),)
        entry = Entry(name, account.uid, account.home, CREATING, since=now, history=adopted)
    if entry.uid in host.logged_in:
        raise InputError(
            f"lab_members, member {name}: state is absent, but this very run is logged in as {name}; run it as "
            "another admin"
        )
    home = account.home if account else entry.home
    if account is not None and not _is_closed(account):
        steps.append(CloseAccount(name=name))
    steps += _traces(name, entry.uid, host.traces.get(name, Traces()))
    home_steps, archive, warnings = _home(name, home, entry, context)
    steps += home_steps
    shell = account.shell if account and account.shell != NOLOGIN else entry.shell
    intent = replace(entry, home=home, shell=shell, archive=archive)
    if entry.state == ABSENT:
        return Part(steps=tuple(steps), intent=intent, final=replace(intent, groups=()), warnings=warnings)
    if entry.state != LEAVING:
        intent = replace(intent, state=LEAVING, since=now)
    final = replace(intent, groups=()).turn(ABSENT, "left", now)
    return Part(steps=tuple(steps), intent=intent, final=final, warnings=warnings)


def _is_closed(account: Account) -> bool:
    return account.locked and account.expire_day == EXPIRED_DAY and account.shell == NOLOGIN


def _traces(name: str, uid: int, traces: Traces) -> list[Step]:
    steps: list[Step] = []
    if traces.starters:
        steps.append(EndJobs(name=name, what=", ".join(traces.starters), at_jobs=traces.at_jobs))
    if traces.processes:
        steps.append(EndProcesses(name=name, uid=uid, uids=traces.uids, count=traces.processes))
    if traces.bookings:
        steps.append(EndBookings(name=name, count=traces.bookings))
    return steps


def _home(name: str, home: str, entry: Entry, context: Context) -> tuple[list[Step], str, tuple[str, ...]]:
    """Return the steps, where the home is afterwards, and what somebody should know."""
    place = context.host.places.get(home, Place())
    if place.kind == "absent":
        return [], entry.archive, ()
    obstacle = context.not_just_theirs(name, home)
    if place.closed and not obstacle:
        return [], home, ()
    if not obstacle and place.kind != "folder":
        obstacle = "is a link, or no folder"
    if not obstacle and place.uid != entry.uid:
        obstacle = f"belongs to uid {place.uid}"
    if obstacle:
        return [], entry.archive, (f"{name} left, but {home} {obstacle}; it stays as it is: see to it by hand",)
    if place.mounted:
        return [CloseHome(name=name, uid=entry.uid, home=home)], home, ()
    archive = _free_archive(archive_base(home, name), context.host.archived)
    return [ArchiveHome(name=name, uid=entry.uid, home=home, archive=archive)], archive, ()


def _free_archive(base: str, archived: frozenset[str]) -> str:
    numbered = (f"{base}.{number}" for number in range(2, len(archived) + 3))
    return next(path for path in (base, *numbered) if path not in archived)
