"""The network line as the kernel has it: applied, compared, taken back."""

from __future__ import annotations

import json

import pytest
from gpulab.commands import net
from gpulab.errors import GpulabError, InputError
from gpulab.rules.bandwidth import IFB
from gpulab.services import bandwidth_use
from gpulab.services.bandwidth import MODULES, World, apply, confirm, confirmed, differs, in_force, keep, undo, wanted
from gpulab.settings import Bandwidth

ASKED = Bandwidth(up="100mbit", down="200mbit", interface="eth0", exempt=("10.0.0.0/8",))
OTHER = Bandwidth(up="1mbit", interface="eth0")


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

    def __call__(self, argv, _patience, given=""):  # noqa: C901, PLR0911, PLR0912 - one line for each command
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
            case ["systemctl", "show", *_]:
                return "active\n\ninactive\n" if self.timers else "inactive\n\ninactive\n"
            case ["systemctl", "stop", *_]:
                self.timers.clear()
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
    assert apply(ASKED, world, dry_run=True)
    assert kernel.qdiscs == {}
    assert apply(ASKED, world)
    assert in_force(world) == wanted(ASKED, world)
    assert not apply(ASKED, world)
    assert not apply(ASKED, world, dry_run=True)


def test_what_a_hand_changed_is_seen_and_repaired(world, kernel):
    apply(ASKED, world)
    kernel.qdiscs["eth0"].pop()
    assert differs(wanted(ASKED, world), world)
    assert keep(world)
    assert not differs(wanted(ASKED, world), world)
    assert not keep(world)


def test_after_a_reboot_what_was_confirmed_comes_back_whatever_the_settings_say_now(world, kernel, tmp_path):
    apply(ASKED, world)
    reboot(kernel, tmp_path)
    assert keep(world)
    assert in_force(world) == wanted(ASKED, world)


def reboot(kernel, root):
    kernel.qdiscs, kernel.tables, kernel.timers = {}, [], []
    (kernel.net / IFB / "mtu").unlink()
    (kernel.net / IFB).rmdir()
    (root / "run/gpulab/net.json").unlink()


@pytest.mark.parametrize("module", [*MODULES, "ifb"])
def test_what_the_kernel_lacks_is_named_and_nothing_is_left(tmp_path, module):
    kernel = Kernel(tmp_path, {module})
    world = World(tmp_path, kernel)
    with pytest.raises(GpulabError, match=f"this kernel lacks {module};"):
        apply(ASKED, world)
    assert (kernel.qdiscs, kernel.tables, in_force(world)) == ({}, [], None)
    assert not keep(world), "the timer does not try what never worked"


@pytest.mark.parametrize("step", ["chain owner", "link add", "matchall"])
def test_a_change_that_fails_leaves_what_was_before(world, kernel, step):
    apply(ASKED, world)
    good = dict(kernel.rates)
    failures = [OSError("Invalid argument")]

    def fails_once(argv, patience, given=""):
        if step in given and failures:
            raise failures.pop()
        return kernel(argv, patience, given)

    with pytest.raises(GpulabError, match="the network line is as it was before"):
        apply(OTHER, World(world.root, fails_once))
    assert kernel.rates == good
    assert in_force(world) == wanted(ASKED, world)
    assert confirmed(world) == ASKED


def test_a_kernel_that_shapes_to_another_rate_is_not_believed(world, kernel):
    def rounds(argv, patience, given=""):
        return kernel(argv, patience, given).replace("rate 100Mbit", "rate 98Mbit")

    with pytest.raises(GpulabError, match=r"the kernel shapes eth0 to .98000000.0. instead of 100000000 bit/s"):
        apply(ASKED, World(world.root, rounds))
    assert (kernel.qdiscs, in_force(world)) == ({}, None)


def test_one_who_is_killed_in_the_middle_leaves_word_of_it(world, kernel):
    def dies(argv, patience, given=""):
        answer = kernel(argv, patience, given)
        if "matchall" in given:
            raise KeyboardInterrupt
        return answer

    with pytest.raises(KeyboardInterrupt):
        apply(ASKED, World(world.root, dies))
    assert kernel.qdiscs["eth0"]
    assert apply(Bandwidth(), world)
    assert (kernel.qdiscs, kernel.tables, in_force(world)) == ({}, [], None)


@pytest.mark.parametrize("dry_run", [True, False])
def test_somebody_else_s_shape_is_not_touched(world, kernel, dry_run):
    kernel.qdiscs["eth0"] = [{"kind": "cake", "handle": "8001:", "root": True}]
    with pytest.raises(InputError, match=r"somebody else .cake 8001:.; end that first: tc qdisc del dev eth0 root"):
        apply(ASKED, world, dry_run=dry_run)
    assert kernel.qdiscs["eth0"][0]["kind"] == "cake"


def test_another_interface_that_somebody_shapes_is_not_touched_either(world, kernel):
    kernel.device("eth1")
    apply(ASKED, world)
    kernel.qdiscs["eth1"] = [{"kind": "cake", "handle": "8001:", "root": True}]
    with pytest.raises(InputError, match="eth1 is shaped by somebody else"):
        apply(Bandwidth(up="1mbit", interface="eth1"), world)


def test_a_change_that_nobody_confirms_goes_back(world, kernel):
    apply(ASKED, world)
    apply(OTHER, world, undo_after=30)
    assert "--on-active=30" in kernel.timers[0]
    assert not keep(world), "a change that is being tried is left alone"
    undo(world)
    kernel.timers.clear()
    assert in_force(world) == wanted(ASKED, world)
    assert not keep(world)
    with pytest.raises(GpulabError, match="changed back before the change was confirmed"):
        confirm(OTHER, world)
    assert confirmed(world) == ASKED


def test_a_change_that_is_confirmed_stays(world, kernel):
    apply(ASKED, world)
    apply(OTHER, world, undo_after=30)
    assert apply(OTHER, world, dry_run=True), "a run that was cut off before it confirmed is not over"
    confirm(OTHER, world)
    kernel.timers.clear()
    assert not apply(OTHER, world, dry_run=True)
    undo(world)
    assert in_force(world) == wanted(OTHER, world)


def test_the_first_shape_of_all_goes_back_to_none(world, kernel):
    apply(ASKED, world, undo_after=30)
    undo(world)
    assert (in_force(world), kernel.tables, kernel.qdiscs) == (None, [], {})


def test_the_end_leaves_nothing(world, kernel):
    apply(ASKED, world)
    assert apply(Bandwidth(), world)
    assert (kernel.qdiscs, kernel.tables, (kernel.net / IFB).exists()) == ({}, [], False)
    assert not apply(Bandwidth(), world)
    assert not keep(world)


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


def test_without_shaping_status_says_which_variable(monkeypatch, world):
    monkeypatch.setattr("gpulab.services.bandwidth.World", lambda: world)
    with pytest.raises(GpulabError, match="bandwidth_enabled"):
        net.main(["status"])
