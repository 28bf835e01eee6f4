"""A usage report as plain text, for terminals and mail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .display import fit, printable, width
from .usage_words import WORDS, table_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP = "  "


def render(document: dict[str, Any], language: str) -> str:
    """Write a report.

    Args:
        document: see services/report.py, describe.
        language: `en` or `zh`.
    """
    return "\n".join(_lines(document, language)) + "\n"


def _lines(document: dict[str, Any], language: str) -> Iterator[str]:
    words = WORDS[language]
    yield document["title"]
    yield document["sum"]
    if not document["members"]:
        return
    tables = table_rows(document, language)
    for name in ("members", "places", "windows"):
        if len(tables[name]) > 1:
            yield ""
            yield from aligned(tables[name])
    yield ""
    yield words["notes"]
    yield from _advice(document, words)


def _advice(document: dict[str, Any], words: dict[str, str]) -> Iterator[str]:
    if document["advice"] is None:
        return
    yield ""
    yield f"{words['advice']}:"
    if not document["advice"]:
        yield f"  {document['no_advice']}"
    for each in document["advice"]:
        yield f"- {each['why']}"
    if document["advice"]:
        yield ""
        yield words["paste"]
        for each in document["advice"]:
            yield from (f"    {line}" for line in each["inventory"])


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Write rows as a table: the first column to the left, numbers to the right."""
    clean = [[printable(cell) for cell in row] for row in rows]
    widths = [max(width(row[column]) for row in clean) for column in range(len(clean[0]))]
    for row in clean:
        cells = [fit(row[0], widths[0])]
        cells += [" " * (size - width(cell)) + cell for cell, size in zip(row[1:], widths[1:], strict=True)]
        yield _GAP.join(cells).rstrip()
