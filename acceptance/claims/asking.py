"""How a claim is registered and found again, and what checks have in common."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import rules_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from server import Server

    Check = Callable[[Server, dict[str, str]], None]

RULES = "/home/admin/GPU_SCHEDULE/README.md"
GPULAB = "/opt/gpulab/current/bin/gpulab"
CLAIMS: list[tuple[re.Pattern[str], Check]] = []
"""What the page may say, and how each is asked."""


def claim(text: str) -> Callable[[Check], Check]:
    """Register how a statement is checked: all its words, with `<name>` for what differs from lab to lab.

    The check gets the server and what stands in the places of the names.
    """
    cell = r"(?:(?! \| ).)+?"
    pattern = re.compile(re.sub(r"<(\w+)>", lambda name: f"(?P<{name[1]}>{cell})", re.escape(text)))

    def register(check: Check) -> Check:
        CLAIMS.append((pattern, check))
        return check

    return register


def understood(statement: str) -> tuple[Check, dict[str, str]] | None:
    """Find the check of a statement, and what stands in it; None when there is none."""
    for pattern, check in CLAIMS:
        found = pattern.fullmatch(statement)
        if found:
            return check, found.groupdict()
    return None


def rules(server: Server) -> rules_page.Page:
    """Read the English half of the page."""
    return rules_page.english(server.told(f"cat {RULES}"))


def same(what: str, said: object, found: object) -> None:
    """Compare what the page says with what the machine has."""
    assert said == found, f"{what} is {found}"


def same_settings(server: Server, section: str, words: dict[str, str], **keys: str) -> None:
    """Compare numbers with the settings that our commands go by: key of the section by name in the statement."""
    for name, key in keys.items():
        same(f"{section}.{key}", float(words[name]), float(server.settings[section][key]))


def slurm_has(server: Server, pattern: str, otherwise: str) -> None:
    """Look for a line in the configuration of the running controller."""
    configuration = server.told("scontrol show config")
    assert re.search(rf"^{pattern}", configuration, re.MULTILINE), otherwise


def of_slices(server: Server, key: str, names: tuple[str, ...]) -> dict[str, str]:
    """Return a property of the slices that hold people's sessions."""
    numbers = [server.told(f"id --user {name}") for name in names]
    units = (f"systemctl show --property={key} --value user-{number}.slice" for number in numbers)
    return dict(zip(names, server.told("; ".join(units)).split(), strict=True)) if names else {}
