"""Who is idle: only who was measured, all the time, on every card, and did next to nothing."""

from __future__ import annotations

from datetime import datetime

import pytest
from gpulab.errors import InputError
from gpulab.rules.exemptions import exemptions, parse_span
from gpulab.rules.idle import BUSY, IDLE, LEASE, UNKNOWN, Measure, is_complete, judge
from gpulab.rules.samples import LOST, MIG, UNMEASURED, UNREADABLE
from hypothesis import given
from hypothesis import strategies as st
from idle_lab import MINUTE, T0, hold, look, looks, runner, use

MEASURE = Measure(percent=5, sample_seconds=60)


def judged(seen, measure=MEASURE, **options):
    (finding,) = judge(seen, measure, **options)
    return finding.kind, finding.seconds / MINUTE


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ([0] * 16, (IDLE, 15)),
        ([4] * 16, (IDLE, 15)),
        ([5] * 3, (BUSY, 2)),
        ([90, 0, 0], (IDLE, 1)),  # used once, however hard
        ([0] * 10 + [7] + [0] * 4, (IDLE, 3)),  # a short burst begins the row anew
        ([0, 0, None, 0], (IDLE, 0)),
        ([0, 0, None], (UNKNOWN, 2)),
        ([0, 50, None], (UNKNOWN, 0)),
        ([0, 0, "-", 0, 0], (IDLE, 1)),  # nobody looked: nobody knows
        ([100], (BUSY, 0)),
    ],
)
def test_a_row_of_looks(loads, expected):
    assert judged(looks(*loads)) == expected


def test_nobody_is_on_a_card():
    assert judge((), MEASURE) == ()
    assert judge((look(0),), MEASURE) == ()
    assert judge((*looks(0, 0), look(2, reason="no driver")), MEASURE) == ()


def test_busy_on_one_card_is_busy_and_unknown_on_one_is_unknown():
    assert judged((look(0, use(0), use(60, index=1)),))[0] == BUSY
    assert judged((look(0, use(0), use(None, index=1)),))[0] == UNKNOWN
    assert judged((look(0, use(60), use(None, index=1)),))[0] == BUSY


def test_the_same_pid_with_another_start_is_another_process():
    seen = (*looks(0, 0, 0), look(3, use(0, runner(start=9999))))
    assert judged(seen) == (IDLE, 0)


def test_all_cards_and_their_memory_are_named():
    (finding,) = judge((look(0, use(0, memory=2), use(0, index=1, memory=None)),), MEASURE)
    assert (finding.cards, finding.uuids, finding.memory) == ((0, 1), ("GPU-0", "GPU-1"), 2)


def test_processor_time_is_shown_beside_what_is_unknown():
    seen = tuple(look(minute, use(None, cpu_ms=30_000), cards=(MIG,)) for minute in range(5))
    (finding,) = judge(seen, MEASURE)
    assert (finding.kind, finding.mig, finding.cpu_percent) == (UNKNOWN, True, 50.0)


def test_hours_that_do_not_count_begin_the_row_anew():
    measure = Measure(5, 60, counts=lambda at: at >= T0 + 10 * MINUTE)
    assert judged(looks(*[0] * 16), measure) == (IDLE, 5)


def test_what_was_kept_is_idle_from_the_end_of_the_keeping():
    assert judged(looks(*[0] * 16), not_before={runner().key: T0 + 12 * MINUTE}) == (IDLE, 3)


@given(
    st.lists(st.sampled_from([0, 4, 5, 100, None, "-"]), min_size=1, max_size=40),
)
def test_idle_means_measured_below_the_limit_at_each_minute_of_it(loads):
    seen = looks(*loads)
    if not seen:
        return
    for finding in judge(seen, MEASURE):
        minutes = finding.seconds // MINUTE
        last = max(index for index, load in enumerate(loads) if load != "-")
        row = loads[last - minutes : last + 1]
        if finding.kind == IDLE:
            assert all(load in (0, 4) for load in row)
        if finding.kind == UNKNOWN:
            assert not any(load in (5, 100, "-") for load in row)


def test_a_look_is_complete_when_every_card_said_who_is_on_it():
    assert is_complete(look(0, cards=("ok", MIG, UNMEASURED)))
    assert not is_complete(look(0, cards=("ok", LOST)))
    assert not is_complete(look(0, cards=(UNREADABLE,)))
    assert not is_complete(look(0, reason="no driver"))


class TestLeases:
    """A lease nobody works under."""

    def test_its_cards_stand_empty(self):
        seen = tuple(look(minute, holds=(hold(),)) for minute in range(4))
        (finding,) = judge(seen, MEASURE)
        assert (finding.kind, finding.holds, finding.seconds, finding.lease) == (IDLE, LEASE, 180, 7)
        assert finding.key == "lease:7:900:5000"

    def test_with_a_process_of_its_owner_only_the_process_counts(self):
        (finding,) = judge((look(0, use(0, runner(lease=7)), holds=(hold(),)),), MEASURE)
        assert finding.holds == "memory"

    def test_somebody_elses_process_is_no_use_of_it(self):
        found = judge((look(0, use(50, runner(user="carol", uid=1002)), holds=(hold(),)),), MEASURE)
        assert [(each.holds, each.kind) for each in found] == [("memory", BUSY), (LEASE, IDLE)]

    def test_a_card_that_does_not_say_who_is_on_it_is_unknown(self):
        (finding,) = judge((look(0, holds=(hold(),), cards=(LOST,)),), MEASURE)
        assert finding.kind == UNKNOWN

    def test_another_lease_with_the_same_number_begins_anew(self):
        other = hold(who=runner(901, start=7000, lease=7))
        (finding,) = judge((look(0, holds=(hold(),)), look(1, holds=(other,))), MEASURE)
        assert finding.seconds == 0


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("22:00-08:00", ["2026-12-01 22:00", "2026-12-02 07:59"], ["2026-12-01 21:59", "2026-12-01 08:00"]),
        ("12:00-14:00", ["2026-12-01 12:00"], ["2026-12-01 14:00"]),
        ("sat,sun 00:00-24:00", ["2026-12-05 00:00", "2026-12-06 23:59"], ["2026-12-04 23:59", "2026-12-07 00:00"]),
        ("fri 20:00-06:00", ["2026-12-04 20:00", "2026-12-05 05:59"], ["2026-12-04 05:00", "2026-12-05 20:00"]),
        ("sat-mon 10:00-11:00", ["2026-12-07 10:30"], ["2026-12-08 10:30"]),
    ],
)
def test_exempt_hours(text, inside, outside):
    span = parse_span(text)
    assert all(span.holds(datetime.fromisoformat(moment)) for moment in inside)
    assert not any(span.holds(datetime.fromisoformat(moment)) for moment in outside)


@pytest.mark.parametrize(
    "text", ["", "night", "22-08", "25:00-26:00", "08:60-09:00", "10:00-10:00", "24:00-08:00", "xyz 1:00-2:00"]
)
def test_hours_that_are_not_understood_are_refused(text):
    with pytest.raises(InputError, match="not understood"):
        parse_span(text)


def test_who_and_what_is_left_alone():
    rules = exemptions(users=["carol"], commands=["jupyter*"], cards=["1", "GPU-3"], times=[], admins=["alice"])

    def why(who, index=0):
        (finding,) = judge((look(0, use(0, who, index), cards=("ok",) * 4),), MEASURE)
        return rules.reason(finding)

    assert why(runner(uid=0, user="root")) == "system"
    assert why(runner(uid=65534, user="nobody")) == "system"
    assert why(runner(user="alice")) == "admin"
    assert why(runner(user="carol")) == "user"
    assert why(runner(command="jupyter-lab")) == "command"
    assert why(runner(), 1) == why(runner(), 3) == "card"
    assert why(runner()) == ""
