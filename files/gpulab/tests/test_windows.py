from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from gpulab.errors import InputError
from gpulab.rules import windows as rules
from gpulab.rules.window_table import DAY, DAYS, WEEK
from hypothesis import assume, given
from hypothesis import strategies as st

MONDAY = datetime.fromisoformat("2026-11-30")
DEFAULT = rules.parse_windows(rules.DEFAULT_TABLE)


def window(**changes):
    raw = {"name": "w", "from": "08:00", "to": "12:00", "class": "long", **changes}
    return {key: value for key, value in raw.items() if value is not ...}


def at(text, day=0):
    hour, minute = map(int, text.split(":"))
    return MONDAY + timedelta(days=day, hours=hour, minutes=minute)


@pytest.mark.parametrize(
    ("time", "name"),
    [
        ("00:00", "evening"),
        ("01:59", "evening"),
        ("02:00", None),
        ("07:59", None),
        ("08:00", "morning"),
        ("11:59", "morning"),
        ("12:00", None),
        ("14:00", "afternoon"),
        ("17:59", "afternoon"),
        ("18:00", None),
        ("20:00", "evening"),
        ("23:59", "evening"),
    ],
)
def test_the_usual_table_is_that_of_the_lab_rules(time, name):
    for day in range(7):
        found = rules.class_at(DEFAULT, at(time, day))
        assert (found and found.name) == name


def test_submitting_in_the_peak_weighs_half_and_in_the_evening_more():
    assert [rules.weight_at(DEFAULT, at(time)) for time in ("09:00", "13:00", "15:00", "21:00")] == [1, 1, 0.5, 1.5]


def test_a_window_belongs_to_the_day_it_begins_on():
    friday_night = rules.parse_windows([window(**{"from": "20:00", "to": "02:00", "days": ["fri", "sun"]})])
    covered = [
        (day, time) for day in range(7) for time in ("01:00", "21:00") if friday_night[0].covers(_minute(day, time))
    ]
    assert covered == [(0, "01:00"), (4, "21:00"), (5, "01:00"), (6, "21:00")]


def _minute(day, time):
    return day * DAY + int(time[:2]) * 60 + int(time[3:])


def test_no_windows_mean_that_all_hours_are_equal():
    assert rules.parse_windows([]) == ()
    assert rules.class_at((), MONDAY) is None
    assert rules.next_change((), MONDAY) is None
    assert rules.verdict((), cards=64, start=MONDAY, hours=1000).kind == rules.OK


@pytest.mark.parametrize(
    ("start", "cards", "hours", "kind", "judge"),
    [
        ("09:00", 4, 100, rules.OK, "morning"),  # a long training runs on through the afternoon
        ("14:00", 1, 4, rules.OK, "afternoon"),
        ("14:00", 2, 1, rules.WARN, "afternoon"),
        ("17:59", 1, 5, rules.WARN, "afternoon"),
        ("18:00", 2, 5, rules.OK, "evening"),
        ("12:30", 2, 1, rules.OK, None),
        ("12:30", 2, 1.5, rules.OK, None),  # ends when the window begins
        ("12:30", 2, 1.6, rules.WARN, "afternoon"),
        ("12:30", 2, None, rules.OK, None),  # nobody knows how long
        ("15:00", 2, None, rules.WARN, "afternoon"),
        ("15:00", 1, None, rules.OK, "afternoon"),
    ],
)
def test_a_job_is_judged_by_the_window_it_starts_in_or_else_runs_into(start, cards, hours, kind, judge):
    found = rules.verdict(DEFAULT, cards=cards, start=at(start), hours=hours)
    assert (found.kind, found.window and found.window.name) == (kind, judge)
    assert bool(found.en) == bool(found.zh) == (kind != rules.OK)


def test_a_verdict_names_the_rule_and_when_the_job_fits():
    found = rules.verdict(DEFAULT, cards=2, start=at("15:00"), hours=6, strict=True)
    assert found.kind == rules.REFUSE
    assert found.rule("en") == (
        "window afternoon (14:00-18:00: short jobs, debugging, preprocessing) allows at most 1 card a job, not 2 and "
        "at most 4 h a job, not 6; it fits from 18:00 on"
    )
    assert found.rule("zh") == (
        "时段 afternoon（14:00-18:00：短任务、调试、数据预处理）规定每个任务最多 1 张卡，而不是 2 张，"
        "每个任务最多 4 小时，而不是 6 小时；18:00 起可以"
    )


def test_a_job_that_never_fits_is_told_so():
    always = rules.parse_windows([window(**{"from": "00:00", "to": "24:00", "max_cards": 2})])
    assert rules.verdict(always, cards=3, start=MONDAY).en.endswith(
        "at most 2 cards a job, not 3; it fits in no window of the week"
    )


def test_the_day_is_said_when_the_job_fits_only_later():
    weekdays = rules.parse_windows([window(**{"from": "00:00", "to": "24:00", "max_cards": 1, "days": list(DAYS[:5])})])
    assert rules.verdict(weekdays, cards=2, start=MONDAY).en.endswith("it fits from 2026-12-05 00:00 on")


# --- Arithmetic, against a reference that looks at every minute -------------------------------------------------------


@st.composite
def tables(draw):
    """Tables without overlaps: windows one after the other around the day, each day its own choice of them."""
    cuts = sorted(draw(st.sets(st.integers(0, DAY - 1), min_size=2, max_size=8)))
    shift = draw(st.booleans())
    pairs = [(cuts[i], cuts[i + 1]) for i in range(0, len(cuts) - 1, 2)]
    if shift and len(cuts) % 2 and cuts[0] + DAY - cuts[-1] <= DAY // 2:
        pairs.append((cuts[-1], cuts[0]))
    return [
        {
            "name": f"w{position}",
            "from": f"{begin // 60:02}:{begin % 60:02}",
            "to": f"{end // 60:02}:{end % 60:02}",
            "days": draw(st.lists(st.sampled_from(DAYS), min_size=1, unique=True)),
            "class": draw(st.sampled_from(rules.CLASSES)),
            "max_cards": draw(st.none() | st.integers(1, 4)),
            "max_hours": draw(st.none() | st.integers(1, 48)),
            "weight": draw(st.sampled_from([0.5, 1, 1.5])),
        }
        for position, (begin, end) in enumerate(pairs)
    ]


def reference(raw, minute):
    """Say which window has a minute of the week, straight from the words of the table."""
    day, time = divmod(minute, DAY)
    for entry in raw:
        begin, end = (int(entry[key][:2]) * 60 + int(entry[key][3:]) for key in ("from", "to"))
        today, yesterday = DAYS[day] in entry["days"], DAYS[day - 1] in entry["days"]
        if begin < end and today and begin <= time < end:
            return entry["name"]
        if end < begin and ((today and time >= begin) or (yesterday and time < end)):
            return entry["name"]
    return None


moments = st.integers(0, 3 * WEEK - 1)


@given(tables(), moments)
def test_every_minute_has_the_window_that_the_table_says(raw, minute):
    found = rules.class_at(rules.parse_windows(raw), MONDAY + timedelta(minutes=minute))
    assert (found and found.name) == reference(raw, minute % WEEK)


@given(tables(), moments)
def test_the_window_stays_the_same_until_the_next_change(raw, minute):
    windows = rules.parse_windows(raw)
    when = MONDAY + timedelta(minutes=minute, seconds=30)
    change = rules.next_change(windows, when)
    assert timedelta(0) < change - when <= timedelta(weeks=1)
    present = rules.class_at(windows, when)
    last = change - timedelta(seconds=1)
    between = when + (last - when) * 0.5
    assert rules.class_at(windows, between) == rules.class_at(windows, last) == present


@given(tables(), moments, st.integers(1, 6), st.none() | st.floats(0.1, 200))
def test_the_proposed_time_fits_and_none_before_it_did(raw, minute, cards, hours):
    windows = rules.parse_windows(raw)
    start = MONDAY + timedelta(minutes=minute)
    found = rules.verdict(windows, cards=cards, start=start, hours=hours)
    if found.kind == rules.OK:
        return
    if "no window" in found.en:
        edge = start
        for _ in range(20):
            edge = rules.next_change(windows, edge)
            assert rules.verdict(windows, cards=cards, start=edge, hours=hours).kind == rules.WARN
        return
    text = found.en.rpartition("from ")[2].removesuffix(" on")
    better = datetime.fromisoformat(text) if "-" in text else start.replace(hour=int(text[:2]), minute=int(text[3:]))
    assert better > start
    assert rules.verdict(windows, cards=cards, start=better, hours=hours).kind == rules.OK
    assert rules.verdict(windows, cards=cards, start=better - timedelta(minutes=1), hours=hours).kind == rules.WARN


@given(tables(), moments, st.integers(1, 4), st.floats(0.1, 100))
def test_asking_for_less_never_breaks_a_rule_that_more_kept(raw, minute, cards, hours):
    windows = rules.parse_windows(raw)
    start = MONDAY + timedelta(minutes=minute)
    assume(rules.verdict(windows, cards=cards, start=start, hours=hours).kind == rules.OK)
    judge = rules.touched(windows, start, hours)
    if rules.touched(windows, start, hours / 2) == judge:
        assert rules.verdict(windows, cards=cards, start=start, hours=hours / 2).kind == rules.OK
    assert rules.verdict(windows, cards=max(1, cards - 1), start=start, hours=hours).kind == rules.OK


@given(tables())
def test_a_table_survives_being_written_down(raw):
    windows = rules.parse_windows(raw)
    assert rules.parse_windows([rules.as_raw(window) for window in windows]) == windows


@given(
    st.lists(st.tuples(st.integers(0, 23), st.integers(1, 12), st.sets(st.sampled_from(DAYS), min_size=1)), max_size=4)
)
def test_a_table_is_refused_exactly_when_two_windows_share_a_minute(entries):
    raw = [
        window(
            name=f"w{number}", days=sorted(days), **{"from": f"{begin:02}:00", "to": f"{(begin + length) % 24:02}:00"}
        )
        for number, (begin, length, days) in enumerate(entries)
    ]
    claims = [
        (DAYS.index(day) * 24 + begin + hour) % (7 * 24)
        for begin, length, days in entries
        for day in days
        for hour in range(length)
    ]
    if len(set(claims)) == len(claims):
        assert len(rules.parse_windows(raw)) == len(raw)
    else:
        with pytest.raises(InputError, match="overlap on"):
            rules.parse_windows(raw)


# --- Clock changes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "hours"),
    [
        # Central Europe, 2026-03-29: 02:00 becomes 03:00. 2026-10-25: 03:00 becomes 02:00.
        (datetime(2026, 3, 28, 23, tzinfo=timezone.utc), 5),
        (datetime(2026, 10, 24, 22, tzinfo=timezone.utc), 7),
    ],
)
def test_windows_follow_the_clock_on_the_wall_through_its_changes(moment, hours):
    night = rules.parse_windows([window(**{"from": "00:00", "to": "06:00"})])
    zone = ZoneInfo("Europe/Berlin")
    seen = [
        rules.class_at(night, (moment + timedelta(minutes=m)).astimezone(zone).replace(tzinfo=None)) for m in range(600)
    ]
    assert seen == [*night * (hours * 60), *[None] * (600 - hours * 60)]


# --- What cannot be used ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("08-12", "gpu_windows is '08-12'; give a list of windows"),
        ({"name": "w"}, "gpu_windows is .*; give a list of windows"),
        (["w"], "gpu_windows, entry 1 is 'w'; give a mapping"),
        ([window(form="08:00")], "entry 1: the key 'form' is unknown; did you mean from"),
        ([window(colour="red")], "entry 1: the key 'colour' is unknown; known keys are name, from, to"),
        ([window(to=...)], "entry 1: to is missing; each window needs name, from, to, class"),
        ([window(name="Früh")], "entry 1: name is 'Früh'; give 1 to 32 characters"),
        ([window(name=7)], "entry 1: name is 7; give 1 to 32 characters"),
        ([window(), window(**{"from": "13:00", "to": "14:00"})], "entries 1 and 2 are both named w; rename one"),
        ([window(**{"from": 840})], 'window w: from is 840; give a time of day in quotes, such as "14:00": YAML'),
        ([window(**{"from": "8:00"})], "from is '8:00'; give a time of day in quotes, such as \"08:00\""),
        ([window(**{"from": "24:00"})], "from is '24:00'; give a time of day"),
        ([window(to="12:60")], "to is '12:60'; give a time of day"),
        ([window(to="08:00")], 'to is \'08:00\'; that is when it begins; a whole day is from "00:00" to "24:00"'),
        ([window(to="07:00")], "to is '07:00'; before its beginning, 08:00: .* would be 23 hours; exchange the two"),
        ([window(**{"class": "batch"})], "class is 'batch'; give one of long, short, offline"),
        ([window(**{"class": ["long"]})], "class is .*; give one of long, short, offline"),
        ([window(days=["monday"])], r"days is \['monday'\]; give the days it begins on, some of \[mon, tue"),
        ([window(days=[])], r"days is \[\]; give the days"),
        ([window(days="mon")], "days is 'mon'; give the days"),
        ([window(days=[["mon"]])], "days is .*; give the days"),
        ([window(max_cards=0)], "max_cards is 0; give how many cards"),
        ([window(max_cards=True)], "max_cards is True; give how many cards"),
        ([window(max_hours=0)], "max_hours is 0; give a number above 0"),
        ([window(max_hours="4")], "max_hours is '4'; give a number above 0"),
        ([window(weight=float("nan"))], "weight is nan; give a number above 0, at most 100"),
        ([window(weight=-1)], "weight is -1; give a number above 0"),
        ([window(text="long jobs")], "text is 'long jobs'; give what the window is for as {en: ..., zh: ...}"),
        ([window(text={"fr": "x"})], "text is .*; give what the window is for"),
        ([window(text={"en": "a\nb"})], "text is .*; give one line of at most 120 characters"),
        (
            [window(), window(name="v", **{"from": "11:00", "to": "13:00", "days": ["sun"]})],
            r"w \(08:00-12:00\) and v \(11:00-13:00\) overlap on sun from 11:00; end the first where",
        ),
        (
            [
                window(**{"from": "00:00", "to": "01:00", "days": ["mon"]}),
                window(name="v", **{"from": "23:00", "to": "02:00"}),
            ],
            r"v \(23:00-02:00\) and w \(00:00-01:00\) overlap on mon from 00:00",
        ),
        ([window(name=f"w{i}") for i in range(49)], "gpu_windows has 49 windows; give at most 48"),
    ],
)
def test_what_cannot_be_used_is_refused_with_entry_key_value_and_remedy(raw, message):
    with pytest.raises(InputError, match=message) as refused:
        rules.parse_windows(raw)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("end", "hours"), [("24:00", 4), ("00:00", 4), ("08:00", 12)])
def test_an_evening_may_end_at_midnight_or_in_the_morning(end, hours):
    (night,) = rules.parse_windows([window(**{"from": "20:00", "to": end})])
    assert night.length == hours * 60


def test_own_words_replace_the_usual_ones_in_both_languages_unless_both_are_given():
    one, both, none = rules.parse_windows(
        [
            window(name="a", text={"en": "course"}, to="09:00"),
            window(name="b", text={"en": "course", "zh": "课程"}, **{"from": "09:00", "to": "10:00"}),
            window(name="c", **{"from": "10:00", "to": "11:00"}),
        ]
    )
    assert (one.en, one.zh) == ("course", "course")
    assert (both.en, both.zh) == ("course", "课程")
    assert (none.en, none.zh) == ("long, large-batch and multi-card work", "长任务、大批量、多卡训练")
