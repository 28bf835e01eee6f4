"""From idle to overdue: asked once, kept, working again, and never overdue without having been watched all the time."""

from __future__ import annotations

from gpulab.rules.idle import IDLE, Measure, judge
from gpulab.rules.idle_cases import (
    EXEMPT,
    KEPT,
    NOTIFY,
    OFF,
    OVERDUE,
    WARN,
    WARNED,
    Terms,
    is_idle_still,
    standings,
    still_open,
)
from hypothesis import given
from hypothesis import strategies as st
from idle_lab import MINUTE, T0, look, looks, runner, use

MEASURE = Measure(5, 60)
TERMS = Terms(NOTIFY, 15, 30)
KEY = runner().key


def stand(seen, warned=None, kept=None, terms=TERMS, exempt=lambda _: ""):
    answers = kept or {}
    findings = judge(seen, MEASURE, {key: int(until) for key, until in answers.items()})
    (standing,) = standings(findings, warned or {}, answers, terms, exempt)
    return standing


def test_idle_for_long_enough_is_asked_about():
    assert stand(looks(*[0] * 15)).state == IDLE
    assert stand(looks(*[0] * 16)).state == WARN
    assert stand(looks(*[0] * 16), terms=Terms(OFF)).state == IDLE


def test_no_answer_in_time_is_overdue():
    told = {KEY: T0 + 15 * MINUTE}
    assert stand(looks(*[0] * 45), told).state == WARNED
    assert stand(looks(*[0] * 46), told).state == OVERDUE


def test_a_gap_after_the_question_begins_the_time_to_answer_anew():
    told = {KEY: T0 + 15 * MINUTE}
    seen = looks(*[0] * 40, "-", *[0] * 20)
    assert stand(seen, told).state == WARNED
    assert stand(looks(*[0] * 40, "-", *[0] * 31), told).state == OVERDUE


def test_an_answer_keeps_it_and_then_it_is_asked_about_again():
    told, kept = {KEY: T0 + 15 * MINUTE}, {KEY: T0 + 60 * MINUTE}
    assert stand(looks(*[0] * 50), told, kept).state == KEPT
    assert stand(looks(*[0] * 70), {}, kept).state == IDLE
    assert stand(looks(*[0] * 76), {}, kept).state == WARN
    assert stand(looks(*[0] * 200), told, kept).state == WARN, "the old question does not count"


def test_what_is_left_alone_is_never_asked_about():
    standing = stand(looks(*[0] * 100), exempt=lambda _: "card")
    assert (standing.state, standing.why) == (EXEMPT, "card")


def test_a_question_ends_when_it_works_ends_or_is_kept():
    told = {KEY: T0}
    for seen, kept, goes_on in (
        (looks(0, 0), {}, True),
        (looks(0, None), {}, True),
        (looks(0, 50), {}, False),
        (looks(0, 0), {KEY: T0 + 999 * MINUTE}, False),
    ):
        assert bool(still_open(told, [stand(seen, told, kept)], complete=True)) is goes_on
    assert still_open(told, [], complete=True) == {}
    assert still_open(told, [], complete=False) == told, "a card that does not answer says nothing about who is on it"


@given(st.lists(st.sampled_from([0, 3, 5, 80, None, "-"]), min_size=1, max_size=120), st.integers(0, 60))
def test_overdue_was_measured_idle_at_each_minute_of_the_time_to_answer(loads, asked):
    seen = looks(*loads)
    told = {KEY: T0 + asked * MINUTE}
    if not seen or stand(seen, told).state != OVERDUE:
        return
    last = max(index for index, load in enumerate(loads) if load != "-")
    assert last - asked >= 30
    assert all(load in (0, 3) for load in loads[last - 30 : last + 1])


def test_the_last_look_must_confirm_it():
    def last(seen):
        return judge(seen, MEASURE)[0]

    assert is_idle_still(last(looks(*[0] * 31)), TERMS)
    assert not is_idle_still(last(looks(*[0] * 31, 5)), TERMS)
    assert not is_idle_still(last((*looks(*[0] * 31), look(31, use(None)))), TERMS)
    assert not is_idle_still(last((*looks(*[0] * 31), look(31, use(0, runner(start=1))))), TERMS)
    assert not is_idle_still(None, TERMS)
