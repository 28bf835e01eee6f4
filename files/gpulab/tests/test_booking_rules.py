"""What may be booked, by whom, and when a card is free."""

# ruff: noqa: DTZ001 - the sheet holds naive server time by definition

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from gpulab.errors import InputError, NotPermittedError
from gpulab.rules.booking import (
    BOOKED,
    CANCELLED,
    DONE,
    Actor,
    Booking,
    Limits,
    TakenError,
    Wish,
    add,
    cancel,
    check_task_name,
    collisions,
    done,
    earliest_start,
    leave,
)
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 12, 1, 8, 30, 40)
NINE = datetime(2026, 12, 1, 9, 0)
LIMITS = Limits(max_hours=168, max_days_ahead=60, grace_minutes=10)
CARDS = (0, 1, 2, 3)
ALICE = Actor("alice", admin=True)
BOB = Actor("bob")


def booking(task="train", user="bob", gpu=0, start=NINE, hours=3.0, status=BOOKED):
    return Booking(task, user, gpu, start, start + timedelta(hours=hours), hours, status)


def wish(task="new", gpus=(0,), start=NINE, hours=2.0):
    return Wish(task, gpus, start, hours)


def book(bookings, asked, user="bob", now=NOW, cards=CARDS):
    return add(bookings, asked, user, now=now, limits=LIMITS, cards=cards)


def test_one_row_for_each_card():
    rows = book([], wish(gpus=(2, 0), hours=1.5))
    assert rows == (booking("new", gpu=2, hours=1.5), booking("new", gpu=0, hours=1.5))


def test_now_means_this_minute():
    (row,) = book([], wish(start=None))
    assert row.start == NOW.replace(second=0)


def test_a_wish_that_meets_another_booking_names_it_and_the_next_free_time():
    taken = [booking(user="alice"), booking("later", user="carol", start=NINE + timedelta(hours=4), hours=1)]
    with pytest.raises(TakenError) as caught:
        book(taken, wish(start=NINE + timedelta(hours=1)))
    assert str(caught.value) == (
        "card 0 is booked by alice for 'train', 2026-12-01 09:00 to 12:00; card 0 is free for 2 h from 2026-12-01 14:00"
    )
    assert caught.value.exit_status == 4


def test_two_cards_are_promised_together():
    taken = [booking(user="alice", gpu=0), booking("b", user="carol", gpu=1, start=NINE + timedelta(hours=3), hours=2)]
    with pytest.raises(TakenError, match=r"cards 0,1 are all free for 2 h from 2026-12-01 14:00"):
        book(taken, wish(gpus=(0, 1)))


def test_bookings_may_touch():
    taken = [booking(user="alice")]
    assert book(taken, wish(start=NINE + timedelta(hours=3)))
    assert book(taken, wish(start=NINE - timedelta(minutes=20), hours=1 / 3))


@pytest.mark.parametrize("status", [DONE, CANCELLED])
def test_rows_that_are_not_active_block_nobody(status):
    assert book([booking(user="alice", status=status)], wish())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (wish(start=NOW - timedelta(minutes=12)), "in the past; on this server it is 2026-12-01 08:30"),
        (wish(start=NOW + timedelta(days=61)), "too far away; bookings open 60 days ahead"),
        (wish(hours=168.5), "at most 168 hours"),
        (wish(hours=0), "at least one minute"),
        (wish(hours=-1), "at least one minute"),
        (wish(hours=float("nan")), "at least one minute"),
        (wish(hours=float("inf")), "at least one minute"),
        (wish(gpus=(4,)), "there is no card 4; this server has: 0, 1, 2, 3"),
        (wish(gpus=(1, 1)), "names a card twice"),
        (wish(gpus=()), "names no card"),
        (wish(task=""), "the task name is empty"),
        (wish(task="train"), r"bob already has a booking 'train' \(card 3, 2026-12-02 09:00 to 12:00\)"),
    ],
)
def test_a_wish_that_cannot_be_granted_says_why(asked, message):
    with pytest.raises(InputError, match=message):
        book([booking(gpu=3, start=NINE + timedelta(days=1))], asked)


def test_a_start_that_just_passed_is_granted():
    assert book([], wish(start=NOW - timedelta(minutes=10)))


def test_a_name_is_free_again_once_its_booking_is_over():
    assert book([booking("new", start=NINE - timedelta(days=2), gpu=1)], wish("new"))


def test_without_a_card_list_only_the_range_counts():
    assert book([], wish(gpus=(63,)), cards=None)
    with pytest.raises(InputError, match="0 to 63"):
        book([], wish(gpus=(64,)), cards=None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("=cmd()", "begins with ="),
        ("+1", r"begins with \+"),
        ("-2", "begins with -"),
        ("@SUM(A1)", "begins with @"),
        ("＝1+1", "begins with ＝"),
        ("a\nb", "line break"),
        ("a\tb", "line break, tab"),
        ("a\x1b[31mb", "cannot be shown"),
        ("a\u202eb", "cannot be shown"),
        ("x" * 65, "65 characters; at most 64"),
        ("x" * 10_000, "10000 characters; at most 64"),
        ("  ", "is empty"),
    ],
)
def test_hostile_task_names_are_refused(name, message):
    with pytest.raises(InputError, match=message) as caught:
        check_task_name(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", ["train", "$(touch /tmp/x)", "训练 大模型", 'a,"b";c', "a=b", "x" * 64])
def test_task_names_that_are_only_text_are_kept(name):
    assert check_task_name(f" {name} ") == name


def test_members_cancel_only_their_own():
    rows = {2: booking(user="alice"), 3: booking("b", gpu=1)}
    with pytest.raises(NotPermittedError, match=r"'train' is a booking of alice; only its owner or an admin"):
        cancel(rows, "train", BOB, None, now=NOW)
    with pytest.raises(NotPermittedError, match="--user alice is not you, bob"):
        cancel(rows, "train", BOB, "alice", now=NOW)
    assert cancel(rows, "b", BOB, None, now=NOW) == {3: booking("b", gpu=1, status=CANCELLED)}


def test_an_admin_cancels_anybodys():
    rows = {2: booking(), 3: booking(gpu=1)}
    assert set(cancel(rows, "train", ALICE, None, now=NOW)) == {2, 3}
    rows[4] = booking(user="carol", gpu=2)
    with pytest.raises(InputError, match="bob and carol each have a booking 'train'; say whose with --user"):
        cancel(rows, "train", ALICE, None, now=NOW)
    assert set(cancel(rows, "train", ALICE, "carol", now=NOW)) == {4}
    rows[5] = booking(user="alice", gpu=3)
    assert set(cancel(rows, "train", ALICE, None, now=NOW)) == {5}


def test_cancel_is_for_bookings_that_have_not_begun():
    with pytest.raises(InputError, match="is running; `gpu-schedule done`"):
        cancel({2: booking()}, "train", BOB, None, now=NINE)
    with pytest.raises(InputError, match="is over already"):
        cancel({2: booking()}, "train", BOB, None, now=NINE + timedelta(hours=3))
    with pytest.raises(InputError, match=r"bob has no open booking 'x'; open ones: 'train'"):
        cancel({2: booking()}, "x", BOB, None, now=NOW)


def test_done_ends_a_running_booking_and_keeps_its_estimate():
    now = NINE + timedelta(minutes=70, seconds=30)
    (row,) = done({2: booking()}, "train", BOB, None, now=now).values()
    assert (row.start, row.end, row.est_hours, row.status) == (NINE, NINE + timedelta(minutes=70), 3.0, DONE)


def test_done_in_the_first_minute_leaves_one_minute():
    (row,) = done({2: booking()}, "train", BOB, None, now=NINE + timedelta(seconds=5)).values()
    assert row.end == NINE + timedelta(minutes=1)


def test_done_after_the_end_keeps_the_end():
    (row,) = done({2: booking()}, "train", BOB, None, now=NINE + timedelta(days=1)).values()
    assert row == booking(status=DONE)


def test_done_before_the_start_is_refused():
    with pytest.raises(InputError, match="begins 2026-12-01 09:00; `gpu-schedule cancel`"):
        done({2: booking()}, "train", BOB, None, now=NOW)


def test_leaving_ends_what_runs_and_cancels_what_comes():
    past, running, ahead = booking(start=NINE - timedelta(days=1)), booking(), booking(start=NINE + timedelta(days=1))
    rows = {2: past, 3: running, 4: ahead, 5: booking(user="carol", gpu=1)}
    now = NINE + timedelta(hours=1)
    assert leave(rows, "bob", now=now) == {
        3: replace(running, end=now, status=DONE),
        4: replace(ahead, status=CANCELLED),
    }


def test_collisions_are_pairs_of_lines():
    rows = {
        2: booking(hours=5),
        3: booking("b", start=NINE + timedelta(hours=1), hours=1),
        4: booking("c", start=NINE + timedelta(hours=4)),
        5: booking("d", gpu=1),
        6: booking("e", status=DONE),
    }
    assert collisions(rows) == [(2, 3), (2, 4)]


minutes = st.integers(min_value=0, max_value=600)
wishes = st.builds(
    lambda gpus, start, length: Wish("w", tuple(gpus), NINE + timedelta(minutes=start), length / 60),
    st.sets(st.sampled_from(CARDS), min_size=1),
    minutes,
    st.integers(min_value=1, max_value=240),
)


@given(st.lists(wishes, max_size=30))
def test_no_series_of_adds_ever_overlaps_and_no_refusal_lies(asked):
    rows = []
    for number, one in enumerate(asked):
        named = replace(one, task_name=f"w{number}")
        claimed = [(card, minute) for card in one.gpu_ids for minute in _minutes_of(one.start, one.hours)]
        taken = any(b.overlaps(card, minute, minute + timedelta(minutes=1)) for b in rows for card, minute in claimed)
        try:
            rows += book(rows, named)
        except TakenError:
            assert taken
        else:
            assert not taken
    assert collisions(dict(enumerate(rows))) == []


def _minutes_of(start, hours):
    return [start + timedelta(minutes=offset) for offset in range(round(hours * 60))]


@given(st.lists(wishes, max_size=12), st.sets(st.sampled_from(CARDS), min_size=1), st.integers(1, 240))
def test_the_promised_start_is_free_and_the_earliest(asked, gpus, length):
    rows = [row for one in asked for row in _granted(one)]
    span = timedelta(minutes=length)
    start = earliest_start(rows, gpus, span, not_before=NINE)

    def free(moment):
        return not any(row.overlaps(gpu, moment, moment + span) for row in rows for gpu in gpus)

    assert free(start)
    earlier = NINE
    while earlier < start:
        assert not free(earlier)
        earlier += timedelta(minutes=1)


def _granted(one):
    end = one.start + timedelta(hours=one.hours)
    return [Booking("w", "bob", gpu, one.start, end, one.hours) for gpu in one.gpu_ids]
