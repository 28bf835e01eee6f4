"""Sums of usage: against a calculation that takes every minute one by one, and by hand where the clock changes."""

from __future__ import annotations

import time
from datetime import datetime
from itertools import product

import pytest
from gpulab.rules.usage import HOUR, Period, Stretch, Tally, Wait, Watch, local, waits_of
from gpulab.rules.usage_jobs import Job, expand, parse, records
from gpulab.rules.usage_samples import Look, Seen
from gpulab.rules.usage_samples import records as sampled
from gpulab.rules.windows import DEFAULT_TABLE, class_at, parse_windows
from hypothesis import given, settings
from hypothesis import strategies as st

MINUTE = 60
MONDAY = 1_764_547_200  # 2025-12-01 00:00 UTC
WINDOWS = parse_windows(
    [
        {"name": "morning", "from": "08:10", "to": "12:00", "class": "long"},
        {"name": "night", "from": "22:30", "to": "02:00", "class": "offline"},
    ]
)


@pytest.fixture(params=["UTC", "Asia/Shanghai", "Europe/Berlin", "Asia/Kolkata"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def minutes(low, high):
    return st.integers(low, high).map(lambda minute: MONDAY + minute * MINUTE)


def tally(period, stretches=(), watches=(), waits=(), windows=()):
    sums = Tally(period, windows)
    for add, found in ((sums.had, stretches), (sums.watched, watches), (sums.waited, waits)):
        for each in found:
            add(each)
    return sums.total()


def midnight(*day):
    return int(datetime(*day).timestamp())  # noqa: DTZ001 - of the zone that the test sets


DAY = 24 * 60
STRETCHES = st.lists(
    st.builds(
        lambda user, run, place, begin, length, cards, load: Stretch(
            user, run, place, begin, begin + length * MINUTE, cards, load
        ),
        st.sampled_from(["alice", "bob", "carol"]),
        st.sampled_from(["1", "2", "3"]),
        st.sampled_from(["card 0", "card 1"]),
        minutes(-DAY, 9 * DAY),
        st.integers(0, 30 * 60),
        st.sampled_from([0.25, 0.5, 1, 2]),
        st.none() | st.integers(0, 100),
    ),
    max_size=6,
)


def by_minutes(period, stretches):
    """Count one minute after the other: whose it is, and in which hour and window."""
    held, hours, windows, idle = {}, {}, {}, {}
    for each in stretches:
        for at in range(max(each.begin, period.begin), min(each.end, period.end), MINUTE):
            when = local(at)
            hour = (each.place, when.weekday() * 24 + when.hour)
            window = class_at(WINDOWS, when)
            name = window.name if window else ""
            part = MINUTE * each.cards
            held[each.user] = held.get(each.user, 0) + part
            hours[hour] = hours.get(hour, 0) + part
            windows[name] = windows.get(name, 0) + part
            if each.load is not None and each.load < 5:
                idle[each.user] = idle.get(each.user, 0) + part
    return held, hours, windows, idle


@settings(max_examples=20, deadline=None)
@given(STRETCHES)
def test_sums_are_those_of_a_count_by_minutes(stretches):
    period = Period(MONDAY, MONDAY + 7 * DAY * MINUTE)
    watches = [Watch(place, period.begin, period.end, 2) for place in ("card 0", "card 1")]
    usage = tally(period, stretches, watches, windows=WINDOWS)
    held, hours, windows, idle = by_minutes(period, stretches)
    assert {each.user: round(each.gpu_hours * HOUR) for each in usage.members} == held
    assert {each.user: round(each.idle_hours * HOUR) for each in usage.members if each.idle_hours} == idle
    assert usage.gpu_hours * HOUR == pytest.approx(sum(held.values()))
    for place in usage.places:
        for hour, part in enumerate(place.occupancy):
            assert part == pytest.approx(min(1, hours.get((place.place, hour), 0) / (2 * HOUR)))
    for window in usage.windows:
        length = sum(
            1 for minute in range(7 * DAY)
            if ((found := class_at(WINDOWS, local(MONDAY + minute * MINUTE))) is not None
            and found.name == window.name) or (found is None and window.name == "")
        )  # fmt: skip
        assert window.occupancy == pytest.approx(min(1, windows.get(window.name, 0) / (4 * length * MINUTE)))


@settings(max_examples=30, deadline=None)
@given(STRETCHES, st.integers(0, 8 * DAY))
def test_two_periods_together_are_one(stretches, cut):
    """A month boundary takes nothing away and counts nothing twice."""
    begin, end = MONDAY, MONDAY + 8 * DAY * MINUTE
    middle = begin + cut * MINUTE
    whole = tally(Period(begin, end), stretches)
    parts = [tally(Period(*each), stretches) for each in ((begin, middle), (middle, end))]
    for user in ("alice", "bob", "carol"):
        total = sum(each.gpu_hours for part in parts for each in part.members if each.user == user)
        assert total == pytest.approx(sum(each.gpu_hours for each in whole.members if each.user == user))


@settings(max_examples=30, deadline=None)
@given(STRETCHES, st.randoms())
def test_the_order_of_records_is_of_no_account(stretches, random):
    period = Period(MONDAY, MONDAY + 7 * DAY * MINUTE)
    other = list(stretches)
    random.shuffle(other)
    first, second = tally(period, stretches, windows=WINDOWS), tally(period, other, windows=WINDOWS)
    assert [(each.user, each.runs) for each in first.members] == [(each.user, each.runs) for each in second.members]
    for one, two in zip(first.members, second.members, strict=True):
        assert one.gpu_hours == pytest.approx(two.gpu_hours)


def test_every_second_is_in_one_hour_whatever_the_zone(zone):
    begin = midnight(2026, 3, 23)  # the week before Berlin's clocks go forward, and that week
    period = Period(begin, begin + 14 * 24 * HOUR)
    usage = tally(
        period, [Stretch("bob", "1", "card 0", begin + 1, period.end - 1)], [Watch("card 0", begin, period.end)]
    )
    assert usage.gpu_hours == pytest.approx(14 * 24 - 2 / HOUR)
    assert usage.places[0].total == pytest.approx(1, abs=1e-4)
    assert all(part == pytest.approx(1, abs=1e-3) for part in usage.places[0].occupancy if part is not None)


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_the_hour_that_does_not_exist_is_not_watched_and_the_one_that_comes_twice_counts_twice(zone):
    spring, autumn = (midnight(2026, *day) for day in ((3, 29), (10, 25)))
    for begin, hours in ((spring, 23), (autumn, 25)):
        period = Period(begin, begin + hours * HOUR)
        usage = tally(period, [Stretch("bob", "1", "card 0", *_pair(period))], [Watch("card 0", *_pair(period))])
        assert usage.gpu_hours == hours
        sunday = usage.places[0].occupancy[6 * 24 :]
        assert [part for part in sunday if part is not None] == [1] * (23 if hours == 23 else 24)
        assert (sunday[2] is None) is (hours == 23)


def _pair(period):
    return period.begin, period.end


def test_what_nobody_measured_is_neither_used_well_nor_idle():
    period = Period(MONDAY, MONDAY + 10 * HOUR)
    (bob,) = tally(
        period,
        [
            Stretch("bob", "1", "card 0", MONDAY, MONDAY + 2 * HOUR, load=80),
            Stretch("bob", "2", "card 0", MONDAY + 2 * HOUR, MONDAY + 4 * HOUR, load=0),
            Stretch("bob", "3", "card 0", MONDAY + 4 * HOUR, MONDAY + 8 * HOUR),
        ],
    ).members
    assert (bob.gpu_hours, bob.utilisation, bob.measured, bob.idle_hours, bob.runs) == (8, 40, 0.5, 2, 3)
    assert tally(period, [Stretch("bob", "3", "card 0", MONDAY, MONDAY + 60)]).members[0].utilisation is None


def test_waits_belong_to_where_they_end_and_to_the_window_of_the_question(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    period = Period(MONDAY, MONDAY + 24 * HOUR)
    usage = tally(
        period,
        waits=[
            Wait("bob", MONDAY - HOUR, 2 * HOUR),
            Wait("bob", MONDAY + 9 * HOUR, 60),
            Wait("carol", MONDAY + 23 * HOUR, 2 * HOUR),
        ],
        windows=WINDOWS,
    )
    (bob,) = usage.members
    assert (bob.waits.count, bob.waits.mean, bob.waits.p95, bob.gpu_hours) == (2, 3630, 7200, 0)
    assert {each.name: each.waits.count for each in usage.windows} == {"morning": 1, "night": 1, "": 0}


@pytest.mark.parametrize(("count", "expected"), [(1, 0), (19, 18), (20, 18), (21, 19), (100, 94)])
def test_the_95th_percentile_is_a_wait_that_happened(count, expected):
    assert waits_of([float(each) for each in reversed(range(count))]).p95 == expected


# Samples


def looks(*rows, distance=60):
    return [Look(MONDAY + at, states, tuple(Seen(*each) for each in seen)) for at, states, seen in rows]


def test_a_look_stands_for_the_time_since_the_one_before_and_a_gap_for_nothing():
    found = list(sampled(looks((0, {0: "ok"}, []), (60, {0: "ok"}, []), (600, {0: "ok"}, [])), 60))
    assert [(each.begin - MONDAY, each.end - MONDAY) for each in found] == [(-60, 0), (0, 60), (540, 600)]


def test_people_share_a_card_equally_and_their_runs_share_their_part():
    seen = [(0, "bob", "a", 30.0), (0, "bob", "b", 40.0), (0, "carol", "c", 0.0, False), (1, "bob", "a", None)]
    found = [each for each in sampled(looks((0, {0: "ok", 1: "ok"}, seen)), 60) if isinstance(each, Stretch)]
    assert {(each.place, each.user, each.run, each.cards, each.load) for each in found} == {
        ("card 0", "bob", "a", 0.25, 70),
        ("card 0", "bob", "b", 0.25, 70),
        ("card 0", "carol", "c", 0.5, 0),
        ("card 1", "bob", "a", 1, None),
    }


@pytest.mark.parametrize(("state", "watched", "load"), [("mig", 1, None), ("unmeasured", 1, None), ("lost", 0, 0)])
def test_a_card_that_does_not_say_is_not_idle_and_a_lost_one_not_watched(state, watched, load):
    found = list(sampled(looks((0, {0: state}, [(0, "bob", "a", 0.0, False)])), 60))
    assert sum(isinstance(each, Watch) for each in found) == watched
    assert [each.load for each in found if isinstance(each, Stretch)] == [load] * watched


# Slurm


def test_sacct_lines_are_read_and_others_passed_over():
    text = (
        "7|bob|100|160|400|billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1|gpu[01-02]\n"
        "8|carol|100|Unknown|Unknown|cpu=1|None assigned\n"
        "9|bob|None|200|0|gres/gpu:1g.10gb=1,gres/gpu:3g.40gb=1|n1\n"
        "nonsense\n"
    )
    assert list(parse(text)) == [
        Job("7", "bob", 100, 160, 400, 2, ("gpu01", "gpu02")),
        Job("8", "carol", 100, None, None, 0, ()),
        Job("9", "bob", None, 200, None, 2, ("n1",)),
    ]


@pytest.mark.parametrize(
    ("short", "names"),
    [("a", "a"), ("a,b", "a b"), ("a[1-3,07]x,b", "a1x a2x a3x a07x b"), ("a[9-1]", ""), ("", "")],
)
def test_host_lists_are_written_out(short, names):
    assert " ".join(expand(short)) == names


JOBS = st.lists(
    st.builds(
        lambda number, user, begin, wait, length, cards, requeued: (number, user, begin, wait, length, cards, requeued),
        st.integers(1, 4),
        st.sampled_from(["alice", "bob"]),
        st.integers(0, 4000),
        st.integers(0, 500),
        st.none() | st.integers(0, 3000),
        st.integers(0, 4),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(JOBS)
def test_jobs_requeues_and_running_ones_add_up(made):
    now = 6000
    lines, seconds, waits = [], {}, {}
    for number, user, asked, wait, length, cards, requeued in made:
        start = asked + wait + 1
        end = "Unknown" if length is None else start + length
        runs = [(asked + 1, start, end)]
        if requeued and length is not None:
            runs.append((end, end + 5, end + 105))
        for eligible, begin, until in runs:
            lines.append(f"{number}|{user}|{eligible}|{begin}|{until}|gres/gpu={cards}|n1")
            if cards:
                stop = now if until == "Unknown" else until
                seconds[user] = seconds.get(user, 0) + max(0, min(stop, now) - min(begin, now)) * cards
                waits[user] = waits.get(user, 0) + (begin < now)
    sums = Tally(Period(0, now))
    for each in records(parse("\n".join(lines)), now, {"n1": 4}):
        if isinstance(each, Stretch):
            sums.had(each)
        elif isinstance(each, Wait):
            sums.waited(each)
    usage = sums.total()
    found = {each.user: round(each.gpu_hours * HOUR) for each in usage.members if each.gpu_hours}
    assert found == {user: total for user, total in seconds.items() if total}
    assert {each.user: each.waits.count for each in usage.members if each.waits.count} == {
        user: count for user, count in waits.items() if count
    }


def test_the_usual_table_covers_no_hour_twice():
    table = parse_windows(DEFAULT_TABLE)
    for day, hour in product(range(7), range(24)):
        assert sum(window.covers(day * DAY + hour * 60) for window in table) <= 1
