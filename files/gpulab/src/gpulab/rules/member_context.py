"""What the rules about members share while one plan is made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..errors import InputError
from ..names import ADMINS_GROUP, MEMBERS_GROUP, UID_MIN
from .accounts import ordinary_home
from .members import UID_END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .accounts import Account, Host
    from .member_registry import Entry, Registry
    from .member_steps import Step
    from .members import Member


@dataclass(frozen=True)
class Options:
    """The lab's other choices.

    Attributes:
        lab_admin: account name of the person who gets root's mail.
        now: the moment of this run, ISO 8601.
        today: the same as days since 1970-01-01, as shadow(5) counts.
        home_root: folder for new homes.
        default_shell: shell of new accounts.
        mail_forward: whether members' mail goes to their outside addresses.
        aliases_file: the alias file, for messages.
    """

    lab_admin: str
    now: str
    today: int
    home_root: str = "/home"
    default_shell: str = "/bin/bash"
    mail_forward: bool = False
    aliases_file: str = "/etc/aliases"


@dataclass(frozen=True)
class Part:
    """What one account adds to the plan.

    Attributes:
        steps: in no particular order.
        intent: its register entry before the first step; None leaves the one that is there.
        final: its register entry when all is done; None likewise.
        warnings: sentences for the person who reads the plan.
    """

    steps: tuple[Step, ...] = ()
    intent: Entry | None = None
    final: Entry | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """Everything known while one plan is made.

    Attributes:
        members: the parsed list.
        registry: accounts that gpulab manages.
        host: what the server looks like.
        options: the lab's other choices.
    """

    members: Sequence[Member]
    registry: Registry
    host: Host
    options: Options

    def given_groups(self, name: str) -> set[str]:
        """Return the groups that may be taken from a present member: those that the list gave."""
        entry = self.registry.get(name)
        return {MEMBERS_GROUP, ADMINS_GROUP, *(entry.groups if entry else ())}

    @cached_property
    def uid_owners(self) -> dict[int, str]:
        """Who has, had or asks for a uid, by uid."""
        asked = {member.uid: member.name for member in self.members if member.uid is not None}
        kept = {entry.uid: name for name, entry in self.registry.items()}
        return asked | kept | {account.uid: account.name for account in self.host.accounts.values()}

    @cached_property
    def new_uids(self) -> dict[str, int]:
        """The uid of each present member that has no account yet.

        One that the list or the register names, or the next after the highest in use, as useradd(8) counts. A number
        that is some group's is passed over, so that an account's own group can have the same one.
        """
        after = max((uid for uid in self.uid_owners if UID_MIN <= uid < UID_END), default=UID_MIN - 1) + 1
        used = set(self.uid_owners) | {group.gid for group in self.host.groups.values()}
        free = (uid for uid in (*range(after, UID_END), *range(UID_MIN, after)) if uid not in used)
        chosen: dict[str, int] = {}
        for member in self.members:
            if not member.present or member.name in self.host.accounts:
                continue
            entry = self.registry.get(member.name)
            uid = member.uid if member.uid is not None else entry.uid if entry is not None else next(free, None)
            if uid is None:
                raise InputError(f"lab_members, member {member.name}: no uid from {UID_MIN} to {UID_END - 1} is free")
            chosen[member.name] = uid
        return chosen

    @cached_property
    def home_users(self) -> dict[str, set[str]]:
        """Which accounts have their home at a path or below it."""
        found: dict[str, set[str]] = {}
        for account in self.host.accounts.values():
            home = PurePosixPath(account.home)
            for path in (home, *home.parents):
                found.setdefault(str(path), set()).add(account.name)
        return found

    def not_just_theirs(self, name: str, home: str) -> str:
        """Say why a home must not be moved, closed or given to one person; empty when it may be."""
        others = sorted(self.home_users.get(home, set()) - {name})
        if not ordinary_home(home):
            return "is not one person's home"
        return f"also holds the home of {', '.join(others)}" if others else ""

    def check_identity(self, member: Member, account: Account | None, entry: Entry | None) -> None:
        """Make sure that the account is the one that is meant.

        Raises:
            InputError: it is the system's, or another than the one gpulab manages or the list describes.
        """
        name = member.name
        if account is not None:
            if not UID_MIN <= account.uid < UID_END:
                raise InputError(
                    f"lab_members, member {name}: the server has a system account of that name (uid {account.uid}); "
                    "choose another name"
                )
            if not account.in_shadow:
                raise InputError(f"account {name} has no line in /etc/shadow; run pwconv, then try again")
            if entry is not None and entry.uid != account.uid:
                raise InputError(
                    f"account {name} has uid {account.uid}, but the one that gpulab manages has {entry.uid}: give it "
                    f"its number back (usermod --uid {entry.uid} {name}), or choose another name in lab_members"
                )
        known = account.uid if account else entry.uid if entry else None
        if member.uid is not None and known is not None and member.uid != known:
            raise InputError(
                f"lab_members, member {name}: uid is {member.uid}, but the account has {known}; files belong to "
                f"numbers, so write `uid: {known}` or leave uid out"
            )
