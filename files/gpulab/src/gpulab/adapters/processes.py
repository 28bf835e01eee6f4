"""Processes of an account: found, and ended for good, without ever hitting another that got the same pid."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .procfs import Identity, identify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_POLL_SECONDS = 0.1
_KILL_ROUNDS = 50
"""How often what is left is killed: somebody may start processes as fast as they end."""


@dataclass(frozen=True)
class Process:
    """One living process.

    Attributes:
        pid: its number, which another process may get later.
        identity: with its start time, which together name it for good.
    """

    pid: int
    identity: Identity


@dataclass(frozen=True)
class ProcessTable:
    """The processes of this machine.

    Attributes:
        proc_root: where proc is mounted.
        sleep: waits for some seconds.
        monotonic: seconds on a clock that never jumps.
    """

    proc_root: Path = Path("/proc")
    sleep: Callable[[float], None] = field(default=time.sleep)
    monotonic: Callable[[], float] = field(default=time.monotonic)

    def owned_by(self, uids: Sequence[range]) -> list[Process]:
        """Return the processes whose real uid is in one of the ranges.

        The real one: root's services take a member's effective uid for a moment without becoming the member's.
        """
        if not uids:
            return []
        found = []
        for name in os.listdir(self.proc_root):
            uid = self._real_uid(name) if name.isdecimal() else None
            if uid is None or not any(uid in some for some in uids):
                continue
            identity = identify(int(name), self.proc_root)
            if identity is not None and any(identity.uid in some for some in uids):
                found.append(Process(int(name), identity))
        return found

    def find(self, pid: int) -> Process | None:
        """Return the process that has a pid now; None when none has."""
        identity = identify(pid, self.proc_root)
        return None if identity is None else Process(pid, identity)

    def is_there(self, process: Process) -> bool:
        """Tell whether exactly this process still lives."""
        now = identify(process.pid, self.proc_root)
        return now is not None and now.start_ticks == process.identity.start_ticks

    def send(self, process: Process, number: int) -> bool:
        """Send a signal to exactly this process.

        The descriptor is opened first and the start time read again after: it then holds this process or none.

        Returns:
            False when it had ended already.
        """
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        try:
            now = identify(process.pid, self.proc_root)
            if now is None or (now.start_ticks, now.uid) != (process.identity.start_ticks, process.identity.uid):
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def end(self, uids: Sequence[range], *, grace: float) -> list[Process]:
        """End every process of some uids: TERM, time to save its work, then KILL.

        Args:
            uids: whose processes.
            grace: seconds between TERM and KILL; less when all end sooner.

        Returns:
            Those that would not end: stuck in the kernel, or started faster than they can be killed.
        """
        deadline = self.monotonic() + grace
        told: set[tuple[int, int]] = set()
        while (left := self.owned_by(uids)) and self.monotonic() < deadline:
            for process in left:
                key = (process.pid, process.identity.start_ticks)
                if key not in told:
                    told.add(key)
                    self.send(process, signal.SIGTERM)
            self.sleep(_POLL_SECONDS)
        for _ in range(_KILL_ROUNDS):
            if not left:
                break
            for process in left:
                self.send(process, signal.SIGKILL)
            self.sleep(_POLL_SECONDS)
            left = self.owned_by(uids)
        return left

    def logged_in(self) -> frozenset[int]:
        """Return the real uids of this process and those it came from, and who called sudo: whose work this is."""
        found = set()
        pid = os.getpid()
        while pid > 0:
            fields = self._status(str(pid))
            if "Uid" not in fields:
                break
            found.add(int(fields["Uid"].split()[0]))
            pid = int(fields.get("PPid", "0"))
        sudo = os.environ.get("SUDO_UID", "")
        return frozenset(found | ({int(sudo)} if sudo.isdecimal() else set()))

    def _real_uid(self, name: str) -> int | None:
        uid = self._status(name).get("Uid", "").split()
        return int(uid[0]) if uid else None

    def _status(self, name: str) -> dict[str, str]:
        try:
            text = (self.proc_root / name / "status").read_text(errors="replace")
        except OSError:
            return {}
        # The first line holds the process's own name, with newlines escaped (proc_pid_status(5)).
        return {key: value for key, _, value in (line.partition(":") for line in text.splitlines())}
