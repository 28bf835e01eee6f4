"""One live server: what its settings say, and how it is asked."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testinfra.backend.base import CommandResult
    from testinfra.host import Host


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
        """Run a command that must work; return what it printed, without the end of the last line."""
        done = self.host.run(command)
        assert done.rc == 0, f"`{command}` ended with {done.rc}: {(done.stderr or done.stdout).strip()[-300:]}"
        return str(done.stdout).rstrip("\n")

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

    def refuses_cards(self) -> bool:
        """Try to open a card where members' sessions are, nothing is read or written; tell whether there is a card."""
        assert self.guarded, "gpu_guard_enabled is false"
        card = self.told("ls /dev/nvidia[0-9]* 2>/dev/null | head -n 1; true").strip()
        if card:
            unit = "systemd-run --quiet --wait --pipe --collect --slice=user-gpulab.slice --uid=nobody"
            tried = self.host.run(f"{unit} sh -c ': <{card}'")
            assert tried.rc != 0, f"{card} could be opened"
            assert "not permitted" in tried.stderr, tried.stderr.strip()
        return bool(card)


def read_server(host: Host) -> Server:
    """Read who the lab is; every check depends on it.

    Raises:
        AssertionError: gpulab is not installed, or its settings are damaged.
    """
    settings = host.run("/opt/gpulab/current/bin/gpulab settings")
    assert settings.rc == 0, f"gpulab is not installed or its settings are damaged: {settings.stderr.strip()[-300:]}"
    listed = json.loads(host.run("/opt/gpulab/current/bin/gpulab members --json").stdout or "[]")
    present = [entry for entry in listed if entry["state"] == "present"]
    present.sort(key=lambda entry: (entry["admin"], entry["name"]))
    admins = tuple(entry["name"] for entry in present if entry["admin"])
    return Server(host, json.loads(settings.stdout), tuple(entry["name"] for entry in present), admins)
