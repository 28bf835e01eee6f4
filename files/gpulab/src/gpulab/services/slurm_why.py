"""Ask Slurm what explains a job; as the member who asks, with the commands that members have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.slurm import SlurmError, rows, run
from ..errors import InputError
from ..rules.slurm_why import Holder, Job, Scene, Waiting, parse_job
from ..settings import load

if TYPE_CHECKING:
    from datetime import datetime

    from ..adapters.slurm import Run

_CARDS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_CONFIGURED = re.compile(r"CfgTRES=\S*?,gres/gpu=(\d+)")
_FACTORS = {"fairshare": "%F", "qos": "%Q", "site": "%S", "age": "%A", "partition": "%P"}
_WEIGHTS = ("fairshare", "qos", "age", "partition")
_JOB = re.compile(r"[0-9]+(_[0-9]+)?")
_STOPPABLE = re.compile(r"PartitionName=(\S+)")


def find_jobs(wanted: str, user: str, run_command: Run = run) -> list[Job]:
    """Return a job, or all jobs of a user that wait or run.

    Args:
        wanted: a job number; empty for all of the user.
        user: account name.
        run_command: runs Slurm's commands.

    Raises:
        InputError: it is no number of a job.
        SlurmError: Slurm does not answer.
    """
    if wanted and not _JOB.fullmatch(wanted):
        raise InputError(f"{wanted!r} is not a job number; `squeue --me` shows yours")
    numbers = [wanted] if wanted else run_command(["squeue", "--noheader", f"--user={user}", "--format=%i"]).split()
    jobs: list[Job] = []
    for number in numbers:
        try:
            answer = run_command(["scontrol", "--oneliner", "show", "job", number])
        except SlurmError:
            continue  # it ended meanwhile, or never was
        jobs += [parse_job(line) for line in answer.splitlines() if line.startswith("JobId=")]
    return jobs


def scene_of(job: Job, now: datetime, *, root: Path = Path("/"), run_command: Run = run) -> Scene:
    """Find out what else counts for a job.

    Raises:
        SlurmError: Slurm does not answer.
        InputError: the settings cannot be understood.
    """
    factors, most = _priority(job, run_command)
    cards, jobs = _limits(job.user, run_command)
    partitions = run_command(["scontrol", "--oneliner", "show", "partition"]).splitlines()
    return Scene(
        cards=sum(map(int, _CONFIGURED.findall(run_command(["scontrol", "--oneliner", "show", "node"])))),
        holders=_holders(run_command),
        queue=_queue(job, run_command),
        factors=factors,
        most=most,
        card_limit=cards,
        job_limit=jobs,
        preemptible=[
            found[1] for line in partitions if "PreemptMode=REQUEUE" in line and (found := _STOPPABLE.search(line))
        ],
        windows=load(root).windows.table,
        now=now,
    )


def _cards(tres: str) -> int:
    found = _CARDS.search(tres)
    return int(found[1]) if found else 0


def _holders(run_command: Run) -> list[Holder]:
    fields = "JobID:|,UserName:|,EndTime:|,tres-alloc:|"
    answer = run_command(["squeue", "--noheader", "--all", "--states=R,CG,S", f"--Format={fields}"])
    found = [
        Holder(number, user, _cards(tres), until[:16].replace("T", " "))
        for number, user, until, tres, _ in rows(answer, 5)
    ]
    return sorted((holder for holder in found if holder.cards), key=lambda holder: holder.until)


def _queue(job: Job, run_command: Run) -> list[Waiting]:
    answer = run_command(["squeue", "--noheader", "--all", "--states=PD", "--sort=-p", "--format=%i|%u|%Q|%r"])
    return [
        Waiting(number, user, int(priority))
        for number, user, priority, reason in rows(answer, 4)
        if number != job.number and reason in {"Priority", "Resources", "None"} and priority.isdecimal()
    ]


def _priority(job: Job, run_command: Run) -> tuple[dict[str, int], dict[str, int]]:
    form = "|".join(_FACTORS.values())
    answers = list(rows(run_command(["sprio", "--noheader", "--jobs", job.number, f"--format={form}"]), len(_FACTORS)))
    if not answers:
        return {}, {}
    points = {name: _number(text) for name, text in zip(_FACTORS, answers[0], strict=True)}
    form = "|".join(_FACTORS[name] for name in _WEIGHTS)
    weights = list(rows(run_command(["sprio", "--noheader", "--weights", f"--format={form}"]), len(_WEIGHTS)))
    most = {name: _number(text) for name, text in zip(_WEIGHTS, weights[0], strict=True)} if weights else {}
    return points, most


def _number(text: str) -> int:
    text = text.strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else 0


def _limits(user: str, run_command: Run) -> tuple[int | None, int | None]:
    answer = run_command(
        [
            *("sacctmgr", "--noheader", "--parsable2", "show", "associations", "where", f"user={user}"),
            "format=GrpTRES,MaxJobs",
        ]
    )
    for tres, jobs in rows(answer, 2):
        found = _CARDS.search(tres)
        return (int(found[1]) if found else None), (int(jobs) if jobs.isdecimal() else None)
    return None, None
