"""A server for tests of the broker: cards, processes and scopes as files and records, no systemd and no NVML."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from gpulab.adapters.peers import Peer
from gpulab.rules.cards import Card, Cards, Process
from gpulab.services.broker import Broker
from gpulab.services.broker_world import World
from gpulab.services.lease_policy import Policy
from gpulab.settings import Allocator, Windows

GIB = 1 << 30
BOOT_GROUP = "0::/init.scope\n"


def answer_of(data: bytes) -> dict[str, str]:
    verb, *lines = data.decode().split("\n")
    return {"verb": verb, **dict(line.split("=", 1) for line in lines)}


class Living(Peer):
    """A peer whose life is a folder in the test's /proc."""

    def alive(self) -> bool:
        return Path(self.user_root, "proc", str(self.pid)).exists()  # type: ignore[attr-defined]


@dataclass(eq=False)
class Client:
    """A connection: what it was sent, and whether it was ended."""

    peer: Peer
    heard: list[dict[str, str]] = field(default_factory=list)
    closed: bool = False

    def send(self, data: bytes) -> None:
        self.heard.append(answer_of(data))

    def close(self) -> None:
        self.closed = True

    @property
    def last(self) -> dict[str, str]:
        return self.heard[-1]


@dataclass
class Machine:
    """The server."""

    root: Path
    count: int = 4
    clock: float = 1000.0
    next_pid: int = 500
    reason: str = ""
    lost: set[int] = field(default_factory=set)
    on_cards: dict[int, list[Process]] = field(default_factory=dict)
    moved: list = field(default_factory=list)
    complaint: str = ""
    nodes_complaint: str = ""
    strays: dict[str, str] = field(default_factory=dict)
    policy: Policy = field(default_factory=lambda: Policy(windows=Windows(())))
    lines: list[str] = field(default_factory=list)
    settings: Allocator = field(default_factory=Allocator)

    def __post_init__(self) -> None:
        (self.root / "run/gpulab").mkdir(parents=True)
        self._write("proc/1/cgroup", BOOT_GROUP)
        self.broker = self.start()

    def start(self) -> Broker:
        """Start a broker, as after the former one died."""
        self.broker = Broker(self.settings, self.world())
        return self.broker

    def world(self) -> World:
        return World(
            root=self.root,
            look=self.look,
            mover=self,
            strays=self.find_strays,
            make_nodes=lambda _card, _instance: self.nodes_complaint,
            policy=lambda: self.policy,
            now=lambda: self.clock,
            monotonic=lambda: self.clock,
            log=self.lines.append,
        )

    def find_strays(self, nodes, owners):
        assert set(nodes) <= set(owners)
        return {number: self.strays[node] for number, own in nodes.items() for node in own if node in self.strays}

    def look(self) -> Cards:
        if self.reason:
            return Cards(reason=self.reason)
        return Cards(tuple(self._card(index) for index in range(self.count)))

    def _card(self, index: int) -> Card:
        if index in self.lost:
            return Card(index, lost=True, reason="fallen off the bus")
        processes = tuple(self.on_cards.get(index, ()))
        used = sum(each.memory or 0 for each in processes)
        return Card(
            index, f"GPU-{index}", "A100", minor=3 - index, memory_total=81 * GIB, memory_used=used,
            memory_free=80 * GIB - used, mig_enabled=False, processes=processes,
        )  # fmt: skip

    def use(self, index: int, pid: int, gib: int, user: str = "dave", kind: str = "C") -> None:
        self.on_cards.setdefault(index, []).append(Process(pid, 1, 1009, user, "python", gib * GIB, kind))

    def client(self, user: str = "bob", uid: int = 1001, **changes: object) -> Client:
        """Start a process and connect it."""
        self.next_pid += 1
        pid = self.next_pid
        self.process(pid, uid)
        peer = Living(pid, 7, uid, user, -1)
        object.__setattr__(peer, "user_root", self.root)
        return Client(peer, **changes)

    def again(self, client: Client) -> Client:
        """Connect the same process once more."""
        return Client(client.peer)

    def process(self, pid: int, uid: int, uids: str = "", state: str = "S") -> None:
        self._write(f"proc/{pid}/stat", f"{pid} (python) {state} " + "0 " * 18 + "7 0\n")
        self._write(f"proc/{pid}/status", f"Name:\tpython\nUid:\t{uids or chr(9).join([str(uid)] * 4)}\n")
        self._write(f"proc/{pid}/cgroup", "0::/user.slice\n")

    def end(self, pid: int) -> None:
        """End a process, as the kernel does: out of /proc and out of its cgroup."""
        for path in (self.root / f"proc/{pid}").iterdir():
            path.unlink()
        (self.root / f"proc/{pid}").rmdir()
        for path in self.root.glob("sys/fs/cgroup/gpulab.slice/gpulab-lease.slice/*/*/cgroup.procs"):
            left = [word for word in path.read_text().split() if word != str(pid)]
            if left:
                path.write_text("\n".join(left))
            else:
                path.unlink()
                path.parent.rmdir()

    def move(self, moves) -> list[str]:
        """Stand in for systemd."""
        for order in moves:
            self.moved.append(order)
            if not self.complaint:
                group = f"gpulab.slice/gpulab-lease.slice/{order.slice}/{order.scope}"
                self._write(f"sys/fs/cgroup/{group}/cgroup.procs", f"{order.pid}\n")
                self._write(f"proc/{order.pid}/cgroup", f"0::/{group}\n")
        return [self.complaint for _ in moves]

    def ask(self, client: Client, verb: str = "lease", **values: object) -> Client:
        self.broker.ask(client, "\n".join([verb, *(f"{key}={value}" for key, value in values.items())]).encode())
        return client

    def get(self, client: Client | None = None, verb: str = "lease", **values: object) -> Client:
        """Ask and serve."""
        client = self.ask(client or self.client(), verb, **values)
        self.broker.serve()
        return client

    def files(self, folder: str) -> list[str]:
        path = self.root / "run/gpulab" / folder
        return sorted(os.listdir(path)) if path.is_dir() else []

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
