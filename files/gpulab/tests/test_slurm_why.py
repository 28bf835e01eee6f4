"""gpu-why and gpu-run: Slurm's answers in words, and words into Slurm's options."""

from __future__ import annotations

from datetime import datetime

import pytest
from gpulab.commands.gpu_run import main as gpu_run
from gpulab.commands.gpu_run import srun_command
from gpulab.commands.gpu_why import language
from gpulab.errors import GpulabError, InputError
from gpulab.rules.slurm_why import Holder, Scene, Waiting, explain, parse_job
from gpulab.rules.slurm_why_words import EN, ZH
from gpulab.rules.window_table import DEFAULT_TABLE, parse_windows
from gpulab.services.slurm_why import find_jobs, scene_of

LINE = (
    "JobId=5 JobName=wrap UserId=bob(1001) GroupId=bob(1002) MCS_label=N/A Priority=17003 Nice=7 Account=vision "
    "QOS=long JobState=PENDING Reason=Resources Dependency=(null) Requeue=1 TimeLimit=1-04:00:00 "
    "SubmitTime=2026-12-01T23:26:35 EligibleTime=2026-12-01T23:26:35 StartTime=2026-12-02T03:26:37 "
    "EndTime=Unknown Partition=batch "
    "ReqTRES=cpu=1,mem=5696M,node=1,billing=2,gres/gpu=2 AllocTRES=(null) ReqB:S:C:T=0:0:*:* WorkDir=/home/bob"
)
SCENE = Scene(
    cards=4,
    holders=[Holder("3", "alice", 3, "2026-12-02 03:26")],
    factors={"fairshare": 10000, "qos": 2000, "site": 5000, "age": 0, "partition": 10},
    most={"fairshare": 10000, "qos": 4000, "age": 2000, "partition": 1000},
    card_limit=4,
    windows=parse_windows(DEFAULT_TABLE),
    now=datetime(2026, 12, 2, 15, 0),  # noqa: DTZ001 - naive server time
)


def said(line=LINE, scene=SCENE, words="en"):
    return list(explain(parse_job(line), scene, language=words))


def test_a_waiting_job_is_explained():
    assert said() == [
        "Job 5 of bob (long, 2 cards, up to 28 h) has waited since 2026-12-01 23:26.",
        "What it asks for is not free yet.",
        "It is the next to start in its turn.",
        "1 of 4 cards are free. In use:",
        "  job 3 of alice: 3 cards, until 2026-12-02 03:26 at the latest",
        "Slurm expects to start it at 2026-12-02 03:26, or earlier when somebody ends early.",
        "Priority 17003:",
        "   +10000  fair share, of at most 10000 (much use in the last days makes it less)",
        "    +2000  class long, of at most 4000 (more in the golden hours of the class)",
        "    +5000  hour of submission (a window's weight above or below 1; it stays with the job)",
        "       +0  time in the queue, of at most 2000",
        "      +10  partition, of at most 1000",
        "       -7  nice (given by yourself or an admin)",
    ]


def test_who_goes_first_is_named():
    scene = Scene(queue=[Waiting("9", "carol", 20000), Waiting("8", "x", 18000), Waiting("7", "x", 10)], cards=4)
    text = said(LINE.replace("Reason=Resources", "Reason=Priority"), scene)
    assert "2 waiting jobs go first; the next is job 9 of carol, with priority 20000 against 17003." in text


def test_golden_hours_are_the_same_rule_as_everywhere():
    text = said(LINE.replace("Reason=Resources", "Reason=QOSMaxGRESPerJob"))
    assert text[1].startswith("The golden hours do not allow it now: window afternoon (14:00-18:00: short jobs")
    assert "at most 1 card a job, not 2 and at most 4 h a job, not 28; it fits from 18:00 on" in text[1]


@pytest.mark.parametrize("reason", sorted(set(EN) & {word for word in EN if word[0].isupper()}))
def test_every_reason_has_words_in_both_languages(reason):
    for words in ("en", "zh"):
        text = said(LINE.replace("Reason=Resources", f"Reason={reason}"), words=words)
        assert text[1]
        assert "{" not in "".join(text)


def test_both_languages_say_the_same_things():
    assert EN.keys() == ZH.keys()


def test_an_unknown_reason_is_passed_on_and_cannot_control_the_terminal():
    text = said(LINE.replace("Reason=Resources", "Reason=Strange\x1b[2J"))
    assert text[1] == r"Slurm's reason is Strange\x1b[2J; squeue(1) explains it under JOB REASON CODES."


def test_a_running_job_tells_whether_it_can_be_stopped():
    line = LINE.replace("PENDING", "RUNNING").replace("AllocTRES=(null)", "AllocTRES=cpu=2,gres/gpu=2")
    assert said(line)[0] == "Job 5 of bob (long, 2 cards) has run since 2026-12-02 03:26 and ends by ?."
    assert "make room" in said(line, Scene(preemptible=["batch"]))[1]
    assert len(said(line)) == 1


ANSWERS = {
    "squeue --noheader --user": "5\n6\n",
    "scontrol --oneliner show job": f"{LINE}\n",
    "show partition": "PartitionName=batch PreemptMode=REQUEUE\nPartitionName=short PreemptMode=OFF\n",
    "show node": (
        "NodeName=a CfgTRES=cpu=2,mem=1M,gres/gpu=4 AllocTRES=cpu=2,gres/gpu=2\nNodeName=b CfgTRES=cpu=2,gres/gpu=2\n"
    ),
    "--Format=": "3|alice|2026-12-02T03:26:37|cpu=2,gres/gpu=2|\n4|bob|2026-12-02T01:00:00|cpu=1|\n",
    "--states=PD": "5|bob|17003|Resources\n9|carol|20000|Priority\n10|x|0|JobHeldUser\n",
    "--weights": "10000|4000|2000|1000\n",
    "--jobs": "    10000|  2000| 5000|0|10\n",
    "show associations": "gres/gpu=3|7\n",
}


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_cards_are_seen_in_older_releases_too(state):
    older = LINE.replace("ReqTRES=", "TRES=").replace("AllocTRES=(null) ", "").replace("PENDING", state)
    assert parse_job(older).cards == 2


def answers(argv, **_):
    text = " ".join(argv)
    return next(answer for question, answer in ANSWERS.items() if question in text)


def test_what_counts_is_asked_from_slurm(tmp_path):
    (job, _) = find_jobs("", "bob", answers)
    scene = scene_of(job, SCENE.now, root=tmp_path, run_command=answers)
    assert (scene.cards, scene.card_limit, scene.job_limit) == (6, 3, 7)
    assert scene.holders == [Holder("3", "alice", 2, "2026-12-02 03:26")]
    assert scene.queue == [Waiting("9", "carol", 20000)]
    assert scene.factors == {"fairshare": 10000, "qos": 2000, "site": 5000, "age": 0, "partition": 10}
    assert scene.preemptible == ["batch"]


@pytest.mark.parametrize("wanted", ["x", "1;id", "-1", "1_", "--help"])
def test_what_is_no_job_number_is_refused(wanted):
    with pytest.raises(InputError, match="is not a job number"):
        find_jobs(wanted, "bob", answers)


@pytest.mark.parametrize(
    ("environ", "chosen"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "en_GB.UTF-8", "LC_MESSAGES": "zh_TW.UTF-8"}, "zh"),
    ],
)
def test_the_locale_picks_the_language(environ, chosen):
    assert language(environ) == chosen


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("", "srun --gres=gpu:1 --time=60 --pty /bin/zsh -l"),
        ("--gpus 2 --hours 2.5", "srun --gres=gpu:2 --time=150 --pty /bin/zsh -l"),
        ("--type a100_3g.40gb --partition urgent", "srun --gres=gpu:a100_3g.40gb:1 --time=60 --partition=urgent --pty"),
        ("-- python x.py --epochs 1", "srun --gres=gpu:1 --time=60 --pty python x.py --epochs 1"),
    ],
)
def test_gpu_run_becomes_srun(typed, command, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/zsh")
    assert " ".join(srun_command(typed.split(), terminal=True)).startswith(command)
    assert "--pty" not in srun_command(typed.split(), terminal=False)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--gpus 0", "--gpus is 0; give a number from 1"),
        ("--hours 99", "--hours is 99; give a number above 0, at most 24"),
        ("--type a,b", "--type is 'a,b'"),
        ("--partition ;", "--partition is ';'"),
        ("--gpu 1", "unrecognized arguments"),
    ],
)
def test_gpu_run_refuses_what_srun_would_misread(typed, message):
    with pytest.raises(InputError, match=message):
        srun_command(typed.split(), terminal=False)


def test_without_srun_there_is_one_sentence():
    def nothing(_file, _argv):
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(GpulabError, match="srun could not be started: No such file"):
        gpu_run([], execute=nothing)
