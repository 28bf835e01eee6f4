"""The sheet on disk: many writers at once, hand edits, sudden death, and things that are not a sheet."""

# ruff: noqa: DTZ001 - the sheet holds naive server time by definition

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
from datetime import datetime, timedelta

import pytest
from gpulab import names
from gpulab.errors import GpulabError, InputError, NotPermittedError, UnsafeFileError
from gpulab.rules.booking import Actor, Limits, TakenError, collisions
from gpulab.rules.schedule_request import ADD, CANCEL, DONE, Request
from gpulab.rules.sheet import parse
from gpulab.services import booking, sheet_store
from gpulab.services.booking import NoSheetError, apply, end_all_bookings, read_cards, read_sheet
from gpulab.services.sheet_file import sheet_path
from gpulab.settings import Windows

HEAD = b"task_name,user,gpu_id,start_time,end_time,est_hours,status\n"
BOB_ROW = b"train,bob,0,2026-12-01 09:00,2026-12-01 12:00,3,booked\n"
NOW = datetime(2026, 12, 1, 8, 30)
LIMITS = Limits(168, 60, 10)
BOB, ALICE = Actor("bob"), Actor("alice", admin=True)
LONG_AGO = time.time() - 3600


@pytest.fixture
def root(tmp_path):
    for folder in (names.PUBLIC_DIR, names.BOOKING_STATE_DIR):
        (tmp_path / folder.relative_to("/")).mkdir(parents=True)
    save(tmp_path, HEAD)
    return tmp_path


def save(root, data):
    """Save the sheet in place, as an editor does, some time ago."""
    path = sheet_path(root)
    path.write_bytes(data)
    os.utime(path, (LONG_AGO, LONG_AGO))


def do(root, request, actor=BOB, now=NOW, member=("alice", "bob", "carol")):
    return apply(request, actor, root=root, now=lambda: now, limits=LIMITS, is_member=lambda user: user in member)


def add(task="train", gpus=(0,), start="2026-12-01 09:00", hours=3.0, user=None):
    return Request(ADD, task, user, gpus, start, hours)


def record(root):
    path = root / names.BOOKING_STATE_DIR.relative_to("/") / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def judge(request, actor=BOB, on_break="warn", now=NOW, language="en"):
    return booking.judge(request, actor, Windows(on_break=on_break), now=now, language=language)


def test_the_golden_hours_warn_and_say_when_it_fits():
    assert judge(add(gpus=(0, 1), hours=3)) == ""
    warned = judge(add(gpus=(0, 1), start="2026-12-01 15:00"))
    assert warned.startswith("window afternoon (14:00-18:00: short jobs")
    assert warned.endswith("allows at most 1 card a job, not 2; it fits from 18:00 on")
    assert judge(add(gpus=(0, 1), start="2026-12-01 15:00"), language="zh").endswith("不是 2 张；18:00 起可以")


def test_a_booking_for_now_is_judged_by_the_clock():
    afternoon = NOW.replace(hour=15)
    assert judge(add(gpus=(0, 1), start="now")) == ""
    assert "at most 1 card" in judge(add(gpus=(0, 1), start="now"), now=afternoon)


def test_strict_golden_hours_refuse_members_and_warn_admins():
    wish = add(start="2026-12-01 14:00", hours=5)
    with pytest.raises(
        InputError, match=r"at most 4 h a job, not 5; it fits from 18:00 on; `gpulab windows` shows them"
    ):
        judge(wish, on_break="refuse")
    assert "at most 4 h a job" in judge(wish, actor=ALICE, on_break="refuse")


def test_giving_a_booking_back_is_never_judged():
    assert judge(Request(CANCEL, "train", None), on_break="refuse", now=NOW.replace(hour=15)) == ""


def test_a_booking_is_written_and_recorded(root):
    rows = do(root, add(gpus=(0, 1)))
    assert sheet_path(root).read_bytes() == HEAD + BOB_ROW + BOB_ROW.replace(b",0,", b",1,")
    assert list(rows) == [2, 3]
    assert sheet_path(root).stat().st_mode & 0o7777 == 0o664
    (entry,) = record(root)
    assert (entry["by"], entry["action"], entry["time"][:16]) == ("bob", "add", "2026-12-01T08:30")
    assert entry["sheet"] == hashlib.sha256(sheet_path(root).read_bytes()).hexdigest()
    assert entry["rows"][0] == {
        "before": None,
        "after": {
            "task_name": "train",
            "user": "bob",
            "gpu_id": "0",
            "start_time": "2026-12-01 09:00",
            "end_time": "2026-12-01 12:00",
            "est_hours": "3",
            "status": "booked",
        },
    }


def test_the_record_holds_what_a_row_was_before(root):
    do(root, add())
    do(root, Request(CANCEL, "train"), actor=ALICE)
    entry = record(root)[-1]
    assert (entry["by"], entry["rows"][0]["before"]["status"], entry["rows"][0]["after"]["status"]) == (
        "alice",
        "booked",
        "cancelled",
    )


def test_a_refusal_changes_nothing(root):
    do(root, add())
    before = sheet_path(root).stat()
    with pytest.raises(TakenError):
        do(root, add("other", gpus=(1, 0)))
    with pytest.raises(InputError, match="no member of the lab"):
        do(root, add("other", user="dave"), actor=ALICE)
    with pytest.raises(NotPermittedError, match="only an admin can book for others"):
        do(root, add("other", user="carol"))
    after = sheet_path(root).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert len(record(root)) == 1


def test_an_admin_books_for_others(root):
    do(root, add(user="carol"), actor=ALICE)
    assert read_sheet(root).bookings[0].user == "carol"


def test_done_and_start_now(root):
    do(root, add(start="now", hours=2))
    do(root, Request(DONE, "train"), now=NOW + timedelta(minutes=40))
    (row,) = read_sheet(root).bookings
    assert (row.start, row.end, row.est_hours, row.status) == (NOW, NOW + timedelta(minutes=40), 2.0, "done")


def test_cards_come_from_the_card_list(root):
    assert read_cards(root) is None
    folder = root / names.HANDBOOK_DIR.relative_to("/")
    folder.mkdir()
    (folder / names.INVENTORY_FILE.name).write_text(
        "index, name, memory.total [MiB], memory.used [MiB]\n"
        "0, NVIDIA A100-SXM4-80GB, 81920 MiB, 4 MiB\n"
        "1, [Unknown Error], [Unknown Error], [Unknown Error]\n"
    )
    assert read_cards(root) == (0, 1)
    with pytest.raises(InputError, match="there is no card 2; this server has: 0, 1"):
        do(root, add(gpus=(2,)))


def test_leaving_ends_the_bookings_of_one_member_only(root):
    do(root, add("runs", start="now"))
    do(root, add("later", gpus=(1,), start="2026-12-02 09:00"))
    do(root, add("stays", gpus=(2,), user="carol"), actor=ALICE)
    ended = end_all_bookings(root, "bob", "root", lambda: NOW + timedelta(hours=1))
    assert [(row.task_name, row.status) for row in ended] == [("runs", "done"), ("later", "cancelled")]
    assert [row.status for row in read_sheet(root).bookings] == ["done", "cancelled", "booked"]
    count = len(record(root))
    assert end_all_bookings(root, "bob", "root", lambda: NOW + timedelta(hours=1)) == []
    assert len(record(root)) == count


def test_leaving_a_server_that_keeps_no_sheet(tmp_path):
    assert end_all_bookings(tmp_path, "bob", "root", lambda: NOW) == []
    assert list(tmp_path.iterdir()) == []


def test_a_hand_edit_is_noticed_and_recorded(root):
    do(root, add())
    by_hand = b"hand,carol,1,2026/12/1 9:00,2026/12/1 10:00,1,booked\n"
    save(root, HEAD + b"broken line\n" + by_hand)
    do(root, add("next", gpus=(2,)))
    edit = record(root)[1]
    assert edit["action"] == "hand edit"
    assert edit["removed"] == [BOB_ROW.decode().strip()]
    assert edit["added"] == ["broken line", by_hand.decode().strip()]
    assert sheet_path(root).read_bytes().startswith(HEAD + b"broken line\n" + by_hand)
    assert [entry["action"] for entry in record(root)] == ["add", "hand edit", "add"]


def test_a_save_between_reading_and_writing_is_not_lost(root, monkeypatch):
    """An admin books card 0 by hand in the very moment when bob's wish for it was found good."""
    seen = []
    rule = booking.rules.add

    def slow(bookings, *args, **kwargs):
        rows = rule(bookings, *args, **kwargs)
        if not seen:
            save(root, HEAD + BOB_ROW.replace(b"bob", b"alice"))
        seen.append(len(bookings))
        return rows

    monkeypatch.setattr(booking.rules, "add", slow)
    with pytest.raises(TakenError, match="booked by alice"):
        do(root, add())
    assert sheet_path(root).read_bytes() == HEAD + BOB_ROW.replace(b"bob", b"alice")
    assert seen == [0]


def test_a_sheet_that_is_just_being_saved_is_left_to_settle(root, monkeypatch):
    """An editor empties the file first and writes it next; the empty one must not count."""
    do(root, add())
    sheet_path(root).write_bytes(b"")

    def finish(_seconds):
        save(root, HEAD + BOB_ROW)

    monkeypatch.setattr(sheet_store.time, "sleep", finish)
    do(root, add("next", gpus=(1,)))
    assert [row.task_name for row in read_sheet(root).bookings] == ["train", "next"]


@pytest.mark.parametrize(("steps", "written"), [(0, False), (1, False), (2, False), (3, True)])
def test_death_at_any_step_leaves_a_whole_sheet_and_a_true_record(root, steps, written):
    """Kill the writer before its n-th change to the disk: pending copy, record, sheet, and the copy's last name."""
    do(root, add())
    child = os.fork()
    if child == 0:
        _die_after(steps)
        do(root, add("next", gpus=(1,)))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
    assert ("next" in [row.task_name for row in read_sheet(root).bookings]) is written
    do(root, add("last", gpus=(2,)))
    tasks = [row.task_name for row in read_sheet(root).bookings]
    assert tasks == (["train", "next", "last"] if written else ["train", "last"])
    actions = [entry["action"] for entry in record(root)]
    assert "hand edit" not in actions
    done = ["add", "add", "add"]
    expected = {0: ["add", "add"], 1: ["add", "add"], 2: ["add", "add", "not done", "add"], 3: done}
    assert actions == expected[steps]


@pytest.mark.parametrize("steps", range(5))
def test_death_in_the_very_first_change_leaves_nothing_in_the_way(root, steps):
    child = os.fork()
    if child == 0:
        _die_after(steps)
        do(root, add())
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
    do(root, add("last", gpus=(2,)))
    assert [row.task_name for row in read_sheet(root).bookings] == (["train", "last"] if steps == 4 else ["last"])


def _die_after(steps):
    left = [steps]

    def counted(function):
        def step(*args, **kwargs):
            if left[0] == 0:
                os._exit(77)
            left[0] -= 1
            return function(*args, **kwargs)

        return step

    sheet_store.write_atomic = counted(sheet_store.write_atomic)
    sheet_store._Record._append = counted(sheet_store._Record._append)
    sheet_store._Record._promote = counted(sheet_store._Record._promote)


def test_a_record_line_cut_short_does_not_swallow_the_next(root):
    do(root, add())
    path = root / names.BOOKING_STATE_DIR.relative_to("/") / "audit.jsonl"
    path.write_bytes(path.read_bytes() + b'{"time": "20')
    do(root, add("next", gpus=(1,)))
    assert json.loads(path.read_text().splitlines()[-1])["rows"][0]["after"]["task_name"] == "next"


def test_nothing_happens_that_cannot_be_recorded(root):
    folder = root / names.BOOKING_STATE_DIR.relative_to("/")
    (folder / "audit.jsonl").mkdir()
    with pytest.raises(GpulabError, match=r"audit\.jsonl: Is a directory; the booking sheet was not changed"):
        do(root, add())
    assert sheet_path(root).read_bytes() == HEAD


def _link(path, root):
    secret = root / "shadow"
    secret.write_bytes(b"root:secret\n")
    path.symlink_to(secret)


def _grow(path, _root):
    with path.open("wb") as stream:
        stream.truncate((4 << 20) + 1)


IMPOSTORS = {
    "link": (_link, "is not an ordinary file"),
    "FIFO": (lambda path, _: os.mkfifo(path), "is not an ordinary file"),
    "folder": (lambda path, _: path.mkdir(), "is not an ordinary file"),
    "4 MiB": (_grow, "is larger than 4194304 bytes"),
    "lines": (lambda path, _: path.write_bytes(b"\n" * 50_001), "over 50000 lines"),
}


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_what_is_not_a_sheet_is_refused_at_once_and_left_alone(root, kind):
    make, message = IMPOSTORS[kind]
    path = sheet_path(root)
    path.unlink()
    make(path, root)
    before = os.lstat(path)
    started = time.monotonic()
    for attempt in (
        lambda: read_sheet(root),
        lambda: do(root, add()),
        lambda: end_all_bookings(root, "bob", "root", lambda: NOW),
    ):
        with pytest.raises(UnsafeFileError, match=message) as caught:
            attempt()
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)
    assert time.monotonic() - started < 2
    after = os.lstat(path)
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)
    assert record(root) == []


def test_without_a_sheet_nothing_can_be_booked(root):
    sheet_path(root).unlink()
    with pytest.raises(NoSheetError, match=r"gpu_schedule\.csv is not there"):
        do(root, add())


def _member(root, number, start, outcomes):
    """Book one of 50 slots; each slot is wanted by two members."""
    start.wait()
    slot, user = number // 2, ("bob", "carol")[number % 2]
    begin = NOW + timedelta(minutes=30 * (1 + slot // 4))
    try:
        do(root, add(f"t{number}", (slot % 4,), f"{begin:%Y-%m-%d %H:%M}", 0.5), actor=Actor(user))
    except TakenError:
        outcomes.put((number, "taken"))
    else:
        outcomes.put((number, "booked"))


def _reader(root, start, stop, outcomes):
    start.wait()
    reads = 0
    while not stop.is_set():
        data = sheet_path(root).read_bytes()
        parsed = parse(data)
        if parsed.problems or not data.endswith(b"\n") or collisions(parsed.by_line):
            outcomes.put(("reader", f"saw {data[-200:]!r}"))
            return
        reads += 1
    outcomes.put(("reader", reads))


def test_a_hundred_members_at_once_lose_nothing_and_overlap_nowhere(root):
    context = multiprocessing.get_context("fork")
    outcomes, stop, start = context.Queue(), context.Event(), context.Barrier(102)
    members = [context.Process(target=_member, args=(root, number, start, outcomes)) for number in range(100)]
    reader = context.Process(target=_reader, args=(root, start, stop, outcomes), daemon=True)
    for process in (*members, reader):
        process.start()
    start.wait()
    for process in members:
        process.join(timeout=60)
    assert [process.exitcode for process in members] == [0] * 100
    stop.set()
    answers = dict(outcomes.get(timeout=10) for _ in (*members, reader))
    reads = answers.pop("reader")
    assert isinstance(reads, int), reads
    assert reads > 10
    booked = {f"t{number}" for number, answer in answers.items() if answer == "booked"}
    sheet = read_sheet(root)
    assert len(booked) == 50
    assert sorted(answers.values()) == ["booked"] * 50 + ["taken"] * 50
    assert {row.task_name for row in sheet.bookings} == booked
    assert len(sheet.rows) == 51
    assert sheet.problems == ()
    assert collisions(sheet.by_line) == []
    assert len(record(root)) == 50
