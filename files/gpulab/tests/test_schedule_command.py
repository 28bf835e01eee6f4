"""`gpu-schedule` as it is typed."""

# ruff: noqa: DTZ001 - the sheet holds naive server time by definition

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta

import pytest
from gpulab.commands import gpu_schedule, schedule_change, schedule_view
from gpulab.commands.cli import guarded
from gpulab.errors import GpulabError, InputError
from gpulab.rules.schedule_request import decode
from gpulab.rules.sheet import parse

NOW = datetime(2026, 12, 1, 10, 0)
SHEET = """\
task_name,user,gpu_id,start_time,end_time,est_hours,status
train,bob,0,2026-12-01 09:00,2026-12-01 12:00,3,booked
later,alice,1,2026-12-02 09:00,2026-12-02 12:00,3,booked
old,bob,0,2026-11-01 09:00,2026-11-01 12:00,3,done
"""


@pytest.fixture
def sheet(monkeypatch):
    """Let the views see a sheet, two cards, and bob at the keyboard."""

    def use(text):
        monkeypatch.setattr(schedule_view, "read_sheet", lambda: parse(text.encode()))
        monkeypatch.setattr(schedule_view, "read_cards", lambda: (0, 1))
        monkeypatch.setattr(schedule_view, "server_now", lambda: NOW)
        monkeypatch.setattr(schedule_view, "caller", lambda: "bob")
        monkeypatch.setattr(schedule_view, "in_group", lambda user, _: user in {"alice", "bob"})

    use(SHEET)
    return use


def run(capsys, *argv):
    status = gpu_schedule.main(argv)
    said = capsys.readouterr()
    return status, said.out.splitlines(), said.err


@pytest.mark.parametrize(
    ("options", "tasks"),
    [([], ["train", "later"]), (["--mine"], ["train"]), (["--all"], ["old", "train", "later"])],
)
def test_list_shows_what_was_asked_for(sheet, capsys, options, tasks):
    status, lines, errors = run(capsys, "list", *options)
    assert status == 0
    assert [line.split()[-1] for line in lines[1:]] == tasks
    assert errors == ""


def test_list_as_json(sheet, capsys):
    sheet(SHEET + "oops\n")
    document = json.loads("\n".join(run(capsys, "list", "--json", "--mine")[1]))
    assert document["bookings"] == [
        {
            "line": 2,
            "task_name": "train",
            "user": "bob",
            "gpu_id": 0,
            "start_time": "2026-12-01T09:00",
            "end_time": "2026-12-01T12:00",
            "est_hours": 3.0,
            "status": "booked",
            "running": True,
        }
    ]
    assert document["problems"] == [{"line": 5, "reason": "it has 1 of the 7 columns; the header says which"}]


def test_a_bad_row_is_mentioned_on_the_side(sheet, capsys):
    sheet(SHEET + "oops\n")
    _, lines, errors = run(capsys, "list")
    assert len(lines) == 3
    assert "1 of 5 lines cannot be used; `gpu-schedule check` says why" in errors


def test_check_answers_with_its_exit_status(sheet, capsys):
    assert run(capsys, "check")[0] == 0
    sheet(SHEET + "oops\n")
    status, lines, _ = run(capsys, "check")
    assert (status, lines) == (1, ["line 5: it has 1 of the 7 columns; the header says which"])


def test_week_starts_today_or_where_asked(sheet, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(capsys, "week")[1][0].startswith("Tue 2026-12-01 to Mon 2026-12-07;")
    assert run(capsys, "week", "--start", "2026/11/1")[1][0].startswith("Sun 2026-11-01 to ")
    with pytest.raises(InputError, match="--start 'soon' is not a date; write it as 2026-12-01"):
        gpu_schedule.main(["week", "--start", "soon"])


def test_free(sheet, capsys):
    assert run(capsys, "free", "--hours", "4")[1][1:] == [
        "   0  2026-12-01 12:00   further notice",
        "   1  now                2026-12-02 09:00",
    ]
    assert len(run(capsys, "free", "--hours", "4", "--gpu", "1")[1]) == 2


@pytest.mark.parametrize(
    ("encoding", "environ", "expected"),
    [
        ("utf-8", {"LANG": "zh_CN.UTF-8"}, True),
        ("UTF-8", {"LANG": "C.UTF-8"}, True),
        ("utf-8", {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ("utf-8", {"LANG": "en_US.UTF-8", "LC_CTYPE": "C.UTF-8"}, True),
        ("utf-8", {"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ("utf-8", {}, False),
        ("gbk", {"LANG": "zh_CN.GBK"}, False),
    ],
)
def test_frames_are_drawn_where_the_terminal_can(encoding, environ, expected):
    assert schedule_view.draws_utf8(encoding, environ) is expected


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["add", "x", "--gpu", "0", "--hours", "1"], "required: --start"),
        (["add", "x", "--gpu", "zero", "--start", "now", "--hours", "1"], "'zero' is not a list of cards"),
        (["add", "x", "--gpu", "0", "--start", "now", "--hours", "long"], "invalid float value: 'long'"),
        (["add", "=x", "--gpu", "0", "--start", "now", "--hours", "1"], "begins with ="),
        (["add", "x" * 10_000, "--gpu", "0", "--start", "now", "--hours", "1"], "10000 characters"),
        (["add", "x", "--gpu", "0", "--start", "9:00", "--hours", "1"], "--start '9:00' is not a time"),
        (["cancel", "x" * 20_000], "far too long"),
        (["drop", "x"], "invalid choice: 'drop'"),
        ([], "required: ACTION"),
    ],
)
def test_mistakes_end_in_one_line_and_status_2(monkeypatch, capsys, argv, message):
    monkeypatch.setattr(schedule_change, "ask", lambda _: pytest.fail("root was asked"))
    monkeypatch.setattr("sys.argv", ["gpu-schedule", *argv])
    assert guarded("gpu-schedule", gpu_schedule.main) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("gpu-schedule: ")
    assert errors.count("\n") == 1
    assert message in errors


def answered(stdout=b"", stderr=b"", status=0):
    calls = []

    def runner(argv, **kwargs):
        calls.append((argv, kwargs["input"]))
        return subprocess.CompletedProcess(argv, status, stdout, stderr)

    runner.calls = calls
    return runner


def test_a_member_asks_root_through_the_one_allowed_command():
    row = {"gpu_id": "0", "start_time": "2026-12-01 09:00", "end_time": "2026-12-01 11:00", "user": "bob"}
    runner = answered(json.dumps({"rows": [{**row, "task_name": "t"}], "note": ""}).encode())
    request = schedule_change.Request("add", "t", None, (0,), "now", 2.0)
    assert schedule_change.ask(request, runner)["rows"][0]["task_name"] == "t"
    ((argv, data),) = runner.calls
    assert argv == ("/usr/bin/sudo", "-n", "/opt/gpulab/current/bin/gpulab", "schedule-write")
    assert decode(data) == request


def test_roots_no_keeps_its_words_and_status():
    runner = answered(b'{"error": "card 0 is booked"}', status=4)
    with pytest.raises(GpulabError, match=r"^card 0 is booked$") as caught:
        schedule_change.ask(schedule_change.Request("cancel", "t"), runner)
    assert caught.value.exit_status == 4


def test_sudos_no_is_explained():
    runner = answered(stderr=b"sudo: a password is required\n", status=1)
    with pytest.raises(GpulabError, match=r"\(sudo: a password is required\); is your account in group gpu-members"):
        schedule_change.ask(schedule_change.Request("cancel", "t"), runner)


def test_a_change_is_told_in_words(monkeypatch, capsys):
    row = {"gpu_id": "0", "start_time": "2026-12-01 09:00", "end_time": "2026-12-01 11:00", "user": "bob"}
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(schedule_change, "ask", lambda _: {"rows": [{**row, "task_name": "a\x1bb"}], "note": "n"})
    status, lines, errors = run(capsys, "done", "t")
    assert (status, lines) == (0, [r"finished: card 0, 2026-12-01 09:00 to 11:00, bob: a\x1bb"])
    assert errors == "gpu-schedule: note: n\n"


def test_the_help_has_examples(capsys):
    with pytest.raises(SystemExit):
        gpu_schedule.main(["--help"])
    said = capsys.readouterr().out
    assert 'gpu-schedule add train --gpu 0 --start "2026-12-01 09:00" --hours 4' in said
    assert max(map(len, said.splitlines())) <= 120


def test_reading_does_not_load_what_only_writing_needs():
    code = (
        "import sys; from gpulab.commands import gpu_schedule, schedule_view; "
        "print([m for m in ('json', 'subprocess', 'tomllib', 'gpulab.services.sheet_store') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_long_bookings_show_their_last_day():
    assert schedule_change.show_span(NOW, NOW + timedelta(days=1)) == "2026-12-01 10:00 to 2026-12-02 10:00"
