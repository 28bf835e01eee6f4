"""Members as users of Slurm: what the association tree shall be, compared with what it is, as commands of sacctmgr.

Everybody has one association: their first group is their account. So a limit on it is a limit on the person, whatever
partition or class a job has. What sacctmgr removes keeps its jobs and its use in the database (sacctmgr(1), "delete").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .slurm_inputs import Limits
from .slurm_tree import Association, Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .members import Member

OWNER = "gpulab"
"""Organization of the accounts that gpulab made; others are never touched."""

ROOT = "root"
NORMAL = "normal"
"""The QOS that Slurm itself makes; jobs that ask for no card and no class have it."""

SCALE = "scale"
"""A QOS for nobody: the factor of a QOS is its priority divided by the highest one, which this one holds still."""

TOP_PRIORITY = 1000
USUAL_PRIORITY = 500

_ADMINISTRATOR = "Administrator"
_NO_LEVEL = "None"
_AT_ONCE = 200
"""Names in one command."""

_MOST_NAMED = 5


@dataclass(frozen=True)
class User:
    """What one member shall have.

    Attributes:
        account: the account that pays for the jobs.
        limits: what they may have at once, and their weight in the fair share.
        admin: whether they may change everybody's jobs and accounts.
    """

    account: str
    limits: Limits = field(default_factory=Limits)
    admin: bool = False


@dataclass(frozen=True)
class Wish:
    """What the inventory asks for.

    Attributes:
        cluster: the cluster's name.
        accounts: account to its weight in the fair share.
        users: present members.
        leavers: members who left.
        classes: QOS names of the classes of golden hours.
    """

    cluster: str
    accounts: Mapping[str, int]
    users: Mapping[str, User]
    leavers: frozenset[str]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One command of sacctmgr.

    Attributes:
        command: the line.
        names: whom or what it is about.
        what: what it does, in words.
    """

    command: str
    names: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class Difference:
    """What has to happen.

    Attributes:
        cancel: leavers whose jobs must end first.
        steps: commands, in order.
        warnings: what waits for a later run, or is nobody's.
    """

    cancel: tuple[str, ...]
    steps: tuple[Step, ...]
    warnings: tuple[str, ...]


def account_of(member: Member, fallback: str) -> str:
    """Return the account that pays for a member's jobs: their first group."""
    return member.groups[0] if member.groups else fallback


def wish(
    members: Sequence[Member],
    *,
    cluster: str,
    fallback: str,
    limits: Limits,
    member_limits: Mapping[str, Limits],
    shares: Mapping[str, int],
    classes: Sequence[str],
) -> Wish:
    """Say what the inventory asks for.

    Args:
        members: the list, leavers included.
        cluster: the cluster's name.
        fallback: account of members without a group.
        limits: everybody's limits.
        member_limits: those of some.
        shares: account to weight, where it is not 1.
        classes: QOS names.
    """
    users = {
        member.name: User(account_of(member, fallback), member_limits.get(member.name, limits), member.admin)
        for member in members
        if member.present
    }
    accounts = sorted({user.account for user in users.values()})
    return Wish(
        cluster=cluster,
        accounts={account: shares.get(account, 1) for account in accounts},
        users=users,
        leavers=frozenset(member.name for member in members if not member.present),
        classes=tuple(classes),
    )


def compare(wanted: Wish, tree: Tree) -> Difference:
    """Work out what has to happen for the tree to be as wanted; nothing, when it is."""
    steps = [*_qos_steps(wanted, tree), *_account_steps(wanted, tree), *_user_steps(wanted, tree)]
    removals, waiting = _removals(wanted, tree)
    there = {each.user for each in tree.associations}
    cancel = sorted({user for user, _ in tree.active} & wanted.leavers & there)
    strangers = sorted(
        each.user
        for each in tree.associations
        if each.user and tree.owners.get(each.account) == OWNER and each.user not in {*wanted.users, *wanted.leavers}
    )
    if strangers:
        more = f" and {len(strangers) - _MOST_NAMED} more" if len(strangers) > _MOST_NAMED else ""
        waiting.append(
            f"not in lab_members, and in accounts of gpulab all the same: {', '.join(strangers[:_MOST_NAMED])}{more}; "
            "left alone (list them with state: absent to remove them)"
        )
    return Difference(tuple(cancel), (*steps, *removals), tuple(waiting))


def _qos_steps(wanted: Wish, tree: Tree) -> list[Step]:
    steps = []
    missing = tuple(name for name in wanted.classes if name not in tree.qos)
    if missing:
        command = f"add qos {','.join(missing)} Priority={USUAL_PRIORITY}"
        steps.append(Step(command, missing, f"make QOS {', '.join(missing)}"))
    if tree.qos.get(SCALE) != TOP_PRIORITY:
        verb = f"modify qos where name={SCALE} set" if SCALE in tree.qos else f"add qos {SCALE}"
        steps.append(Step(f"{verb} Priority={TOP_PRIORITY}", (SCALE,), "fix the scale of QOS priorities"))
    if NORMAL in tree.qos and tree.qos[NORMAL] != USUAL_PRIORITY:
        command = f"modify qos where name={NORMAL} set Priority={USUAL_PRIORITY}"
        steps.append(Step(command, (NORMAL,), "give QOS normal the usual priority"))
    top = next((each for each in tree.associations if each.account == ROOT and not each.user), Association(ROOT))
    allowed = {NORMAL, *wanted.classes}
    if top.qos != allowed or top.default_qos != NORMAL:
        command = (
            f"modify account where name={ROOT} cluster={wanted.cluster} "
            f"set QOS={','.join(sorted(allowed))} DefaultQOS={NORMAL}"
        )
        steps.append(Step(command, (ROOT,), f"let everybody use {', '.join(sorted(allowed))}"))
    return steps


def _account_steps(wanted: Wish, tree: Tree) -> list[Step]:
    there = {each.account: each for each in tree.associations if not each.user}
    new: dict[int, list[str]] = {}
    changed: dict[int, list[str]] = {}
    for account, shares in wanted.accounts.items():
        if account not in there:
            new.setdefault(shares, []).append(account)
        elif there[account].limits.shares != shares:
            changed.setdefault(shares, []).append(account)
    steps = []
    for shares, names in new.items():
        for part in _parts(names):
            command = (
                f"add account {','.join(part)} cluster={wanted.cluster} Organization={OWNER} "
                f"Description={OWNER} Fairshare={shares}"
            )
            steps.append(Step(command, part, f"make account, shares {shares}"))
    for shares, names in changed.items():
        for part in _parts(names):
            command = f"modify account where name={','.join(part)} cluster={wanted.cluster} set Fairshare={shares}"
            steps.append(Step(command, part, f"set account's shares to {shares}"))
    return steps


def _user_steps(wanted: Wish, tree: Tree) -> list[Step]:
    there = {(each.user, each.account): each for each in tree.associations if each.user}
    new: dict[tuple[str, str], list[str]] = {}
    changed: dict[tuple[str, str], list[str]] = {}
    home: dict[str, list[str]] = {}
    for name, user in wanted.users.items():
        found = there.get((name, user.account))
        if found is None:
            new.setdefault((user.account, _settings(user.limits, Limits())), []).append(name)
        elif found.limits != user.limits:
            changed.setdefault((user.account, _settings(user.limits, found.limits)), []).append(name)
        # The first association of a new user also becomes the default one.
        if tree.default_accounts.get(name, user.account) != user.account:
            home.setdefault(user.account, []).append(name)
    cluster = f"cluster={wanted.cluster}"
    joining = [
        Step(
            f"add user {','.join(part)} account={account} {cluster} {settings}".rstrip(),
            part,
            f"join account {account}{_words(settings)}",
        )
        for (account, settings), names in new.items()
        for part in _parts(names)
    ]
    limiting = [
        Step(
            f"modify user where name={','.join(part)} account={account} {cluster} set {settings}",
            part,
            f"set{_words(settings)}",
        )
        for (account, settings), names in changed.items()
        for part in _parts(names)
    ]
    homing = [
        Step(
            f"modify user where name={','.join(part)} {cluster} set DefaultAccount={account}",
            part,
            f"make {account} the default account",
        )
        for account, names in home.items()
        for part in _parts(names)
    ]
    return [*joining, *limiting, *homing, *_level_steps(wanted, tree)]


def _level_steps(wanted: Wish, tree: Tree) -> list[Step]:
    admins = {name for name, user in wanted.users.items() if user.admin}
    listed = {*wanted.users, *wanted.leavers}
    steps = []
    for names, level, what in (
        (admins - tree.administrators, _ADMINISTRATOR, "may change everybody's jobs and accounts"),
        ((tree.administrators & listed) - admins, _NO_LEVEL, "may change everybody's jobs and accounts no longer"),
    ):
        steps += [
            Step(f"modify user where name={','.join(part)} set AdminLevel={level}", part, what)
            for part in _parts(sorted(names))
        ]
    return steps


def _removals(wanted: Wish, tree: Tree) -> tuple[list[Step], list[str]]:
    """Return how associations go that are no longer wanted; one that still has jobs only takes no new ones."""
    gone: dict[str, list[str]] = {}
    closed: dict[str, list[str]] = {}
    warnings: list[str] = []
    for each in filter(lambda each: _abandoned(each, wanted, tree), tree.associations):
        if (each.user, each.account) not in tree.active:
            gone.setdefault(each.account, []).append(each.user)
            continue
        warnings.append(f"{each.user} still has jobs in account {each.account}, which therefore goes with a later run")
        if each.limits.submitted != 0:
            closed.setdefault(each.account, []).append(each.user)
    leaving = dict.fromkeys(each.user for each in tree.associations if each.user in wanted.leavers)
    cluster = f"cluster={wanted.cluster}"
    steps = [
        Step(f"delete user where name={','.join(part)} {cluster}", part, "leave Slurm; history stays")
        for part in _parts(list(leaving))
    ]
    steps += [
        Step(
            f"modify user where name={','.join(part)} account={account} {cluster} set MaxSubmitJobs=0",
            part,
            f"send no new jobs to account {account}",
        )
        for account, names in closed.items()
        for part in _parts(names)
    ]
    steps += [
        Step(
            f"delete user where name={','.join(part)} account={account} {cluster}",
            part,
            f"leave account {account}; history stays",
        )
        for account, names in gone.items()
        for part in _parts(names)
    ]
    return steps, warnings


def _abandoned(association: Association, wanted: Wish, tree: Tree) -> bool:
    """Tell whether a member who stays has moved away from an account of ours."""
    user = wanted.users.get(association.user)
    return user is not None and association.account != user.account and tree.owners.get(association.account) == OWNER


def _settings(limits: Limits, before: Limits) -> str:
    """Return those settings that differ, as sacctmgr takes them; -1 takes a limit away (sacctmgr(1))."""
    pairs = (
        ("Fairshare=", limits.shares, before.shares),
        ("GrpTRES=gres/gpu=", limits.cards, before.cards),
        ("MaxJobs=", limits.jobs, before.jobs),
        ("MaxSubmitJobs=", limits.submitted, before.submitted),
    )
    return " ".join(f"{key}{-1 if new is None else new}" for key, new, old in pairs if new != old)


def _words(settings: str) -> str:
    names = {"Fairshare": "shares", "GrpTRES=gres/gpu": "cards", "MaxJobs": "jobs", "MaxSubmitJobs": "submitted jobs"}
    pairs = (part.rpartition("=") for part in settings.split())
    said = ", ".join(f"{names[key]} {'without limit' if value == '-1' else value}" for key, _, value in pairs)
    return f" {said}" if said else ""


def _parts(names: Iterable[str]) -> list[tuple[str, ...]]:
    ordered = list(names)
    return [tuple(ordered[start : start + _AT_ONCE]) for start in range(0, len(ordered), _AT_ONCE)]


def view(tree: Tree, names: Iterable[str]) -> dict[str, str]:
    """Describe the associations of some users and accounts, one text each, for a diff."""
    texts: dict[str, str] = {}
    for name in names:
        rows = [each for each in tree.associations if name in {each.user, each.account if not each.user else ""}]
        texts[name] = "".join(f"{_row(each, tree)}\n" for each in rows)
    return texts


def _row(each: Association, tree: Tree) -> str:
    shown = {"shares": each.limits.shares, "cards": each.limits.cards, "jobs": each.limits.jobs}
    shown["submitted"] = each.limits.submitted
    said = " ".join(f"{key}={'-' if value is None else value}" for key, value in shown.items())
    marks = " default" if each.user and tree.default_accounts.get(each.user) == each.account else ""
    marks += " administrator" if each.user in tree.administrators else ""
    return f"account={each.account} {said}{marks}"


def foresee(wanted: Wish, tree: Tree, difference: Difference) -> Tree:
    """Return the tree that the steps lead to, for the diff of a run that changes nothing."""
    touched = {name for step in difference.steps for name in step.names}
    kept = [
        each
        for each in tree.associations
        if (each.user or each.account) not in touched or (not each.user and each.account not in wanted.accounts)
    ]
    kept += [
        Association(account, limits=Limits(shares=shares))
        for account, shares in wanted.accounts.items()
        if account in touched
    ]
    kept += [Association(user.account, name, user.limits) for name, user in wanted.users.items() if name in touched]
    return Tree(
        associations=tuple(kept),
        default_accounts={**tree.default_accounts, **{name: user.account for name, user in wanted.users.items()}},
        administrators=frozenset(name for name, user in wanted.users.items() if user.admin),
        owners=tree.owners,
        qos=tree.qos,
        active=tree.active,
    )
