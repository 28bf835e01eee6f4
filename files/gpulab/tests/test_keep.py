"""gpu-keep: members keep what is theirs, for as long as is allowed, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from types import SimpleNamespace

import pytest
from gpulab.adapters.procfs import identify
from gpulab.commands import gpu_keep, keep_write, root_part
from gpulab.errors import InputError, NotPermittedError
from gpulab.rules.idle import IDLE, LEASE, MEMORY, Finding
from gpulab.rules.keep_request import LIMIT, KeepRequest, decode, encode
from gpulab.services import reclaim_memory as memories
from gpulab.services.keep import keep
from gpulab.services.reclaim_memory import Memory, Note
from hypothesis import given
from hypothesis import strategies as st
from idle_lab import T0, runner
from nvml_binding import process

BOB, CAROL = 1001, 1002


@pytest.fixture
def server(tmp_path):
    """Bob's process 100, his lease 7 (process 300) and carol's 200 were asked about; bob's process 400 was not."""
    proc = tmp_path / "proc"
    proc.mkdir()
    for pid, uid in ((100, BOB), (200, CAROL), (300, BOB), (400, BOB)):
        process(proc, pid, uid=uid, start=5000)
    asked = [
        Finding(runner(100, uid=BOB), MEMORY, IDLE, T0, T0, (0,)),
        Finding(runner(200, user="carol", uid=CAROL), MEMORY, IDLE, T0, T0, (1,)),
        Finding(runner(300, uid=BOB), LEASE, IDLE, T0, T0, (2,), lease=7),
    ]
    memories.save(tmp_path, Memory(warned={each.key: Note(each, T0) for each in asked}))

    def ask(*pids, uid=BOB, hours=None, admin=False, now=T0):
        request = KeepRequest(hours, pids)
        return keep(request, uid, admin=admin, root=tmp_path, now=now, most_hours=24, proc_root=proc)

    return SimpleNamespace(ask=ask, kept=lambda: memories.kept(tmp_path), proc=proc, root=tmp_path)


def test_without_a_pid_all_that_was_asked_about_is_kept(server):
    assert [each.pid for each in server.ask(hours=3)] == [100, 300]
    assert server.kept() == {"100:5000": T0 + 3 * 3600, "lease:7:300:5000": T0 + 3 * 3600}


def test_without_hours_it_is_the_longest_that_is_allowed(server):
    assert server.ask()[0].until == T0 + 24 * 3600
    with pytest.raises(InputError, match="25 hours are more than the 24 allowed"):
        server.ask(hours=25)


def test_a_process_can_be_kept_before_anybody_asked(server):
    server.ask(400, hours=1)
    assert list(server.kept()) == ["400:5000"]


def test_the_pid_of_a_lease_keeps_the_lease_too(server):
    server.ask(300)
    assert sorted(server.kept()) == ["300:5000", "lease:7:300:5000"]


def test_somebody_elses_process_is_refused_and_nothing_is_kept(server):
    with pytest.raises(NotPermittedError, match=r"process 200 \(python\) belongs to 1002"):
        server.ask(100, 200)
    assert server.kept() == {}
    server.ask(200, admin=True)
    assert list(server.kept()) == ["200:5000"]


def test_a_process_that_is_not_there_is_refused(server):
    with pytest.raises(InputError, match="no process 999"):
        server.ask(999)


def test_who_was_not_asked_keeps_nothing(server):
    assert server.ask(uid=1234) == ()
    assert server.kept() == {}


def test_answers_about_what_is_gone_are_forgotten(server):
    server.ask(400, hours=1)
    for name in ("stat", "status"):
        (server.proc / "400" / name).unlink()
    server.ask(100, hours=1, now=T0 + 2 * 3600)
    assert list(server.kept()) == ["100:5000"]


@given(st.one_of(st.none(), st.floats(0.01, 1e5)), st.lists(st.integers(1, 1 << 22), max_size=30))
def test_a_request_arrives_as_it_was_sent(hours, pids):
    request = KeepRequest(hours, tuple(pids))
    assert decode(encode(request)) == request


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"hours": 1}',
        b'{"hours": "1", "pids": []}',
        b'{"hours": NaN, "pids": []}',
        b'{"hours": 1e999, "pids": []}',
        b'{"hours": -1, "pids": []}',
        b'{"hours": true, "pids": []}',
        b'{"hours": 1, "pids": [0]}',
        b'{"hours": 1, "pids": [true]}',
        b'{"hours": 1, "pids": ["../1"]}',
        b'{"hours": 1, "pids": {}}',
        b'{"hours": 1, "pids": [], "user": "carol"}',
        b"[" * 5000,
        b" " * (LIMIT + 1),
    ],
)
def test_root_takes_nothing_else(data):
    with pytest.raises(InputError):
        decode(data)


def test_the_command_asks_root_and_says_until_when(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(os, "geteuid", lambda: 1001)

    def answer(writer, request, failed):
        asked.append((writer[-1], json.loads(request)))
        return {"kept": [{"pid": 100, "command": "a\x1bb", "until": T0}]}

    monkeypatch.setattr(root_part, "ask", answer)
    assert gpu_keep.main(["--hours", "2.5", "100"]) == 0
    assert asked == [("keep-write", {"hours": 2.5, "pids": [100]})]
    out = capsys.readouterr().out
    assert out.startswith("kept until 20")
    assert out.endswith(": PID 100 (a\\x1bb)\n")


def test_nothing_to_keep_is_said(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setattr(root_part, "ask", lambda *_: {"kept": []})
    assert gpu_keep.main([]) == 0
    assert "nothing of yours has been asked about" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--hours", "0"], ["--hours", "nan"], ["--hours", "x"], ["0"], ["1x"], ["-1"]])
def test_what_makes_no_sense_is_one_line(argv):
    with pytest.raises(InputError) as failure:
        gpu_keep.main(argv)
    assert "\n" not in str(failure.value)


def test_roots_part_is_for_root_through_the_command(monkeypatch):
    with pytest.raises(InputError, match="no arguments"):
        keep_write.main(["--root", "/tmp"])
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    with pytest.raises(NotPermittedError, match="gpu-keep"):
        keep_write.main([])


def test_a_refusal_comes_with_its_exit_status():
    said = subprocess.CompletedProcess((), 3, json.dumps({"error": "not yours"}).encode(), b"")
    with pytest.raises(root_part.RefusedError, match="not yours") as failure:
        root_part.ask(gpu_keep.WRITER, b"{}", "x", lambda *_, **__: said)
    assert failure.value.exit_status == 3


def test_the_way_to_a_living_process_is_its_start(server):
    assert identify(100, server.proc).start_ticks == 5000
