"""`gpulab datasets`: whose files are published already, so that they can be deleted."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .. import settings
from ..adapters.trusted import trusted_folder
from ..errors import GpulabError, InputError, NotPermittedError
from ..rules.display import printable
from ..rules.member_registry import PRESENT
from ..rules.quota import size
from ..services.dataset_copies import search
from ..services.members import read_registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MIB = 1 << 20


def main(argv: Sequence[str]) -> int:
    """Print the copies; nothing when there are none.

    Raises:
        GpulabError: the datasets or the accounts cannot be read.
    """
    parser = argparse.ArgumentParser(prog="gpulab datasets", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    copies = verbs.add_parser("copies", help="large files in members' homes that are the same as published ones")
    copies.add_argument("--json", action="store_true", help="as JSON")
    arguments = parser.parse_args(argv)
    chosen = settings.load().datasets
    path = Path(chosen.path)
    if not path.is_dir():
        raise InputError(f"there is no folder {path}; the playbook makes it where datasets_enabled allows")
    try:
        homes = tuple(_homes())
        found = search(path, ((name, home) for name, home, why in homes if not why), chosen.copies_mib * _MIB)
    except PermissionError as error:
        raise NotPermittedError("only root may look into everybody's home; use sudo") from error
    if arguments.json:
        print(json.dumps(asdict(found), ensure_ascii=True, indent=2))
        return 0
    for owner in dict.fromkeys(copy.owner for copy in found.found):
        mine = [copy for copy in found.found if copy.owner == owner]
        print(f"{owner} has {size(sum(copy.size for copy in mine))} at home that is published already:")
        for copy in mine:
            print(f"  {printable(copy.path, 300)} ({size(copy.size)}) = {printable(copy.same_as, 300)}")
    for line in (*found.skipped, *(why for _, _, why in homes if why)):
        print(f"not looked through: {printable(line, 300)}")
    return 0


def _homes() -> Iterator[tuple[str, Path, str]]:
    """Yield members, their homes, and why one is not to be looked into."""
    for entry in read_registry():
        home = Path(entry.home)
        if entry.state == PRESENT:
            try:
                yield entry.name, trusted_folder(home.parent) / home.name, ""
            except (GpulabError, FileNotFoundError) as error:
                yield entry.name, home, str(error)
