"""The frame of our web pages, which need nothing else (no script, no link outside), and text that stays in its place.

The page's own policy (Content-Security-Policy) lets nothing run or load, should an escape ever be forgotten.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from .display import printable

if TYPE_CHECKING:
    from collections.abc import Iterator


_TITLE = 200


def head(title: str, language: str, style: str, *, refresh: int = 0) -> Iterator[str]:
    """Yield the lines up to where the content begins.

    Args:
        title: of the page.
        language: `en` or `zh`.
        style: CSS.
        refresh: seconds after which browsers load the page again; 0 for never.
    """
    yield f'<!DOCTYPE html>\n<html lang="{language}"><head><meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    if refresh:
        yield f'<meta http-equiv="refresh" content="{refresh}">'
    yield f"<title>{safe(title, _TITLE)}</title><style>{style}</style></head><body>"


def safe(text: str, limit: int) -> str:
    """Return what somebody else wrote as text of a page: escaped, without control characters, not too long.

    Args:
        text: anything.
        limit: the most characters that are shown.
    """
    return escape(printable(text, limit))
