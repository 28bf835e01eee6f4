"""Reading the machine around the cards."""

from __future__ import annotations

import os
import time

import pytest
from gpulab.adapters import hardware
from gpulab.rules.machine import ABSENT


def test_this_machine_is_read():
    machine = hardware.read_machine(["/"])
    assert machine.hostname == os.uname().nodename
    assert machine.threads >= 1
    assert machine.memory > 1 << 20
    (disk,) = machine.disks
    assert 0 < disk.free < disk.total
    assert not disk.reason


def test_free_space_is_what_ordinary_users_can_write(tmp_path):
    # Compared with Python's own call; the other numbers of a busy machine move between two looks.
    disk, status = hardware.read_disk(str(tmp_path)), os.statvfs(tmp_path)
    assert disk.total == status.f_blocks * status.f_frsize
    assert disk.free == pytest.approx(status.f_bavail * status.f_frsize, rel=0.05)


def test_an_absent_folder_is_said(tmp_path):
    disk = hardware.read_disk(str(tmp_path / "data"))
    assert (disk.total, disk.free, disk.reason) == (None, None, ABSENT)


def test_a_folder_named_like_an_option_is_a_folder():
    assert hardware.read_disk("--help").reason == ABSENT


def test_a_file_system_that_hangs_is_given_up(tmp_path):
    began = time.monotonic()
    disk = hardware.read_disk(str(tmp_path), stat=["sh", "-c", "exec sleep 30"], patience=0.2)
    assert time.monotonic() - began < 5
    assert disk.total is None
    assert disk.reason == "the file system did not answer within 0.2 s"


@pytest.mark.parametrize("stat", [["echo", "one two"], ["echo"], ["false"], ["no-such-program"]])
def test_an_odd_helper_is_an_answer(stat):
    disk = hardware.read_disk("/", stat=stat)
    assert disk.total is None
    assert disk.reason
    assert disk.reason != ABSENT


def test_nested_and_flat_lscpu_read_the_same():
    flat = [{"field": "Vendor ID:", "data": "AuthenticAMD"}, {"field": "Model name:", "data": "EPYC"}]
    nested = [{"field": "Vendor ID:", "data": "AuthenticAMD", "children": [flat[1]]}]
    assert dict(hardware._fields(flat)) == dict(hardware._fields(nested))


def test_without_lscpu_the_processor_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = hardware.read_machine([], proc_root=tmp_path)
    assert (machine.cpu, machine.cores, machine.threads, machine.memory) == ("", None, None, None)
