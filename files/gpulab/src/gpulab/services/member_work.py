"""Carrying out a plan's steps, one after the other; what fails for one member does not stop the others."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from ..adapters import accounts, starters
from ..adapters.files import write_atomic
from ..errors import GpulabError
from ..rules import member_steps as steps
from .member_look import KEY_FILE_MODE, KEY_FOLDER, compiled_aliases, naive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..rules.accounts import Account
    from .members import Request, World


def make_folder(path: Path, *, mode: int) -> None:
    """Make a folder, and those above it, with this mode whatever the umask is; one that is there stays as it is."""
    if path.is_dir():
        return
    make_folder(path.parent, mode=0o755)
    path.mkdir(mode=mode)
    path.chmod(mode)


class Work:
    """The steps of one run.

    Attributes:
        failed: why, by account name; the lab's own things under the empty name. Its later steps are left out.
        warnings: what went another way than planned.
    """

    def __init__(self, request: Request, world: World) -> None:
        """Take what every step needs; nothing is done yet."""
        self._request = request
        self._world = world
        self._accounts: Mapping[str, Account] | None = None
        self.failed: dict[str, str] = {}
        self.warnings: list[str] = []

    def wants(self, step: steps.Step) -> bool:
        """Tell whether the step is still to be tried: nothing before it failed for all of its accounts."""
        return any(name not in self.failed for name in step.names or {""})

    def do(self, step: steps.Step) -> None:
        """Take one step; a failure is noted, and ends the work for its accounts."""
        if not self.wants(step):
            return
        try:
            _DOERS[type(step)](self, step)
        except (GpulabError, OSError) as error:
            for name in sorted(step.names) or [""]:
                self.fail(name, f"{step.summary(name)}: {error}")

    def fail(self, name: str, reason: str) -> None:
        """Note why an account could not be brought in line; the first reason is the one that counts."""
        self.failed.setdefault(name, reason)

    def create_group(self, step: steps.CreateGroup) -> None:
        """Make a group."""
        accounts.create_group(self._world.run, step.group, system=step.system)

    def create_account(self, step: steps.CreateAccount) -> None:
        """Make an account."""
        self._accounts = None
        accounts.create_account(
            self._world.run,
            step.name,
            uid=step.uid,
            home=step.home,
            shell=step.shell,
            full_name=step.full_name,
            own_group=step.own_group,
        )

    def change_full_name(self, step: steps.ChangeFullName) -> None:
        """Set a name."""
        accounts.set_gecos(self._world.run, step.name, step.gecos)

    def change_shell(self, step: steps.ChangeShell) -> None:
        """Set a shell."""
        accounts.set_shell(self._world.run, step.name, step.shell)

    def open_account(self, step: steps.OpenAccount) -> None:
        """Let somebody in again."""
        accounts.open_account(self._world.run, step.name, shell=step.shell, has_password=step.has_password)

    def close_account(self, step: steps.CloseAccount) -> None:
        """Let somebody in no more."""
        accounts.close_account(self._world.run, step.name)

    def change_group(self, step: steps.ChangeGroup) -> None:
        """Put those in and take those out whose own steps worked so far."""
        accounts.change_group(
            self._world.run,
            step.group,
            add=step.add - self.failed.keys(),
            remove=step.remove - self.failed.keys(),
            root=self._world.root,
        )

    def make_home(self, step: steps.MakeHome) -> None:
        """Make a home."""
        account = self._account(step.name)
        self._world.homes.make(step.home, uid=account.uid, gid=account.gid)

    def archive_home(self, step: steps.ArchiveHome) -> None:
        """Move a home away; where that is impossible, close it where it is and say so."""
        homes = self._world.homes
        try:
            homes.archive(step.home, step.archive, uid=step.uid)
        except (GpulabError, OSError) as error:
            homes.close(step.home, uid=step.uid)
            self.warnings.append(f"{step.name} left; {step.home} could not be moved ({error}): closed where it is")

    def close_home(self, step: steps.CloseHome) -> None:
        """Give a home to root."""
        self._world.homes.close(step.home, uid=step.uid)

    def restore_home(self, step: steps.RestoreHome) -> None:
        """Move a home back."""
        self._world.homes.restore(step.archive, step.home)

    def reopen_home(self, step: steps.ReopenHome) -> None:
        """Give a home back."""
        account = self._account(step.name)
        self._world.homes.reopen(step.home, uid=account.uid, gid=account.gid)

    def write_keys(self, step: steps.WriteKeys) -> None:
        """Write a key file."""
        folder = self._world.root / KEY_FOLDER
        make_folder(folder, mode=0o755)
        write_atomic(folder / step.name, step.content, mode=KEY_FILE_MODE)

    def remove_keys(self, step: steps.RemoveKeys) -> None:
        """Remove a key file."""
        (self._world.root / KEY_FOLDER / step.name).unlink(missing_ok=True)

    def end_jobs(self, step: steps.EndJobs) -> None:
        """Remove what would start processes."""
        starters.remove(self._world.root, step.name, step.at_jobs)

    def end_processes(self, step: steps.EndProcesses) -> None:
        """End processes; logind is told first, so that it starts none again for a session that it keeps."""
        if (self._world.root / f"run/systemd/users/{step.uid}").exists():
            try:
                self._world.run(["loginctl", "terminate-user", str(step.uid)])
            except GpulabError as error:
                self.warnings.append(f"{step.name} left, and logind would not end the session: {error}")
        left = self._world.processes.end(step.uids, grace=self._request.grace)
        if left:
            shown = ", ".join(f"{process.pid} ({process.identity.command})" for process in left[:5])
            raise GpulabError(f"{len(left)} would not end: {shown}")

    def end_bookings(self, step: steps.EndBookings) -> None:
        """End bookings."""
        world = self._world
        world.bookings.end(world.root, step.name, lambda: naive(world.now()))

    def write_aliases(self, step: steps.WriteAliases) -> None:
        """Write the alias file with the owner and mode it has, and have a mailer that compiles it do so."""
        path = self._world.root / self._request.aliases_file.lstrip("/")
        data = step.text.encode(errors="surrogateescape")
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            write_atomic(path, data, mode=0o644)
        else:
            write_atomic(path, data, mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid)
        if compiled_aliases(path):
            self._world.run(["newaliases"])

    def _account(self, name: str) -> Account:
        if self._accounts is None:
            self._accounts = accounts.read_accounts(self._world.root)
        return self._accounts[name]


_DOERS: Mapping[type[steps.Step], Callable[[Work, Any], None]] = {
    steps.CreateGroup: Work.create_group,
    steps.CreateAccount: Work.create_account,
    steps.ChangeFullName: Work.change_full_name,
    steps.ChangeShell: Work.change_shell,
    steps.OpenAccount: Work.open_account,
    steps.CloseAccount: Work.close_account,
    steps.ChangeGroup: Work.change_group,
    steps.MakeHome: Work.make_home,
    steps.ArchiveHome: Work.archive_home,
    steps.CloseHome: Work.close_home,
    steps.RestoreHome: Work.restore_home,
    steps.ReopenHome: Work.reopen_home,
    steps.WriteKeys: Work.write_keys,
    steps.RemoveKeys: Work.remove_keys,
    steps.EndJobs: Work.end_jobs,
    steps.EndProcesses: Work.end_processes,
    steps.EndBookings: Work.end_bookings,
    steps.WriteAliases: Work.write_aliases,
}
