"""How an account reads before and after a plan: what `--diff` shows. Nothing in it is secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError
from .accounts import EXPIRED_DAY, NOLOGIN, KeyFile
from .display import printable
from .member_steps import ChangeGroup, Plan, WriteAliases
from .ssh_keys import parse_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .accounts import Host
    from .member_registry import Entry, Registry


class Difference(NamedTuple):
    """One account, or the alias file, before and after.

    Attributes:
        what: heading.
        before: lines of text, empty when there was nothing.
        after: likewise.
    """

    what: str
    before: str
    after: str


def differences(plan: Plan, host: Host, registry: Registry) -> list[Difference]:
    """Return what the plan changes, account by account in the order of their names.

    Args:
        plan: what is to be done.
        host: what it was made from.
        registry: the register before the plan.
    """
    found = []
    groups_of = host.groups_of()
    steps_of = plan.by_name()
    for name in sorted((steps_of.keys() | turns(plan, registry).keys()) - {""}):
        groups = groups_of.get(name, set())
        before = {"managed": _state(registry.get(name))} | _view(name, host)
        before["groups"] = ", ".join(sorted(groups))
        after = before | {"managed": _state(plan.final.get(name))}
        for step in steps_of.get(name, ()):
            after |= step.shows()
            if isinstance(step, ChangeGroup):
                groups = groups | {step.group} if name in step.add else groups - {step.group}
        after["groups"] = ", ".join(sorted(groups))
        found.append(Difference(f"member {name}", _text(before), _text(after)))
    aliases = [step for step in plan.steps if isinstance(step, WriteAliases)]
    return found + [Difference("mail aliases", _lines(step.before), _lines(step.after)) for step in aliases]


def turns(plan: Plan, registry: Registry) -> dict[str, str]:
    """Return what befalls whom, such as `created` or `left`, by account name."""
    return {
        name: entry.history[-1].what
        for name, entry in plan.final.items()
        if entry.history and (name not in registry or registry[name].history != entry.history)
    }


def _state(entry: Entry | None) -> str:
    return entry.state if entry is not None else ""


def _view(name: str, host: Host) -> dict[str, str]:
    account = host.accounts.get(name)
    view = {}
    if account is not None:
        closed = account.expire_day == EXPIRED_DAY and account.shell == NOLOGIN
        place = host.places.get(account.home)
        view = {
            "uid": str(account.uid),
            "full name": account.full_name,
            "shell": account.shell,
            "login": "closed" if closed else "open",
            "home": account.home if place is None or place.kind != "absent" else "",
        }
    if name in host.key_files:
        view["ssh keys"] = _fingerprints(host.key_files[name])
    traces = host.traces.get(name)
    if traces is not None:
        view |= {
            "starts by itself": ", ".join(traces.starters),
            "processes": str(traces.processes or ""),
            "bookings": str(traces.bookings or ""),
        }
    return view


def _fingerprints(file: KeyFile) -> str:
    found = []
    for line in file.content.decode(errors="replace").splitlines():
        if line.strip() and not line.startswith("#"):
            try:
                found.append(parse_key(line).fingerprint)
            except InputError:
                found.append("a line that is no key")
    return ", ".join(found) + ("" if file.sound else " (wrong owner or mode)")


def _text(view: dict[str, str]) -> str:
    return _lines(f"{heading}: {text}" for heading, text in view.items() if text)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{printable(line)}\n" for line in lines)
