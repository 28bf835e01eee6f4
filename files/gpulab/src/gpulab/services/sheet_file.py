"""Where the booking sheet and the card list lie, and how they are read; apart from writing, so that it loads fast."""

from __future__ import annotations

from pathlib import Path

from .. import names
from ..adapters.files import read_regular
from ..errors import GpulabError, UnsafeFileError
from ..rules import sheet as sheets

SHEET_MODE = 0o664
"""Admins edit the sheet in place, everybody reads it."""

SHEET_LIMIT = 4 << 20
_MOST_LINES = 50_000
_INVENTORY_LIMIT = 1 << 20


class NoSheetError(GpulabError):
    """This server keeps no booking sheet: it is not in the table tier, or the sheet was moved away."""


def sheet_path(root: Path = Path("/")) -> Path:
    """Return where the sheet lies below a root folder."""
    return Path(names.under(root, names.SHEET_FILE))


def read_bytes(path: Path) -> bytes:
    """Read the sheet as it lies on disk.

    Raises:
        NoSheetError: there is none.
        UnsafeFileError: a link, FIFO or device stands in its place, or it is larger than 4 MiB or 50,000 lines.
        OSError: it cannot be read.
    """
    try:
        data = read_regular(path, limit=SHEET_LIMIT)
    except FileNotFoundError:
        raise NoSheetError(
            f"{path} is not there; in the table tier the admin's next run of the playbook makes it"
        ) from None
    if data.count(b"\n") > _MOST_LINES or data.count(b"\r") > _MOST_LINES:
        raise UnsafeFileError(f"{path} has over {_MOST_LINES} lines; move old ones to another file")
    return data


def read_sheet(root: Path = Path("/")) -> sheets.Sheet:
    """Read the sheet; a reader needs no lock, because it is only ever replaced whole.

    Args:
        root: the folder that stands for `/`.

    Raises:
        NoSheetError: there is none.
        UnsafeFileError: a link, FIFO or device stands in its place, or it is too large.
        OSError: it cannot be read.
    """
    return sheets.parse(read_bytes(sheet_path(root)))


def read_cards(root: Path = Path("/")) -> tuple[int, ...] | None:
    """Read which cards the server has from its card list (`nvidia-smi --query-gpu=index,... --format=csv`).

    Args:
        root: the folder that stands for `/`.

    Returns:
        Card numbers; None when there is no list, or none that can be read: unknown is not "no cards".

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = read_regular(Path(names.under(root, names.INVENTORY_FILE)), limit=_INVENTORY_LIMIT)
    except (FileNotFoundError, UnsafeFileError):
        return None
    cells = (line.split(",")[0].strip() for line in data.decode("utf-8", "replace").splitlines()[1:])
    return tuple(int(cell) for cell in cells if cell.isascii() and cell.isdigit()) or None
