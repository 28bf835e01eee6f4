"""Small JSON documents that root keeps between runs, such as which events have been told."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ..errors import GpulabError, UnsafeFileError
from .files import read_regular, write_atomic

if TYPE_CHECKING:
    from pathlib import Path

_LIMIT = 16 << 20


class CorruptStateError(GpulabError):
    """A state file holds something that gpulab did not write."""


def load(path: Path) -> Any:
    """Read a document.

    Args:
        path: the file, in a folder that only root can write to.

    Returns:
        The JSON value; None when there is no file yet.

    Raises:
        CorruptStateError: it is not JSON, not an ordinary file, or over 16 MiB.
        OSError: it cannot be read.
    """
    try:
        return json.loads(read_regular(path, limit=_LIMIT))
    except FileNotFoundError:
        return None
    except UnsafeFileError as error:
        raise CorruptStateError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise CorruptStateError(f"{path} is not JSON: {error}") from error


def save(path: Path, document: Any) -> None:
    """Replace a document in one step, readable by root only; its folder is made when absent.

    Raises:
        OSError: the folder cannot be written or the disk is full; the old document is untouched.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Escaped to ASCII: a lone surrogate (a byte that was no UTF-8) has no encoding of its own.
    data = json.dumps(document, ensure_ascii=True, indent=1, sort_keys=True) + "\n"
    write_atomic(path, data.encode("ascii"), mode=0o600)


def set_aside(path: Path) -> Path:
    """Move a corrupt file out of the way, in place of an earlier one.

    Returns:
        Where it is now: the same name with `.corrupt` at its end.

    Raises:
        OSError: it cannot be moved.
    """
    aside = path.with_name(f"{path.name}.corrupt")
    os.replace(path, aside)
    return aside
