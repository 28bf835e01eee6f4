"""One mail for one event: what is remembered between looks, and that no clock change makes an event twice."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gpulab.rules import checks
from gpulab.rules.checks import CARD, NO_CARDS, NO_SUCH_CARD, OVERRUN, RUNNING, SHEET, SOON, UNBOOKED, UNUSED, Situation
from gpulab.rules.episodes import compare
from test_checks import BOBS, CAROLS, at, book, card, local, lost, proc, situation, unknown

if TYPE_CHECKING:
    from datetime import datetime


def run(*scenes: Situation) -> list[set[tuple[str, str, int | None]]]:
    """Look several times in a row, everything told at once; return what was news each time."""
    told: set = set()
    news = []
    for scene in scenes:
        plan = compare(told, checks.find(scene))
        news.append({(event.kind, event.recipient, event.gpu_id) for event in plan.news})
        told = set(plan.remembered) | {event.key for event in plan.news}
    return news


def test_an_event_is_news_once_and_again_when_it_comes_back():
    there, gone = ([card(0, proc(1))], [card(0)])
    scenes = [situation("12:30", [BOBS], cards) for cards in (there, there, gone, there)]
    assert run(*scenes) == [{(OVERRUN, "bob", 0)}, set(), set(), {(OVERRUN, "bob", 0)}]


@pytest.mark.parametrize(
    "blind",
    [unknown(0), lost(0), card(1), card(0, proc(1, None))],
    ids=["mig", "lost", "not listed", "no owner"],
)
def test_what_cannot_be_seen_does_not_end_anything(blind):
    there = [card(0, proc(1))]
    first, _, third = run(
        situation("12:30", [BOBS], there), situation("12:40", [BOBS], [blind]), situation("12:50", [BOBS], there)
    )
    assert (first, third) == ({(OVERRUN, "bob", 0)}, set())


def test_no_driver_does_not_end_anything():
    seen = [card(0, proc(1)), lost(1)]
    bookings = [BOBS, book("19:00", "20:00", user="alice", gpu=9)]
    first, second, third = run(*(situation("12:30", bookings, cards) for cards in (seen, [], seen)))
    assert first == {(OVERRUN, "bob", 0), (CARD, "alice", 1), (NO_SUCH_CARD, "alice", 9)}
    assert (second, third) == ({(NO_CARDS, "alice", None)}, set())


def test_a_sheet_that_cannot_be_read_for_a_while_does_not_end_anything():
    there = [card(0, proc(1))]
    readable = situation("12:30", [BOBS, CAROLS], there)
    blind = replace(readable, sheet=None, sheet_problem="Permission denied")
    first, second, third = run(readable, blind, readable)
    assert (len(first), second, third) == (3, {(SHEET, "alice", None)}, set())


def test_restarting_the_program_is_not_a_new_episode():
    before, after = (situation("12:30", [BOBS], [card(0, proc(1, started=s))]) for s in ("09:10", "12:20"))
    assert run(before, after) == [{(OVERRUN, "bob", 0)}, set()]


def test_a_second_booking_that_overruns_between_two_looks_is_a_new_episode():
    there = [card(0, proc(1))]
    second = book("12:35", "13:00", task="more")
    assert run(situation("12:30", [BOBS], there), situation("13:30", [BOBS, second], there)) == [
        {(OVERRUN, "bob", 0)},
        {(OVERRUN, "bob", 0)},
    ]


def test_finishing_an_overrun_booking_on_paper_is_not_a_new_episode():
    there = [card(0, proc(1))]
    marked = book("09:00", "12:00", status="done")
    assert run(situation("12:30", [BOBS], there), situation("13:30", [marked], there))[1] == set()


def test_extending_or_renaming_a_running_booking_does_not_remind_again():
    there = [card(0, proc(1))]
    changed = book("09:00", "16:00", task="other-name")
    assert run(situation("09:10", [BOBS], there), situation("10:10", [changed], there)) == [
        {(RUNNING, "bob", 0)},
        set(),
    ]


# Summer time: central Europe by rule, so that no time zone files are needed


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def wall(epoch_start: datetime, minutes: int) -> datetime:
    """The wall clock some minutes after a moment, with fold as datetime.now gives it."""
    return local(epoch_start.timestamp() + 60 * minutes)


def look_every_ten_minutes(begin: datetime, end: datetime, bookings, cards) -> list[tuple[datetime, set]]:
    steps = round((end.timestamp() - begin.timestamp()) / 600) + 1
    moments = [wall(begin, 10 * step) for step in range(steps)]
    scenes = [replace(situation("12:00", bookings, cards), now=moment) for moment in moments]
    return [(moment, news) for moment, news in zip(moments, run(*scenes), strict=True) if news]


@pytest.mark.usefixtures("berlin")
def test_the_hour_lived_twice_begins_and_ends_a_booking_once():
    night = book("2026-10-25 02:20", "2026-10-25 02:40")
    started = "2026-10-25 00:30"
    news = look_every_ten_minutes(
        at("2026-10-25 00:00"), at("2026-10-25 04:00"), [night], [card(0, proc(1, started=started))]
    )
    kinds = [kind for _, told in news for kind, _, _ in told]
    assert sorted(kinds) == sorted([UNBOOKED, SOON, RUNNING, OVERRUN])
    moments = [moment.replace(fold=0) for moment, _ in news]
    assert moments[-2:] == [at("2026-10-25 02:20"), at("2026-10-25 02:50")]


@pytest.mark.usefixtures("berlin")
def test_the_hour_that_is_skipped_is_no_grace_and_no_wait():
    # 01:50 to 03:10 by the clock on the wall is twenty minutes.
    over = book("2026-03-29 00:30", "2026-03-29 01:50")
    begun = book("2026-03-29 01:50", "2026-03-29 06:00", user="carol", gpu=1)
    cards = [card(0, proc(1, started="2026-03-29 00:40")), card(1)]
    news = look_every_ten_minutes(at("2026-03-29 01:50"), at("2026-03-29 04:00"), [over, begun], cards)
    told = {kind: moment for moment, events in news for kind, _, _ in events}
    assert told[OVERRUN] == at("2026-03-29 03:00")
    assert told[UNUSED] == at("2026-03-29 03:20")
