"""`gpulab quota`: everybody's disk use, the limits brought back into force, and the mails before it is too late."""

from __future__ import annotations

import argparse
import json
import socket
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from .. import settings
from ..adapters.mail import send
from ..errors import NotPermittedError
from ..rules.quota import Policy
from ..services.quota import bring_back, reconcile
from ..services.quota_check import check, look
from ..services.quota_world import World
from .cli import table

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "quota"
"""Goes into List-Id, for members who sort their mail."""


def main(argv: Sequence[str]) -> int:
    """Show, apply or check.

    Raises:
        GpulabError: see the services.
    """
    parser = argparse.ArgumentParser(prog="gpulab quota", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    show = verbs.add_parser("show", help="how much of their limits members and shared folders use")
    show.add_argument("--json", action="store_true", help="as JSON, bytes and files")
    apply = verbs.add_parser("apply", help="bring the limits of the last converge back into force")
    apply.add_argument("--remove", action="store_true", help="take all limits back instead, and end what gpulab began")
    checking = verbs.add_parser("check", help="mail whoever is near a limit, each step once (cron runs this)")
    checking.add_argument("--dry-run", action="store_true", help="print the mails, send and record nothing")
    arguments = parser.parse_args(argv)
    world = World()
    if arguments.verb == "show":
        return _show(world, as_json=arguments.json)
    if arguments.verb == "apply":
        return _apply(world, remove=arguments.remove)
    deliver = partial(send, topic=TOPIC)
    host = socket.gethostname().split(".")[0]
    for letter in check(world, settings.load(), deliver, host, dry_run=arguments.dry_run):
        if arguments.dry_run:
            print(f"To: {letter.recipient}\nSubject: {letter.subject}\n\n{letter.body}")
    return 0


def _show(world: World, *, as_json: bool) -> int:
    try:
        seen = look(world)
    except PermissionError as error:
        raise NotPermittedError("only root may see everybody's use; gpu-quota shows your own") from error
    if as_json:
        print(json.dumps(asdict(seen), ensure_ascii=False, indent=2))
        return 0
    rows: list[Sequence[str]] = [("WHO", "WHERE", "USED", "SOFT", "HARD", "%")]
    for each in (*seen.members, *seen.projects):
        limits = [each.show(limit) if limit else "-" for limit in (each.soft, each.hard)]
        rows.append((each.owner, each.path, each.show(each.used), *limits, str(each.share)))
    if len(rows) > 1:
        print(table(rows))
    for path in seen.off:
        print(f"{path}: the kernel enforces no limits here now; `gpulab quota apply` says why or brings them back")
    if not (seen.members or seen.projects or seen.off):
        print("no limits are set; the playbook sets those that disk_quota_folders lists")
    return 0


def _apply(world: World, *, remove: bool) -> int:
    outcome = reconcile(Policy(), (), world) if remove else bring_back(world)
    for each in outcome.file_systems:
        for line in (*each.steps, *each.after):
            print(f"{each.title}: {line}")
    for line in outcome.warnings:
        print(line)
    if not outcome.changed and not outcome.warnings:
        print("unchanged")
    return 0
