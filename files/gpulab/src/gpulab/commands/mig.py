"""`gpulab mig`: show how cards are split into instances, plan and apply what the inventory asks for."""

from __future__ import annotations

import argparse
import json
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..errors import GpulabError, InputError
from ..rules.mig_plan import describe
from ..services import mig
from ..services.mig_state import LAYOUT_FILE, layout_path, read_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.mig_cards import MigCard
    from ..rules.mig_layout import Layout, Target
    from ..services.mig import CardReport, Report

_BOOT_WAIT = 30.0
_TERMINATED = 128 + signal.SIGTERM
_NOTHING = f"no layout is asked for ({LAYOUT_FILE} is not there); set mig_layout in the inventory and run the playbook"


def main(argv: Sequence[str], world: mig.World | None = None) -> int:
    """Plan, apply or show.

    Args:
        argv: arguments after the subcommand.
        world: the outside; None for this machine.

    Raises:
        GpulabError: some card has not got what it shall have, or nothing could be looked at.
    """
    options = _parse(argv)
    world = world or mig.World()
    if options.action == "show":
        return _show(world, as_json=options.json)
    layout = _layout(options, world.root)
    if layout is None:
        print(json.dumps(mig.to_dict(mig.Report())) if options.json else _NOTHING)
        return 0
    other_file = options.file is not None
    if options.action == "plan":
        report = mig.plan(layout, world, record=other_file)
    else:
        signal.signal(signal.SIGTERM, _stop)
        if options.boot:
            mig.wait_for_driver(world, seconds=_BOOT_WAIT, sleep=time.sleep, monotonic=time.monotonic)
        report = mig.apply(layout, world, record=other_file, lenient=options.boot)
    if options.json:
        print(json.dumps(mig.to_dict(report), ensure_ascii=False, indent=2))
    else:
        _print(report, done=options.action == "apply")
    if report.failed or (report.errors and options.action == "apply"):
        raise GpulabError("; ".join(report.errors))
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpulab mig",
        description="Split cards into MIG instances. What is asked for comes from mig_layout in the inventory; the "
        f"layout in force is noted down in {LAYOUT_FILE}, in nvidia-mig-parted's format.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    plan = actions.add_parser("plan", help="say what apply would do, and change nothing")
    apply = actions.add_parser("apply", help="change the cards that differ, each one wholly or not at all")
    show = actions.add_parser("show", help="show what the cards have, can have, and shall have")
    for action in (plan, apply):
        action.add_argument("--file", type=Path, help="another layout than the one in force, as JSON in either form")
        action.add_argument("--label", default="", help="which configuration of the file is meant")
    apply.add_argument(
        "--boot",
        action="store_true",
        help=f"as gpulab-mig.service does: wait {_BOOT_WAIT:g} s for the driver, and let no card stop the others",
    )
    for action in (plan, apply, show):
        action.add_argument("--json", action="store_true", help="print the answer as JSON")
    return parser.parse_args(argv)


def _layout(options: argparse.Namespace, root: Path) -> Layout | None:
    path = options.file or layout_path(root)
    try:
        return read_layout(path, label=options.label)
    except FileNotFoundError as error:
        if options.file is None:
            return None
        raise InputError(f"{path} is not there") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _stop(_signal: int, _frame: object) -> NoReturn:
    """Let SIGTERM end the program as Ctrl-C does: a change that has begun is taken back first."""
    raise SystemExit(_TERMINATED)


def _print(report: Report, *, done: bool) -> None:
    for card in report.cards:
        print(f"{card.title}: {_verdict(card, done=done)}")
        for step in card.steps:
            print(f"  {step}")
        if card.reason and card.result != mig.FAILED and not (done and card.result == mig.REFUSED):
            # errors are told at the end
            print(f"  {card.reason}")
    for user, uuid in report.bound.uuids.items():
        print(f"{user} has {report.bound.places[user]}: {uuid}")
    for line in report.bound.missing if done else ():
        print(line)


def _verdict(card: CardReport, *, done: bool) -> str:
    wanted = ", ".join(card.after)
    words = {
        mig.UNCHANGED: f"as it shall be ({wanted})",
        mig.CHANGED: f"{'has now' if done else 'would get'} {wanted}",
        mig.WAITING: "waits for a reboot",
        mig.REFUSED: "left as it is" if done else f"would get {wanted}, if it were free",
        mig.FAILED: "failed" if done else "cannot be looked at",
    }
    return words[card.result]


def _show(world: mig.World, *, as_json: bool) -> int:
    cards, assignment = mig.look(world)
    if as_json:
        document = [_document(card, assignment.targets.get(card.index)) for card in cards]
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return 0
    for card in cards:
        print(f"{card.title}: {_state(card)}")
        for line in describe(card.goal)[1:]:
            print(f"  {line}")
        target = assignment.targets.get(card.index)
        if target is not None:
            print(f"  asked for: {target.text}")
        if card.profiles:
            source = "" if card.measured else ", as documented; the card says only while MIG is on"
            offer = ", ".join(f"{profile.maximum} x {profile.name}" for profile in card.profiles)
            print(f"  can have at most, each alone: {offer}{source}")
    for index, problem in assignment.problems.items():
        print(f"card {index}: {problem}")
    if not cards:
        print("no cards")
    return 0


def _state(card: MigCard) -> str:
    if card.reason:
        return card.reason
    if card.capable is False:
        return "cannot be split"
    waiting = (
        "" if card.enabled == card.pending else f", {'on' if card.pending else 'off'} after the next reset or reboot"
    )
    return f"MIG {'on' if card.enabled else 'off'}{waiting}"


def _document(card: MigCard, target: Target | None) -> dict[str, object]:
    asked = None if target is None else {"mig_enabled": target.enabled, "mig_devices": dict(target.devices)}
    return {**asdict(card), "asked": asked}
