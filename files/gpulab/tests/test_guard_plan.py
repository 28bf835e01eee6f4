from __future__ import annotations

from dataclasses import replace

import pytest
from gpulab.errors import InputError
from gpulab.rules.guard import drop_in
from gpulab.rules.guard_check import HYBRID, UNIFIED, DeviceControl
from gpulab.rules.lab import parse_lab
from gpulab.services.guard_plan import plan

PEOPLE = [{"name": "alice", "admin": True}, {"name": "bob"}, {"name": "carol"}]


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "etc/passwd").write_text("alice:x:1000:1000::/home/alice:/bin/bash\n")
    (tmp_path / "etc/shadow").write_text("")
    (tmp_path / "etc/group").write_text("docker:x:998:bob,alice\nsudo:x:27:alice\n")
    return tmp_path


def lines(root, tier="allocator", layout=UNIFIED, **variables):
    raw = {"lab_admin": "alice", "lab_members": PEOPLE}
    lab = replace(parse_lab(raw, defined=raw), tier=tier)
    return plan(lab, variables, root=root, control=lambda _proc: DeviceControl(layout))


def test_the_table_tier_has_no_guard_to_speak_of(root):
    assert lines(root, tier="table", layout=HYBRID) == ()


@pytest.mark.parametrize("tier", ["allocator", "slurm"])
def test_a_machine_that_cannot_refuse_is_a_risk_in_the_plan(root, tier):
    (line,) = lines(root, tier=tier, layout=HYBRID)
    assert line.startswith(
        "RISK  the cards cannot be closed to members' sessions: control groups are in the hybrid layout"
    )


@pytest.mark.parametrize(("tier", "way"), [("allocator", "allocate_gpu"), ("slurm", "a Slurm job")])
@pytest.mark.parametrize("value", [False, "false", "no"])
def test_doing_without_the_guard_is_said(root, tier, way, value):
    (line,) = lines(root, tier=tier, gpu_guard_enabled=value)
    assert line.startswith(f"RISK  gpu_guard_enabled is false: members can open every card without {way}")


def test_neither_true_nor_false_is_refused(root):
    with pytest.raises(InputError, match="gpu_guard_enabled is 'of'; give true or false"):
        lines(root, gpu_guard_enabled="of")


def test_members_who_are_root_by_a_group_are_named_and_admins_are_not(root):
    assert "RISK  the guard does not hold who is root by a group: bob (docker); take them out of it" in lines(root)


def test_the_first_time_is_announced_and_the_second_is_not(root):
    assert any("open ones too" in line for line in lines(root))
    path = root / drop_in("user-.slice").lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert not any("open ones too" in line for line in lines(root))


def test_the_roles_variables_are_no_misspelt_lab_wide_ones():
    raw = {"lab_admin": "alice", "lab_members": PEOPLE}
    assert parse_lab(raw, defined=[*raw, "gpu_guard_devices"]).tier == "table"
    with pytest.raises(
        InputError, match="gpu_guard_enable is not a variable of gpulab; did you mean gpu_guard_enabled"
    ):
        parse_lab(raw, defined=[*raw, "gpu_guard_enable"])
