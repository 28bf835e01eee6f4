"""`gpulab check-gpu`, installed as check_gpu.sh: compare bookings with what runs on the cards, mail who should know."""

from __future__ import annotations

import argparse
import dataclasses
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

from .. import names, settings
from ..adapters.mail import MailError, send
from ..adapters.nvml import read_cards
from ..errors import GpulabError
from ..rules.display import printable
from ..rules.sightings import Boot
from ..services.bindings import read_bindings
from ..services.check import Outcome, World, read_calm_sheet, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.checks import Event
    from ..rules.messages import Mail

TOPIC = "check-gpu"
"""Goes into List-Id, for members who sort their mail."""


def main(argv: Sequence[str]) -> int:
    """Run once; silent unless the output is a terminal or something was asked for.

    Raises:
        MailError: mails were not taken; what was told to others stays told.
        GpulabError: see `services.check.run`.
    """
    arguments = _parser().parse_args(argv)
    root = Path("/")
    world = World(
        root=root,
        now=datetime.now,
        read_cards=read_cards,
        read_sheet=partial(read_calm_sheet, root),
        read_boot=read_boot,
        read_members=read_members,
        read_bindings=partial(read_bindings, root),
        send=_send,
        host=socket.gethostname().split(".")[0],
    )
    outcome = run(world, settings.load(root), dry_run=arguments.dry_run)
    if arguments.json:
        print(json.dumps(as_document(outcome, dry_run=arguments.dry_run), ensure_ascii=False, indent=2))
    elif arguments.dry_run or arguments.verbose or sys.stdout.isatty():
        print(summary(outcome, dry_run=arguments.dry_run))
    if outcome.errors:
        first, *others = outcome.errors
        again = f"that and mail to {', '.join(others)}" if others else "it"
        raise MailError(f"{outcome.errors[first]}; {again} is tried again in the next run")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="check_gpu.sh",
        description="Compare the booking sheet with the processes on the cards and mail who should know: a booking "
        "begins or has begun, is over or not used, a card is used without booking or cannot be read. Each event is "
        "mailed once. No process is ever ended. Cron runs this; it prints nothing there when all is well.",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the mails, send and record nothing")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the summary when the output is no terminal")
    return parser


def read_members() -> frozenset[str]:
    """Return the account names of the present members.

    Raises:
        GpulabError: there is no group of members; nobody could be told from a stranger.
    """
    try:
        return frozenset(grp.getgrnam(names.MEMBERS_GROUP).gr_mem)
    except KeyError:
        raise GpulabError(f"there is no group {names.MEMBERS_GROUP}; run the playbook, role members makes it") from None


def read_boot() -> Boot:
    """Return when the machine started: the start ticks of processes count from there (proc(5), starttime)."""
    return Boot(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), os.sysconf("SC_CLK_TCK"))


def _send(mail: Mail) -> None:
    send(mail.recipient, mail.subject, mail.body, topic=TOPIC)


def summary(outcome: Outcome, *, dry_run: bool) -> str:
    """Say in words what a run found: one line for each event, and with dry_run the mails."""
    counts = (
        f"cards: {len(outcome.situation.cards.cards)}",
        f"bookings: {len(outcome.situation.bookings)}",
        f"events: {len(outcome.findings.events)}",
    )
    lines = [f"{outcome.now:%Y-%m-%d %H:%M}: {', '.join(counts)}"]
    lines += [f"  {_event_line(event, outcome, dry_run=dry_run)}" for event in outcome.findings.events]
    for mail in outcome.mails if dry_run else ():
        lines += ["", f"To: {mail.recipient}", f"Subject: {mail.subject}", "", mail.body.rstrip()]
    return "\n".join(lines)


def _event_line(event: Event, outcome: Outcome, *, dry_run: bool) -> str:
    card = "" if event.gpu_id is None else f"card {event.gpu_id}"
    told = outcome.told.get(event.key)
    if told is not None:
        state = f"told {told}"
    elif dry_run:
        state = "would be mailed now"
    else:
        state = "mail failed" if event.recipient in outcome.errors else "mailed now"
    task = f"  '{printable(event.booking.task_name, 40)}'" if event.booking else ""
    return f"{event.kind:<12}  {card:<7}  to {event.recipient:<12}  {state}{task}"


def as_document(outcome: Outcome, *, dry_run: bool) -> dict[str, Any]:
    """Return a run as plain data for JSON; times are server time, memory is bytes."""
    situation = outcome.situation
    return {
        "now": outcome.now.isoformat(timespec="seconds"),
        "dry_run": dry_run,
        "cards": len(situation.cards.cards),
        "cards_reason": situation.cards.reason,
        "bookings": len(situation.bookings),
        "sheet_problem": situation.sheet_problem,
        "events": [_event_document(event, outcome) for event in outcome.findings.events],
        "mails": [
            {"recipient": mail.recipient, "subject": mail.subject, "error": outcome.errors.get(mail.recipient, "")}
            for mail in outcome.mails
        ],
        "ended": len(outcome.ended),
    }


def _event_document(event: Event, outcome: Outcome) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "recipient": event.recipient,
        "gpu_id": event.gpu_id,
        "user": event.user or (event.booking.user if event.booking else event.recipient),
        "task_name": event.booking.task_name if event.booking else None,
        "processes": [dataclasses.asdict(process) for process in event.processes],
        "lines": list(event.lines),
        "reason": event.reason,
        "told": outcome.told.get(event.key),
    }
