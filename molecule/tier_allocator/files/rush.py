"""Fifty members ask for one of four cards in the same second, while things are killed: rush.py SEED KILLS.

Run as root on the machine. Prints what was seen as JSON: the leases in order of number, with when each was given (by
the broker's own note) and its cards; when each command began, on which card, and was gone; how everything ended; what
is left.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEMBERS = 50
PATIENCE = 180.0
LEASES = Path("/run/gpulab/leases")
QUEUE = Path("/run/gpulab/queue")
COMMAND = """
import os, time
print(os.environ['GPULAB_LEASE'], os.environ['CUDA_VISIBLE_DEVICES'], time.time(), flush=True)
time.sleep({seconds})
"""


def start(name: str, at: float, seconds: float) -> tuple[int, int]:
    """Start a member's process, which asks at a given moment; return its pid and the pipe its words come through."""
    account = pwd.getpwnam(name)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.initgroups(name, account.pw_gid)
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
        os.dup2(writer, 1)
        os.dup2(os.open("/dev/null", os.O_RDWR), 2)
        time.sleep(max(0.0, at - time.time()))
        command = ["allocate_gpu", "--wait", "--", "/usr/bin/python3", "-c", COMMAND.format(seconds=seconds)]
        os.execv("/usr/local/bin/allocate_gpu", command)  # noqa: S606 - as a shell does
    os.close(writer)
    os.set_blocking(reader, False)
    return pid, reader


def broker() -> int:
    """Return the broker's pid, 0 when it does not run."""
    show = ["systemctl", "show", "--property=MainPID", "--value", "gpulab-broker.service"]
    return int(subprocess.run(show, check=True, capture_output=True, text=True).stdout)


@dataclass
class Rush:
    """What goes on.

    Attributes:
        dice: decides what is killed.
        crowd: pid of each member's process, and the pipe its words come through.
        ended: when each ended.
        status: how each ended, negative for a signal.
        notes: each lease as the broker wrote it down.
    """

    dice: random.Random
    crowd: dict[int, int] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    status: dict[int, int] = field(default_factory=dict)
    notes: dict[int, dict[str, Any]] = field(default_factory=dict)

    def read_notes(self) -> None:
        """Look at the broker's files."""
        for path in LEASES.glob("*.json"):
            number = int(path.stem)
            if number not in self.notes and (text := self.read(path)):
                self.notes[number] = json.loads(text)

    @staticmethod
    def read(path: Path) -> str:
        """Return what is in a file, nothing when it has just gone."""
        try:
            return path.read_text()
        except OSError:
            return ""

    def strike(self) -> None:
        """Kill a member's process, or, every third time, the broker."""
        running = [pid for pid in self.crowd if pid not in self.status]
        victim = broker() if self.dice.randrange(3) == 0 else self.dice.choice([*running, 0])
        if victim:
            os.kill(victim, signal.SIGKILL)

    def collect(self) -> None:
        """Note who has ended."""
        pid, how = os.waitpid(-1, os.WNOHANG)
        if pid in self.crowd:
            self.ended[pid] = time.time()
            self.status[pid] = os.waitstatus_to_exitcode(how)
        elif not pid:
            time.sleep(0.005)

    def commands(self) -> dict[str, dict[str, Any]]:
        """Return what the commands said."""
        found = {}
        for pid, reader in self.crowd.items():
            words = os.read(reader, 4096).decode().split() if pid in self.ended else []
            if words:
                found[words[0]] = {"card": words[1], "began": float(words[2]), "ended": self.ended[pid]}
        return found


def main() -> int:
    """Rush."""
    rush = Rush(random.Random(sys.argv[1]))  # noqa: S311 - the same seed, the same blows
    at = time.time() + 2.0
    for number in range(1, MEMBERS + 1):
        pid, reader = start(f"member{number:02}", at + rush.dice.random(), 0.2 + rush.dice.random() / 2)
        rush.crowd[pid] = reader
    strikes = sorted(at + 8 * rush.dice.random() for _ in range(int(sys.argv[2])))
    while len(rush.status) < MEMBERS and time.time() < at + PATIENCE:
        rush.read_notes()
        if strikes and time.time() >= strikes[0]:
            strikes.pop(0)
            rush.strike()
        rush.collect()
    commands = rush.commands()
    time.sleep(1)
    left = subprocess.run(["gpulab", "leases", "--json"], check=True, capture_output=True).stdout
    report = {
        "leases": [
            {"number": number, "since": note["since"], "cards": [card["uuid"] for card in note["cards"]]}
            for number, note in sorted(rush.notes.items())
        ],
        "commands": commands,
        "statuses": sorted(rush.status.values()),
        "stuck": MEMBERS - len(rush.status),
        "left": json.loads(left),
        "waiting": len(list(QUEUE.glob("*.json"))),
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
