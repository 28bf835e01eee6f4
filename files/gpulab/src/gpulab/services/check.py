"""check_gpu: look at the lab once and mail who should know, each event once. Ends no process, changes no booking."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters import state
from ..adapters.files import exclusive_lock
from ..adapters.mail import MailError
from ..errors import GpulabError, NotPermittedError
from ..rules.checks import STATE, Event, Findings, Situation, find
from ..rules.episodes import Plan, compare
from ..rules.messages import Letterhead, Mail, write
from .booking import read_sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ..rules.cards import Cards
    from ..rules.checks import Key
    from ..rules.sheet import Sheet
    from ..rules.sightings import Boot
    from ..settings import Settings

STATE_FILE = names.CHECKS_STATE_DIR / "events.json"
_LOCK_SECONDS = 60.0
_CALM_SECONDS = 1.0
_ATTEMPTS = 40
_VERSION = 1
_KEY_PARTS = 3
"""Kind, account and card begin each key."""


def read_calm_sheet(
    root: Path, *, clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep
) -> Sheet:
    """Read the booking sheet when nobody has saved it in the last second.

    Editors save in place, piece by piece: half a sheet would make a trespasser of everybody in the other half.

    Args:
        root: the folder that stands for `/`.
        clock: seconds since 1970.
        sleep: waits.

    Raises:
        GpulabError: see `services.booking.read_sheet`.
        OSError: likewise.
    """
    path = Path(names.under(root, names.SHEET_FILE))
    for _ in range(_ATTEMPTS):
        sheet = read_sheet(root)
        if not 0 <= clock() - path.lstat().st_mtime < _CALM_SECONDS:
            return sheet
        sleep(_CALM_SECONDS / 4)
    raise GpulabError(f"{path} is being edited without a pause")


@dataclass(frozen=True)
class World:
    """The outside world of a run.

    Attributes:
        root: the folder that stands for `/`.
        now: the server's wall clock, naive.
        read_cards: looks at the cards.
        read_sheet: reads the bookings.
        read_boot: tells when the machine started.
        read_members: account names of the present members.
        read_bindings: account name to UUID of the MIG instance that is theirs.
        send: hands a mail to the MTA; raises MailError.
        host: the server's name.
    """

    root: Path
    now: Callable[[], datetime]
    read_cards: Callable[[], Cards]
    read_sheet: Callable[[], Sheet]
    read_boot: Callable[[], Boot]
    read_members: Callable[[], frozenset[str]]
    read_bindings: Callable[[], Mapping[str, str]]
    send: Callable[[Mail], None]
    host: str


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        now: when it looked, server time.
        situation: what it looked at.
        findings: the events that hold.
        told: when each event that was told before was told, `YYYY-MM-DD HH:MM`.
        mails: what there was to say, sent or not.
        errors: for each recipient whose mail was refused, why; their events are told in the next run.
        ended: keys of the events that are over.
    """

    now: datetime
    situation: Situation
    findings: Findings
    told: dict[Key, str]
    mails: tuple[Mail, ...]
    errors: dict[str, str]
    ended: frozenset[Key]


def run(world: World, settings: Settings, *, dry_run: bool = False) -> Outcome:
    """Look once and mail what is new.

    A mail is recorded as soon as the MTA has taken it. Should the run be killed between the two, that one mail is sent
    again; none is ever lost.

    Args:
        world: the outside world.
        settings: who the admin is, the language, when to speak up.
        dry_run: send and write nothing, only say what would be sent.

    Raises:
        NotPermittedError: the caller may not read or write the state.
        GpulabError: another run takes too long, or the state cannot be written; then no mail was sent.
    """
    path = Path(names.under(world.root, STATE_FILE))
    try:
        if dry_run:
            return _look(world, settings, path, dry_run=True)[0]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exclusive_lock(path.with_name("lock"), timeout=_LOCK_SECONDS):
            outcome, plan = _look(world, settings, path, dry_run=False)
            return _tell(world, outcome, plan, path)
    except PermissionError as error:
        raise NotPermittedError(f"{error.filename or path}: only root may use check_gpu; try it with sudo") from error
    except OSError as error:
        raise GpulabError(f"{error.filename or path}: {error.strerror or error}; see to it and run again") from error


def _look(world: World, settings: Settings, path: Path, *, dry_run: bool) -> tuple[Outcome, Plan]:
    told, damaged = _load(path, dry_run=dry_run)
    situation = _situation(world, settings)
    findings = find(situation)
    if damaged is not None:
        findings = replace(findings, events=(*findings.events, _damage(damaged, situation.admin)))
    plan = compare(told, findings)
    letterhead = Letterhead(world.host, situation.admin, settings.lab.language, situation.now)
    outcome = Outcome(
        now=situation.now,
        situation=situation,
        findings=findings,
        told={key: told[key] for key in plan.remembered},
        mails=write(plan.news, letterhead),
        errors={},
        ended=plan.ended,
    )
    return outcome, plan


def _situation(world: World, settings: Settings) -> Situation:
    sheet, problem = None, ""
    if settings.lab.tier == "table":  # the other tiers book nothing; their cards are checked all the same
        try:
            sheet = world.read_sheet()
        except GpulabError as error:
            problem = str(error)
        except OSError as error:
            problem = error.strerror or str(error)
    return Situation(
        now=world.now(),
        cards=world.read_cards(),
        boot=world.read_boot(),
        sheet=sheet,
        sheet_problem=problem,
        members=world.read_members(),
        admin=settings.lab.admin,
        limits=settings.checks,
        bindings=world.read_bindings(),
    )


def _tell(world: World, outcome: Outcome, plan: Plan, path: Path) -> Outcome:
    told = dict(outcome.told)
    if plan.news or plan.ended:
        # Before the first mail: a state that cannot be written must not become the same mail every hour.
        _save(path, told)
    errors: dict[str, str] = {}
    for mail in outcome.mails:
        try:
            world.send(mail)
        except MailError as error:
            errors[mail.recipient] = str(error)
            continue
        told.update((event.key, f"{outcome.now:%Y-%m-%d %H:%M}") for event in mail.events)
        _save(path, told)
    return replace(outcome, errors=errors)


def _damage(aside: Path, admin: str) -> Event:
    # The time of the damage makes each a new event; deleting the file ends it.
    return Event(STATE, admin, (STATE, admin, "-", str(aside.lstat().st_mtime_ns)), reason=str(aside))


def _load(path: Path, *, dry_run: bool) -> tuple[dict[Key, str], Path | None]:
    """Read what was told, and find the damaged state that waits for the admin's eyes; None when there is none."""
    aside = path.with_name(f"{path.name}.corrupt")
    try:
        return _parse(state.load(path)), aside if os.path.lexists(aside) else None
    except state.CorruptStateError:
        return {}, path if dry_run else state.set_aside(path)


def _parse(document: Any) -> dict[Key, str]:
    if document is None:
        return {}
    try:
        good = document["version"] == _VERSION
        told = {tuple(entry["key"]): entry["at"] for entry in document["told"]}
    except (KeyError, TypeError) as error:
        raise state.CorruptStateError("the state is not what check_gpu writes") from error
    texts = [*told.values(), *(part for key in told for part in key)]
    if not good or not all(isinstance(text, str) for text in texts) or any(len(key) < _KEY_PARTS for key in told):
        raise state.CorruptStateError("the state is not what check_gpu writes")
    return told


def _save(path: Path, told: dict[Key, str]) -> None:
    entries = [{"key": list(key), "at": at} for key, at in sorted(told.items())]
    state.save(path, {"version": _VERSION, "told": entries})
