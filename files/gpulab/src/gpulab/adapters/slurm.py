"""Slurm's own commands: what they print becomes plain data, what they refuse becomes one sentence."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Protocol

from ..errors import GpulabError
from ..rules.slurm_inputs import Limits
from ..rules.slurm_tree import Association, Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SECONDS = 60.0
_GPU_LIMIT = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_PREFIX = re.compile(r"^\s*(?:sacctmgr|scontrol|squeue|sprio|sinfo|scancel|slurmctld|slurmd): ?(?:error: |fatal: )?")
_QUIET = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}


class SlurmError(GpulabError):
    """A command of Slurm failed; the message is what it said."""


class Run(Protocol):
    """Runs a program and returns what it prints."""

    def __call__(self, argv: Sequence[str], *, feed: str = "", seconds: float = SECONDS) -> str:
        """Run it.

        Raises:
            SlurmError: it is not there, took too long, or ended with an error.
        """


def run(argv: Sequence[str], *, feed: str = "", seconds: float = SECONDS) -> str:
    """Run one of Slurm's commands.

    Args:
        argv: the command.
        feed: what it reads.
        seconds: how long it may take.

    Raises:
        SlurmError: it is not there, took too long, or ended with an error; with the last lines it said.
    """
    environ = {**_QUIET, **{key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}}
    try:
        done = subprocess.run(
            argv,
            input=feed,
            env=environ,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError as error:
        raise SlurmError(f"{argv[0]} is not installed; role tier_slurm installs it") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{argv[0]} did not answer within {seconds:g} s") from error
    if done.returncode != 0:
        raise SlurmError(f"{' '.join(argv[:3])}: {last_words(done.stderr or done.stdout)}")
    return done.stdout


def last_words(text: str) -> str:
    """Return the last thing a program said, without its own name."""
    lines = [_PREFIX.sub("", line).strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it gave no reason"


def rows(text: str, fields: int) -> Iterator[list[str]]:
    """Yield the lines of a `--parsable2` answer, without those that have another number of fields."""
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == fields:
            yield parts


def read_tree(cluster: str, run_command: Run = run) -> Tree:
    """Read accounts, users, limits and who has jobs: five questions, however many members there are.

    Raises:
        SlurmError: slurmdbd or slurmctld does not answer.
    """
    ask = ("sacctmgr", "--noheader", "--parsable2", "show")
    fields = "Account,User,Share,GrpTRES,MaxJobs,MaxSubmitJobs,QOS,DefaultQOS"
    answer = run_command([*ask, "associations", "where", f"cluster={cluster}", f"format={fields}"])
    users = list(rows(run_command([*ask, "user", "format=User,DefaultAccount,AdminLevel"]), 3))
    owners = rows(run_command([*ask, "account", "format=Account,Organization"]), 2)
    qos = rows(run_command([*ask, "qos", "format=Name,Priority"]), 2)
    jobs = rows(run_command(["squeue", "--noheader", "--all", "--format=%u|%a"]), 2)
    return Tree(
        associations=tuple(map(_association, rows(answer, fields.count(",") + 1))),
        default_accounts={user: account for user, account, _ in users},
        administrators=frozenset(user for user, _, level in users if level == "Administrator"),
        owners=dict(owners),
        qos={name: _whole(priority) or 0 for name, priority in qos},
        active=frozenset((user, account) for user, account in jobs),
    )


def _association(fields: list[str]) -> Association:
    account, user, shares, tres, jobs, submitted, qos, default_qos = fields
    found = _GPU_LIMIT.search(tres)
    limits = Limits(
        cards=int(found[1]) if found else None,
        jobs=_whole(jobs),
        submitted=_whole(submitted),
        # `parent` (share with one's siblings) is a choice that gpulab does not offer.
        shares=_whole(shares) if shares.isdecimal() else -1,  # type: ignore[arg-type] # isdecimal: a number
    )
    return Association(account, user, limits, frozenset(filter(None, qos.split(","))), default_qos)


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def change_accounts(commands: Iterable[str], run_command: Run = run) -> list[str]:
    """Give sacctmgr a batch of commands in one session, each committed at once.

    Returns:
        What it complained about, one line each; empty when all went well. What was not complained about was done.
    """
    feed = "".join(f"{command}\n" for command in commands)
    try:
        run_command(["sacctmgr", "--immediate", "--quiet"], feed=feed, seconds=300.0)
    except SlurmError as error:
        return [str(error)]
    return []
