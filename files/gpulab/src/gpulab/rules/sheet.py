"""The booking sheet as a file: read what any editor or spreadsheet program saved, write back only what changed.

Every physical line is a row of its own, so that an open quote in one cannot swallow the next. A line that cannot be
used keeps its text and says why; the others count. Reading never fails.

Encodings. Each line is read as UTF-8 or, where that is impossible, as GB18030 (which covers GBK and GB2312); a line
that is neither keeps its bytes. A few short GBK words are valid UTF-8 by chance, always as characters below U+0800:
such lines follow the rest of the file. UTF-16 is known by its byte order mark and a header that makes sense.

What is written is UTF-8. It begins with a byte order mark when the sheet had one, when it came in GBK or UTF-16, and
when the first text beyond ASCII gets into a sheet of pure ASCII: Excel and WPS take a CSV file without the mark for the
locale's old encoding, show garbage and save it. A UTF-8 sheet that somebody keeps without a mark stays without.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from .cells import HEADER, plain, read_booking, write_booking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .booking import Booking

_BOM = "\ufeff"
_DELIMITERS = (",", ";", "\t")
_QUOTED = re.compile(r'[,;\t"\r\n]|^\s|\s$')
"""Cells that get quotes whatever the delimiter is: another locale may open the sheet with another one."""

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_TWO_BYTES = "\u07ff"
"""The last character that UTF-8 writes in two bytes."""


class Problem(NamedTuple):
    """Why a line does not count.

    Attributes:
        line: line number, from 1.
        reason: one sentence without control characters.
    """

    line: int
    reason: str


@dataclass(frozen=True)
class Row:
    """One line of the sheet.

    Attributes:
        line: line number, from 1.
        text: the line as it stands, without its line break; bytes of no known encoding as surrogates (PEP 383).
        ending: its line break, empty at the end of a file that lacks the last one.
        cells: the line split at delimiters; empty when it cannot be split.
        booking: what it says; None for the header, empty lines and bad ones.
        problem: why it does not count, one sentence; empty when it does, and for the header and empty lines.
    """

    line: int
    text: str
    ending: str
    cells: tuple[str, ...] = ()
    booking: Booking | None = None
    problem: str = ""

    @property
    def blank(self) -> bool:
        """Whether nothing but delimiters and space is on the line."""
        return not any(cell.strip() for cell in self.cells) and not self.problem


@dataclass(frozen=True)
class Sheet:
    """The whole sheet.

    Attributes:
        rows: every line of the file in order.
        bom: whether a byte order mark leads it when written.
        delimiter: what separates cells: a comma, a semicolon or a tab.
        columns: for each name of HEADER the position of its column.
        width: how many columns the header has.
        newline: the line break of new rows.
        headless: whether no line is the header.
    """

    rows: tuple[Row, ...] = ()
    bom: bool = False
    delimiter: str = ","
    columns: tuple[int, ...] = tuple(range(len(HEADER)))
    width: int = len(HEADER)
    newline: str = "\n"
    headless: bool = True

    @property
    def bookings(self) -> tuple[Booking, ...]:
        """The good rows in order."""
        return tuple(row.booking for row in self.rows if row.booking is not None)

    @property
    def by_line(self) -> dict[int, Booking]:
        """The good rows by line number."""
        return {row.line: row.booking for row in self.rows if row.booking is not None}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every line that does not count, with the reason."""
        found = [Problem(row.line, row.problem) for row in self.rows if row.problem]
        if self.headless:
            found.insert(0, Problem(1, f"the header is missing; the first line should be {','.join(HEADER)}"))
        return tuple(found)


def parse(data: bytes) -> Sheet:
    """Read a sheet; never raises, never drops a line.

    Args:
        data: the file's content.
    """
    lines, bom = _decode(data)
    header = _find_header(lines)
    sheet = Sheet(bom=bom, newline="\r\n" if lines and lines[0][1] == "\r\n" else "\n")
    if header is not None:
        delimiter, names = header[1:]
        columns = tuple(names.index(name) for name in HEADER)
        sheet = replace(sheet, delimiter=delimiter, columns=columns, width=len(names), headless=False)
    rows = []
    for number, (text, ending) in enumerate(lines, 1):
        row = Row(number, text, ending)
        rows.append(_header_row(row, sheet) if header and number == header[0] else _read(row, sheet))
    return replace(sheet, rows=tuple(rows))


def render(sheet: Sheet) -> bytes:
    """Write a sheet as UTF-8; lines that were not changed keep their text."""
    text = "".join(row.text + row.ending for row in sheet.rows)
    return ((_BOM if sheet.bom else "") + text).encode("utf-8", "surrogateescape")


def append(sheet: Sheet, bookings: Iterable[Booking]) -> Sheet:
    """Put bookings at the end of a sheet, before empty lines that trail it; a missing header comes first."""
    rows = list(sheet.rows)
    trailing: list[Row] = []
    while rows and rows[-1].blank:
        trailing.insert(0, rows.pop())
    if not rows and sheet.headless:
        rows.append(_header_row(Row(1, ",".join(HEADER), sheet.newline), sheet))
        sheet = replace(sheet, headless=False)
    if rows and not rows[-1].ending:
        rows[-1] = replace(rows[-1], ending=sheet.newline)
    rows.extend(_write(Row(0, "", sheet.newline), booking, sheet) for booking in bookings)
    return _finish(sheet, [*rows, *trailing])


def change(sheet: Sheet, changes: Mapping[int, Booking]) -> Sheet:
    """Rewrite some rows; columns of their own that people added keep their cells.

    Args:
        sheet: the sheet.
        changes: the new content by line number.
    """
    rows = [_write(row, changes[row.line], sheet) if row.line in changes else row for row in sheet.rows]
    return _finish(sheet, rows)


def _finish(sheet: Sheet, rows: list[Row]) -> Sheet:
    numbered = tuple(row if row.line == number else replace(row, line=number) for number, row in enumerate(rows, 1))
    was_ascii = all(row.text.isascii() for row in sheet.rows)
    bom = sheet.bom or (was_ascii and not all(row.text.isascii() for row in rows))
    return replace(sheet, rows=numbered, bom=bom)


def _write(row: Row, booking: Booking, sheet: Sheet) -> Row:
    cells = list(row.cells) + [""] * (sheet.width - len(row.cells))
    for position, value in zip(sheet.columns, write_booking(booking), strict=True):
        cells[position] = value
    text = sheet.delimiter.join(_quote(cell) for cell in cells)
    return replace(row, text=text, cells=tuple(cells), booking=booking, problem="")


def _quote(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _QUOTED.search(cell) else cell


def _decode(data: bytes) -> tuple[list[tuple[str, str]], bool]:
    """Split a file into (text, line break) pairs; tell whether it wants a byte order mark."""
    bom = False
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        wide = data.decode("utf-16", "backslashreplace")
        if HEADER[0] in wide.lower():  # anything may begin with these two bytes
            data, bom = wide.encode(), True
    while data.startswith(_BOM.encode()):
        data, bom = data[len(_BOM.encode()) :], True
    raw = [(match[1], match[2].decode("ascii")) for match in _LINE.finditer(data) if match[0]]
    gbk = not bom and any(_try(line, "utf-8") is None and _try(line, "gb18030") is not None for line, _ in raw)
    lines = [(_read_line(line, gbk=gbk), ending) for line, ending in raw]
    bom = bom or gbk
    while lines and lines[0][0].startswith(_BOM):  # one written in GB18030
        bom = True
        lines[0] = (lines[0][0][len(_BOM) :], lines[0][1])
    return (lines if lines != [("", "")] else []), bom


def _try(line: bytes, encoding: str) -> str | None:
    try:
        return line.decode(encoding)
    except UnicodeDecodeError:
        return None


def _read_line(line: bytes, *, gbk: bool) -> str:
    text = _try(line, "utf-8")
    doubtful = gbk and text is not None and not text.isascii() and max(text) <= _TWO_BYTES
    if text is None or doubtful:
        text = _try(line, "gb18030") or text
    return line.decode("utf-8", "surrogateescape") if text is None else text


def _split(text: str, delimiter: str) -> tuple[str, ...] | None:
    try:
        return tuple(next(csv.reader([text], delimiter=delimiter, strict=True), ()))
    except csv.Error:
        return None


def _names(cells: Iterable[str]) -> list[str]:
    return [plain(cell).lower() for cell in cells]


def _find_header(lines: list[tuple[str, str]]) -> tuple[int, str, list[str]] | None:
    """Find the first line that names every column: its number, its delimiter and the names."""
    for number, (text, _) in enumerate(lines, 1):
        if HEADER[0] not in text.lower():
            continue
        for delimiter in _DELIMITERS:
            names = _names(_split(text, delimiter) or ())
            if set(HEADER) <= set(names):
                return number, delimiter, names
    return None


def _header_row(row: Row, sheet: Sheet) -> Row:
    return replace(row, cells=_split(row.text, sheet.delimiter) or ())


def _read(row: Row, sheet: Sheet) -> Row:
    cells = _split(row.text, sheet.delimiter)
    if cells is None or len(cells) < len(HEADER):
        # Somebody may have typed the row with another delimiter than the rest of the sheet.
        others = (_split(row.text, delimiter) for delimiter in _DELIMITERS)
        cells = next((other for other in others if other and len(other) >= len(HEADER)), cells)
    if cells is None:
        return replace(row, problem="a quotation mark is not closed, or the line holds a NUL; write the line anew")
    if not any(cell.strip() for cell in cells):
        return replace(row, cells=cells)
    if HEADER[0] in row.text.lower() and set(HEADER) <= set(_names(cells)):
        return replace(row, cells=cells, problem="the header stands here again; delete this line")
    if len(cells) <= max(sheet.columns):
        reason = f"it has {len(cells)} of the {sheet.width} columns; the header says which"
        return replace(row, cells=cells, problem=reason)
    try:
        booking = read_booking(tuple(cells[position] for position in sheet.columns))
    except ValueError as error:
        return replace(row, cells=cells, problem=str(error))
    return replace(row, cells=cells, booking=booking)
