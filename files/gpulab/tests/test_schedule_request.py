"""What comes from a member to root's part is data."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
from gpulab.adapters import callers
from gpulab.adapters.callers import caller
from gpulab.adapters.clock import server_now
from gpulab.commands import root_part, schedule_write
from gpulab.errors import InputError, NotPermittedError
from gpulab.rules.schedule_request import ADD, CANCEL, LIMIT, Request, decode, encode
from hypothesis import given
from hypothesis import strategies as st

GOOD = {"action": "add", "task_name": "t", "user": None, "gpu_ids": [0], "start": "now", "hours": 2}


@given(
    st.builds(
        Request,
        st.just(ADD),
        st.text(max_size=200),
        st.none() | st.from_regex(r"[a-z_][a-z0-9_.-]{0,31}", fullmatch=True),
        st.lists(st.integers(0, 63)).map(tuple),
        st.text(max_size=30),
        st.floats(0, 1000),
    )
)
def test_what_is_sent_arrives(request):
    assert decode(encode(request)) == request


def test_a_cancellation_carries_no_more_than_it_needs():
    assert json.loads(encode(Request(CANCEL, "t"))) == {"action": "cancel", "task_name": "t", "user": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": "delete"}, "action is 'delete'; expected add, cancel or done"),
        ({"action": ["add"]}, "action is"),
        ({"caller": "root"}, "other keys than action, gpu_ids, hours, start, task_name, user"),
        ({"task_name": 7}, "task_name is 7; expected text"),
        ({"task_name": "x" * 201}, "expected text of at most 200 characters"),
        ({"user": "a;b"}, "--user 'a;b' is not an account name"),
        ({"user": "\x1b[2J"}, "is not an account name"),
        ({"gpu_ids": "0"}, "gpu_ids is '0'; expected a list of card numbers"),
        ({"gpu_ids": [True]}, "gpu_ids is"),
        ({"gpu_ids": [-1]}, "gpu_ids is"),
        ({"gpu_ids": [10**30]}, "gpu_ids is"),
        ({"hours": "2"}, "hours is '2'; expected a number of hours"),
        ({"hours": 10**400}, "hours is"),
        ({"hours": float("nan")}, "hours is nan"),
        ({"start": None}, "start is None; expected text"),
    ],
)
def test_anything_unexpected_is_refused_in_one_line(change, message):
    with pytest.raises(InputError, match=message) as caught:
        decode(json.dumps({**GOOD, **change}).encode())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 10_000, b"1" * 10_000, b" " * (LIMIT + 1), b"{}"])
def test_what_is_no_request_is_refused(data):
    with pytest.raises(InputError):
        decode(data)


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(data):
    with pytest.raises(InputError):
        decode(data)


@pytest.mark.parametrize("start", ["now", " NOW ", "2026-12-01 09:00", "2026/12/1 9:00"])
def test_a_start_may_be_now_or_a_time(start):
    assert (Request(ADD, "t", start=start).begin() is None) is (start.strip().lower() == "now")


def test_a_start_that_is_no_time_says_what_is_expected():
    with pytest.raises(InputError, match=r"--start '9 am' is not a time; write it as .*, or now"):
        Request(ADD, "t", start="9 am").begin()


def test_root_stops_reading_a_request_that_never_ends():
    reader, writer = os.pipe()
    os.write(writer, b"{")
    with pytest.raises(InputError, match=r"within 0\.05 s"):
        root_part.read_request(reader, seconds=0.05, limit=LIMIT, program="gpu-schedule")
    os.write(writer, b"x" * (LIMIT + 10))
    assert len(root_part.read_request(reader, seconds=1, limit=LIMIT, program="gpu-schedule")) > LIMIT
    os.close(writer)
    os.close(reader)


def test_root_takes_no_arguments_and_serves_only_root(monkeypatch):
    with pytest.raises(InputError, match="takes no arguments"):
        schedule_write.main(["--root", "/tmp"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotPermittedError, match="is for root"):
        schedule_write.main([])


def _account(uid):
    try:
        return SimpleNamespace(pw_name={0: "root", 1001: "bob", 1002: "carol"}[uid])
    except KeyError:
        raise KeyError(uid) from None


@pytest.mark.parametrize(
    ("uid", "sudo_uid", "name"),
    [(0, None, "root"), (0, "1001", "bob"), (1002, "1001", "carol"), (1002, "0", "carol"), (0, "0", "root")],
)
def test_only_root_may_act_for_another(monkeypatch, uid, sudo_uid, name):
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(callers.pwd, "getpwuid", _account)
    assert caller({"SUDO_UID": sudo_uid} if sudo_uid else {}) == name


@pytest.mark.parametrize("sudo_uid", ["77", "-1", "x", "１", "1" * 30])
def test_a_caller_without_account_is_refused(monkeypatch, sudo_uid):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(callers.pwd, "getpwuid", _account)
    with pytest.raises(NotPermittedError):
        caller({"SUDO_UID": sudo_uid})


def test_a_members_time_zone_does_not_move_the_servers_clock(monkeypatch):
    plain = server_now()
    monkeypatch.setenv("TZ", "Pacific/Kiritimati" if plain.astimezone().tzname() != "+14" else "UTC")
    assert abs((server_now() - plain).total_seconds()) < 60
