"""Units of systemd: what they are, and started, stopped, enabled through systemctl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from ..errors import GpulabError

SECONDS = 150.0
"""A unit's own time limits are shorter (systemd-system.conf(5), DefaultTimeoutStartSec is 90 s)."""

_PROPERTIES = ("LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "MainPID")


class UnitError(GpulabError):
    """systemd could not do it; the message says what it said."""


@dataclass(frozen=True)
class Unit:
    """A unit as it is now.

    Attributes:
        name: such as `slurmd.service`.
        there: whether systemd knows it.
        active: whether it runs.
        enabled: whether it starts at boot.
        stale: whether its files changed since systemd read them.
        pid: main process; 0 when it does not run.
    """

    name: str
    there: bool
    active: bool
    enabled: bool
    stale: bool
    pid: int


class Systemd:
    """The system manager of this machine."""

    def look(self, name: str) -> Unit:
        """Return a unit as it is.

        Raises:
            UnitError: systemd does not answer.
        """
        answer = self._call("show", name, "--property", ",".join(_PROPERTIES))
        found = dict(line.partition("=")[::2] for line in answer.splitlines())
        return Unit(
            name=name,
            there=found.get("LoadState") not in {"not-found", "masked", None},
            active=found.get("ActiveState") in {"active", "reloading"},
            enabled=found.get("UnitFileState") == "enabled",
            stale=found.get("NeedDaemonReload") == "yes",
            pid=int(found.get("MainPID") or 0),
        )

    def act(self, verb: str, *names: str) -> None:
        """Start, stop, restart, enable, disable, daemon-reload, or reset-failed.

        Raises:
            UnitError: it did not work.
        """
        self._call(verb, *names)

    def last_lines(self, name: str) -> str:
        """Return the last thing a unit's programs said, for an error message; empty when nothing is known."""
        command = ["journalctl", "--unit", name, "--lines=3", "--output=cat", "--no-pager"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return " / ".join(line.strip() for line in done.stdout.splitlines() if line.strip())

    @staticmethod
    def _call(*arguments: str) -> str:
        try:
            done = subprocess.run(
                ["systemctl", *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnitError(f"systemctl {' '.join(arguments[:2])}: {error}") from error
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise UnitError(f"systemctl {' '.join(arguments[:2])}: {said[0] if said else 'failed'}")
        return done.stdout
