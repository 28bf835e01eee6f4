"""Bring the server's accounts in line with the list of members, and say what was done.

One look at the server, one plan (rules/member_plan.py), and only the steps in it are taken. After them comes a second
look: what it finds is what the register records, and what is left over is reported, not assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import files, state
from ..adapters.accounts import run_command
from ..adapters.clock import server_now
from ..adapters.homes import Homes
from ..adapters.processes import ProcessTable
from ..errors import InputError
from ..rules import sshd
from ..rules.display import printable
from ..rules.member_context import Options
from ..rules.member_plan import make_plan
from ..rules.member_registry import Entry, parse_registry, render_registry
from ..rules.member_view import Difference, differences, turns
from ..rules.members import Member, require_admin
from .member_look import SheetBookings, look, sshd_files
from .member_work import Work, make_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.accounts import Runner
    from ..rules.accounts import Host
    from ..rules.member_registry import Registry
    from ..rules.member_steps import Plan

_LOCK_SECONDS = 60
_ROUNDS = 3
"""How often what a second look finds is tried again: somebody may have logged in while the account was being closed."""

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Request:
    """What the inventory asks for.

    Attributes:
        members: the parsed list.
        lab_admin: account name of the person in charge.
        home_root: folder for new homes.
        default_shell: shell of new accounts.
        mail_forward: whether members' mail goes to their outside addresses.
        aliases_file: the alias file, an absolute path.
        allow_own_keys: whether keys in members' own ~/.ssh open their accounts too.
        extra_key_files: further key files that sshd reads for members.
        grace: seconds that a leaver's processes get between TERM and KILL.
    """

    members: tuple[Member, ...]
    lab_admin: str
    home_root: str = "/home"
    default_shell: str = "/bin/bash"
    mail_forward: bool = False
    aliases_file: str = "/etc/aliases"
    allow_own_keys: bool = True
    extra_key_files: tuple[str, ...] = ()
    grace: float = 30.0


@dataclass(frozen=True)
class World:
    """The outside, as parameters.

    Attributes:
        root: the folder that stands for `/`.
        run: runs a system tool.
        now: the moment, with the server's UTC offset.
        homes: the home folders.
        processes: the processes.
        bookings: the booking sheet.
    """

    root: Path = Path("/")
    run: Runner = run_command
    now: Callable[[], datetime] = field(default=lambda: server_now().astimezone())
    homes: Homes = field(default_factory=Homes)
    processes: ProcessTable = field(default_factory=ProcessTable)
    bookings: SheetBookings = field(default_factory=SheetBookings)


@dataclass(frozen=True)
class Outcome:
    """What was done, or would be.

    Attributes:
        changed: whether anything differs from before.
        actions: what was done to whom, in order; the lab's own things under the empty name.
        differences: each account before and after.
        warnings: what somebody should know or decide.
        errors: what failed, and is tried again by the next run.
    """

    changed: bool
    actions: dict[str, list[str]]
    differences: list[Difference]
    warnings: list[str]
    errors: list[str]


def registry_path(root: Path) -> Path:
    """Return where the register of managed accounts lies."""
    return Path(names.under(root, names.MEMBERS_STATE_DIR)) / "registry.json"


def read_registry(root: Path = Path("/")) -> tuple[Entry, ...]:
    """Return the managed accounts, in the order of their names; none when there is no register yet.

    Raises:
        GpulabError: the register is damaged.
        OSError: it cannot be read; only root can.
    """
    return tuple(_registry(root).values())


def reconcile(request: Request, world: World, *, dry_run: bool) -> Outcome:
    """Do all of it, or with dry_run only say what would be done.

    Raises:
        InputError: the list asks for something that cannot be; nothing was changed.
        GpulabError: the register or an account file cannot be used; nothing, or only the register, was changed.
    """
    admin = require_admin(request.members, request.lab_admin)
    if not request.allow_own_keys and not admin.ssh_keys:
        raise InputError(
            f"lab_admin is {admin.name}, who has no ssh_keys in lab_members: with members_allow_own_keys false nobody "
            "could log in; add the admin's key"
        )
    sshd.check(sshd_files(world.root), extra=request.extra_key_files)
    if dry_run:
        registry = _registry(world.root)
        host = look(request, world, registry)
        return _outcome(_plan(request, world, registry, host), host, registry)
    make_folder(registry_path(world.root).parent, mode=0o700)
    with files.exclusive_lock(registry_path(world.root).with_name("lock"), timeout=_LOCK_SECONDS):
        return _carry_out(request, world)


def _carry_out(request: Request, world: World) -> Outcome:
    registry: Registry = _registry(world.root)
    before = registry
    host = look(request, world, registry)
    plan = _plan(request, world, registry, host)
    outcome = _outcome(plan, host, before)
    work = Work(request, world)
    for _ in range(_ROUNDS):
        if not any(work.wants(step) for step in plan.steps):
            break
        registry = _save(world.root, plan.intent, registry)
        for step in plan.steps:
            work.do(step)
        host = look(request, world, registry)
        plan = _plan(request, world, registry, host)
    left = {name: steps for name, steps in plan.by_name().items() if name not in work.failed}
    for name, steps in left.items():
        work.fail(name, "still to do: " + ", ".join(step.summary(name) for step in steps))
    final = {name: plan.intent.get(name, entry) if name in work.failed else entry for name, entry in plan.final.items()}
    _save(world.root, final, registry)
    warnings = dict.fromkeys([*outcome.warnings, *work.warnings, *plan.warnings])
    return replace(
        outcome,
        changed=outcome.changed or final != before,
        warnings=[printable(warning) for warning in warnings],
        errors=[printable(f"{name or 'lab'}: {reason}") for name, reason in work.failed.items()],
    )


def _plan(request: Request, world: World, registry: Registry, host: Host) -> Plan:
    now = world.now()
    options = Options(
        lab_admin=request.lab_admin,
        now=now.isoformat(timespec="seconds"),
        today=(now.date() - _EPOCH).days,
        home_root=request.home_root,
        default_shell=request.default_shell,
        mail_forward=request.mail_forward,
        aliases_file=request.aliases_file,
    )
    return make_plan(request.members, registry, host, options)


def _outcome(plan: Plan, host: Host, registry: Registry) -> Outcome:
    actions = {name: [what] for name, what in turns(plan, registry).items()}
    for name, steps in plan.by_name().items():
        actions.setdefault(name, []).extend(printable(step.summary(name)) for step in steps)
    return Outcome(
        changed=bool(plan.steps) or plan.final != registry,
        actions=actions,
        differences=differences(plan, host, registry),
        warnings=[printable(warning) for warning in plan.warnings],
        errors=[],
    )


def _registry(root: Path) -> dict[str, Entry]:
    path = registry_path(root)
    return parse_registry(state.load(path), source=str(path))


def _save(root: Path, wanted: Registry, there: Registry) -> Registry:
    if wanted != there:
        state.save(registry_path(root), render_registry(wanted))
    return wanted
