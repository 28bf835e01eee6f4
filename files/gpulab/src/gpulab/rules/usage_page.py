"""A usage report as one HTML page that needs nothing else: plots are SVG in the page, no script, no link outside.

Everything that comes from records is escaped; the page's own policy (Content-Security-Policy) lets nothing run or load.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from .usage_words import WORDS, hours, percent, table_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CELL = 22
_LEFT, _TOP = 48, 20
_BAR, _BAR_WIDTH, _NAMES = 22, 420, 150
_MOST_BARS = 40

_STYLE = """
body { font: 15px/1.5 system-ui, "Noto Sans CJK SC", sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em;
  color: #222; background: #fff; }
h1 { font-size: 1.4em; } h2 { font-size: 1.15em; margin-top: 2em; } h3 { font-size: 1em; margin-bottom: .2em; }
table { border-collapse: collapse; } td, th { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right; }
td:first-child, th:first-child { text-align: left; }
pre { background: #f4f4f4; padding: .8em; overflow-x: auto; } .scroll { overflow-x: auto; }
svg text { font-size: 11px; fill: #444; } p.note { color: #555; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818; } pre { background: #262626; }
  td, th { border-color: #444; } svg text { fill: #bbb; } p.note { color: #aaa; } }
"""


def render(document: dict[str, Any], language: str) -> str:
    """Write the page.

    Args:
        document: see services/report.py, describe.
        language: `en` or `zh`.
    """
    return "\n".join(_parts(document, language)) + "\n"


def _parts(document: dict[str, Any], language: str) -> Iterator[str]:
    words = WORDS[language]
    yield f'<!DOCTYPE html>\n<html lang="{language}"><head><meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(document['title'])}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{escape(document['title'])}</h1><p>{escape(document['sum'])}</p>"
    if document["members"]:
        tables = table_rows(document, language)
        yield f"<h2>{words['members']}</h2>{_bars(document['members'], words)}{_table(tables['members'])}"
        yield f"<h2>{words['places']}</h2>{_table(tables['places'])}"
        yield f"<h3>{words['week']}</h3>"
        for place in document["places"]:
            yield f"<h3>{escape(place['place'])}</h3>{_week(place, words['days'].split())}"
        if len(tables["windows"]) > 2:  # noqa: PLR2004 - head and one row: there are no windows
            yield f"<h2>{words['windows']}</h2>{_table(tables['windows'])}"
        yield f'<p class="note">{escape(words["notes"])}</p>'
        yield from _advice(document, words)
    yield "</body></html>"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    return '<div class="scroll"><table>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"


def _bars(members: Sequence[dict[str, Any]], words: dict[str, str]) -> str:
    """Draw GPU-hours by member, the part held idle in another colour."""
    shown = members[:_MOST_BARS]
    most = max((each["gpu_hours"] for each in shown), default=0.0) or 1.0
    height = _BAR * len(shown) + 4
    lines = [f'<div class="scroll"><svg width="{_NAMES + _BAR_WIDTH + 90}" height="{height}" role="img">']
    for number, each in enumerate(shown):
        top = number * _BAR + 3
        long = each["gpu_hours"] / most * _BAR_WIDTH
        idle = min(long, each["idle_hours"] / most * _BAR_WIDTH)
        text = f"{hours(each['gpu_hours'])} {words['hours']}"
        lines.append(
            f'<text x="{_NAMES - 6}" y="{top + 13}" text-anchor="end">{escape(each["user"])}</text>'
            f'<rect x="{_NAMES}" y="{top}" width="{long - idle:.1f}" height="16" fill="#3b7dd8"/>'
            f'<rect x="{_NAMES + long - idle:.1f}" y="{top}" width="{idle:.1f}" height="16" fill="#d8a13b">'
            f"<title>{escape(words['idle_hours'])}</title></rect>"
            f'<text x="{_NAMES + long + 6:.1f}" y="{top + 13}">{escape(text)}</text>'
        )
    return "".join(lines) + "</svg></div>"


def _week(place: dict[str, Any], days: Sequence[str]) -> str:
    """Draw occupancy as seven rows of 24 squares; what was not watched is crossed out."""
    width, height = _LEFT + 24 * _CELL, _TOP + 7 * _CELL
    lines = [f'<div class="scroll"><svg width="{width}" height="{height}" role="img">']
    lines += [f'<text x="{_LEFT + hour * _CELL}" y="14">{hour}</text>' for hour in range(0, 24, 2)]
    for number, part in enumerate(place["occupancy"]):
        day, hour = divmod(number, 24)
        left, top = _LEFT + hour * _CELL, _TOP + day * _CELL
        if hour == 0:
            lines.append(f'<text x="0" y="{top + 15}">{escape(days[day])}</text>')
        if part is None:
            lines.append(f'<path d="M{left + 6} {top + 6}l9 9m0-9l-9 9" stroke="#999"><title>-</title></path>')
        else:
            told = f"<title>{escape(days[day])} {hour}:00 {percent(part)}</title>"
            lines.append(
                f'<rect x="{left}" y="{top}" width="{_CELL - 2}" height="{_CELL - 2}" fill="#3b7dd8" '
                f'fill-opacity="{max(0.04, part):.2f}">{told}</rect>'
            )
    return "".join(lines) + "</svg></div>"


def _advice(document: dict[str, Any], words: dict[str, str]) -> Iterator[str]:
    if document["advice"] is None:
        return
    yield f"<h2>{words['advice']}</h2>"
    if not document["advice"]:
        yield f"<p>{escape(document['no_advice'])}</p>"
        return
    yield "<ul>" + "".join(f"<li>{escape(each['why'])}</li>" for each in document["advice"]) + "</ul>"
    pasted = "\n".join(line for each in document["advice"] for line in each["inventory"])
    yield f"<p>{words['paste']}</p><pre>{escape(pasted)}</pre>"
