"""`gpulab net`: share the network line between members, and see who uses it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..errors import GpulabError, InputError
from ..services import bandwidth, bandwidth_use
from ..settings import Bandwidth, load
from .cli import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.bandwidth import Shape
    from ..services.bandwidth import World

_SECOND = 1.0


def main(argv: Sequence[str]) -> int:
    """Show, apply or undo.

    Raises:
        GpulabError: see the services.
    """
    parser = argparse.ArgumentParser(prog="gpulab net", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    status = verbs.add_parser("status", help="the rates in force, and who uses the line now")
    status.add_argument("--json", action="store_true", help="as JSON, bits per second and bytes")
    apply = verbs.add_parser("apply", help="bring the line to what the settings say")
    apply.add_argument("--check", action="store_true", help="only print what would be done")
    apply.add_argument("--undo-after", type=int, default=0, metavar="SECONDS", help="unless `confirm` comes first")
    apply.add_argument("--keep", action="store_true", help="bring back what was confirmed (internal)")
    verbs.add_parser("confirm", help="keep what was applied: the server can still be reached")
    verbs.add_parser("undo", help="bring back what was confirmed before (internal)")
    verbs.add_parser("remove", help="end the shaping, until the next run of the playbook")
    options = parser.parse_args(argv)
    world = bandwidth.World()
    if options.verb == "status":
        return _status(world, as_json=options.json)
    if options.verb == "apply":
        return _keep(world) if options.keep else _apply(world, undo_after=options.undo_after, dry_run=options.check)
    if options.verb == "remove":
        bandwidth.apply(Bandwidth(), world)
    elif options.verb == "confirm":
        bandwidth.confirm(load().bandwidth, world)
    else:
        bandwidth.undo(world)
    return 0


def _apply(world: World, *, undo_after: int, dry_run: bool) -> int:
    asked = load().bandwidth
    before = bandwidth.in_force(world)
    if not bandwidth.apply(asked, world, undo_after=undo_after, dry_run=dry_run):
        print("unchanged")
        return 0
    tense = "would do" if dry_run else "done"
    print(f"{tense}: {_words(bandwidth.wanted(asked, world))} instead of {_words(before)}")
    return 0


def _keep(world: World) -> int:
    """Say nothing while all is well."""
    try:
        if bandwidth.keep(world):
            print(f"done: {_words(bandwidth.in_force(world))}")
    except InputError as error:  # a device that is not there now comes back, and this runs again
        print(f"gpulab net: {error}", file=sys.stderr)
    return 0


def _words(shape: Shape | None) -> str:
    if shape is None:
        return "no shaping"
    cap = f", each member {_rate(shape.cap)} at most" if shape.cap else ""
    return f"{shape.interface} {_rate(shape.up)} up, {_rate(shape.down)} down{cap}"


def _rate(bits: float) -> str:
    return f"{bits / 1e6:.1f} Mbit/s"


def _status(world: World, *, as_json: bool) -> int:
    shape = bandwidth.in_force(world)
    if shape is None:
        raise GpulabError("the network line is not shaped (bandwidth_enabled)")
    before, began = bandwidth_use.read(world), time.monotonic()
    time.sleep(_SECOND)
    found = bandwidth_use.uses(before, bandwidth_use.read(world), time.monotonic() - began)
    if as_json:
        shown = {"shape": bandwidth.document(shape), "uses": [asdict(use) for use in found]}
        print(json.dumps(shown, ensure_ascii=False, indent=2))
        return 0
    print(_words(shape))
    rows: list[Sequence[str]] = [("WHO", "UP NOW", "DOWN NOW", "UP IN ALL", "DOWN IN ALL")]
    for use in found:
        totals = [f"{count / 2**20:.1f} MiB" for count in (use.up, use.down)]
        rows.append((use.user, _rate(use.up_rate), _rate(use.down_rate), *totals))
    print(table(rows))
    return 0
