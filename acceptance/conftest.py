"""Runs the checks on live servers and prints which promises hold; nothing is changed and nobody is disturbed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from server import read_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server import Server
    from testinfra.host import Host

HOLDS, BROKEN, NOT_ASKED = "holds", "does not hold", "not asked for"


@pytest.fixture(scope="module")
def server(host: Host) -> Server:
    """Return the server under test."""
    return read_server(host)


@pytest.fixture(scope="session")
def release() -> str:
    """Return the name of the release that a run of the playbook would install."""
    wheelhouse = Path(__file__).parent.parent / "scripts" / "wheelhouse"
    done = subprocess.run([sys.executable, wheelhouse], capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["release"])


@dataclass(frozen=True)
class Verdict:
    """What one check found: for which promise, on which server, and why it does not hold."""

    promise: str
    words: str
    server: str
    outcome: str
    why: str


_verdicts: list[Verdict] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note what each check found."""
    report: Any = yield
    mark = item.get_closest_marker("promise")
    if mark is not None and (report.when == "call" or (report.when == "setup" and not report.passed)):
        host = getattr(item, "funcargs", {}).get("host")
        outcome = {"passed": HOLDS, "skipped": NOT_ASKED}.get(report.outcome, BROKEN)
        name = host.backend.hostname if host is not None else "?"
        _verdicts.append(Verdict(*mark.args, name, outcome, _reason(report)))
    return report


def _reason(report: Any) -> str:
    if report.passed:
        return ""
    if report.skipped:
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longrepr).splitlines()[0]
    return text.removeprefix("AssertionError: ").removeprefix("Failed: ")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table: one line for each promise and server."""
    found: dict[tuple[str, str, str], list[Verdict]] = defaultdict(list)
    for verdict in _verdicts:
        found[verdict.server, verdict.promise, verdict.words].append(verdict)
    server = ""
    for key in sorted(found, key=lambda key: (key[0], int(key[1].removeprefix("S")), key[2])):
        if key[0] != server:
            server = key[0]
            terminalreporter.write_line(f"\n{server}")
        outcomes = {verdict.outcome for verdict in found[key]}
        outcome = BROKEN if BROKEN in outcomes else HOLDS if HOLDS in outcomes else NOT_ASKED
        whys = "; ".join(dict.fromkeys(each.why for each in found[key] if each.outcome == outcome and each.why))
        terminalreporter.write_line(f"  {key[1]:>3}  {key[2]:<34}  {outcome:<13}  {whys}".rstrip())
    terminalreporter.write_line("")
