from __future__ import annotations

import os
import stat

import pytest
from gpulab.adapters.cgroup import device_control, path_of
from gpulab.adapters.device_names import look
from gpulab.rules.guard_check import ABSENT, HYBRID, LEGACY, UNIFIED

V2 = "25 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
TMPFS = "25 20 0:22 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755\n"
NAMED = "26 25 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
V1 = "27 25 0:24 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"


@pytest.mark.parametrize(
    ("mounts", "layout"),
    [(V2, UNIFIED), (TMPFS + V1, LEGACY), (TMPFS + NAMED + V1, HYBRID), (TMPFS + V1 + V2, UNIFIED), ("", ABSENT)],
)
def test_the_layout_is_told_from_what_is_mounted(tmp_path, mounts, layout):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(mounts)
    assert device_control(tmp_path).layout == layout


def test_a_process_in_both_trees_is_where_systemd_2_has_it(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text("5:devices:/a\n1:name=systemd:/b\n0::/user.slice/user-1.slice/session-1.scope\n")
    assert path_of(7, tmp_path) == "/user.slice/user-1.slice/session-1.scope"
    assert path_of(8, tmp_path) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_a_card_is_known_under_any_name(tmp_path):
    (tmp_path / "dev").mkdir()
    os.mknod(tmp_path / "dev/gpu", stat.S_IFCHR | 0o600, os.makedev(195, 3))
    os.symlink("gpu", tmp_path / "dev/link")
    assert look("/dev/gpu", tmp_path).driver == "nvidia"
    assert look("/dev/link", tmp_path).driver == "nvidia"


def test_groups_are_read_from_proc(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc/devices").write_text("Character devices:\n  1 mem\n 10 misc\n\nBlock devices:\n  1 ramdisk\n")
    os.symlink("/dev/null", tmp_path / "dev/zero")
    assert look("/dev/zero", tmp_path).driver == "mem"
    assert look("/dev/nothing", tmp_path) is None
    (tmp_path / "dev/file").write_text("")
    assert look("/dev/file", tmp_path) is None
