"""Runs the checks on live servers and prints which promises hold; nothing is changed and nobody is disturbed."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

HOLDS, BROKEN, NOT_ASKED = "holds", "does not hold", "not asked for"


@dataclass(frozen=True)
class Server:
    """One server: what its settings say, and how commands are run on it.

    Attributes:
        host: the server.
        settings: see `gpulab settings`.
        members: present members; those who are no admins first.
        admins: present members who are.
    """

    host: Host
    settings: dict[str, Any]
    members: tuple[str, ...]
    admins: tuple[str, ...]

    @property
    def tier(self) -> str:
        """`table`, `allocator` or `slurm`."""
        return str(self.settings["lab"]["tier"])

    def told(self, command: str) -> str:
        """Run a command that must work; return what it printed."""
        done = self.host.run(command)
        assert done.rc == 0, f"`{command}` ended with {done.rc}: {(done.stderr or done.stdout).strip()[-300:]}"
        return str(done.stdout)

    def document(self, command: str) -> Any:
        """Run a command that prints JSON."""
        return json.loads(self.told(command))

    def as_member(self, command: str) -> CommandResult:
        """Run a command as a member, without a login: none of the member's own files are read."""
        assert self.members, "there is no member to try it as"
        return self.host.run(f"runuser -u {shlex.quote(self.members[0])} -- sh -c {shlex.quote(f'cd / && {command}')}")

    @property
    def guarded(self) -> bool:
        """Whether the kernel shall refuse cards to sessions that were given none."""
        return bool(self.host.file("/etc/systemd/system/user-.slice.d/60-gpulab-guard.conf").exists)

    def refuses_cards(self) -> None:
        """Try to open a card where members' sessions are; nothing is read or written."""
        assert self.guarded, "gpu_guard_enabled is false"
        card = self.told("ls /dev/nvidia[0-9]* 2>/dev/null | head -n 1; true").strip()
        if card:
            unit = "systemd-run --quiet --wait --pipe --collect --slice=user-gpulab.slice --uid=nobody"
            tried = self.host.run(f"{unit} sh -c ': <{card}'")
            assert tried.rc != 0, f"{card} could be opened"
            assert "not permitted" in tried.stderr, tried.stderr.strip()


@pytest.fixture(scope="module")
def server(host: Host) -> Server:
    """Return the server under test; every check depends on what this reads."""
    settings = host.run("/opt/gpulab/current/bin/gpulab settings")
    assert settings.rc == 0, f"gpulab is not installed or its settings are damaged: {settings.stderr.strip()[-300:]}"
    listed = json.loads(host.run("/opt/gpulab/current/bin/gpulab members --json").stdout or "[]")
    present = [entry for entry in listed if entry["state"] == "present"]
    present.sort(key=lambda entry: (entry["admin"], entry["name"]))
    admins = tuple(entry["name"] for entry in present if entry["admin"])
    return Server(host, json.loads(settings.stdout), tuple(entry["name"] for entry in present), admins)


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
