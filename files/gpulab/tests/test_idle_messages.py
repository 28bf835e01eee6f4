"""What people read: every sentence in both languages, and nothing that a program's name could smuggle in."""

from __future__ import annotations

import os
import pty
import string
from pathlib import Path

import pytest
from gpulab.adapters.terminals import tell
from gpulab.rules.idle import IDLE, LEASE, MEMORY, UNKNOWN, Finding
from gpulab.rules.idle_cases import ENFORCE, NOTIFY
from gpulab.rules.idle_messages import Digest, Trouble, Writer
from gpulab.rules.idle_words import CHINESE, ENGLISH
from idle_lab import GIB, T0, runner


def writer(language="en", mode=NOTIFY):
    return Writer("gpu1", "alice", language, T0, mode, answer_minutes=30, keep_hours=24, grace_seconds=60)


def finding(who=None, holds=MEMORY, kind=IDLE, **more):
    return Finding(who or runner(), holds, kind, T0 - 900, T0, (0, 2), memory=20 * GIB, **more)


def fields(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_say_the_same():
    assert CHINESE.keys() == ENGLISH.keys()
    for key, text in ENGLISH.items():
        assert fields(CHINESE[key]) == fields(text), key


@pytest.mark.parametrize("language", ["en", "zh", "xx"])
@pytest.mark.parametrize("mode", [NOTIFY, ENFORCE])
def test_every_mail_can_be_written(language, mode):
    write = writer(language, mode)
    lease = finding(holds=LEASE, lease=7)
    unknown = finding(kind=UNKNOWN, cpu_percent=99.6)
    letters = [
        write.warning("bob", [finding(), lease]),
        write.ended("bob", [finding()]),
        write.digest(Digest([(finding(), T0), (lease, T0)], [(finding(), T0)], [(finding(), T0)], [unknown])),
        write.troubles([Trouble(kind, "why", "2") for kind in ("nvml", "card", "store", "damaged")]),
    ]
    for letter in letters:
        text = letter.subject + letter.body + write.terminal(finding())
        assert "{" not in text
        assert "\n" not in letter.subject
        assert letter.body.endswith("\n")
    assert [each.recipient for each in letters] == ["bob", "bob", "alice", "alice"]


def test_the_deadline_and_what_happens_then_are_named():
    assert "ended at " in writer(mode=ENFORCE).warning("bob", [finding()]).body
    assert "nothing is ended" in writer(mode=NOTIFY).warning("bob", [finding()]).body


def test_names_of_programs_are_only_text():
    evil = finding(runner(command="a\x1b]0;x\x07\n.\r\nBcc: carol{admin}"))
    letter = writer().warning("bob", [evil])
    assert "\x1b" not in letter.subject + letter.body
    assert "\nBcc" not in letter.body
    assert "{admin}" in letter.body


def test_a_hundred_are_cut():
    many = [finding(runner(pid)) for pid in range(1, 101)]
    assert "... and 60 more" in writer().warning("bob", many).body


def test_the_processor_time_of_what_is_unknown_is_shown():
    body = writer().digest(Digest(unknown=[finding(kind=UNKNOWN, cpu_percent=312.4), finding(kind=UNKNOWN)])).body
    assert "CPU 312 %" in body
    assert "CPU ?" in body


@pytest.fixture
def terminal(tmp_path):
    """A terminal of this account below a folder that stands for /."""
    ours, theirs = pty.openpty()
    (tmp_path / "dev/pts").mkdir(parents=True)
    (tmp_path / "dev/pts/3").symlink_to(os.ttyname(theirs))
    yield tmp_path, ours, theirs
    os.close(ours)
    os.close(theirs)


def test_a_link_is_no_terminal(terminal):
    root, _, theirs = terminal
    os.fchmod(theirs, 0o620)
    assert tell(os.getuid(), "hello", root) == 0


def test_a_line_reaches_only_terminals_that_take_messages(terminal):
    _, ours, theirs = terminal
    os.fchmod(theirs, 0o600)
    before = tell(os.getuid(), "no", Path("/"))
    os.fchmod(theirs, 0o620)
    assert tell(os.getuid(), "a\x1bb 显卡", Path("/")) == before + 1
    assert os.read(ours, 100).decode().strip() == "a\\x1bb 显卡"
    assert tell(os.getuid() + 12345, "not yours", Path("/")) == 0


def test_a_terminal_that_nobody_reads_holds_nobody_up(terminal):
    _, ours, theirs = terminal
    os.fchmod(theirs, 0o620)
    for _ in range(400):
        tell(os.getuid(), "x" * 100, Path("/"))
    os.read(ours, 10)
