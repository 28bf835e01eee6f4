"""What the broker stands on: scopes, device nodes, a child that may hang, and the machine put together from NVML."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace

import pytest
from gpulab.adapters import scopes
from gpulab.adapters.apart import run_apart
from gpulab.adapters.device_nodes import make_missing, nodes_of
from gpulab.adapters.scopes import Move, Mover
from gpulab.errors import GpulabError
from gpulab.rules.cards import Card, Cards, MigDevice, Process
from gpulab.rules.leases import GIB, Lease, LeasedCard, Request
from gpulab.services import lease_view


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# Scopes

GROUP = "gpulab.slice/gpulab-lease.slice/gpulab-lease-1001.slice/gpulab-lease-7.scope"


@pytest.mark.parametrize(
    ("tree", "first", "line"),
    [
        ("sys/fs/cgroup", "0::/init.scope", f"0::/{GROUP}"),
        ("sys/fs/cgroup/unified", "0::/init.scope", f"4:memory:/user.slice\n0::/{GROUP}"),
        ("sys/fs/cgroup/systemd", "1:name=systemd:/init.scope", f"3:devices:/\n1:name=systemd:/{GROUP}"),
        ("sys/fs/cgroup/a/b", "0::/a/b/init.scope", f"0::/a/b/{GROUP}"),
    ],
    ids=["unified", "hybrid", "version 1", "container"],
)
def test_a_scope_is_found_on_every_kind_of_cgroup_tree(tmp_path, tree, first, line):
    write(tmp_path, "proc/1/cgroup", f"{first}\n")
    write(tmp_path, f"{tree}/{GROUP}/cgroup.procs", "12\n11\n")
    write(tmp_path, f"{tree}/{GROUP}/below/cgroup.procs", "13\n")
    write(tmp_path, "proc/11/cgroup", f"{line}\n")
    assert scopes.pids("gpulab-lease-7.scope", tmp_path) == (11, 12, 13)
    assert scopes.pids("gpulab-lease-8.scope", tmp_path) == ()
    assert scopes.scope_of(11, tmp_path) == "gpulab-lease-7.scope"
    assert scopes.scope_of(12, tmp_path) == "", "gone"


def test_a_process_cannot_name_itself_into_a_lease(tmp_path):
    write(tmp_path, "proc/1/cgroup", "0::/init.scope\n")
    own = "user.slice/user-1001.slice/user@1001.service"  # a member may make groups below this
    for path in (f"/{own}/{GROUP}", f"/{own}/gpulab-lease-7.scope", f"/x{GROUP}", "/gpulab-lease-7.scope"):
        write(tmp_path, "proc/5/cgroup", f"7:memory:/{GROUP}\n0::{path}\n")
        assert scopes.scope_of(5, tmp_path) == ""


def mover(root, complaint="", after=lambda _: None):
    times = iter(range(1000))
    return Mover(root, 5.0, lambda _move, _seconds: complaint, lambda: next(times), after)


MOVE = Move(11, "gpulab-lease-7.scope", "gpulab-lease-1001.slice", "GPU lease 7 of bob", ("/dev/nvidia1", "char-pts"))


def test_a_move_is_over_when_the_kernel_shows_the_process_in_its_scope(tmp_path):
    write(tmp_path, "proc/11/cgroup", "0::/user.slice\n")
    there = mover(tmp_path, "", lambda _: write(tmp_path, "proc/11/cgroup", f"0::/{GROUP}\n"))
    assert there.move([MOVE]) == [""]


def test_a_move_that_a_predecessor_began_is_no_failure(tmp_path):
    write(tmp_path, "proc/11/cgroup", "0::/user.slice\n")
    complaint = "Unit gpulab-lease-7.scope was already loaded"
    times = iter(n / 100 for n in range(1000))

    def later(_seconds):
        write(tmp_path, "proc/11/cgroup", f"0::/{GROUP}\n")

    assert Mover(tmp_path, 5.0, lambda *_: complaint, lambda: next(times), later).move([MOVE]) == [""]


@pytest.mark.parametrize(
    ("complaint", "words"),
    [
        ("No such process", "systemd would not make gpulab-lease-7.scope: No such process"),
        ("", "did not get into gpulab-lease-7.scope"),
    ],
)
def test_a_move_that_fails_says_why(tmp_path, complaint, words):
    write(tmp_path, "proc/11/cgroup", "0::/user.slice\n")
    (problem,) = mover(tmp_path, complaint).move([MOVE])
    assert words in problem


def test_a_scope_closes_all_devices_but_those_named():
    found = dict(MOVE.properties())
    assert found["DeviceAllow"] == ("a(ss)", [("/dev/nvidia1", "rw"), ("char-pts", "rw")])
    assert found["PIDs"] == ("au", [11])
    assert found["DevicePolicy"] == ("s", "closed")


# Device nodes

INSTANCE = MigDevice(0, "MIG-a", "3g.40gb", 2, 0, 40 * GIB, 0, 40 * GIB)


def test_nodes_follow_the_minor_and_a_mig_instance_has_its_capabilities(tmp_path):
    write(tmp_path, "proc/driver/nvidia-caps/mig-minors", "config 1\ngpu3/gi2/access 426\ngpu3/gi2/ci0/access 427\n")
    card = Card(0, uuid="GPU-a", minor=3)
    assert nodes_of(card, root=tmp_path) == ("/dev/nvidia3",)
    assert nodes_of(card, INSTANCE, tmp_path) == (
        "/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap426", "/dev/nvidia-caps/nvidia-cap427",
    )  # fmt: skip


def test_nodes_that_the_driver_does_not_tell_are_an_error(tmp_path):
    with pytest.raises(GpulabError, match="does not list gpu3/gi2/access"):
        nodes_of(Card(0, minor=3), INSTANCE, tmp_path)
    with pytest.raises(GpulabError, match="card 0 has no device minor"):
        nodes_of(Card(0), root=tmp_path)


def test_nodes_that_nobody_has_needed_yet_are_made_before_the_door_is_shut(tmp_path):
    write(tmp_path, "proc/driver/nvidia-caps/mig-minors", "gpu3/gi2/access 426\ngpu3/gi2/ci0/access 427\n")
    write(tmp_path, "dev/nvidia3", "")
    ran = []

    def run(command, **_options):
        ran.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    assert make_missing(Card(0, minor=3), INSTANCE, tmp_path, run) == ""
    assert ran == [
        ["nvidia-modprobe", "-u", "-c", "0"],
        ["nvidia-modprobe", "-f", "/proc/driver/nvidia/capabilities/gpu3/mig/gi2/access"],
        ["nvidia-modprobe", "-f", "/proc/driver/nvidia/capabilities/gpu3/mig/gi2/ci0/access"],
    ]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (FileNotFoundError(2, "No such file or directory"), "cannot make it (No such file or directory)"),
        (subprocess.TimeoutExpired("nvidia-modprobe", 20), "did not answer in time"),
        (subprocess.CompletedProcess([], 1, "", "no module\n"), "cannot make it (no module)"),
    ],
)
def test_nodes_that_cannot_be_made_are_told(tmp_path, outcome, words):
    def run(_command, **_options):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert words in make_missing(Card(0, minor=3), None, tmp_path, run)


# A child that may hang


def test_a_child_returns_its_result_and_keeps_nothing_open():
    inherited = os.open("/dev/null", os.O_RDONLY)
    assert inherited not in run_apart(lambda: list(map(int, os.listdir("/proc/self/fd"))), patience=5)
    os.close(inherited)
    assert len(run_apart(lambda: "x" * (1 << 20), patience=5)) == 1 << 20


def test_a_child_that_hangs_is_given_up():
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        run_apart(lambda: time.sleep(60), patience=0.2)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("how", [os.abort, lambda: os._exit(0), lambda: 1 / 0])
def test_a_child_that_dies_is_told(how):
    with pytest.raises(ChildProcessError):
        run_apart(how, patience=5)


def test_a_driver_that_hangs_or_crashes_is_a_reason():
    assert "did not answer within 0.1 s" in lease_view.look(lambda: time.sleep(60), patience=0.1).reason
    assert "cannot be asked" in lease_view.look(lambda: 1 / 0).reason


# The machine put together


def a_card(**changes):
    facts = {
        "uuid": "GPU-0", "memory_total": 81 * GIB, "memory_used": 0, "memory_free": 80 * GIB, "mig_enabled": False,
        "processes": (),
    }  # fmt: skip
    return Card(0, **(facts | changes))


def process(pid, gib=1, **changes):
    return replace(Process(pid, 1, 1001, "dave", "python", gib * GIB), **changes)


def places(card, holder=None):
    return lease_view.view(Cards((card,)), (), holder or {}).places


def test_what_the_driver_keeps_for_itself_is_promised_to_nobody():
    (place,) = places(a_card(memory_used=10 * GIB, memory_free=70 * GIB))
    assert place.total == 80 * GIB


def test_only_who_computes_without_a_lease_is_a_stranger():
    card = a_card(
        processes=(process(1), process(2, kind="G"), process(3, user=None), process(4, gib=5)),
        memory_used=8 * GIB,
        memory_free=72 * GIB,
    )
    (place,) = places(card, {4: 7})
    assert place.strangers == ("dave (python, PID 1)",)
    assert place.by_lease == {7: 5 * GIB}
    assert (place.foreign, place.quiet) == (3 * GIB, False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lost": True, "reason": "fallen off the bus"}, "fallen off the bus"),
        ({"uuid": ""}, "does not say which card"),
        ({"processes": None, "reason": "not permitted"}, "processes cannot be read (not permitted)"),
        ({"memory_used": None}, "memory cannot be read"),
        ({"memory_free": None}, "memory cannot be read"),
        ({"mig_enabled": True}, "MIG is on and there is no instance"),
    ],
)
def test_what_is_not_known_is_not_given(changes, words):
    (place,) = places(a_card(**changes))
    assert words in place.reason


def test_a_split_card_is_given_by_instance_and_never_whole():
    other = MigDevice(1, "MIG-b", "1g.10gb", 9, 0, 10 * GIB, 0, 10 * GIB)
    card = a_card(
        mig_enabled=True, mig_devices=(INSTANCE, other), processes=(process(1, gpu_instance=2, compute_instance=0),)
    )
    first, second = places(card)
    assert (first.uuid, first.name, first.total) == ("MIG-a", "card 0 (3g.40gb)", 40 * GIB)
    assert (first.strangers, second.strangers) == (("dave (python, PID 1)",), ())


def test_a_process_that_is_on_no_known_instance_may_be_on_any():
    card = a_card(mig_enabled=True, mig_devices=(INSTANCE,), processes=(process(1),))
    assert places(card)[0].strangers


def test_the_answer_for_gpu_status_has_one_type_a_key():
    lease = Lease(7, "bob", 1001, 5, 1, (LeasedCard("GPU-0", 0, 80 * GIB, shared=False),), 90.0, "train", "s", 2.0)
    seen = lease_view.view(Cards((a_card(), a_card(uuid="", reason="odd"))), (lease,), {})
    document = lease_view.describe(seen, [], now=100.0)
    first, second = document["devices"]
    assert (first["memory_free"], first["memory_promised"], first["leases"]) == (0, 80 * GIB, [7])
    assert (second["memory_free"], second["memory_total"], second["reason"]) == (None, None, "odd")
    assert document["leases"][0]["seconds"] == 10.0
    assert document["leases"][0]["devices"][0]["memory_used"] == 0
    assert "80 of 80 GiB free, nobody has it" in lease_view.praise(seen.places[0], (), Request())
