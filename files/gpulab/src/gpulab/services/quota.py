"""Keep members' and projects' limits on all file systems as the inventory says: look once, change what differs."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters import quotactl, state
from ..adapters.accounts import read_accounts
from ..adapters.files import exclusive_lock, read_regular, write_atomic
from ..errors import GpulabError, InputError, NotPermittedError
from ..rules import quota_places as places
from ..rules.mounts import fstab_options, with_options
from ..rules.quota import NO_LIMITS, Policy, Usage, changes, describe, over, parse_policy, to_raw
from .quota_report import FileSystem, Outcome
from .quota_world import find_mounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..rules.quota import Limits
    from ..rules.quota_places import Place
    from .quota_world import World

USER, PROJECT = quotactl.USER, quotactl.PROJECT
FIRST_PROJECT = 4000
"""Numbers of projects that are ours begin here."""

_LIMIT = 16 << 20
_LOCK_SECONDS = 60.0


def note_path(root: Path) -> Path:
    """Return the file with the limits asked for; everybody may read it."""
    return Path(names.under(root, names.QUOTA_FILE))


def read_note(root: Path) -> tuple[Policy, tuple[str, ...]] | None:
    """Return policy and members as last applied; None when there is no such note.

    Raises:
        GpulabError: the note cannot be understood.
    """
    document = state.load(note_path(root))
    if document is None:
        return None
    try:
        members = tuple(document["members"])
        return parse_policy(document, members), members
    except (InputError, KeyError, TypeError) as error:
        raise GpulabError(f"{note_path(root)} is not what gpulab wrote ({error}); run the playbook") from error


def reconcile(policy: Policy, members: Iterable[str], world: World, *, dry_run: bool = False) -> Outcome:
    """Give every member and project what the policy says, and take back what gpulab gave and nobody asks for now.

    The whole policy is judged against the machine before anything changes. What must wait for a remount or a reboot is
    said, and done by the next call after that.

    Args:
        policy: what is asked for; an empty one takes everything back.
        members: account names of the present members; those without an account yet are left out.
        world: the outside.
        dry_run: only say what would change.

    Raises:
        InputError: the policy cannot be had on this machine; nothing was changed.
        NotPermittedError: the caller is not root.
        GpulabError: a tool or the kernel failed; a run that is repeated goes on from there.
    """
    with _explained(), contextlib.ExitStack() as held:
        if not (paths_of(policy) or state.load(_memory_path(world.root)) or note_path(world.root).exists()):
            return Outcome()  # and no folder for a lock is made, where the role has just removed it
        if not dry_run:
            held.enter_context(_alone(world.root))
        members = tuple(members)
        wanted = places.places(policy, find_mounts(paths_of(policy), world))
        return _Run(policy, members, world, dry_run=dry_run).all(wanted)


def bring_back(world: World) -> Outcome:
    """Bring the limits of the last converge back into force, for the boot and after a remount by hand.

    A folder that does not lie where it did then is left alone: while /data is not mounted it is a folder of the root
    file system, which nobody wanted to limit.

    Raises:
        NotPermittedError: the caller is not root.
        GpulabError: the note cannot be understood, or a tool or the kernel failed.
    """
    with _explained(), _alone(world.root):
        policy, members = read_note(world.root) or (Policy(), ())
        run = _Run(policy, members, world, dry_run=False)
        found = find_mounts(paths_of(policy), world)
        there = {path for path, mount in found.items() if mount is not None and mount.point in run.memory}
        run.policy = replace(
            policy,
            folders=tuple(folder for folder in policy.folders if folder.path in there),
            projects=tuple(project for project in policy.projects if project.path in there),
        )
        outcome = Outcome([run.give(place) for place in places.places(run.policy, found)])
        away = "not mounted where it was at the last converge; mount it, then run `gpulab quota apply`"
        outcome.file_systems += [FileSystem(path, path, waiting=away) for path in found if path not in there]
        return outcome


def _memory_path(root: Path) -> Path:
    return Path(names.under(root, names.QUOTA_STATE_DIR / "given.json"))


def paths_of(policy: Policy) -> list[str]:
    """Return every folder that a policy speaks of."""
    return [folder.path for folder in policy.folders] + [project.path for project in policy.projects]


class _Run:
    """One look and its changes; `memory` is what gpulab has begun and given, by mount point."""

    def __init__(self, policy: Policy, members: tuple[str, ...], world: World, *, dry_run: bool) -> None:
        self.policy, self.members, self.world, self.dry_run = policy, members, world, dry_run
        known = read_accounts(world.root)
        self.accounts = {name: known[name].uid for name in members if name in known}
        self.names = {account.uid: name for name, account in known.items()}
        self.path = _memory_path(world.root)
        self.memory: dict[str, dict[str, Any]] = state.load(self.path) or {}
        self.before = _copy(self.memory)

    def all(self, wanted: Sequence[Place]) -> Outcome:
        outcome = Outcome()
        for place in wanted:
            self.check(place)
        for place in wanted:
            outcome.file_systems.append(self.give(place))
        for point in [point for point in self.memory if point not in {place.mount.point for place in wanted}]:
            outcome.file_systems.append(self.take_back(point))
        if self.policy.folders or self.policy.projects:
            self.note({**to_raw(self.policy), "members": list(self.members)}, outcome)
        elif note_path(self.world.root).exists():
            outcome.recorded = True
            if not self.dry_run:
                note_path(self.world.root).unlink()
        return outcome

    def note(self, document: dict[str, Any], outcome: Outcome) -> None:
        path = note_path(self.world.root)
        outcome.recorded = state.load(path) != document
        if outcome.recorded and not self.dry_run:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomic(path, f"{json.dumps(document, indent=1)}\n".encode(), mode=0o644)

    def check(self, place: Place) -> None:
        """Refuse, before anything changes, projects on an ext4 that cannot have them."""
        counted, _ = self.world.kernel.flags(place.mount.point, PROJECT) if place.projects else (True, True)
        if place.mount.kind == "ext4" and not counted:
            path = place.projects[0].path
            raise InputError(f"disk_quota_projects: {path}: {places.feature_remedy(place)}; or take the entry out")

    def give(self, place: Place) -> FileSystem:
        point = place.mount.point
        report = FileSystem(place.title, point)
        mine = self.memory.setdefault(point, {"started": [], "fstab": None, "users": [], "projects": {}})
        ready = [self.begin(place, kind, report, mine) for kind in self.kinds(place)]
        self.remember()
        if not all(ready):
            return report
        report.enforced = not self.dry_run or not report.steps
        if not report.enforced:
            report.steps.append(f"set the limits of {len(self.accounts)} members")
            return report
        if place.folders:
            self.set_grace(place, report)
            wanted = places.wanted(place, self.policy, self.accounts)
            given = [uid for uid, limits in wanted.items() if limits != NO_LIMITS]
            wanted |= {uid: NO_LIMITS for uid in mine["users"] if uid not in wanted}
            mine["users"] = sorted({*mine["users"], *given})
            self.remember()  # first what is to be taken back one day, then the giving
            self.set_limits(place.mount.point, USER, wanted, report)
            mine["users"] = sorted(given)
        self.set_projects(place, report, mine)
        self.remember()
        return report

    def kinds(self, place: Place) -> Iterator[int]:
        if place.folders:
            yield USER
        if place.projects:
            yield PROJECT

    def begin(self, place: Place, kind: int, report: FileSystem, mine: dict[str, Any]) -> bool:
        """Have the kernel enforce limits, as far as that goes without a remount; return whether it does."""
        kernel, point = self.world.kernel, place.mount.point
        counted, enforced = kernel.flags(point, kind)
        verdict = places.judge(place, counted=counted, enforced=enforced)
        if verdict == places.READY:
            return True
        if verdict == places.WAITING:
            self.change_fstab(place, report, mine)
            return False
        what = "projects" if kind == PROJECT else "members"
        how = "count and enforce" if verdict == places.JOURNAL else "enforce"
        report.steps.append(f"{how} the limits of {what}")
        if self.dry_run:
            return True
        name = f"{verdict} {kind}"
        mine["started"] = [*mine["started"], *([] if name in mine["started"] else [name])]
        self.remember()
        if verdict == places.JOURNAL:
            self.start_journal(point)
        else:
            kernel.enforce(point, kind, on=True)
        if not kernel.flags(point, kind)[1]:
            raise GpulabError(f"{place.title}: the kernel does not enforce limits although it was told to; see dmesg")
        return True

    def start_journal(self, point: str) -> None:
        """Begin to count on an ext4 in use: the files of quotacheck(8), journaled so that a crash costs nothing."""
        self.world.run(["mount", "-o", "remount," + ",".join(places.JOURNAL_OPTIONS), point])
        if not Path(point, "aquota.user").exists():
            # Without remounting read-only: what is written at this very moment may be counted a little wrong.
            self.world.run(["quotacheck", "--create-files", "--user", "--no-remount", point])
        self.world.run(["quotaon", "--user", point])

    def change_fstab(self, place: Place, report: FileSystem, mine: dict[str, Any]) -> None:
        path = self.world.root / "etc/fstab"
        text = read_regular(path, limit=_LIMIT).decode()
        new = places.fstab_for(place, text)
        report.waiting = places.remedy(place, fstab=fstab_options(text, place.mount.point) is not None)
        if new == text or place.mount.point == "/":
            return
        report.steps.append(f"fstab: mount {place.mount.point} with {places.mount_options(place)}")
        if not self.dry_run:
            mine["fstab"] = mine["fstab"] or places.mount_options(place)
            self.remember()
            self.write_fstab(path, new)

    def write_fstab(self, path: Path, text: str) -> None:
        write_atomic(path, text.encode(), mode=0o644)
        self.world.run(["systemctl", "daemon-reload"])

    def set_grace(self, place: Place, report: FileSystem) -> None:
        point, wanted = place.mount.point, place.folders[0].grace
        if self.world.kernel.grace(point, USER) != wanted:
            report.steps.append(f"grace time {wanted.space // 3600} h")
            if not self.dry_run:
                self.world.kernel.set_grace(point, USER, wanted)

    def set_limits(self, point: str, kind: int, wanted: Mapping[int, Limits], report: FileSystem) -> None:
        current = self.world.kernel.usages(point, kind, list(wanted))
        differing = changes(wanted, current)
        for owner, limits in differing.items():
            name = self.owner(point, kind, owner)
            report.before.append(f"{name}: {describe(current.get(owner, Usage()).limits)}")
            report.after.append(f"{name}: {describe(limits)}")
            excess = over(limits, current.get(owner, Usage()))
            if excess:
                report.over.append(f"{name} at {point}: {excess}; nothing is deleted, new writes fail")
        if differing and not self.dry_run:
            self.world.kernel.set_limits(point, kind, differing)
            if changes(differing, self.world.kernel.usages(point, kind, list(differing))):
                raise GpulabError(f"{point}: the kernel did not keep the limits it was given; see dmesg")

    def owner(self, point: str, kind: int, number: int) -> str:
        if kind == USER:
            return self.names.get(number, f"uid {number}")
        projects = self.memory.get(point, {}).get("projects", {})
        return next((path for path, found in projects.items() if found == number), f"project {number}")

    def set_projects(self, place: Place, report: FileSystem, mine: dict[str, Any]) -> None:
        point = place.mount.point
        wanted: dict[int, Limits] = {}
        for project in place.projects:
            number = self.number(project.path, mine)
            mine["projects"][project.path] = number
            self.remember()
            wanted[number] = project.limits
            if self.world.project_of(project.path) != number:
                report.steps.append(f"count {project.path} as project {number}")
                if not self.dry_run:
                    self.world.put_in_project(project.path, number)
        for path in [path for path in mine["projects"] if path not in {each.path for each in place.projects}]:
            self.leave_project(path, mine, report)
            wanted[mine["projects"][path]] = NO_LIMITS
        if wanted:
            self.set_limits(point, PROJECT, wanted, report)
        mine["projects"] = {each.path: mine["projects"][each.path] for each in place.projects}

    def number(self, path: str, mine: dict[str, Any]) -> int:
        """Return a folder's project: ours, the one that it has already, or the next free one."""
        if path in mine["projects"]:
            return int(mine["projects"][path])
        taken = {number for each in self.memory.values() for number in each["projects"].values()}
        return self.world.project_of(path) or max([FIRST_PROJECT - 1, *taken]) + 1

    def leave_project(self, path: str, mine: dict[str, Any], report: FileSystem) -> None:
        if Path(path).is_dir() and self.world.project_of(path) == mine["projects"][path]:
            report.steps.append(f"count {path} as no project")
            if not self.dry_run:
                self.world.put_in_project(path, 0)

    def take_back(self, point: str) -> FileSystem:
        """Undo what gpulab did on a file system: limits, projects, enforcement, fstab; in that order."""
        mine, kernel = self.memory[point], self.world.kernel
        mount = find_mounts([point], self.world)[point]
        report = FileSystem(f"{point} ({mount.kind} on {mount.source})" if mount else point, point)
        if mount is not None and mount.point == point:
            if mine["users"] and kernel.flags(point, USER)[0]:
                self.set_limits(point, USER, dict.fromkeys(mine["users"], NO_LIMITS), report)
            if mine["projects"] and kernel.flags(point, PROJECT)[0]:
                for path in mine["projects"]:
                    self.leave_project(path, mine, report)
                self.set_limits(point, PROJECT, dict.fromkeys(mine["projects"].values(), NO_LIMITS), report)
            for started in mine["started"]:
                report.steps.append("no longer enforce limits")
                if not self.dry_run:
                    self.stop(point, started)
        if mine["fstab"]:
            path = self.world.root / "etc/fstab"
            text = read_regular(path, limit=_LIMIT).decode()
            new = with_options(text, point, add=(), remove=mine["fstab"].split(","))
            if new != text:
                report.steps.append(f"fstab: mount {point} without {mine['fstab']}")
                if not self.dry_run:
                    self.write_fstab(path, new)
        del self.memory[point]
        self.remember()
        return report

    def stop(self, point: str, started: str) -> None:
        verdict, kind = started.split()
        if verdict == places.JOURNAL:
            if self.world.kernel.flags(point, USER)[0]:
                self.world.run(["quotaoff", "--user", point])
            self.world.run(["mount", "-o", "remount,usrjquota=", point])
            Path(point, "aquota.user").unlink(missing_ok=True)
        elif self.world.kernel.flags(point, int(kind))[1]:
            self.world.kernel.enforce(point, int(kind), on=False)

    def remember(self) -> None:
        if not self.dry_run and self.memory != self.before:
            state.save(self.path, self.memory)
            self.before = _copy(self.memory)


def _copy(memory: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        point: {**mine, "started": [*mine["started"]], "users": [*mine["users"]], "projects": {**mine["projects"]}}
        for point, mine in memory.items()
    }


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except PermissionError as error:
        raise NotPermittedError(f"{error.filename}: only root may change quota; use sudo") from error
    except OSError as error:
        raise GpulabError(f"quota cannot be kept: {error.filename}: {error.strerror}") from error


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    folder = Path(names.under(root, names.QUOTA_STATE_DIR))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive_lock(folder / "lock", timeout=_LOCK_SECONDS):
        yield
