"""The network line as the kernel has it: applied, compared, taken back."""

from __future__ import annotations

import json

import pytest
from gpulab.commands import net
from gpulab.errors import GpulabError, InputError
from gpulab.rules.bandwidth import IFB
from gpulab.services import bandwidth_use
from gpulab.services.bandwidth import MODULES, World, apply, confirm, differs, in_force, refused, undo, wanted
from gpulab.settings import Bandwidth

ASKED = Bandwidth(up="100mbit", down="200mbit", interface="eth0", exempt=("10.0.0.0/8",))


class Kernel:
    """Keeps qdiscs, devices and tables as the kernel does, so far as the tools here tell."""

    def __init__(self, root, lacks=()):
        self.net = root / "sys/class/net"
        self.lacks = set(lacks)
        self.qdiscs = {}
        self.tables = []
        self.rates = {}
        self.timers = []
        for name in ("lo", "eth0"):
            self.device(name)

    def device(self, name):
        (self.net / name).mkdir(parents=True)
        (self.net / name / "mtu").write_text("1500\n")

    def __call__(self, argv, _patience, given=""):  # noqa: C901, PLR0912 - one line for each command
        argv = list(argv)
        match argv:
            case ["modprobe", *rest]:
                if self.lacks & set(rest):
                    raise OSError("not found")
            case ["ip", "-4", "-json", "route", "show", "default"]:
                return '[{"dev": "wlan0", "metric": 600}, {"dev": "eth0", "metric": 100}]'
            case ["ip", "-batch", "-"]:
                self.device(IFB)
            case ["ip", "link", "delete", name]:
                self.qdiscs.pop(name, None)
                if not (self.net / name).exists():
                    raise OSError("Cannot find device")
                (self.net / name / "mtu").unlink()
                (self.net / name).rmdir()
            case ["nft", "--file", "-"]:
                self.tables = [given]
            case ["nft", "delete", *_]:
                self.tables = []
            case ["nft", *_]:
                return "".join(self.tables)
            case ["tc", "-batch", "-"]:
                for line in given.splitlines():
                    words = line.split()
                    if words[:2] == ["class", "add"]:
                        self.rates[words[3]] = words[words.index("rate") + 1].removesuffix("bit")
                    self.qdiscs.setdefault(words[3], []).append(line)
            case ["tc", "-json", "qdisc", "show", "dev", name]:
                return json.dumps(self.qdiscs.get(name, [{"kind": "noqueue", "handle": "0:", "root": True}]))
            case ["tc", "qdisc", "delete", "dev", name, _]:
                self.qdiscs.pop(name, None)
            case ["tc", "class", "show", "dev", name, *_]:
                return f"class htb 1:1 root leaf 10: prio 0 rate {int(self.rates[name]) // 10**6}Mbit ceil 1Mbit"
            case ["tc", *_]:
                return f"{argv} {self.qdiscs.get(argv[argv.index('dev') + 1])}"
            case ["systemd-run", *rest]:
                self.timers.append(rest)
        return ""


@pytest.fixture
def kernel(tmp_path):
    return Kernel(tmp_path)


@pytest.fixture
def world(tmp_path, kernel):
    return World(tmp_path, kernel)


def test_the_interface_is_that_of_the_default_route(world):
    shape = wanted(Bandwidth(up="100mbit"), world)
    assert (shape.interface, shape.mtu, shape.up, shape.down) == ("eth0", 1500, 100_000_000, 100_000_000)
    assert wanted(Bandwidth(), world) is None


def test_a_wrong_interface_is_named_with_those_there_are(world):
    with pytest.raises(InputError, match=r'bandwidth_interface is "eth7"; this server has eth0$'):
        wanted(Bandwidth(up="1gbit", interface="eth7"), world)


def test_once_applied_there_is_nothing_to_do(world, kernel):
    shape = wanted(ASKED, world)
    assert apply(shape, world, dry_run=True)
    assert kernel.qdiscs == {}
    assert apply(shape, world)
    assert in_force(world) == shape
    assert not apply(shape, world)
    assert not apply(shape, world, dry_run=True)


def test_what_a_hand_changed_is_seen_and_repaired(world, kernel):
    shape = wanted(ASKED, world)
    apply(shape, world)
    kernel.qdiscs["eth0"].pop()
    assert differs(shape, world)
    assert apply(shape, world)
    assert not differs(shape, world)


@pytest.mark.parametrize("module", [*MODULES, "ifb"])
def test_what_the_kernel_lacks_is_named_and_nothing_is_left(tmp_path, module):
    kernel = Kernel(tmp_path, {module})
    world = World(tmp_path, kernel)
    with pytest.raises(GpulabError, match=f"this kernel lacks {module};"):
        apply(wanted(ASKED, world), world)
    assert (kernel.qdiscs, kernel.tables, in_force(world)) == ({}, [], None)


@pytest.mark.parametrize("step", ["chain owner", "link add", "matchall"])
def test_a_change_that_fails_leaves_what_was_before(world, kernel, step):
    before = wanted(ASKED, world)
    apply(before, world)
    good = dict(kernel.rates)

    failures = [OSError("Invalid argument")]

    def fails_once(argv, patience, given=""):
        if step in given and failures:
            raise failures.pop()
        return kernel(argv, patience, given)

    broken = World(world.root, fails_once)
    with pytest.raises(GpulabError, match="the network line is as it was before"):
        apply(wanted(Bandwidth(up="50mbit", interface="eth0"), world), broken)
    assert kernel.rates == good
    assert in_force(world) == before


def test_somebody_else_s_shape_is_not_touched(world, kernel):
    kernel.qdiscs["eth0"] = [{"kind": "cake", "handle": "8001:", "root": True}]
    for dry_run in (True, False):
        with pytest.raises(InputError, match=r"somebody else .cake 8001:.; end that first: tc qdisc del dev eth0 root"):
            apply(wanted(ASKED, world), world, dry_run=dry_run)
    assert kernel.qdiscs["eth0"][0]["kind"] == "cake"


def test_a_change_that_nobody_confirms_goes_back_and_is_remembered(world, kernel):
    first, second = wanted(ASKED, world), wanted(Bandwidth(up="1mbit", interface="eth0"), world)
    apply(first, world)
    apply(second, world, undo_after=30)
    assert "--on-active=30" in kernel.timers[0]
    undo(world)
    assert in_force(world) == first
    assert refused(second, world)
    assert not refused(first, world)
    apply(second, world, undo_after=30)
    confirm(world)
    undo(world)
    assert in_force(world) == second
    assert not refused(second, world)


def test_the_first_shape_of_all_goes_back_to_none(world, kernel):
    apply(wanted(ASKED, world), world, undo_after=30)
    undo(world)
    assert in_force(world) is None
    assert (kernel.tables, IFB in kernel.qdiscs) == ([], False)


def test_the_end_leaves_nothing(world, kernel):
    apply(wanted(ASKED, world), world)
    assert apply(None, world)
    assert (kernel.qdiscs, kernel.tables, (kernel.net / IFB).exists()) == ({}, [], False)
    assert not apply(None, world)


def test_members_are_told_by_name_and_the_busiest_comes_first(monkeypatch):
    def listing(up, down):
        sets = [
            {"set": {"name": name, "elem": [{"elem": {"val": uid, "counter": {"packets": 1, "bytes": count}}}
                                            for uid, count in counts.items()]}}
            for name, counts in (("used_up", up), ("used_down", down))
        ]  # fmt: skip
        return json.dumps({"nftables": [{"metainfo": {}}, *sets]})

    answers = iter([listing({0: 10, 4001: 1000}, {}), listing({0: 20, 4001: 2000}, {4002: 5000})])
    world = World(run=lambda *_: next(answers))
    found = bandwidth_use.uses(bandwidth_use.read(world), bandwidth_use.read(world), 2.0)
    assert [(use.user, use.up, use.down, use.up_rate, use.down_rate) for use in found] == [
        ("4002", 0, 5000, 0, 20_000),
        ("4001", 2000, 0, 4000, 0),
        (bandwidth_use.OTHERS, 20, 0, 40, 0),
    ]


def test_without_shaping_status_says_which_variable(monkeypatch, tmp_path):
    monkeypatch.setattr("gpulab.services.bandwidth.World.root", tmp_path, raising=False)
    with pytest.raises(GpulabError, match="bandwidth_enabled"):
        net.main(["status"])
