"""What check_gpu finds: one table of situations, and the edges that need more words."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from gpulab.rules import checks
from gpulab.rules.booking import Booking
from gpulab.rules.cards import Card, Cards, MigDevice, Process
from gpulab.rules.checks import (
    BAD_ROW,
    CARD,
    NO_CARDS,
    NO_MEMBER,
    NO_SUCH_CARD,
    OCCUPIED,
    OVERLAP,
    OVERRUN,
    RUNNING,
    SHEET,
    SOON,
    STRANGER,
    UNBOOKED,
    UNUSED,
    Situation,
)
from gpulab.rules.sheet import Sheet, append, parse, render
from gpulab.rules.sightings import Boot
from gpulab.settings import Checks

GIB = 1 << 30
MEMBERS = frozenset({"alice", "bob", "carol"})
UIDS = {"root": 0, "daemon": 1, "alice": 1000, "bob": 1001, "carol": 1002, "mallory": 1050, "monitor": 1060}
HZ = 100


def at(text: str) -> datetime:
    """`09:00` on the day of the tests, or a full time."""
    return datetime.strptime(text if " " in text else f"2026-12-01 {text}", "%Y-%m-%d %H:%M")  # noqa: DTZ007 - as above


def local(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch)  # noqa: DTZ006 - the server's own wall clock is meant


def boot() -> Boot:
    return Boot(at("2026-11-01 00:00").timestamp(), HZ)


def book(start: str, end: str, user="bob", gpu=0, task="train", status="booked") -> Booking:
    return Booking(task, user, gpu, at(start), at(end), 1.0, status)


def sheet_of(*bookings: Booking) -> Sheet:
    return parse(render(append(Sheet(), bookings)))


def proc(pid: int, user: str | None = "bob", started: str = "08:00", memory: int | None = 20 * GIB, **more) -> Process:
    """A process of somebody, or with user None one that is gone already."""
    if user is None:
        return Process(pid, None, None, None, "", memory)
    ticks = round((at(started).timestamp() - boot().epoch) * HZ)
    return Process(pid, ticks, UIDS[user], user, "python", memory, **more)


def card(index: int, *processes: Process) -> Card:
    return Card(index, uuid=f"GPU-{index}", name="A100", memory_total=80 * GIB, memory_used=0, processes=processes)


def unknown(index: int) -> Card:
    """A card in MIG mode whose driver does not list processes."""
    return Card(index, uuid=f"GPU-{index}", memory_total=80 * GIB, reason="processes: Not Supported")


def lost(index: int) -> Card:
    return Card(index, reason="GPU is lost")


def situation(now: str, bookings=(), cards=(), *, sheet=None, limits=None, **more) -> Situation:
    return Situation(
        now=at(now),
        cards=Cards(cards=tuple(cards), driver_version="550.163.01"),
        boot=boot(),
        sheet=sheet_of(*bookings) if sheet is None else sheet,
        members=MEMBERS,
        admin="alice",
        limits=limits or Checks(soon_minutes=120, unused_minutes=30, overrun_minutes=10, ignore_users=("monitor",)),
        **more,
    )


def found(scene: Situation) -> set[tuple[str, str, int | None]]:
    return {(event.kind, event.recipient, event.gpu_id) for event in checks.find(scene).events}


BOBS = book("09:00", "12:00")
YESTERDAYS = book("2026-11-30 09:00", "2026-11-30 12:00", task="before")
CAROLS = book("12:00", "15:00", user="carol", task="eval")

CASES = [
    # name, now, bookings, cards, expected
    ("nothing at all", "09:00", [], [card(0)], set()),
    ("too early to remind", "06:59", [BOBS], [card(0)], set()),
    ("soon, from two hours before", "07:00", [BOBS], [card(0)], {(SOON, "bob", 0)}),
    ("soon, until the minute before", "08:59", [BOBS], [card(0)], {(SOON, "bob", 0)}),
    ("running from its first minute", "09:00", [BOBS], [card(0, proc(1))], {(RUNNING, "bob", 0)}),
    ("running until its last minute", "11:59", [BOBS], [card(0, proc(1))], {(RUNNING, "bob", 0)}),
    ("its end is the first minute of the next", "12:00", [BOBS, CAROLS], [card(0)], {(RUNNING, "carol", 0)}),
    ("not unused yet", "09:29", [BOBS], [card(0)], {(RUNNING, "bob", 0)}),
    ("unused", "09:30", [BOBS], [card(0)], {(RUNNING, "bob", 0), (UNUSED, "bob", 0)}),
    ("system processes do not use it", "09:30", [BOBS], [card(0, proc(1, "root"), proc(2, "daemon"))],
     {(RUNNING, "bob", 0), (UNUSED, "bob", 0)}),
    ("an ignored account does not use it", "09:30", [BOBS], [card(0, proc(1, "monitor"))],
     {(RUNNING, "bob", 0), (UNUSED, "bob", 0)}),
    ("unused cannot be said when the card does not list processes", "09:30", [BOBS], [unknown(0)],
     {(RUNNING, "bob", 0), (CARD, "alice", 0)}),
    ("unused cannot be said when a process has no owner any more", "09:30", [BOBS], [card(0, proc(1, None))],
     {(RUNNING, "bob", 0)}),
    ("unused cannot be said of a card that is not listed", "09:30", [BOBS], [card(1)],
     {(RUNNING, "bob", 0), (NO_SUCH_CARD, "bob", 0), (NO_SUCH_CARD, "alice", 0)}),
    ("over, and gone", "12:30", [BOBS], [card(0)], set()),
    ("within the grace after the end", "12:09", [BOBS], [card(0, proc(1))], set()),
    ("overrun", "12:10", [BOBS], [card(0, proc(1))], {(OVERRUN, "bob", 0)}),
    ("overrun, back to back with another's booking", "12:10", [BOBS, CAROLS], [card(0, proc(1))],
     {(OVERRUN, "bob", 0), (RUNNING, "carol", 0), (OCCUPIED, "carol", 0)}),
    ("no overrun within the owner's own next booking", "12:10", [BOBS, book("12:00", "13:00", task="more")],
     [card(0, proc(1))], {(RUNNING, "bob", 0)}),
    ("overrun of the second of two", "13:10", [BOBS, book("12:00", "13:00", task="more")], [card(0, proc(1))],
     {(OVERRUN, "bob", 0)}),
    ("overrun in the gap between two of the owner's", "12:20", [BOBS, book("12:30", "13:00", task="more")],
     [card(0, proc(1))], {(OVERRUN, "bob", 0), (SOON, "bob", 0)}),
    ("a booking of another card does not cover", "12:10", [BOBS, book("12:00", "13:00", gpu=1, task="more")],
     [card(0, proc(1)), card(1)], {(OVERRUN, "bob", 0), (RUNNING, "bob", 1)}),
    ("goes on with a new process", "12:10", [BOBS], [card(0, proc(1, started="12:05"))], {(OVERRUN, "bob", 0)}),
    ("goes on since yesterday's booking", "12:10", [YESTERDAYS],
     [card(0, proc(1, started="2026-11-30 09:30"), proc(2))], {(OVERRUN, "bob", 0)}),
    ("came back the next day without booking", "12:10", [YESTERDAYS], [card(0, proc(1))], {(UNBOOKED, "bob", 0)}),
    ("came back less than a day later", "11:50", [YESTERDAYS], [card(0, proc(1))], {(OVERRUN, "bob", 0)}),
    ("finished early and still there", "10:30", [book("09:00", "10:15", status="done")], [card(0, proc(1))],
     {(OVERRUN, "bob", 0)}),
    ("a cancelled booking neither covers nor reminds", "09:30", [book("09:00", "12:00", status="cancelled")],
     [card(0, proc(1))], {(UNBOOKED, "bob", 0)}),
    ("a cancelled booking that is over is no overrun", "12:30", [book("09:00", "12:00", status="cancelled")],
     [card(0, proc(1))], {(UNBOOKED, "bob", 0)}),
    ("a row marked done by hand covers no more", "09:30", [book("09:00", "12:00", status="done")],
     [card(0, proc(1))], {(UNBOOKED, "bob", 0)}),
    ("without any booking", "09:30", [], [card(0, proc(1))], {(UNBOOKED, "bob", 0)}),
    ("without booking on somebody else's card", "12:30", [CAROLS], [card(0, proc(1))],
     {(UNBOOKED, "bob", 0), (RUNNING, "carol", 0), (OCCUPIED, "carol", 0)}),
    ("without booking on a card booked for no member", "12:30", [book("12:00", "15:00", user="mallory")],
     [card(0, proc(1))], {(UNBOOKED, "bob", 0), (NO_MEMBER, "alice", 0)}),
    ("on another card than booked", "09:10", [BOBS], [card(0), card(1, proc(1))],
     {(RUNNING, "bob", 0), (UNBOOKED, "bob", 1)}),
    ("both of two cards, each its own event", "12:30", [BOBS, book("09:00", "12:00", gpu=1)],
     [card(0, proc(1)), card(1, proc(2))], {(OVERRUN, "bob", 0), (OVERRUN, "bob", 1)}),
    ("a stranger", "09:30", [], [card(0, proc(1, "mallory"))], {(STRANGER, "alice", 0)}),
    ("a stranger who has the booking of nobody", "09:30", [book("09:00", "12:00", user="mallory")],
     [card(0, proc(1, "mallory"))], {(STRANGER, "alice", 0), (NO_MEMBER, "alice", 0)}),
    ("system and ignored accounts do not count", "09:30", [], [card(0, proc(1, "root"), proc(2, "monitor"))], set()),
    ("a process that is gone is nobody's", "09:30", [], [card(0, proc(1, None))], set()),
    ("unknown is no overrun", "12:30", [BOBS], [unknown(0)], {(CARD, "alice", 0)}),
    ("a lost card", "08:00", [], [card(0), lost(1)], {(CARD, "alice", 1)}),
    ("no card at all", "12:30", [BOBS], [], {(NO_CARDS, "alice", None)}),
    ("two rows for one card", "08:00", [BOBS, book("11:00", "13:00", user="carol")], [card(0)],
     {(SOON, "bob", 0), (OVERLAP, "bob", 0), (OVERLAP, "carol", 0), (OVERLAP, "alice", 0)}),
    ("overlaps that are over are history", "16:00", [BOBS, book("11:00", "13:00", user="carol")], [card(0)], set()),
    ("a booking for somebody who is no member", "08:00", [book("09:00", "12:00", user="mallory")], [card(0)],
     {(NO_MEMBER, "alice", 0)}),
    ("past bookings of strangers are history", "13:00", [book("09:00", "12:00", user="mallory")], [card(0)], set()),
]  # fmt: skip


@pytest.mark.parametrize(("now", "bookings", "cards", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_finds_exactly_what_holds(now, bookings, cards, expected):
    assert found(situation(now, bookings, cards)) == expected


def only(scene: Situation, kind: str) -> checks.Event:
    (event,) = (event for event in checks.find(scene).events if event.kind == kind)
    return event


def test_overrun_names_processes_booking_and_who_is_next():
    scene = situation(
        "12:30", [BOBS, book("13:00", "14:00", user="carol")], [card(0, proc(7), proc(5, "root"), proc(3))]
    )
    event = only(scene, OVERRUN)
    assert [process.pid for process in event.processes] == [3, 7]
    assert event.booking == BOBS
    assert event.cover is not None
    assert event.cover.user == "carol"


def test_overrun_counts_from_the_latest_booking_of_that_card():
    earlier = book("2026-11-20 09:00", "2026-11-20 12:00", task="old")
    other_card = book("09:00", "12:05", gpu=1, task="elsewhere")
    event = only(situation("12:30", [earlier, BOBS, other_card], [card(0, proc(1, started="09:05"))]), OVERRUN)
    assert event.booking == BOBS


def test_a_process_on_two_mig_instances_is_listed_once_with_its_memory():
    one, two = (proc(1, memory=2 * GIB, gpu_instance=number, compute_instance=0) for number in (1, 2))
    event = only(situation("09:30", [], [card(0, one, two)]), UNBOOKED)
    assert [(process.pid, process.memory) for process in event.processes] == [(1, 4 * GIB)]


def test_whoever_has_the_card_is_told_who_is_in_the_way_and_not_reproached():
    scene = situation("12:45", [BOBS, CAROLS], [card(0, proc(1))])
    event = only(scene, OCCUPIED)
    assert (event.recipient, event.user, event.booking, event.cover) == ("carol", "bob", CAROLS, BOBS)
    assert (UNUSED, "carol", 0) not in found(scene)


def test_an_ignored_account_that_books_uses_its_booking():
    ignored = Checks(ignore_users=("bob",))
    assert found(situation("09:40", [BOBS], [card(0, proc(1))], limits=ignored)) == {(RUNNING, "bob", 0)}


def test_unused_is_said_when_only_another_entitled_member_is_there():
    both = [BOBS, book("09:00", "12:00", user="carol", task="same-time")]
    assert (UNUSED, "carol", 0) in found(situation("09:30", both, [card(0, proc(1))]))


SPLIT = (MigDevice(0, "MIG-a", "3g.40gb", 1, 0, None, None), MigDevice(1, "MIG-b", "3g.40gb", 2, 0, None, None))
"""Instances of card 0; bob's own is the first."""


def in_instance(number, user="bob", pid=1):
    """A card split in two, with a process of somebody in one half."""
    return replace(card(0, proc(pid, user, gpu_instance=number, compute_instance=0)), mig_devices=SPLIT)


def bound(now, bookings, split):
    return found(situation(now, bookings, [split], bindings={"bob": "MIG-a", "carol": "MIG-gone"}))


def test_ones_own_instance_needs_no_booking_and_anothers_does():
    assert bound("09:30", [], in_instance(1)) == set()
    assert bound("09:30", [], in_instance(2)) == {(UNBOOKED, "bob", 0)}
    assert bound("09:30", [], in_instance(1, "carol")) == {(UNBOOKED, "carol", 0)}


def test_in_their_own_instance_nobody_is_in_the_way_of_who_has_booked_the_card():
    theirs = [book("09:00", "12:00", user="carol")]
    assert bound("09:10", theirs, in_instance(1)) == {(RUNNING, "carol", 0)}
    assert bound("09:40", theirs, in_instance(1)) == {(RUNNING, "carol", 0), (UNUSED, "carol", 0)}
    assert (OCCUPIED, "carol", 0) in bound("09:10", theirs, in_instance(2))


def test_work_in_ones_own_instance_is_use_of_ones_booking_too():
    assert bound("09:40", [BOBS], in_instance(1)) == {(RUNNING, "bob", 0)}


HEADER = "task_name,user,gpu_id,start_time,end_time,est_hours,status\n"


def test_bad_rows_reach_the_admin_and_the_member_they_name():
    text = HEADER + "a,carol,x,2026-12-01 09:00,2026-12-01 10:00,1,booked\nb,mallory,0,whenever,later,1,booked\n"
    scene = situation("08:00", cards=[card(0)], sheet=parse(text.encode()))
    told = {(event.recipient, event.lines, event.reason) for event in checks.find(scene).events}
    reasons = dict(scene.sheet.problems)
    assert told == {("alice", (2,), reasons[2]), ("carol", (2,), reasons[2]), ("alice", (3,), reasons[3])}


def test_a_bad_row_stays_the_same_event_when_rows_above_it_come_and_go():
    bad = "a,carol,x,2026-12-01 09:00,2026-12-01 10:00,1,booked\n"
    good = "b,bob,0,2026-11-01 09:00,2026-11-01 10:00,1,done\n"
    first = checks.find(situation("08:00", cards=[card(0)], sheet=parse((HEADER + bad).encode())))
    later = checks.find(situation("08:00", cards=[card(0)], sheet=parse((HEADER + good + bad).encode())))
    assert first.keys == later.keys != frozenset()


def test_a_missing_header_is_the_admins_business():
    scene = situation("08:00", cards=[card(0)], sheet=parse(b"a,bob,0,2026-11-01 09:00,2026-11-01 10:00,1,booked\n"))
    assert found(scene) == {(BAD_ROW, "alice", None)}


def test_a_sheet_pasted_over_itself_does_not_drown_the_admin():
    rows = [book(f"09:{minute:02}", "12:00") for minute in range(60)]
    overlaps = [event for event in checks.find(situation("08:00", rows, [card(0)])).events if event.kind == OVERLAP]
    assert len([event for event in overlaps if event.recipient == "alice"]) == 100


def test_without_the_sheet_nobody_is_a_trespasser():
    scene = situation("12:30", cards=[card(0, proc(1)), card(1, proc(2, "mallory"))], sheet_problem="Permission denied")
    scene = replace(scene, sheet=None)
    assert found(scene) == {(SHEET, "alice", None), (STRANGER, "alice", 1)}


def test_events_for_one_person_come_in_order_of_weight():
    bookings = [book("09:00", "12:00"), book("12:05", "15:00", gpu=1, task="next"), book("13:00", "14:00", gpu=2)]
    cards = [card(0, proc(1)), card(1), card(2)]
    kinds = [event.kind for event in checks.find(situation("12:40", bookings, cards)).events]
    assert kinds == [OVERRUN, UNUSED, RUNNING, SOON]


def test_boot_time_and_ticks_give_the_wall_clock_of_a_process():
    event = only(situation("09:30", [], [card(0, proc(1, started="08:15"))]), UNBOOKED)
    assert event.processes[0].started is not None
    assert abs(local(event.processes[0].started) - at("08:15")) < timedelta(seconds=1)
