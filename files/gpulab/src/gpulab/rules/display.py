"""Text for terminals: nothing in it can control the terminal, and wide characters line up.

Widths follow UAX #11: Wide and Fullwidth take two columns, combining marks none; Ambiguous ones count as one, as
today's terminals draw them.
"""

from __future__ import annotations

import unicodedata


def printable(text: str, limit: int | None = None) -> str:
    r"""Return text with everything that is not visible written as an escape, such as `\x1b`.

    Args:
        text: anything, control characters and lone surrogates (undecodable bytes) included.
        limit: cut after this many characters of the result, with `...`; None to keep all.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _escape(char) for char in text)
    if limit is not None and len(text) > limit:
        text = text[: max(0, limit - 3)] + "..."
    return text


def _escape(char: str) -> str:
    if char == "\u3000":  # the space of CJK keyboards; harmless and wide
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that no encoding explains (PEP 383)
        return f"\\x{char.encode('utf-8', 'surrogateescape')[0]:02x}"
    return char.encode("unicode_escape").decode("ascii")


def width(text: str) -> int:
    """Return how many terminal columns a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def fit(text: str, columns: int) -> str:
    """Cut or pad a text to exactly this many terminal columns."""
    used = 0
    kept = []
    for char in text:
        step = _columns(char)
        if used + step > columns:
            break
        kept.append(char)
        used += step
    return "".join(kept) + " " * (columns - used)
