"""Takes the rules page apart into what it says, so that each statement can be held against the machine."""

from __future__ import annotations

import re
from dataclasses import dataclass

TOLD = {"In short", "Get a card", "The hardware", "If you read otherwise on the web"}
"""Sections that show how things are done, and promise nothing: what they name only has to be there."""

_TITLE = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """One language of the page.

    Attributes:
        statements: paragraphs, list items and rows of tables on one line each, with their section.
        commands: what stands in the examples, without arguments and remarks.
    """

    statements: tuple[tuple[str, str], ...]
    commands: frozenset[str]


def english(text: str) -> Page:
    """Take the English half of the page apart."""
    return _page(_half(text, "Written from the server's own settings"))


def numbers(text: str) -> dict[str, list[set[str]]]:
    """Return the numbers in each section that promises something, by language: the halves must say the same.

    The sections come in the same order in both; those that only tell how things are done are left out of both.
    """
    found: dict[str, list[set[str]]] = {}
    titles = [title for title, _ in _sections(_half(text, "Written from"))]
    for language, words in (("en", "Written from"), ("zh", "本页由")):
        bodies = [body for _, body in _sections(_half(text, words))]
        found[language] = [
            set(re.findall(r"\d+(?::\d+)?", body))
            for title, body in zip(titles, bodies, strict=True)
            if title not in TOLD
        ]
    return found


def _half(text: str, words: str) -> str:
    for half in re.split(r"^---$", text, flags=re.MULTILINE):
        if words in half:
            return half
    return ""


def _sections(half: str) -> list[tuple[str, str]]:
    parts = _TITLE.split(half)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _page(half: str) -> Page:
    statements: list[tuple[str, str]] = []
    commands: set[str] = set()
    for title, body in _sections(half):
        prose, examples = "", ""
        for number, piece in enumerate(body.split("```")):
            prose, examples = (prose, examples + piece.removeprefix("sh")) if number % 2 else (prose + piece, examples)
        commands |= {line.split()[0] for line in examples.splitlines() if line.strip() and "=" not in line.split()[0]}
        if title not in TOLD:
            statements += [(title, statement) for statement in _statements(prose)]
    return Page(tuple(statements), frozenset(commands))


def _statements(prose: str) -> list[str]:
    found: list[str] = []
    for block in re.split(r"\n\s*\n", prose.strip()):
        head = True
        for line in block.splitlines():
            if line.startswith("|---"):
                found.pop()  # the line above has the names of the columns
                head = True
            elif head or line.startswith(("- ", "|")):
                found.append(line.removeprefix("- "))
                head = line.startswith("|")
            else:
                found[-1] += " " + line.strip()
    return [statement for statement in found if statement]
