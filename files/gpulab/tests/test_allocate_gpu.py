"""allocate_gpu from outside: a real process, which becomes the command, against a broker on a made-up server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from broker_world import Machine
from gpulab.adapters.peers import credentials
from gpulab.commands import allocate_gpu, gpu_status
from gpulab.commands.allocate_gpu import Stop, ask, parse, seconds
from gpulab.errors import GpulabError
from gpulab.services import broker_server
from gpulab.services.broker_server import Server

SOURCE = Path(allocate_gpu.__file__).parents[2]
START = "import sys; sys.path.append({source!r}); from gpulab.commands import allocate_gpu as a; a.SOCKET={path!r}; "
RUN = "a.main.__defaults__=(a.SOCKET,); a.run()"


class Lab:
    """A broker that takes real processes for callers."""

    def __init__(self, folder):
        self.machine = Machine(folder)
        self.path = str(folder / "broker.sock")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(50)
        self.start()

    def start(self):
        self.stopped = threading.Event()
        server = Server(
            self.listener, self.machine.start(), time.monotonic, 0.1, replaced=self.stopped.is_set,
            member=lambda _: True, identify=self.identify,
        )  # fmt: skip
        self.thread = threading.Thread(target=self.serve, args=(server,), daemon=True)
        self.thread.start()

    def serve(self, server):
        while not self.stopped.is_set():
            server.run()  # ends when idle; systemd would start another
        for client in server._open:
            client.socket.close()

    def stop(self):
        self.stopped.set()
        self.thread.join(10)
        assert not self.thread.is_alive()

    def identify(self, connection):
        pid, _ = credentials(connection)
        client = self.machine.client()
        if not (
            self.machine.root / f"proc/{pid}"
        ).exists():  # coming back changes nothing: it may be in a lease's group
            self.machine.process(pid, 1001)
        object.__setattr__(client.peer, "pid", pid)
        object.__setattr__(client.peer, "pidfd", os.pidfd_open(pid))
        return client.peer

    def run(self, *arguments, **options):
        code = START.format(source=str(SOURCE), path=self.path) + RUN
        return subprocess.Popen(
            [sys.executable, "-IS", "-c", code, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
        )  # fmt: skip

    def done(self, *arguments, **options):
        process = self.run(*arguments, **options)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err


MAY_BE_IGNORED = 0x7FFFFFFE
"""Signals by their bits, without 32 and 33 that the C library uses itself, and SIGHUP that nohup(1) takes away."""


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setattr(broker_server, "TICK", 0.05)
    lab = Lab(tmp_path)
    yield lab
    lab.stop()
    lab.listener.close()


def test_it_becomes_the_command_with_nothing_changed_but_the_cards(lab):
    show = (
        "import json,os,signal,sys; print(json.dumps([os.getpid(), dict(os.environ), sys.stdin.read(), os.getcwd(),"
        " sorted(map(int, os.listdir('/proc/self/fd')))[:-1], open('/proc/self/status').read()]))"
    )
    # A locale that Python would change for itself (PEP 538), were it not told otherwise.
    environ = {"PATH": os.environ["PATH"], "LANG": "C", "HOME": "/nowhere", "PYTHONCOERCECLOCALE": "0"}
    process = lab.run("--", sys.executable, "-c", show, env=environ, stdin=subprocess.PIPE, cwd="/")
    out, err = process.communicate("what was typed", timeout=30)
    assert err == ""
    pid, seen, typed, folder, descriptors, status = json.loads(out)
    assert (pid, typed, folder, descriptors) == (process.pid, "what was typed", "/", [0, 1, 2])
    assert seen == environ | {"CUDA_VISIBLE_DEVICES": "GPU-0", "GPULAB_LEASE": "1"}
    ignored = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")), 16)
    # A Python command ignores SIGPIPE and SIGXFSZ of its own accord; nothing else may be.
    assert ignored & MAY_BE_IGNORED & ~(1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0


def test_the_command_has_the_default_signals(lab):
    status, out, _ = lab.done("grep", "SigIgn", "/proc/self/status")
    assert (status, int(out.split()[1], 16) & MAY_BE_IGNORED) == (0, 0)


@pytest.mark.parametrize("status", [0, 1, 75, 200])
def test_the_exit_status_is_the_commands(lab, status):
    assert lab.done("sh", "-c", f"exit {status}")[0] == status


def test_a_signal_ends_the_command_and_is_seen_as_such(lab):
    assert lab.done("sh", "-c", "kill -TERM $$")[0] == -signal.SIGTERM


def test_what_cannot_be_run_is_told_as_env_does(lab):
    assert lab.done("--", "/no/such")[0] == 127
    assert lab.done("--", "/etc/passwd")[0] == 126
    assert "there is no such command" in lab.done("no-such-command")[2]


def test_a_command_is_looked_for_as_a_shell_does(lab, tmp_path):
    for folder, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "hello").write_text(f"#!/bin/sh\necho {folder}\n")
        (tmp_path / folder / "hello").chmod(mode)
    path = f"{tmp_path}/nowhere:/dev/null:{tmp_path}/first:{tmp_path}/second"
    assert lab.done("--", "hello", env={"PATH": path})[:2] == (0, "second\n")
    assert lab.done("--", "hello", env={"PATH": ":/bin"}, cwd=tmp_path / "second")[:2] == (0, "second\n")
    status, _, told = lab.done("--", "hello", env={"PATH": f"{tmp_path}/first"})
    assert (status, "hello cannot be run: Permission denied" in told) == (126, True)


def test_a_full_server_is_told_in_one_line(lab):
    lab.machine.get(cards=4)
    status, out, err = lab.done("true")
    assert (status, out, err.count("\n")) == (75, "", 1)
    assert "bob has card 0, card 1, card 2, card 3" in err


def test_waiting_has_an_end(lab):
    lab.machine.get(cards=4)
    status, _, err = lab.done("--wait", "1s", "--", "true")
    assert status == 75
    assert "waiting, number 1 of 1 in line" in err
    assert "no card came free in time" in err


def test_ctrl_c_leaves_the_line_as_a_killed_command_would(lab):
    lab.machine.get(cards=4)
    process = lab.run("--wait", "true")
    assert "number 1 of 1" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert err == ""
    for _ in range(100):
        if not lab.machine.files("queue"):
            break
        time.sleep(0.05)
    assert lab.machine.files("queue") == []


def test_a_restart_of_the_broker_is_not_noticed(lab):
    holder = lab.machine.get(cards=4)
    first, second = lab.run("--wait", "true"), None
    assert "number 1 of 1" in first.stderr.readline()
    second = lab.run("--wait", "sh", "-c", "exit 3")
    assert "number 2 of 2" in second.stderr.readline()
    for _ in range(3):
        lab.stop()
        lab.start()
    lab.machine.end(holder.peer.pid)
    ended = (first.wait(30), second.wait(30))
    assert ended == (0, 3), (first.stderr.read(), second.stderr.read())


@pytest.mark.parametrize("unread", [False, True])
def test_who_is_turned_away_before_the_request_is_sent_hears_why(tmp_path, monkeypatch, unread):
    """The broker may refuse at the door, and hang up, before or after the request has come."""
    path = str(tmp_path / "broker.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(5)
    connect, send = allocate_gpu.connect, allocate_gpu.send

    def turn_away(client):
        client.send(b"refused\nstatus=125\nsay=you are no member of the lab")
        client.close()

    def connected(*arguments):
        ours = connect(*arguments)
        theirs = listener.accept()[0]
        monkeypatch.setattr(allocate_gpu, "send", lambda *a: (send(*a), turn_away(theirs)) if unread else send(*a))
        if not unread:
            turn_away(theirs)
        return ours

    monkeypatch.setattr(allocate_gpu, "connect", connected)
    with pytest.raises(Stop, match="you are no member of the lab"):
        ask("lease", {}, 5, path)
    listener.close()


def test_without_a_broker_it_says_where_to_look(lab, tmp_path):
    lab.path = str(tmp_path / "none.sock")
    status, _, err = lab.done("true")
    assert status == 125
    assert "systemctl status gpulab-broker.socket" in err


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["train"], ({}, None, ["train"])),
        (["--gpus", "2", "--", "--odd"], ({"cards": "2"}, None, ["--odd"])),
        (["--mem=20G", "--share", "x", "--gpus"], ({"mem": "20G", "share": "1"}, None, ["x", "--gpus"])),
        (["--wait", "x"], ({"wait": "1"}, None, ["x"])),
        (["--wait", "30m", "x"], ({"wait": "1"}, 1800.0, ["x"])),
        (["--wait=1.5h", "x"], ({"wait": "1"}, 5400.0, ["x"])),
        (["--dry-run"], ({"plan": "1"}, None, [])),
    ],
)
def test_command_lines(typed, expected):
    assert parse(typed) == expected


@pytest.mark.parametrize("typed", [[], ["--"], ["--gpu", "1", "x"], ["--gpus"], ["--wait=soon", "x"], ["--share=1"]])
def test_command_lines_that_are_refused(typed):
    with pytest.raises(Stop) as caught:
        parse(typed)
    assert caught.value.args[1] == 125


@pytest.mark.parametrize("text", ["", "m", "30", "-1m", "1e3s", "infs", "٣m", "1..2m"])
def test_times_that_are_none(text):
    assert seconds(text) is None


def test_the_status_is_a_table_or_json_and_cannot_control_the_terminal(lab, capsys):
    lab.machine.get(lab.machine.client("bob"), share=1, mem="30G", command="\x1b]0;evil\x07 python \x9b31m")
    lab.machine.use(1, 77, gib=3, user="dave")
    lab.machine.lost = {3}
    assert gpu_status.main([], lab.path) == 0
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    rows = out.splitlines()
    assert rows[1].split() == ["0", "A100", "0", "30", "80", "bob", *rows[1].split()[6:]]
    assert "bob (shared, 0 of 30) for 0 s: \\x1b]0;evil\\x07 python" in rows[1]
    assert "without a lease: dave (python, PID 77)" in rows[2]
    assert rows[3].endswith("free")
    assert "cannot be given: fallen off the bus" in rows[4]
    assert gpu_status.main(["--json"], lab.path) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["devices"][0]["memory_promised"] == 30 << 30
    assert document["devices"][3]["memory_used"] is None


def test_no_driver_is_never_shown_as_free(lab, capsys):
    lab.machine.reason = "there is no NVIDIA driver"
    assert gpu_status.main([], lab.path) == 1
    out = capsys.readouterr().out
    assert "no cards: there is no NVIDIA driver" in out
    assert "free" not in out


def test_without_a_broker_the_status_says_so(tmp_path):
    with pytest.raises(GpulabError, match="cannot be reached"):
        gpu_status.main([], str(tmp_path / "none.sock"))
