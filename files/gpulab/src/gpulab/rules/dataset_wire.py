"""How a dataset travels from the curator's process to root's: a request, then entry after entry, then an end.

A line of JSON each; a file's bytes follow its line, and its sum follows them. What arrives is data from somebody who is
not trusted: every line is bounded, and read to its last key.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import InputError
from .datasets import check_link, check_name, check_path, check_text

LINE_LIMIT = 65536
"""Bytes of one line; a path of 4,000 bytes takes 24,000 when every one is escaped."""

VERBS = ("add", "publish", "remove", "staged")
FOLDER, FILE, LINK, END = "folder", "file", "link", "end"
_MOST_BYTES = 1 << 60
_STRANGE = "the request is not what gpu-dataset sends; use gpu-dataset"


@dataclass(frozen=True)
class Request:
    """What a curator wants.

    Attributes:
        verb: one of VERBS.
        name: of the dataset; empty for `staged`.
        source: for `add`, as in `Record`.
        licence: likewise.
        note: likewise.
        files: for `add`, how many will come.
        bytes: likewise, their sizes together.
    """

    verb: str
    name: str = ""
    source: str = ""
    licence: str = ""
    note: str = ""
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Entry:
    """One thing in a dataset, or its end.

    Attributes:
        kind: FOLDER, FILE, LINK or END.
        path: relative to the dataset.
        size: bytes, of a file.
        executable: whether a file may be run.
        modified: when a file was last changed, seconds since 1970.
        target: where a link leads.
    """

    kind: str
    path: str = ""
    size: int = 0
    executable: bool = False
    modified: int = 0
    target: str = ""


def encode(message: Request | Entry) -> bytes:
    """Write a line."""
    return json.dumps(asdict(message)).encode("ascii") + b"\n"


def decode_request(line: bytes) -> Request:
    """Read a request from somebody who is not trusted.

    Raises:
        InputError: anything about it is unexpected.
    """
    request = Request(**_typed(line, Request("")))
    if request.verb not in VERBS or not (0 <= request.files <= _MOST_BYTES and 0 <= request.bytes <= _MOST_BYTES):
        raise InputError(_STRANGE)
    if request.verb != "staged":
        check_name(request.name)
    if request.verb == "add":
        check_text(request.source, "--source")
        check_text(request.licence, "--licence")
        check_text(request.note, "--note", needed=False)
    return request


def decode_entry(line: bytes) -> Entry:
    """Read an entry; errors as with decode_request."""
    entry = Entry(**_typed(line, Entry("")))
    if entry.kind not in {FOLDER, FILE, LINK, END} or not 0 <= entry.size <= _MOST_BYTES:
        raise InputError(_STRANGE)
    if entry.kind != END:
        check_path(entry.path)
    if entry.kind == LINK:
        check_link(entry.path, entry.target)
    return entry


def encode_sum(digest: str) -> bytes:
    """Write the sum of the file that has just been sent."""
    return json.dumps(digest).encode("ascii") + b"\n"


def decode_sum(line: bytes) -> str:
    """Read it; errors as with decode_request."""
    digest = _json(line)
    if not isinstance(digest, str):
        raise InputError(_STRANGE)
    return digest


def _typed(line: bytes, example: Request | Entry) -> dict[str, Any]:
    document, wanted = _json(line), asdict(example)
    if (
        not isinstance(document, dict)
        or document.keys() != wanted.keys()
        or any(type(document[key]) is not type(value) for key, value in wanted.items())
    ):
        raise InputError(_STRANGE)
    return document


def _json(line: bytes) -> Any:
    if not line.endswith(b"\n"):
        raise InputError("the copy ended early; nothing was kept" if len(line) < LINE_LIMIT else _STRANGE)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(_STRANGE) from None
