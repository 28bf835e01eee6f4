"""The steps that bring accounts in line with the list of members: what to do, not how.

Each step says whose it is and what a person should read about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from .accounts import NOLOGIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .member_registry import Entry


@dataclass(frozen=True)
class Step:
    """One step for one account.

    Attributes:
        name: whose account; empty for what belongs to nobody in particular.
    """

    TEXT: ClassVar[str] = ""
    """What a person reads; names of attributes in braces."""

    SHOWS: ClassVar[tuple[tuple[str, str], ...]] = ()
    """What an account's description says afterwards, by heading; names of attributes in braces."""

    name: str

    @property
    def names(self) -> frozenset[str]:
        """The accounts the step is for."""
        return frozenset([self.name] if self.name else [])

    def summary(self, name: str) -> str:  # noqa: ARG002 - a step for several accounts reads differently for each
        """Return what the step does for one account, as somebody reads it in a plan."""
        return self.TEXT.format(**vars(self))

    def shows(self) -> dict[str, str]:
        """Return the lines of an account's description that read differently afterwards."""
        return {heading: text.format(**vars(self)) for heading, text in self.SHOWS}


@dataclass(frozen=True)
class CreateGroup(Step):
    """Make a group; `name` is empty, the group is nobody's."""

    TEXT = "create group {group}"
    group: str
    system: bool


@dataclass(frozen=True)
class CreateAccount(Step):
    """Make an account with a password that opens nothing, and no home yet.

    `own_group`: whether to make its group too; if not, an unused group of its name is there already.
    """

    TEXT = "create account, uid {uid}"
    SHOWS = (("uid", "{uid}"), ("full name", "{full_name}"), ("shell", "{shell}"), ("login", "open"))
    uid: int
    home: str
    shell: str
    full_name: str
    own_group: bool


@dataclass(frozen=True)
class ChangeFullName(Step):
    """Set the comment of an account, whose first part is the name."""

    TEXT = "set full name"
    SHOWS = (("full name", "{full_name}"),)
    full_name: str
    gecos: str


@dataclass(frozen=True)
class ChangeShell(Step):
    """Set the login shell."""

    TEXT = "set shell {shell}"
    SHOWS = (("shell", "{shell}"),)
    shell: str


@dataclass(frozen=True)
class OpenAccount(Step):
    """Let somebody who came back log in again."""

    TEXT = "open account, shell {shell}"
    SHOWS = (("shell", "{shell}"), ("login", "open"))
    shell: str
    has_password: bool


@dataclass(frozen=True)
class CloseAccount(Step):
    """Refuse every login."""

    TEXT = "close account: expired, password locked, no shell"
    SHOWS = (("shell", NOLOGIN), ("login", "closed"))


@dataclass(frozen=True)
class ChangeGroup(Step):
    """Put accounts into a group and take others out, in one go; `name` is empty."""

    group: str
    add: frozenset[str]
    remove: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """The accounts that go in or out."""
        return self.add | self.remove

    def summary(self, name: str) -> str:
        """Return what happens to one account."""
        return f"join group {self.group}" if name in self.add else f"leave group {self.group}"


@dataclass(frozen=True)
class MakeHome(Step):
    """Make the home folder from the skeleton."""

    TEXT = "make home {home}"
    SHOWS = (("home", "{home}"),)
    home: str


@dataclass(frozen=True)
class ArchiveHome(Step):
    """Move the home where only root can enter."""

    TEXT = "archive home {home} as {archive}"
    SHOWS = (("home", "{archive}"),)
    uid: int
    home: str
    archive: str


@dataclass(frozen=True)
class CloseHome(Step):
    """Give a home that cannot be moved to root, where it stands."""

    TEXT = "close home {home} where it is: a file system is mounted there"
    SHOWS = (("home", "{home}, closed"),)
    uid: int
    home: str


@dataclass(frozen=True)
class RestoreHome(Step):
    """Move an archived home back."""

    TEXT = "restore home {home} from {archive}"
    SHOWS = (("home", "{home}"),)
    archive: str
    home: str


@dataclass(frozen=True)
class ReopenHome(Step):
    """Give a home that was closed in place back to its owner."""

    TEXT = "reopen home {home}"
    SHOWS = (("home", "{home}"),)
    home: str


@dataclass(frozen=True)
class WriteKeys(Step):
    """Write the managed key file."""

    TEXT = "write ssh keys"
    SHOWS = (("ssh keys", "{fingerprints}"),)
    content: bytes
    fingerprints: str


@dataclass(frozen=True)
class RemoveKeys(Step):
    """Remove the managed key file."""

    TEXT = "remove managed ssh keys"
    SHOWS = (("ssh keys", ""),)


@dataclass(frozen=True)
class EndJobs(Step):
    """Remove what would start processes again."""

    TEXT = "remove {what}"
    SHOWS = (("starts by itself", ""),)
    what: str
    at_jobs: tuple[str, ...]


@dataclass(frozen=True)
class EndProcesses(Step):
    """End every process that runs under one of some uids: TERM, some patience, KILL."""

    TEXT = "end {count} processes"
    SHOWS = (("processes", ""),)
    uid: int
    uids: tuple[range, ...]
    count: int


@dataclass(frozen=True)
class EndBookings(Step):
    """End the running booking and cancel later ones."""

    TEXT = "end {count} bookings"
    SHOWS = (("bookings", ""),)
    count: int


@dataclass(frozen=True)
class WriteAliases(Step):
    """Write the alias file, and have the mailer read it; `name` is empty."""

    TEXT = "write mail aliases"
    text: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """All there is to do.

    Attributes:
        steps: in the order in which they are safe; what closes comes before what opens.
        intent: the register to write before the first step.
        final: the register when all steps worked.
        warnings: what somebody should know or decide, one sentence each.
    """

    steps: tuple[Step, ...] = ()
    intent: Mapping[str, Entry] = field(default_factory=dict)
    final: Mapping[str, Entry] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def by_name(self) -> dict[str, list[Step]]:
        """Return each account's steps; those that are nobody's under the empty name."""
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            for name in step.names or {""}:
                found.setdefault(name, []).append(step)
        return found
