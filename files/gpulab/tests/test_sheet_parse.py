"""Sheets as editors and spreadsheet programs save them, and what is written back."""

# ruff: noqa: DTZ001 - the sheet holds naive server time by definition

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from gpulab.rules.booking import BOOKED, STATUSES, Booking
from gpulab.rules.cells import HEADER
from gpulab.rules.sheet import Sheet, append, change, parse, render
from hypothesis import example, given
from hypothesis import strategies as st

HEAD = "task_name,user,gpu_id,start_time,end_time,est_hours,status"
NINE = datetime(2026, 12, 1, 9, 0)
TRAIN = Booking("训练", "bob", 0, NINE, NINE + timedelta(hours=3), 3.0, BOOKED)
ROW = "训练,bob,0,2026-12-01 09:00,2026-12-01 12:00,3,booked"


def sheet(*lines, newline="\n", encoding="utf-8"):
    return "".join(line + newline for line in lines).encode(encoding)


def one(row):
    """Return the booking or the problem of a single row below the header."""
    parsed = parse(sheet(HEAD, row))
    return parsed.bookings[0] if parsed.bookings else parsed.problems[0].reason


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(sheet(HEAD, ROW), id="utf-8"),
        pytest.param(sheet(HEAD, ROW, encoding="utf-8-sig"), id="utf-8 with BOM"),
        pytest.param(sheet(HEAD, ROW, encoding="gbk"), id="gbk"),
        pytest.param(sheet(HEAD, ROW, encoding="gb18030"), id="gb18030"),
        pytest.param(sheet(HEAD, ROW, encoding="utf-16"), id="utf-16"),
        pytest.param(b"\xfe\xff" + sheet(HEAD, ROW, encoding="utf-16-be"), id="utf-16 big endian"),
        pytest.param(sheet(HEAD, ROW, newline="\r\n"), id="CRLF"),
        pytest.param(sheet(HEAD, ROW, newline="\r"), id="CR"),
        pytest.param(sheet(HEAD, ROW)[:-1], id="no line break at the end"),
        pytest.param(sheet(HEAD, ROW, ",,,,,,", "", ",,,,,,", newline="\r\n"), id="empty rows at the end"),
        pytest.param(sheet(HEAD + ",,", ROW + ",,"), id="empty columns at the end"),
        pytest.param(sheet(HEAD.replace(",", ";"), ROW.replace(",", ";")), id="semicolons"),
        pytest.param(sheet(HEAD.replace(",", "\t"), ROW.replace(",", "\t"), encoding="utf-16"), id="tabs"),
        pytest.param(sheet(HEAD, ROW.replace(",", ";")), id="another delimiter in one row"),
        pytest.param(sheet(HEAD.upper(), ROW), id="header in capitals"),
        pytest.param(sheet("sep=,", HEAD, ROW), id="a line above the header"),
        pytest.param(sheet(HEAD, '"训练","bob","0","2026-12-01 09:00","2026-12-01 12:00","3","booked"'), id="quotes"),
        pytest.param(
            sheet("user,task_name,gpu_id,start_time,end_time,est_hours,status", "bob,训练" + ROW[6:]),
            id="columns in another order",
        ),
        pytest.param(sheet(HEAD + ",note", ROW + ",=1+1"), id="a column of somebody's own"),
    ],
)
def test_a_sheet_reads_the_same_however_it_was_saved(data):
    assert parse(data).bookings == (TRAIN,)


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01 09:00",
        "2026/12/1 9:00",
        "2026/12/01 9:00:30",
        "2026-12-01T09:00",
        "2026-12-01T09:00:00.000",
        "2026.12.1 9:00",
        "2026年12月1日 9:00",
        "2026年12月1日9:00",
        "２０２６-１２-０１　０９：００",
        " 2026-12-01  09:00 ",
    ],
)
def test_times_as_people_write_them(text):
    assert one(f"x,bob,0,{text},2026-12-01 12:00,3,booked").start == NINE


def test_midnight_may_be_written_as_24():
    assert one("x,bob,0,2026-12-31 20:00,2026-12-31 24:00,4,booked").end == datetime(2027, 1, 1)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x,bob,0,12/1/2026 9:00,2026-12-01 12:00,3,booked", "start_time '12/1/2026 9:00' is not a time; write it as"),
        ("x,bob,0,2026-12-01,2026-12-02,3,booked", "start_time '2026-12-01' is not a time"),
        ("x,bob,0,2026-02-30 09:00,2026-12-01 12:00,3,booked", "names a day or time that does not exist"),
        ("x,bob,0,2026-12-01 25:00,2026-12-01 12:00,3,booked", "names a day or time that does not exist"),
        ("x,bob,0,0206-12-01 09:00,2026-12-01 12:00,3,booked", "names a day or time that does not exist"),
        ("x,bob,0,2026-12-01 12:00,2026-12-01 12:00,3,booked", "end_time '2026-12-01 12:00' is not later"),
        ("x,bob,0,2026-12-01 09:00,,3,booked", "end_time '' is not a time"),
        ("x,Bob,0,2026-12-01 09:00,2026-12-01 12:00,3,booked", "user 'Bob' is not an account name"),
        ("x,,0,2026-12-01 09:00,2026-12-01 12:00,3,booked", "user is empty"),
        (",bob,0,2026-12-01 09:00,2026-12-01 12:00,3,booked", "task_name is empty"),
        ("x,bob,64,2026-12-01 09:00,2026-12-01 12:00,3,booked", "gpu_id '64' is not a card"),
        ('x,bob,"0,1",2026-12-01 09:00,2026-12-01 12:00,3,booked', "gpu_id '0,1' is not a card; write one number per"),
        ("x,bob,0,2026-12-01 09:00,2026-12-01 12:00,long,booked", "est_hours 'long' is not a number of hours"),
        ("x,bob,0,2026-12-01 09:00,2026-12-01 12:00,0,booked", "est_hours '0' is not a number of hours"),
        ("x,bob,0,2026-12-01 09:00,2026-12-01 12:00,3,maybe", "status 'maybe' is not a status; write booked, done or"),
        ("x,bob,0", "it has 3 of the 7 columns"),
        ('"x,bob,0,2026-12-01 09:00,2026-12-01 12:00,3,booked', "a quotation mark is not closed"),
        (HEAD, "the header stands here again"),
        ("a\x1b[2Jb,bob,0,2026-12-01 09:00,2026-12-01 12:00,3,booked", r"task_name 'a\x1b[2Jb' holds control"),
        ("x" * 9000 + ",bob,0,2026-12-01 09:00,2026-12-01 12:00,3,booked", "is longer than 200 characters"),
    ],
)
def test_a_bad_row_says_why_and_hides_no_good_one(row, reason):
    data = sheet(HEAD, row, ROW)
    parsed = parse(data)
    assert parsed.bookings == (TRAIN,)
    assert [problem.line for problem in parsed.problems] == [2]
    assert reason in parsed.problems[0].reason
    assert parsed.problems[0].reason.isprintable()
    assert len(parsed.problems[0].reason) < 200
    assert render(parsed) == data


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("x,bob,0,2026-12-01 09:00,2026-12-01 12:00,,booked", (3.0, BOOKED)),
        ("x,bob,0,2026-12-01 09:00,2026-12-01 12:00,3,", (3.0, BOOKED)),
        ('x,bob,0,2026-12-01 09:00,2026-12-01 12:00,"2,5",Booked', (2.5, BOOKED)),
        ("x,bob,0,2026-12-01 09:00,2026-12-01 12:00,3.0,canceled", (3.0, "cancelled")),
    ],
)
def test_what_a_row_may_leave_out(row, expected):
    booking = one(row)
    assert (booking.est_hours, booking.status) == expected


def test_a_sheet_without_header_is_read_and_named():
    parsed = parse(sheet(ROW))
    assert parsed.bookings == (TRAIN,)
    assert parsed.problems[0] == (1, f"the header is missing; the first line should be {HEAD}")


def test_lines_of_two_encodings_are_both_read():
    data = sheet(HEAD, ROW) + sheet("模型,alice,1,2026-12-01 09:00,2026-12-01 12:00,3,booked", encoding="gbk")
    assert [booking.task_name for booking in parse(data).bookings] == ["训练", "模型"]


def test_a_short_gbk_word_that_is_utf8_by_chance_follows_the_rest_of_the_sheet():
    row = "模,alice,1,2026-12-01 09:00,2026-12-01 12:00,3,booked"
    assert row.encode("gbk").decode().startswith("ģ,")
    assert [b.task_name for b in parse(sheet(HEAD, row, ROW, encoding="gbk")).bookings] == ["模", "训练"]


def test_bytes_of_no_encoding_stay_as_they_are():
    data = sheet(HEAD) + b"\x80\xff,bob,0\n" + sheet(ROW)
    parsed = parse(data)
    assert parsed.bookings == (TRAIN,)
    assert parsed.problems[0].line == 2
    assert render(append(parsed, [replace(TRAIN, gpu_id=1)])).startswith(data)


def test_a_new_row_comes_before_empty_ones_and_keeps_the_line_breaks():
    data = sheet(HEAD, ROW, ",,,,,,", newline="\r\n")
    expected = sheet(HEAD, ROW, ROW.replace(",0,", ",1,"), ",,,,,,", newline="\r\n")
    assert render(append(parse(data), [replace(TRAIN, gpu_id=1)])) == expected


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf"])
def test_an_empty_sheet_gets_its_header_back(data):
    assert render(append(parse(data), [TRAIN])).decode("utf-8-sig").split("\n")[:2] == [HEAD, ROW]


def test_only_the_changed_row_is_rewritten():
    loose = "x , bob,1,2026/12/1 9:00,2026/12/1 12:00,3.0,"
    data = sheet(HEAD + ",note", loose + ",mine", ROW + ',"a ""b"", c"')
    changed = change(parse(data), {3: replace(TRAIN, status="done")})
    assert render(changed) == sheet(HEAD + ",note", loose + ",mine", ROW[:-6] + 'done,"a ""b"", c"')


def test_what_is_written_opens_in_spreadsheet_programs():
    ascii_row = "x,bob,0,2026-12-01 09:00,2026-12-01 12:00,3,booked"
    bom = b"\xef\xbb\xbf"
    plain = replace(TRAIN, task_name="y", gpu_id=1)
    assert not render(append(parse(sheet(HEAD, ascii_row)), [plain])).startswith(bom)
    assert render(append(parse(sheet(HEAD, ascii_row)), [replace(TRAIN, gpu_id=1)])).startswith(bom)
    assert render(append(parse(sheet(HEAD, ROW, encoding="gbk")), [plain])).startswith(bom)
    assert render(append(parse(sheet(HEAD, ROW, encoding="utf-8-sig")), [plain])).startswith(bom)
    assert not render(append(parse(sheet(HEAD, ROW)), [plain])).startswith(bom)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_name_cannot_become_a_cell_of_its_own_in_any_locale(delimiter):
    hostile = replace(TRAIN, task_name="a;=cmd(),b")
    line = render(append(parse(sheet(HEAD.replace(",", delimiter))), [hostile])).decode().split("\n")[1]
    assert line.startswith('"a;=cmd(),b"' + delimiter)


names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2199, 1, 1)).map(lambda t: t.replace(second=0, microsecond=0))
bookings = st.builds(
    lambda name, user, gpu, start, length, hours, status: Booking(
        name, user, gpu, start, start + timedelta(minutes=length), hours, status
    ),
    names,
    st.from_regex(r"[a-z_][a-z0-9_.-]{0,31}", fullmatch=True),
    st.integers(0, 63),
    moments,
    st.integers(1, 100_000),
    st.integers(1, 10_000_000).map(lambda hundredths: hundredths / 100),
    st.sampled_from(STATUSES),
)


@given(
    st.lists(bookings, max_size=8), st.sampled_from([",", ";", "\t"]), st.sampled_from(["\n", "\r\n"]), st.booleans()
)
def test_what_was_written_reads_back_the_same(rows, delimiter, newline, bom):
    empty = Sheet(delimiter=delimiter, newline=newline, bom=bom)
    head = parse(sheet(HEAD.replace(",", delimiter), newline=newline))
    assert parse(render(append(replace(head, bom=empty.bom), rows))).bookings == tuple(rows)


pieces = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [
            HEAD.encode(),
            ROW.encode(),
            ROW.encode("gbk"),
            "模,a,1".encode("gbk"),
            "é,α".encode(),
            b"\xef\xbb\xbf",
            b"\xff\xfe",
            b"\x84\x31\x95\x33",
            b"\r",
            b"\n",
            b"\r\n",
            b'"',
            b",,,,,,",
            b";",
            b"\x00",
            b"\x85",
        ]
    ),
)


@given(st.lists(pieces, max_size=14).map(b"".join))
@example(b"\xff\xfe\x0a\x0d\x0d\x0a")
def test_reading_never_fails_and_never_drops_a_line(data):
    parsed = parse(data)
    again = parse(render(parsed))
    assert [(row.text, row.ending) for row in again.rows] == [(row.text, row.ending) for row in parsed.rows]
    assert again.bookings == parsed.bookings
    assert [row.line for row in parsed.rows] == list(range(1, len(parsed.rows) + 1))
    assert all(reason and reason.isprintable() for _, reason in parsed.problems)


@given(st.lists(pieces, max_size=10).map(b"".join), bookings)
def test_adding_and_changing_leave_every_other_line_alone(data, booking):
    before = parse(data)
    after = parse(render(append(before, [booking])))
    kept = [row.text for row in before.rows]
    texts = [row.text for row in after.rows]
    new = [text for text in texts if text not in kept]
    assert [text for text in texts if text in kept] == kept or len(texts) == len(kept) + 1
    assert len(texts) - len(kept) in {1, 2}, new  # one more when the header had to come first
    assert booking in after.bookings


@given(st.binary(max_size=400))
def test_ascii_and_utf8_files_come_back_byte_for_byte(data):
    text = data.decode("utf-8", "ignore").encode()
    assert render(parse(text)) == text or text.startswith((b"\xff\xfe", b"\xfe\xff"))


def test_the_header_is_the_one_that_was_promised():
    assert ",".join(HEADER) == HEAD
