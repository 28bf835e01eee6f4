"""Who has the card of an ended lease open, by device number, on files that stand in for /dev and /proc."""

from __future__ import annotations

import os
import time

import pytest
from gpulab.rules.cards import Card, Cards, MigDevice
from gpulab.rules.leases import Lease, LeasedCard
from gpulab.services.lease_strays import own_nodes, strays

LEASE = "/gpulab.slice/gpulab-lease.slice/gpulab-lease-61001.slice/gpulab-lease-9.scope"
SESSION = "/user.slice/user-61001.slice/session-1.scope"
NODES = {7: ["/dev/nvidia0"], 8: ["/dev/nvidia1"]}
OWNERS = {7: 61001, 8: 61001}
GUARD = "etc/systemd/system/{}.d/60-gpulab-guard.conf"


@pytest.fixture
def root(tmp_path):
    """A guarded machine whose cards 0 and 1 are /dev/zero and /dev/full by another name."""
    (tmp_path / "dev").mkdir()
    for card, device in enumerate(("zero", "full")):
        os.symlink(f"/dev/{device}", tmp_path / f"dev/nvidia{card}")
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/cgroup").write_text("0::/init.scope\n")
    write(tmp_path / GUARD.format("user-.slice"))
    return tmp_path


def write(path):
    path.parent.mkdir(parents=True)
    path.write_text("")


def process(root, pid, uid, group, *opened, flags="0100002"):
    folder = root / f"proc/{pid}"
    (folder / "task/77/fd").mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (python) S 1 " + " ".join(["0"] * 17) + " 4242 0 0\n")
    (folder / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "cgroup").write_text(f"0::{group}\n")
    (folder / "task/77/fdinfo").mkdir()
    for number, target in enumerate(opened):
        os.symlink(target, folder / f"task/77/fd/{number}")
        (folder / f"task/77/fdinfo/{number}").write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t20\n")


def test_a_member_who_has_it_open_outside_of_leases_is_found_under_any_name(root):
    hidden = root / "home-bob-x"
    os.symlink("/dev/zero", hidden)
    process(root, 10, 61001, SESSION, "/dev/null", "/nowhere", hidden)
    assert strays(NODES, OWNERS, root) == {7: "61001 (python, PID 10)"}


def test_leases_root_admins_and_other_devices_are_not_strays(root):
    process(root, 10, 61001, LEASE, "/dev/zero")
    process(root, 11, 0, "/system.slice/nvidia-persistenced.service", "/dev/zero")
    write(root / GUARD.format("user-61000.slice"))
    process(root, 12, 61000, "/user.slice/user-61000.slice/session-2.scope", "/dev/zero")
    process(root, 13, 61001, SESSION, "/dev/null")
    assert strays(NODES, OWNERS, root) == {}


def test_on_a_shared_card_it_counts_for_ones_own_lease(root):
    process(root, 10, 61001, SESSION, "/dev/zero")
    shared = {7: ["/dev/nvidia0"], 8: ["/dev/nvidia0"]}
    assert set(strays(shared, {7: 61001, 8: 61002}, root)) == {7}
    assert set(strays(shared, {7: 61003, 8: 61002}, root)) == {7, 8}, "handed to a stranger: whose it was, nobody knows"


def test_a_mere_place_in_the_file_tree_holds_up_nobody(root):
    process(root, 10, 61001, SESSION, "/dev/zero", flags=f"0{os.O_PATH:o}")
    assert strays(NODES, OWNERS, root) == {}


def test_without_a_guard_an_open_card_says_nothing(root):
    (root / GUARD.format("user-.slice")).unlink()
    process(root, 10, 61001, SESSION, "/dev/zero")
    assert strays(NODES, OWNERS, root) == {}


def test_a_look_that_hangs_is_given_up_and_told(root, monkeypatch):
    monkeypatch.setattr("gpulab.services.lease_strays._find", lambda *_: time.sleep(60))
    told = []
    assert strays(NODES, OWNERS, root, told.append, patience=0.2) == {}
    assert told == ["cannot see who else has the cards of ended leases open: no answer in time"]


def test_the_node_that_is_a_leases_own(root):
    minors = root / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("gpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n")
    instance = MigDevice(0, "MIG-1", "1g.10gb", 1, 0, None, None)
    cards = Cards((Card(0, "GPU-0", "A100", minor=0, mig_devices=(instance,)), Card(1, "GPU-1", "A100", minor=5)))

    def lease(number, *uuids):
        held = tuple(LeasedCard(uuid, 0, 1, shared=False) for uuid in uuids)
        return Lease(number, "bob", 61001, 1, 1, held, 0.0, "x", f"gpulab-lease-{number}.scope")

    found = own_nodes(cards, [lease(1, "GPU-1"), lease(2, "MIG-1", "GPU-1"), lease(3, "GPU-gone")], root)
    assert found == {1: ["/dev/nvidia5"], 2: ["/dev/nvidia-caps/nvidia-cap13", "/dev/nvidia5"]}
