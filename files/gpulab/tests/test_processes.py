"""Ending processes, with real ones: children of the test, which see only themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from gpulab.adapters.processes import ProcessTable
from gpulab.adapters.procfs import identify

ME = [range(os.getuid(), os.getuid() + 1)]
SLEEPER = "print(flush=True); import time; time.sleep(100)"
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(100,)).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)"""
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
SAVER = f"""
import signal, sys, time
def save(*_):
    time.sleep(0.3)
    open(sys.argv[1], "w").write("saved")
    sys.exit()
signal.signal(signal.SIGTERM, save)
{SLEEPER}"""


@dataclass(frozen=True)
class Children(ProcessTable):
    pids: frozenset[int] = frozenset()

    def owned_by(self, uids):
        return [process for process in super().owned_by(uids) if process.pid in self.pids]


@pytest.fixture
def start():
    children = []

    def run(code, *arguments):
        child = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
        children.append(child)
        child.stdout.readline()
        return child

    yield run
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


def test_processes_are_found_by_their_real_uid(start):
    child = start(SLEEPER)
    assert {os.getpid(), child.pid} <= {process.pid for process in ProcessTable().owned_by(ME)}
    assert ProcessTable().owned_by([range(61234, 61235)]) == []
    assert ProcessTable().owned_by([]) == []


def test_a_program_without_its_first_thread_is_no_zombie(start):
    child = start(HEADLESS)
    for _ in range(100):
        if Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    else:
        pytest.fail("the first thread does not end")
    assert identify(child.pid, Path("/proc")) is not None
    assert Children(pids=frozenset({child.pid})).end(ME, grace=5) == []
    assert child.wait() == -signal.SIGTERM
    assert identify(child.pid, Path("/proc")) is None


def test_ending_gives_time_to_save(start, tmp_path):
    saver, deaf = start(SAVER, str(tmp_path / "work")), start(DEAF)
    table = Children(pids=frozenset({saver.pid, deaf.pid}))
    assert table.end(ME, grace=2.0) == []
    assert (tmp_path / "work").read_text() == "saved"
    assert saver.wait() == 0
    assert deaf.wait() == -signal.SIGKILL


def test_ending_is_quick_when_all_end_at_once(start):
    child = start(SLEEPER)
    waited = []
    table = Children(pids=frozenset({child.pid}), sleep=lambda seconds: waited.append(seconds) or child.wait(5))
    assert table.end(ME, grace=3600.0) == []
    assert len(waited) == 1
    assert child.returncode == -signal.SIGTERM


def test_each_process_gets_one_term(start, tmp_path):
    code = f"""
import signal, sys
count = 0
def term(*_):
    global count
    count += 1
    open(sys.argv[1], "w").write(str(count))
signal.signal(signal.SIGTERM, term)
{SLEEPER}"""
    child = start(code, str(tmp_path / "count"))
    Children(pids=frozenset({child.pid})).end(ME, grace=0.5)
    child.wait()
    assert (tmp_path / "count").read_text() == "1"


def test_a_process_that_took_over_the_pid_is_not_hit(start):
    child = start(SLEEPER)
    table = ProcessTable()
    found = next(process for process in table.owned_by(ME) if process.pid == child.pid)
    earlier = replace(found, identity=replace(found.identity, start_ticks=found.identity.start_ticks - 1))
    assert not table.send(earlier, signal.SIGKILL)
    other_owner = replace(found, identity=replace(found.identity, uid=found.identity.uid + 1))
    assert not table.send(other_owner, signal.SIGKILL)
    assert child.poll() is None
    assert table.send(found, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not table.send(found, signal.SIGKILL)


def test_what_would_not_end_is_returned(start):
    child = start(SLEEPER)

    @dataclass(frozen=True)
    class Immortal(Children):
        def send(self, process, number):  # noqa: ARG002 - nothing is sent
            return True

    table = Immortal(pids=frozenset({child.pid}), sleep=lambda _: None)
    assert [process.pid for process in table.end(ME, grace=0.0)] == [child.pid]


def test_who_is_logged_in_includes_who_called_sudo(monkeypatch):
    monkeypatch.setenv("SUDO_UID", "1777")
    assert {os.getuid(), 1777} <= ProcessTable().logged_in()
    monkeypatch.setenv("SUDO_UID", "root\n")
    assert 1777 not in ProcessTable().logged_in()
