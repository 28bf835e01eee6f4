"""The register of accounts that gpulab manages: who was given which uid and home, since when, and who left.

An account that is not in it and not in the list of members is nobody's business here. What is in it stays for good:
a uid is never given to a second person, and who left can come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import InputError

VERSION = 1

CREATING = "creating"
PRESENT = "present"
LEAVING = "leaving"
ABSENT = "absent"
STATES = (CREATING, PRESENT, LEAVING, ABSENT)
"""`creating` and `leaving` are written before the work begins: a run that was killed goes on from there."""


@dataclass(frozen=True)
class Event:
    """Something that happened to an account.

    Attributes:
        at: when, ISO 8601 with the server's UTC offset.
        what: `created`, `adopted`, `left` or `returned`.
    """

    at: str
    what: str


@dataclass(frozen=True)
class Entry:
    """One account.

    Attributes:
        name: account name.
        uid: account number.
        home: home folder, where it is or was.
        state: one of STATES.
        since: when this state began, ISO 8601.
        groups: groups it was given on behalf of the list, besides the lab's own.
        shell: its shell before it left; empty while it is present.
        archive: where the home is kept; equal to `home` when it was closed in place; empty while it is present.
        history: what happened, oldest first.
    """

    name: str
    uid: int
    home: str
    state: str
    since: str
    groups: tuple[str, ...] = ()
    shell: str = ""
    archive: str = ""
    history: tuple[Event, ...] = ()

    def turn(self, state: str, event: str, now: str) -> Entry:
        """Return the entry in another state, with the event in its history."""
        return replace(self, state=state, since=now, history=(*self.history, Event(at=now, what=event)))


Registry = Mapping[str, Entry]


def parse_registry(document: Any, *, source: str) -> dict[str, Entry]:
    """Read the register.

    Args:
        document: the JSON value; None when there is no file yet.
        source: the file's name, for messages.

    Raises:
        InputError: it is not a register that this version of gpulab wrote.
    """
    if document is None:
        return {}
    try:
        if document["version"] != VERSION:
            raise InputError(f"{source} is of version {document['version']!r}; this gpulab reads version {VERSION}")
        return {entry.name: entry for entry in map(_entry, document["members"])}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{source} is damaged ({error!r}); restore it from a backup before managing members"
        ) from error


def render_registry(registry: Registry) -> dict[str, Any]:
    """Return the JSON value that parse_registry reads."""
    return {"version": VERSION, "members": [asdict(entry) for _, entry in sorted(registry.items())]}


def _entry(raw: Mapping[str, Any]) -> Entry:
    entry = Entry(
        **{
            **raw,
            "groups": tuple(raw["groups"]),
            "history": tuple(Event(**event) for event in raw["history"]),
        }
    )
    texts = (entry.name, entry.home, entry.since, entry.shell, entry.archive, *entry.groups)
    if type(entry.uid) is not int or entry.state not in STATES or not all(isinstance(text, str) for text in texts):
        raise ValueError(raw)
    return entry
