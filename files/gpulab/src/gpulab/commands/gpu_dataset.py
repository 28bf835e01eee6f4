"""`gpu-dataset`: which datasets there are; curators add, publish and remove them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

from .. import settings
from ..errors import InputError
from ..rules.dataset_wire import Request, encode
from ..rules.datasets import Record, check_name, check_text
from ..rules.display import printable
from ..rules.quota import size
from ..services.dataset_send import measure, read_given_sums, send
from ..services.dataset_store import records
from . import root_part
from .cli import guarded, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WRITER = ("/usr/bin/sudo", "-n", "/opt/gpulab/current/bin/gpulab", "dataset-write")
"""The only command line that role datasets' sudoers rule allows curators."""

_FAILED = "nothing was changed"
_EXAMPLES = """\
examples:
  gpu-dataset list                  what is published, how large, under which licence
  gpu-dataset list coco-2017        all that is known about one
curators:
  gpu-dataset add coco-2017 ~/coco --source https://cocodataset.org --licence "CC BY 4.0" --sums ~/coco.sha256
  gpu-dataset publish coco-2017     check it once more, then everybody sees it
  gpu-dataset remove coco-2014 --yes

What is published never changes; a new version gets a name of its own. To compare a dataset with its sums:
  cd /data/datasets/coco-2017 && sha256sum --check --quiet .gpulab-sha256"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; `gpu-dataset --help` shows how")


def main(argv: Sequence[str]) -> int:
    """List, add, publish or remove.

    Raises:
        GpulabError: it was refused or failed; nothing was changed.
    """
    parser = _Parser(
        prog="gpu-dataset",
        description="Datasets that everybody reads and nobody has to copy.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="what there is")
    listing.add_argument("name", nargs="?", help="all about this one")
    listing.add_argument("--staged", action="store_true", help="what curators added and have not published yet")
    listing.add_argument("--json", action="store_true", help="as JSON")
    adding = verbs.add_parser("add", help="copy a folder or a file in; readers do not see it yet")
    adding.add_argument("name", help="its name for readers, such as coco-2017")
    adding.add_argument("folder", type=Path, help="what to copy")
    adding.add_argument("--source", required=True, help="where it is from")
    adding.add_argument("--licence", required=True, help="what may be done with it")
    adding.add_argument("--note", default="", help="what else readers should know")
    adding.add_argument(
        "--sums", type=Path, help="sums that came with it, as sha256sum writes them; compared on the way"
    )
    publishing = verbs.add_parser("publish", help="check an added dataset once more and let everybody see it")
    publishing.add_argument("name")
    removing = verbs.add_parser("remove", help="delete a dataset")
    removing.add_argument("name")
    removing.add_argument("--yes", action="store_true", help="say that you mean it")
    arguments = parser.parse_args(argv)
    action: Callable[[argparse.Namespace], int] = _ACTIONS[arguments.verb]
    return action(arguments)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.staged:
        found = _ask(Request("staged"))
    else:
        folder = Path(settings.load().datasets.path)
        try:
            found = records(folder)
        except OSError as error:
            raise InputError(f"{folder}: {error.strerror}; there are no datasets on this server now") from error
    if arguments.name:
        found = tuple(record for record in found if record.name == arguments.name)
        if not found:
            raise InputError(
                f"there is no dataset {printable(arguments.name, 80)}; `gpu-dataset list` shows what there is"
            )
    if arguments.json:
        print(json.dumps([asdict(record) for record in found], ensure_ascii=False, indent=2))
    elif arguments.name:
        for key, value in asdict(found[0]).items():
            print(f"{key + ':':<14}{size(value) if key == 'bytes' else printable(str(value)) or '-'}")
    elif found:
        rows: list[Sequence[str]] = [("NAME", "SIZE", "FILES", "LICENCE", "SOURCE")]
        rows += [
            (each.name, size(each.bytes), str(each.files), printable(each.licence, 30), printable(each.source, 60))
            for each in found
        ]
        print(table(rows))
    else:
        print("nothing waits to be published" if arguments.staged else "nothing is published yet")
    return 0


def _add(arguments: argparse.Namespace) -> int:
    source: Path = arguments.folder
    try:
        source.stat()
    except OSError as error:
        raise InputError(f"{printable(str(source), 200)}: {error.strerror}; give a folder or a file") from error
    request = Request(
        "add",
        check_name(arguments.name),
        check_text(arguments.source, "--source"),
        check_text(arguments.licence, "--licence"),
        check_text(arguments.note, "--note", needed=False),
        *measure(source),
    )
    given = read_given_sums(arguments.sums) if arguments.sums else {}
    with _Progress(request.bytes) as show:
        (record,) = _ask(request, lambda stream: send(source, stream, given, show))
    compared = f", {len(given)} of them as {arguments.sums} says" if given else ""
    print(f"added {record.name}: {record.files} files, {size(record.bytes)}{compared}")
    print(f"`gpu-dataset publish {record.name}` lets everybody see it")
    return 0


def _publish(arguments: argparse.Namespace) -> int:
    (record,) = _ask(Request("publish", check_name(arguments.name)))
    where = Path(settings.load().datasets.path) / record.name
    print(f"published {where}: {record.files} files, {size(record.bytes)}, read from the disk again and found whole")
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    name = check_name(arguments.name)
    if not arguments.yes:
        raise InputError(f"this deletes {name} for everybody; if you mean it, `gpu-dataset remove {name} --yes`")
    (record,) = _ask(Request("remove", name))
    print(f"removed {record.name}: {record.files} files, {size(record.bytes)}")
    return 0


_ACTIONS = {"list": _list, "add": _add, "publish": _publish, "remove": _remove}


def _ask(request: Request, feed: Callable[[IO[bytes]], None] = lambda _: None) -> tuple[Record, ...]:
    curators = settings.load().datasets.curators
    hint = f"only curators may do that: {', '.join(curators) or 'there are none yet; ask the admin'}"
    writer = WRITER[2:] if os.geteuid() == 0 else WRITER

    def talk(stream: IO[bytes]) -> None:
        stream.write(encode(request))
        feed(stream)

    answer = root_part.converse(writer, talk, _FAILED, hint)
    return tuple(Record(**each) for each in answer["datasets"])


class _Progress:
    """Says on a terminal how much has been copied, once a second."""

    def __init__(self, total: int) -> None:
        self.total, self.last, self.used = total, time.monotonic(), False

    def __enter__(self) -> Callable[[int], None]:
        return self.show

    def show(self, done: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - self.last >= 1:
            self.last, self.used = time.monotonic(), True
            print(f"\r{size(done)} of {size(self.total)}  ", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.used:
            with suppress(OSError):
                print(file=sys.stderr)


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(guarded("gpu-dataset", main))
