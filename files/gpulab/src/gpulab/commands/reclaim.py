"""`gpulab reclaim`: ask the owners of idle holders, tell or end; or show who is idle since when and what comes next."""

from __future__ import annotations

import argparse
import grp
import json
import os
import socket
import sys
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters.mail import send
from ..adapters.nvml_light import Binding
from ..adapters.processes import ProcessTable
from ..adapters.procfs import cgroup
from ..adapters.sample_history import read_looks
from ..adapters.sampler import Sampler
from ..adapters.terminals import tell
from ..rules.display import printable
from ..rules.exemptions import exemptions
from ..rules.idle import BUSY, IDLE, UNKNOWN
from ..rules.idle_cases import ENFORCE, EXEMPT, KEPT, OVERDUE, WARN, WARNED
from ..rules.samples import MIG
from ..services.lease_look import reader
from ..services.reclaim import Outcome, World, run
from ..settings import load
from .sample import boot_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.idle_cases import Standing
    from ..rules.idle_messages import Letter
    from ..rules.samples import Tick
    from ..settings import Settings

TOPIC = "idle-cards"
"""Goes into List-Id, for people who sort their mail."""

_ROOT = Path("/")
_GIB = 1 << 30
_MINUTE = 60
_CGROUPS = Path("/sys/fs/cgroup")


def main(argv: Sequence[str]) -> int:
    """Run once, or only look.

    Raises:
        GpulabError: see `services.reclaim.run`.
    """
    arguments = _parser().parse_args(argv)
    settings = load(_ROOT)
    outcome = run(_world(settings), settings, dry_run=arguments.dry_run or arguments.status or arguments.json)
    if arguments.json:
        print(json.dumps(as_document(outcome, settings), ensure_ascii=False, indent=2))
    elif arguments.status or arguments.dry_run or sys.stdout.isatty():
        print(table(outcome, settings))
    if arguments.dry_run:
        for letter in outcome.letters:
            print(f"\nTo: {letter.recipient}\nSubject: {letter.subject}\n\n{letter.body.rstrip()}")
        for each in outcome.ending.ended:
            print(f"\nwould be ended now: PID {each.runner.pid} of {printable(each.runner.user)}")
    for error in outcome.errors:
        print(f"gpulab: {error}; it is tried again at the next look", file=sys.stderr)
    for each in outcome.ending.ended if not arguments.dry_run else ():
        print(f"ended: PID {each.runner.pid} ({each.runner.command}) of {each.runner.user}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpulab reclaim",
        description="Ask the owners of processes that hold a card without using it; without an answer tell the admin, "
        "or end them, as idle_reclaim_mode says. gpulab-reclaim.service runs this when there is something to do.",
    )
    parser.add_argument(
        "--status", action="store_true", help="show who is idle since when and what will happen; do nothing"
    )
    parser.add_argument("--dry-run", action="store_true", help="the same, with the mails and endings that are due now")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    return parser


def _world(settings: Settings) -> World:
    rules = settings.reclaim
    return World(
        root=_ROOT,
        clock=time.time,
        read_looks=lambda since: read_looks(Path(names.under(_ROOT, names.SAMPLES_FILE)), since, boot_id()),
        look_again=partial(_look_again, time.time),
        exemptions=exemptions(
            users=rules.exempt_users,
            commands=rules.exempt_commands,
            cards=rules.exempt_cards,
            times=rules.exempt_times,
            admins=() if rules.admins else _group(names.ADMINS_GROUP),
        ),
        members=frozenset(_group(names.MEMBERS_GROUP)),
        send=_send,
        tell=lambda uid, line: tell(uid, line, _ROOT),
        table=ProcessTable(),
        members_of=_members_of,
        host=socket.gethostname().split(".")[0],
    )


def _look_again(clock: Any, since: int) -> Tick | None:
    """Look at the cards right now; None when NVML does not answer."""
    while int(clock()) <= since:  # looks have whole seconds
        time.sleep(0.1)
    sampler = Sampler(Binding(), Path("/proc"), os.sysconf("SC_CLK_TCK"), reader(_ROOT))
    tick = sampler.look(int(clock()), since)
    return None if tick.reason else tick


def _group(name: str) -> tuple[str, ...]:
    try:
        return tuple(grp.getgrnam(name).gr_mem)
    except KeyError:
        return ()


def _send(letter: Letter) -> None:
    send(letter.recipient, letter.subject, letter.body, topic=TOPIC)


def _members_of(lease: int) -> list[int]:
    """Return the pids in the scope of a lease."""
    scope = f"gpulab-lease-{lease}.scope"
    for path in _CGROUPS.glob(f"**/{scope}/cgroup.procs"):
        return [
            int(line) for line in path.read_text(encoding="ascii").split() if scope in cgroup(int(line), Path("/proc"))
        ]
    return []


def table(outcome: Outcome, settings: Settings) -> str:
    """Say in words who holds a card and what will happen."""
    rules = settings.reclaim
    age = f"{outcome.at - outcome.last_look:.0f} s ago" if outcome.last_look else "never"
    terms = f"below {rules.percent} % for {rules.idle_minutes:g} min, then {rules.answer_minutes:g} min to answer"
    lines = [f"mode {rules.mode}; idle: {terms}; last look {age}"]
    lines += [f"  cannot tell: {each.kind} {each.card} {printable(each.reason)}" for each in outcome.troubles]
    lines += [f"  {_line(each, settings)}" for each in outcome.standings]
    if not outcome.standings:
        lines.append("  nobody is on a card" if outcome.last_look else "  nobody has looked yet")
    return "\n".join(lines)


def _line(standing: Standing, settings: Settings) -> str:
    finding = standing.finding
    memory = "?" if finding.memory is None else f"{finding.memory / _GIB:.1f} GiB"
    runner = finding.runner
    who = f"PID {runner.pid:<8} {printable(runner.user, 16):<16} {printable(runner.command, 16):<16}"
    cards = ",".join(map(str, finding.cards))
    return f"{who} card {cards:<7} {memory:>9}  {_words(standing, settings)}"


def _words(standing: Standing, settings: Settings) -> str:
    finding = standing.finding
    minutes = f"{finding.seconds / _MINUTE:.0f} min"
    until = _time(standing.until)
    last = f"ended {until}" if settings.reclaim.mode == ENFORCE else f"to the admin {until}"
    cpu = "" if finding.cpu_percent is None else f", CPU {finding.cpu_percent:.0f} %"
    unknown = f"unknown ({MIG if finding.mig else 'not measured'}{cpu}) for {minutes}; never taken for idle"
    return {
        IDLE: f"idle for {minutes}; asked {until}",
        WARN: f"idle for {minutes}; asked now",
        WARNED: f"idle since {_time(finding.since)}, asked; {last}",
        OVERDUE: f"idle since {_time(finding.since)}, no answer",
        KEPT: f"kept until {until}",
        EXEMPT: f"left alone ({standing.why})",
        BUSY: "busy",
        UNKNOWN: unknown,
    }[standing.state]


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%m-%d %H:%M}"  # noqa: DTZ006 - the server's wall clock is meant


def as_document(outcome: Outcome, settings: Settings) -> dict[str, Any]:
    """Return a run as plain data for JSON; times are seconds since 1970, memory is bytes."""
    return {
        "at": outcome.at,
        "last_look": outcome.last_look,
        "mode": settings.reclaim.mode,
        "troubles": [{"kind": each.kind, "card": each.card, "reason": each.reason} for each in outcome.troubles],
        "holders": [
            {
                "pid": each.finding.runner.pid,
                "user": each.finding.runner.user,
                "command": each.finding.runner.command,
                "holds": each.finding.holds,
                "lease": each.finding.lease,
                "cards": list(each.finding.cards),
                "memory": each.finding.memory,
                "state": each.state,
                "since": each.finding.since,
                "until": each.until,
                "why": each.why,
                "cpu_percent": each.finding.cpu_percent,
            }
            for each in outcome.standings
        ],
        "letters": [{"recipient": each.recipient, "subject": each.subject} for each in outcome.letters],
        "would_end": [each.runner.pid for each in outcome.ending.ended],
    }
