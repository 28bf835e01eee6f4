"""The broker's socket against clients that misbehave: real connections, real processes, a made-up server behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from broker_world import Machine, answer_of
from gpulab.adapters import peers
from gpulab.errors import NotPermittedError
from gpulab.rules.lease_wire import LARGEST
from gpulab.services import broker_server
from gpulab.services.broker_server import Server

LEASE = b"lease\ncommand=train"


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    machine.process(os.getpid(), os.getuid())
    return machine


class Address(str):
    """Path of the socket; `peer` is changed by tests that ask as somebody else."""

    __slots__ = ("server",)


@pytest.fixture
def address(machine, tmp_path, monkeypatch):
    """Serve in a thread. Callers are processes of the made-up server, one for each connection."""
    path = Address(tmp_path / "broker.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(200)
    monkeypatch.setattr(broker_server, "SILENCE", 1.0)
    monkeypatch.setattr(broker_server, "TICK", 0.05)
    served = threading.Event()

    def identify(_connection):
        client = machine.client()
        read, write = os.pipe()
        os.close(write)
        object.__setattr__(client.peer, "pidfd", read)
        return client.peer

    server = Server(
        listener, machine.broker, time.monotonic, 600, member=lambda user: user == "bob", identify=identify,
        replaced=served.is_set,
    )  # fmt: skip
    path.server = server
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield path
    served.set()
    connect(path).close()  # it looks up from what it waits for
    thread.join(10)
    assert not thread.is_alive()
    listener.close()


def connect(address):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(10)
    connection.connect(address)
    return connection


def nobody_waits(machine):
    for _ in range(100):
        if not machine.files("queue"):
            return True
        time.sleep(0.02)
    return False


def ask(address, data=LEASE):
    with connect(address) as connection:
        connection.send(data)
        return answer_of(connection.recv(1 << 16))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\x00",
        b"give\ncards=1",
        b"lease\ncards=-1",
        b"lease\ncards=1e9",
        b"lease\ncards=1\ncards=2",
        b"lease\nuid=0",
        b"lease\npid=1",
        b"lease\nvisible=GPU-0",
        b"lease\nmem=0G",
        b"lease\nmem=" + b"9" * 400 + b"G",
        b"lease\nhours=nan",
        b"lease\nhours=inf",
        b"lease\nshare=1",
        b"lease\nwait=yes",
        b"lease\n" + b"=" * 100,
    ],
)
def test_a_wrong_message_is_refused_in_one_line_and_costs_nobody_else(address, machine, data):
    answer = ask(address, data)
    assert (answer["verb"], answer["status"]) == ("refused", "125")
    assert answer["say"].isprintable()
    assert machine.moved == []
    assert ask(address)["verb"] == "lease"


def test_an_oversized_message_is_refused(address):
    assert "at most" in ask(address, LEASE + b"x" * LARGEST)["say"]


def test_several_messages_at_once_are_one_too_many(address, machine):
    with connect(address) as connection:
        connection.send(b"lease\nwait=1\ncards=4")
        assert answer_of(connection.recv(4096))["verb"] == "lease"
    for _ in range(3):
        with connect(address) as connection:
            connection.send(b"lease\nwait=1")
            connection.send(b"lease\nwait=1")
            heard = [answer_of(connection.recv(4096))["verb"] for _ in range(2)]
            assert heard[-1] == "refused"
    assert nobody_waits(machine), "and its first one is forgotten"


def test_descriptors_sent_along_are_not_taken(address):
    before = len(os.listdir("/proc/self/fd"))
    with connect(address) as connection:
        socket.send_fds(connection, [LEASE], [0] * 20)
        assert answer_of(connection.recv(4096))["verb"] == "lease"
    time.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_silent_clients_hold_up_nobody_and_are_let_go(address):
    silent = [connect(address) for _ in range(30)]
    began = time.monotonic()
    assert ask(address)["verb"] == "lease"
    assert time.monotonic() - began < 0.9
    for connection in silent:
        assert connection.recv(10) == b""
        connection.close()


def test_clients_that_never_read_are_let_go(address, machine):
    connection = connect(address)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    connection.send(b"lease\ncards=4\nwait=1")
    deaf = [connect(address) for _ in range(20)]
    for each in deaf:
        each.send(b"lease\nwait=1")
        each.shutdown(socket.SHUT_RD)
    assert ask(address, b"status")["verb"] == "status"
    for each in (connection, *deaf):
        each.close()


def test_an_account_has_so_many_connections_and_no_more(address, monkeypatch):
    monkeypatch.setattr(broker_server, "PER_ACCOUNT", 5)
    ours = [connect(address) for _ in range(5)]
    time.sleep(0.2)
    with connect(address) as connection:
        assert "bob has 5 requests open already" in answer_of(connection.recv(4096))["say"]
    for connection in ours:
        connection.close()
    time.sleep(0.2)
    assert ask(address)["verb"] == "lease"


def test_who_is_no_member_is_turned_away(address):
    address.server.member = lambda _: False
    with connect(address) as connection:
        assert "bob is no member of the lab" in answer_of(connection.recv(4096))["say"]


def test_a_client_that_hangs_up_leaves_the_line_at_once(address, machine):
    ask(address, b"lease\ncards=4")
    waiting = connect(address)
    waiting.send(b"lease\nwait=1")
    assert answer_of(waiting.recv(4096))["position"] == "1"
    waiting.close()
    assert nobody_waits(machine)


def test_it_ends_when_nobody_needs_it(machine, tmp_path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "idle.sock"))
    listener.listen()
    began = time.monotonic()
    Server(listener, machine.broker, time.monotonic, 0.2).run()
    assert 0.1 < time.monotonic() - began < 5
    listener.close()


# Who is at the other end, as the kernel says


def peer_of(script):
    """Let another process connect; return our end."""
    path = f"\0gpulab-test-{os.getpid()}-{time.monotonic_ns()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()
    code = f"import os,socket,time\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n{script.format(path=path)}"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    connection, _ = listener.accept()
    listener.close()
    return child, connection


@pytest.mark.parametrize("without", [False, True], ids=["SO_PEERPIDFD", "pidfd_open"])
def test_the_peer_is_the_process_that_connected(without):
    child, connection = peer_of("s.connect({path!r}); time.sleep(30)")
    older = (lambda _connection, pid: os.pidfd_open(pid)) if without else None
    peer = peers.identify_peer(connection, open_pidfd=older)
    assert (peer.pid, peer.uid) == (child.pid, os.getuid())
    assert peer.alive()
    child.kill()
    child.wait()
    assert not peer.alive()
    assert not peers.plain(peer.pid, peer.uid)
    peer.close()
    connection.close()


def test_a_peer_that_has_ended_is_nobody():
    child, connection = peer_of("s.connect({path!r})")
    child.wait()
    with pytest.raises(NotPermittedError, match="ended"):
        peers.identify_peer(connection)
    connection.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take another account's rights")
@pytest.mark.parametrize(
    ("rights", "words"),
    [
        ("os.setresuid(1001,1001,0)", "rights of several accounts"),
        ("os.setresuid(1001,0,0)", "rights of several accounts"),
        ("os.setresuid(0,1001,0)", "rights of several accounts"),
        ("os.setresuid(1001,1001,1002)", "rights of several accounts"),
    ],
)
def test_a_peer_with_other_rights_than_one_accounts_is_refused(rights, words):
    child, connection = peer_of(f"{rights}; s.connect({{path!r}}); time.sleep(30)")
    with pytest.raises(NotPermittedError, match=words):
        peers.identify_peer(connection)
    child.kill()
    child.wait()
    connection.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take another account's rights")
def test_rights_gained_after_connecting_are_noticed():
    script = (
        "os.setresuid(1001,1001,0); s.connect({path!r}); os.setresuid(0,0,0); print('now',flush=True); time.sleep(30)"
    )
    child, connection = peer_of(script)
    child.stdout.readline()
    with pytest.raises(NotPermittedError, match="rights of several accounts"):
        peers.identify_peer(connection)
    child.kill()
    child.wait()
    child.stdout.close()
    connection.close()


def test_credentials_cannot_be_forged_by_what_is_sent():
    """SO_PEERCRED is set by the kernel at connect(2); SCM_CREDENTIALS in a message change nothing."""
    child, connection = peer_of("s.connect({path!r}); s.send(b'lease\\npid=1\\nuid=0'); time.sleep(30)")
    assert peers.credentials(connection) == (child.pid, os.getuid())
    child.kill()
    child.wait()
    connection.close()
