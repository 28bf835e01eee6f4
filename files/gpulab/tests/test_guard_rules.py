from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from gpulab.errors import InputError
from gpulab.rules.guard import (
    CONTROL_NODES,
    DROP_IN,
    ENTRIES,
    VARIABLES,
    Guard,
    Node,
    drop_in,
    files,
    parse_devices,
    parse_services,
    unit_of,
)
from gpulab.rules.guard_check import HYBRID, LEGACY, UNIFIED, DeviceControl, unheld, why_not
from gpulab.rules.guard_pam import Line, line_for, with_line, without

TOP = Path(__file__).resolve().parents[3]

CRON = """\
# The PAM configuration file for the cron daemon
@include common-auth
session    required     pam_loginuid.so
@include common-account
@include common-session-noninteractive 
session    required   pam_limits.so
"""  # noqa: W291 - Debian's file has this blank


def nothing(_name):
    return None


def test_preflight_knows_the_variables_of_the_role():
    assert tuple(sorted(yaml.safe_load((TOP / "roles/gpu_guard/defaults/main.yml").read_text()))) == VARIABLES


def test_the_allow_list_gets_the_nodes_that_open_no_card():
    assert parse_devices(["/dev/fuse", "char-ttyUSB", "/dev/fuse"], nothing) == (
        "/dev/fuse",
        "char-ttyUSB",
        *CONTROL_NODES,
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/dev/nvidia0", "leads to a card"),
        ("/dev/nvidia-caps/nvidia-cap21", "leads to a card"),
        ("/dev/nvidia-modeset", "leads to a card"),
        ("char-nvidia", "leads to a card"),
        ("char-nvidia-caps", "leads to a card"),
        ("char-*", "write a path such as /dev/kvm"),
        ("char-nv*", "write a path such as /dev/kvm"),
        ("/dev/../dev/nvidia0", "write a path such as /dev/kvm"),
        ("/dev//nvidia0", "write a path such as /dev/kvm"),
        ("/dev/nvidia0 rw", "write a path such as /dev/kvm"),
        ("/dev/fuse\nDeviceAllow=/dev/nvidia0", "write a path such as /dev/kvm"),
        ("/dev/%n", "write a path such as /dev/kvm"),
        ("/etc/passwd", "write a path such as /dev/kvm"),
        ("/dev", "write a path such as /dev/kvm"),
        ("fuse", "write a path such as /dev/kvm"),
        ("/dev/char/195:0", "write a path such as /dev/kvm"),
    ],
)
def test_what_opens_a_card_cannot_be_allowed(name, message):
    with pytest.raises(InputError, match=message) as refused:
        parse_devices([name], nothing)
    assert str(refused.value).startswith("gpu_guard_devices has ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("node", [Node("nvidia"), Node("nvidia-frontend"), Node("drm", "0x10de")])
def test_what_opens_a_card_under_another_name_cannot_be_allowed_either(node):
    with pytest.raises(InputError, match="leads to a card"):
        parse_devices(["/dev/dri/renderD128"], {"/dev/dri/renderD128": node}.get)


def test_another_makers_graphics_may_be_allowed():
    assert "/dev/dri/card0" in parse_devices(["/dev/dri/card0"], {"/dev/dri/card0": Node("drm", "0x1a03")}.get)


@pytest.mark.parametrize(
    "name",
    ["gpulab-broker.service", "slurmd.service", "nvidia-persistenced.service", "docker.service", "a b.service", "cron"],
)
def test_services_that_need_the_cards_or_are_none_are_refused(name):
    with pytest.raises(InputError, match="gpu_guard_services has"):
        parse_services([name])


def test_each_unit_has_one_file_and_exemptions_are_written_first():
    guard = Guard(("/dev/fuse",), ("jupyterhub.service",), {0: "root", 1000: "alice"})
    texts = files(guard)
    paths = list(texts)
    assert paths[0] == f"/etc/systemd/system/user-0.slice.d/{DROP_IN}"
    assert paths[-1] == drop_in("user-.slice")
    assert {unit_of(path) for path in paths} >= {*ENTRIES, "jupyterhub.service", "user-1000.slice"}
    assert "DevicePolicy=auto" in texts[drop_in("user-1000.slice")]
    assert texts[drop_in("user-.slice")].endswith("[Slice]\nDevicePolicy=closed\nDeviceAllow=/dev/fuse rw\n")
    assert unit_of("/etc/systemd/logind.conf.d/60-gpulab-guard.conf") == ""


def test_a_pam_file_gets_the_line_once_and_loses_it_without_a_trace():
    line = line_for(252)
    once = with_line(CRON, line)
    assert once.splitlines()[5] == str(line).rstrip("\n")
    assert with_line(once, line) == once
    assert without(once) == CRON
    assert without(with_line(CRON, line_for(257))) == CRON
    assert with_line(once, line_for(257)) == with_line(CRON, line_for(257))


def test_a_session_class_that_the_version_knows():
    assert (line_for(249), line_for(255), line_for(257)) == (
        Line("background"),
        Line("background"),
        Line("background-light"),
    )


@pytest.mark.parametrize(
    "other",
    [
        "session optional pam_systemd.so\n",
        "-session  optional  pam_systemd.so kill=1\n",
        "session [default=1] /lib/pam_systemd.so\n",
    ],
)
def test_who_registers_the_sessions_himself_keeps_his_line(other):
    assert with_line(CRON + other, line_for(257)) == CRON + other


@pytest.mark.parametrize(
    "other",
    [
        "#session optional pam_systemd.so\n",
        "account required pam_systemd.so\n",
        "session optional pam_systemd_home.so\n",
    ],
)
def test_what_only_looks_like_it_does_not_count(other):
    assert with_line(CRON + other, line_for(257)) != CRON + other


def test_a_pam_file_without_common_sessions_or_a_last_newline():
    assert with_line("session required pam_unix.so", line_for(252)) == f"session required pam_unix.so\n{line_for(252)}"


@pytest.mark.parametrize(
    ("control", "words"),
    [
        (DeviceControl(UNIFIED), None),
        (DeviceControl(HYBRID), "hybrid layout.*unified_cgroup_hierarchy"),
        (DeviceControl(LEGACY), "legacy layout"),
        (DeviceControl("absent"), "no control groups are mounted"),
        (DeviceControl(UNIFIED, "EPERM"), "bpf: EPERM.*allow the bpf system call"),
        (DeviceControl(UNIFIED, "EINVAL"), "bpf: EINVAL.*CONFIG_CGROUP_BPF"),
    ],
)
def test_a_machine_that_cannot_refuse_devices_says_why(control, words):
    if words is None:
        assert why_not(control) == ""
    else:
        assert re.search(words, why_not(control))


def test_who_is_root_by_a_group_is_named():
    groups = {"docker": {"bob", "zoe"}, "sudo": {"bob"}, "video": {"carol"}, "gpu-members": {"bob", "carol"}}
    assert unheld(["carol", "bob"], groups) == ("bob (docker, sudo)",)
