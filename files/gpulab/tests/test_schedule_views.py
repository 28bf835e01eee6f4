"""Lists, calendars and findings as they appear in a terminal."""

# ruff: noqa: DTZ001 - the sheet holds naive server time by definition

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from gpulab.errors import InputError
from gpulab.rules.booking import BOOKED, CANCELLED, DONE, STATUSES, Booking
from gpulab.rules.calendar_view import ascii_style, ranges, unicode_style, week
from gpulab.rules.display import fit, printable, width
from gpulab.rules.schedule_text import check_lines, free_lines, list_lines
from gpulab.rules.sheet import parse
from hypothesis import given
from hypothesis import strategies as st

MONDAY = date(2026, 11, 30)
NINE = datetime(2026, 11, 30, 9, 0)
NOW = datetime(2026, 12, 1, 14, 10)
HEAD = "task_name,user,gpu_id,start_time,end_time,est_hours,status"


def booking(task="train", user="bob", gpu=0, start=NINE, hours=3.0, status=BOOKED):
    return Booking(task, user, gpu, start, start + timedelta(hours=hours), hours, status)


def test_nothing_reaches_the_terminal_that_could_control_it():
    assert printable("a\x1b[2J\r\nb\x9b\u202e\udcff") == r"a\x1b[2J\r\nb\x9b\u202e\xff"
    assert printable("训练　大") == "训练　大"
    assert printable("x" * 50, 10) == "xxxxxxx..."


@given(st.text())
def test_printable_text_is_printable(text):
    assert printable(text).replace("\u3000", "").isprintable()


@given(st.text(), st.integers(0, 40))
def test_a_fitted_text_has_exactly_its_width(text, columns):
    assert width(fit(printable(text), columns)) == columns


def test_the_list_lines_up_below_its_header():
    lines = list_lines([booking(start=NOW), booking("训练", "carol", 10, hours=30, status=DONE)], NOW)
    assert lines == [
        "CARD  START             END               USER   STATUS   TASK",
        "   0  2026-12-01 14:10  2026-12-01 17:10  bob    running  train",
        "  10  2026-11-30 09:00  2026-12-01 15:00  carol  done     训练",
    ]
    assert list_lines([booking()], NOW)[1].split()[-2:] == ["over", "train"]
    assert list_lines([], NOW) == ["no bookings; `gpu-schedule add --help` says how to make one"]


def test_free_says_from_when_until_when():
    rows = [booking(start=NOW - timedelta(hours=1), hours=2), booking("b", gpu=1, start=NOW + timedelta(hours=5))]
    assert free_lines(rows, [2, 1, 0], 2, NOW) == [
        "CARD  FREE FOR 2 H FROM  UNTIL",
        "   0  2026-12-01 15:10   further notice",
        "   1  now                2026-12-01 19:10",
        "   2  now                further notice",
    ]
    with pytest.raises(InputError, match="at least one minute"):
        free_lines(rows, [0], 0, NOW)
    assert "name one with --gpu" in free_lines([], [], 1, NOW)[0]


def test_the_check_names_lines_overlaps_and_strangers():
    rows = [
        "a,bob,0,2026-12-02 09:00,2026-12-02 12:00,3,booked",
        "b,bob,0,12/2/2026,2026-12-02 12:00,3,booked",
        "c\u202e,carol,0,2026-12-02 11:00,2026-12-02 13:00,2,booked",
        "d,dave,1,2026-12-02 11:00,2026-12-02 13:00,2,booked",
        "e,bob,7,2026-12-02 11:00,2026-12-02 13:00,2,booked",
        "f,dave,7,2026-11-02 11:00,2026-11-02 13:00,2,booked",
    ]
    sheet = parse("\n".join([HEAD, *rows]).encode())
    assert check_lines(sheet, [0, 1], lambda user: user != "dave", NOW) == [
        "line 3: start_time '12/2/2026' is not a time; write it as 2026-12-01 09:00, year first",
        (
            "line 4: overlaps line 2 on card 0: carol's 'c\\u202e' (2026-12-02 11:00 to 13:00) "
            "and bob's 'a' (2026-12-02 09:00 to 12:00)"
        ),
        "line 5: dave is no member of the lab",
        "line 6: this server has no card 7",
    ]
    assert check_lines(parse(f"{HEAD}\n{rows[0]}\n".encode()), None, lambda _: True, NOW) == []


def test_the_week_as_a_member_sees_it():
    rows = [
        booking("训练大模型", hours=9),
        booking("x", "alice", start=NINE + timedelta(hours=9), hours=0.3),
        booking("long", "carol", 2, start=NOW, hours=39.5, status=DONE),
        booking("gone", "carol", 3, status=CANCELLED),
    ]
    assert week(rows, MONDAY, range(4), NOW, unicode_style(80)) == [
        "Mon 2026-11-30 to Sun 2026-12-06; on this server it is now Tue 2026-12-01 14:10",
        "Mon 2026-11-30 0     3     6     9     12    15    18    21",
        "  card 0       ··················[bob 训练大模型━━]■···········",
        "  card 1-3     free all day",
        "Tue 2026-12-01 0     3     6     9     12    15    18    21",
        "  card 2       ····························[carol long╌╌╌╌╌╌╌╌╌",
        "  card 0-1,3   free all day",
        "Wed 2026-12-02 0     3     6     9     12    15    18    21",
        "  card 2       ╌carol long╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌",
        "  card 0-1,3   free all day",
        "Thu 2026-12-03 0     3     6     9     12    15    18    21",
        "  card 2       ╌carol long]····································",
        "  card 0-1,3   free all day",
        "Fri 2026-12-04 all cards free",
        "Sat 2026-12-05 all cards free",
        "Sun 2026-12-06 all cards free",
        "In full:",
        "  card 0  2026-11-30 18:00 to 18:18  alice x",
    ]


def test_this_moment_is_marked_where_the_card_is_free():
    line = week([booking(start=NOW + timedelta(hours=2), hours=1)], NOW.date(), [0], NOW, ascii_style(80))[2]
    assert line[15 + 28] == "|"
    assert line.count("|") == 1


def test_colour_is_put_around_bars_only():
    style = ascii_style(80, lambda text, row: f"<{row.user}>{text}</>")
    line = week([booking(hours=9)], MONDAY, [0], NOW, style)[2]
    assert line == "  card 0       " + "." * 18 + "<bob>[bob train=======]</>" + "." * 12


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5], "0-2,5"), ([7, 5, 6], "5-7")])
def test_ranges(numbers, text):
    assert ranges(numbers) == text


anything = st.builds(
    booking,
    st.text(min_size=1, max_size=30),
    st.sampled_from(["bob", "carol"]),
    st.integers(0, 9),
    st.datetimes(datetime(2026, 11, 28), datetime(2026, 12, 8)),
    st.floats(0.02, 100),
    st.sampled_from(STATUSES),
)


@given(st.lists(anything, max_size=20), st.integers(40, 200), st.booleans())
def test_every_row_of_any_week_is_a_whole_day_wide_and_fits(rows, columns, fancy):
    style = (unicode_style if fancy else ascii_style)(columns)
    lines = week(rows, MONDAY, [0, 1], NOW, style)
    body = lines[1 : lines.index("In full:")] if "In full:" in lines else lines[1:]
    drawn = [line for line in body if line.startswith("  card ") and not line.endswith("free all day")]
    assert {width(line) for line in drawn} <= {15 + max(n for n in (24, 48, 96, 144) if n == 24 or 15 + n < columns)}
    assert all(width(line) <= columns for line in body)
    assert fancy or all(line.isascii() for line in body if not line.startswith("  card ") or not rows)
