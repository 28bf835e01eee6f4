"""A small machine for tests of members: real files under a folder, and stand-ins for the tools that need root.

The tools edit the account files as the real ones do (the scenario molecule/members runs the real ones). The machine can
be killed before or after anything that is done to it.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from gpulab.adapters.homes import Homes
from gpulab.adapters.processes import Process, ProcessTable
from gpulab.adapters.procfs import Identity
from gpulab.errors import GpulabError
from gpulab.rules.members import parse_members
from gpulab.services import member_work, members
from gpulab.services.member_look import SheetBookings
from gpulab.services.members import Outcome, Request, World, read_registry
from test_ssh_keys import ED25519

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from gpulab.rules.member_registry import Entry

ALICE = {"name": "alice", "admin": True, "full_name": "Alice", "mail": "alice@example.org", "ssh_keys": [ED25519]}
BOB = {"name": "bob", "ssh_keys": [ED25519], "groups": ["vision"]}
CAROL = {"name": "carol", "shell": "/usr/bin/zsh"}
GONE = {"state": "absent"}

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=timezone.utc)


class Killed(BaseException):
    """The run was killed; no code of ours may catch it."""


class ToolFailedError(GpulabError):
    """A tool ended with an error."""


@dataclass
class Machine:
    root: Path
    kill_at: int = -1
    fail_at: int = -1
    touches: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    owners: dict[int, int] = field(default_factory=dict)
    running: Counter[int] = field(default_factory=Counter)
    booked: Counter[str] = field(default_factory=Counter)
    stubborn: set[int] = field(default_factory=set)
    """Uids whose processes do not end."""

    def __post_init__(self) -> None:
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n")
        self.write("etc/shadow", "root:*:20000:0:99999:7:::\ndaemon:*:20000:0:99999:7:::\n")
        self.write("etc/group", "root:x:0:\ndaemon:x:1:\nadm:x:4:\nsudo:x:27:\n")
        self.write("etc/subuid", "")
        self.write("etc/skel/.profile", "# skeleton\n")
        self.write("etc/aliases", "# own\npostmaster: root\n")
        for shell in ("bin/bash", "usr/bin/zsh", "usr/sbin/nologin"):
            self.write(shell, "#!\n")
            (self.root / shell).chmod(0o755)
        (self.root / "home").mkdir()

    # What a test looks at.

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def line(self, file: str, name: str) -> list[str]:
        return next((line.split(":") for line in self._lines(file) if line.startswith(f"{name}:")), [])

    def registered(self, name: str) -> Entry:
        return next(entry for entry in read_registry(self.root) if entry.name == name)

    def leave_traces(self, name: str, uid: int) -> None:
        """Have a member work: files, processes, a crontab, lingering services, bookings."""
        self.write(f"home/{name}/results.txt", "42")
        self.write(f"var/spool/cron/crontabs/{name}", "* * * * * true\n")
        self.write(f"var/lib/systemd/linger/{name}", "")
        self.running[uid] = 3
        self.booked[name] = 2

    def delete(self, name: str) -> None:
        """Delete an account behind gpulab's back, as `userdel NAME` does; the home stays."""
        for file in ("passwd", "shadow", "group"):
            lines = self.read(f"etc/{file}").splitlines(keepends=True)
            self.write(f"etc/{file}", "".join(line for line in lines if not line.startswith(f"{name}:")))

    def group(self, name: str) -> set[str]:
        return set(filter(None, self.line("etc/group", name)[3].split(",")))

    def own(self, path: str, uid: int) -> None:
        self.owners[(self.root / path).lstat().st_ino] = uid

    def snapshot(self) -> dict[str, Any]:
        """Return everything there is, for comparing two machines."""
        found: dict[str, Any] = {"running": +self.running, "booked": +self.booked}
        for path in sorted(self.root.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else None
            if path.name in {"passwd", "shadow", "group"}:
                content = b"\n".join(sorted((content or b"").splitlines()))  # the order of lines means nothing
            owner = self.owners.get(status.st_ino, 0)
            found[str(path.relative_to(self.root))] = (oct(status.st_mode), owner, content)
        return found

    # What the code under test sees.

    def world(self) -> World:
        return World(
            root=self.root,
            run=self.run,
            now=lambda: NOW,
            homes=MachineHomes(root=self.root, chown=self._chown, owner=self._owner, machine=self),
            processes=MachineProcesses(machine=self),
            bookings=MachineBookings(machine=self),
        )

    def reconcile(self, members_raw: list[dict[str, Any]], *, dry_run: bool = False, **options: Any) -> Outcome:
        request = Request(members=parse_members(members_raw), lab_admin="alice", **options)
        return members.reconcile(request, self.world(), dry_run=dry_run)

    def touched(self, what: str) -> None:
        """Count something done to the machine; die or fail here when a test says so."""
        self.touches.append(what)
        if len(self.touches) - 1 == self.kill_at:
            raise Killed(what)
        if len(self.touches) - 1 == self.fail_at:
            raise ToolFailedError(f"{what} failed")

    def run(self, argv: Any) -> None:
        self.log.append(" ".join(argv))
        self.touched(f"before {argv[0]}")
        options = [word for word in argv[1:] if word.startswith("--")]
        chosen = dict(option[2:].partition("=")[::2] for option in options)
        getattr(self, f"_{argv[0]}")(chosen, [word for word in argv[1:] if not word.startswith("--")])
        self.touched(f"after {argv[0]}")

    def _useradd(self, chosen: dict[str, str], words: list[str]) -> None:
        (name,) = words
        uid = chosen["uid"]
        if self.line("etc/passwd", name) or any(line.split(":")[2] == uid for line in self._lines("etc/passwd")):
            raise ToolFailedError("user or uid exists")
        gid = self.line("etc/group", chosen["gid"])[2] if "gid" in chosen else uid
        record = [name, "x", uid, gid, chosen["comment"], chosen["home-dir"], chosen["shell"]]
        self._append("etc/passwd", ":".join(record))
        self._append("etc/shadow", f"{name}:{chosen['password']}:20000:0:99999:7:::")
        self._append("etc/subuid", f"{name}:{100000 + 65536 * len(self._lines('etc/subuid'))}:65536")
        if "user-group" in chosen:
            self._append("etc/group", f"{name}:x:{gid}:")

    def _usermod(self, chosen: dict[str, str], words: list[str]) -> None:
        (name,) = words
        passwd, shadow = self.line("etc/passwd", name), self.line("etc/shadow", name)
        passwd[4], passwd[6] = chosen.get("comment", passwd[4]), chosen.get("shell", passwd[6])
        shadow[7] = chosen.get("expiredate", shadow[7])
        if "lock" in chosen:
            shadow[1] = "!" + shadow[1].lstrip("!")
        if "unlock" in chosen:
            shadow[1] = shadow[1].removeprefix("!")
        shadow[1] = chosen.get("password", shadow[1])
        self._replace("etc/passwd", passwd)
        self._replace("etc/shadow", shadow)

    def _groupadd(self, chosen: dict[str, str], words: list[str]) -> None:
        taken = {int(line.split(":")[2]) for line in self._lines("etc/group")}
        numbers = range(999, 99, -1) if "system" in chosen else range(2000, 3000)
        self._append("etc/group", f"{words[0]}:x:{next(gid for gid in numbers if gid not in taken)}:")

    def _gpasswd(self, chosen: dict[str, str], words: list[str]) -> None:
        group = self.line("etc/group", words[-1])
        names = set(filter(None, group[3].split(",")))
        if "members" in chosen:
            names = set(filter(None, words[0].split(",")))
        elif "add" in chosen:
            names.add(words[0])
        else:
            names.remove(words[0])
        known = {line.partition(":")[0] for line in self._lines("etc/passwd")}
        if not (names & known == names or "members" not in chosen):
            raise ToolFailedError("gpasswd: user does not exist")
        self._replace("etc/group", [*group[:3], ",".join(sorted(names))])

    def _loginctl(self, chosen: dict[str, str], words: list[str]) -> None:
        del chosen, words

    def _newaliases(self, chosen: dict[str, str], words: list[str]) -> None:
        del chosen, words
        self.write("etc/aliases.db", "compiled")

    def _owner(self, status: os.stat_result) -> int:
        return self.owners.get(status.st_ino, 0)

    def _chown(self, target: int | str, uid: int, gid: int) -> None:  # noqa: ARG002 - as os.chown
        self.owners[(os.fstat(target) if isinstance(target, int) else os.lstat(target)).st_ino] = uid

    def _lines(self, file: str) -> list[str]:
        return self.read(file).splitlines()

    def _append(self, file: str, line: str) -> None:
        self.write(file, self.read(file) + line + "\n")

    def _replace(self, file: str, record: list[str]) -> None:
        lines = [":".join(record) if line.startswith(f"{record[0]}:") else line for line in self._lines(file)]
        self.write(file, "\n".join(lines) + "\n")


@dataclass(frozen=True)
class MachineHomes(Homes):
    machine: Any = None

    def make(self, home: str, **owner: int) -> None:
        self.machine.touched(f"before make {home}")
        super().make(home, **owner)
        self.machine.touched(f"after make {home}")

    def archive(self, home: str, archive: str, **owner: int) -> None:
        self.machine.touched(f"before archive {home}")
        super().archive(home, archive, **owner)
        self.machine.touched(f"after archive {home}")

    def restore(self, archive: str, home: str) -> None:
        self.machine.touched(f"before restore {home}")
        super().restore(archive, home)
        self.machine.touched(f"after restore {home}")


@dataclass(frozen=True)
class MachineProcesses(ProcessTable):
    machine: Any = None

    def owned_by(self, uids: Any) -> list[Process]:
        return [
            Process(1000 + number, Identity(start_ticks=number, uid=uid, user=str(uid), command="train"))
            for uid, count in self.machine.running.items()
            for number in range(count)
            if any(uid in some for some in uids)
        ]

    def end(self, uids: Any, *, grace: float) -> list[Process]:  # noqa: ARG002 - nobody waits here
        self.machine.touched("before end")
        for uid in list(self.machine.running):
            if uid not in self.machine.stubborn and any(uid in some for some in uids):
                del self.machine.running[uid]
        self.machine.touched("after end")
        return self.owned_by(uids)

    def logged_in(self) -> frozenset[int]:
        return frozenset({0})


@dataclass(frozen=True)
class MachineBookings(SheetBookings):
    machine: Any = None

    def count(self, root: Path, user: str, now: datetime) -> int:  # noqa: ARG002 - there is no sheet
        return self.machine.booked[user]

    def end(self, root: Path, user: str, now: Any) -> None:  # noqa: ARG002 - there is no sheet
        self.machine.touched("before bookings")
        del self.machine.booked[user]
        self.machine.touched("after bookings")


def watch_files(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the machine notice files that are written and removed, so that it can be killed there too."""
    for module, name in (
        (member_work, "write_atomic"),
        (member_work.starters, "remove"),
        (members.state, "save"),
    ):
        monkeypatch.setattr(module, name, _watched(machine, name, getattr(module, name)))


def _watched(machine: Machine, name: str, function: Any) -> Any:
    def call(*arguments: Any, **named: Any) -> None:
        machine.touched(f"before {name}")
        function(*arguments, **named)
        machine.touched(f"after {name}")

    return call
