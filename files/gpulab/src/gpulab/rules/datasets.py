"""Datasets: their names, what is recorded about them, and which files can be in one."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import asdict, dataclass, fields

from ..errors import InputError
from .display import printable

VARIABLES = ("datasets_enabled", "datasets_path", "datasets_store")
"""The variables of role datasets that preflight judges."""

RECORD_FILE = ".gpulab-dataset.json"
SUMS_FILE = ".gpulab-sha256"
"""Sums of every file, for `sha256sum --check`."""

OWN_FILES = (RECORD_FILE, SUMS_FILE)
TEXT_LIMIT = 500
PATH_LIMIT = 4000
"""Bytes; the kernel takes 4096 with the dataset's own folder before it (PATH_MAX)."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_SUM_LINE = re.compile(r"(\\?)([0-9a-fA-F]{64})[ ][ *](.+)")


@dataclass(frozen=True)
class Record:
    """What is known about a dataset.

    Attributes:
        name: its folder's name.
        source: where it is from, such as an address or a paper.
        licence: what may be done with it.
        note: whatever else readers should know.
        files: how many there are.
        bytes: their sizes together.
        added_by: account name.
        added: ISO 8601.
        published_by: account name; empty when it is not published yet.
        published: ISO 8601; likewise.
    """

    name: str
    source: str
    licence: str
    note: str = ""
    files: int = 0
    bytes: int = 0
    added_by: str = ""
    added: str = ""
    published_by: str = ""
    published: str = ""


def check_name(name: object) -> str:
    """Return a dataset's name.

    Raises:
        InputError: it cannot be one.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"a dataset cannot be called {printable(str(name), 80)!r}; use small letters, digits, dots and hyphens, "
            "such as coco-2017"
        )
    return name


def check_text(value: object, what: str, *, needed: bool = True) -> str:
    """Return a line of text that people will read.

    Raises:
        InputError: it is empty though needed, too long, or not one printable line.
    """
    if not isinstance(value, str) or not value.isprintable() or len(value) > TEXT_LIMIT:
        raise InputError(f"{what} must be one line of at most {TEXT_LIMIT} characters")
    if needed and not value.strip():
        raise InputError(f"{what} is missing; others must know what they may do with the data")
    return value.strip()


def write_record(record: Record) -> bytes:
    """Write a record as JSON."""
    return (json.dumps(asdict(record), ensure_ascii=False, indent=1) + "\n").encode()


def read_record(data: bytes) -> Record | None:
    """Read a record; None when it is not one."""
    try:
        document = json.loads(data)
        record = Record(**document)
    except (ValueError, RecursionError, TypeError):
        return None
    whole = all(isinstance(getattr(record, item.name), int if item.type == "int" else str) for item in fields(Record))
    return record if whole else None


def check_path(path: object) -> str:
    """Return the path of a file in a dataset, relative to it.

    Raises:
        InputError: it leads elsewhere, or is one of gpulab's own files.
    """
    if (
        not isinstance(path, str)
        or not path
        or "\0" in path
        or any(part in {"", ".", ".."} for part in path.split("/"))
        or len(path.encode("utf-8", "surrogateescape")) > PATH_LIMIT
        or path in OWN_FILES
    ):
        raise InputError(f"{printable(str(path), 80)!r} cannot be a path in a dataset")
    return path


def check_link(path: str, target: object) -> str:
    """Return where a link leads, which must be within the dataset.

    Raises:
        InputError: it is absolute or leads out.
    """
    if isinstance(target, str) and target and "\0" not in target and not target.startswith("/"):
        led = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if led != ".." and not led.startswith("../"):
            return target
    raise InputError(
        f"the link {printable(path, 200)} leads out of the dataset, to {printable(str(target), 200)}; "
        "put there what it leads to"
    )


def sum_line(path: str, digest: str) -> str:
    """Write a line as sha256sum(1) does, newlines and backslashes escaped."""
    escaped = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{chr(92) if escaped != path else ''}{digest}  {escaped}"


def read_sum_line(line: str) -> tuple[str, str] | None:
    """Read a line of sha256sum(1); return path and sum in small letters, None when it is something else."""
    found = _SUM_LINE.fullmatch(line)
    if not found:
        return None
    path = found[3]
    if found[1]:
        path = re.sub(r"\\(.)", lambda escape: {"n": "\n", "r": "\r"}.get(escape[1], escape[1]), path)
    return path.removeprefix("./"), found[2].lower()
