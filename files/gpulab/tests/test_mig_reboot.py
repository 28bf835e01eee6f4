"""What is in force is noted down, and comes back after a reboot of either generation of cards."""

from __future__ import annotations

import json

import pytest
from mig_machine import bare, names, noted  # noqa: F401 - bare is a fixture

LAYOUT = {0: "3g.40gb,2g.20gb,1g.10gb"}


@pytest.fixture
def machine(bare):  # noqa: F811 - the fixture imported above
    bare.gpusim("init", "--cards", "a100-sxm4-80gb:1,h100-sxm5-80gb:1")
    return bare


def test_after_a_reboot_both_generations_get_their_layout_back(machine):
    wanted = {0: "3g.40gb,2g.20gb,1g.10gb", 1: "4g.40gb,3g.40gb"}
    machine.apply(wanted, record=True)
    before = machine.layout(0), machine.layout(1)
    machine.gpusim("reboot")
    assert (machine.layout(0), machine.layout(1)) == ((True, True, ()), (False, False, ()))
    assert machine.ask("gpulab", ["apply", "--boot"])["answer"] == 0
    assert (machine.layout(0), machine.layout(1)) == before
    machine.gpusim("reboot")
    machine.gpusim("fail", "--lost", "--gpu", 0)
    assert "card 0: the card has fallen off" in machine.ask("gpulab", ["apply", "--boot"])["error"]
    assert machine.layout(1) == before[1]


def test_the_note_follows_what_is_asked_for(machine):
    machine.apply({0: "7g.80gb", 1: "off"}, record=True)
    assert noted(machine) == {0: {"7g.80gb": 1}, 1: "off"}
    assert machine.apply({0: "7g.80gb", 1: "off"}, record=True)["answer"]["recorded"] is False
    assert machine.plan({0: "7g.80gb"}, record=True)["answer"]["recorded"] is True
    machine.apply({0: "7g.80gb"}, record=True)
    assert noted(machine) == {0: {"7g.80gb": 1}}
    machine.gpusim("fail", "--call", "nvmlDeviceCreateGpuInstanceWithPlacement")
    machine.apply({0: "1g.10gb"}, record=True)
    assert noted(machine) == {0: {"7g.80gb": 1}}  # what the card still has, and shall have after a reboot


def test_a_link_in_place_of_the_note_is_replaced_and_not_followed(machine, tmp_path):
    (tmp_path / "other").write_text("untouched")
    path = machine.root / "etc/gpulab/mig.json"
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "other")
    assert machine.apply(LAYOUT, record=True)["answer"]["recorded"] is True
    assert (path.is_symlink(), (tmp_path / "other").read_text()) == (False, "untouched")
    assert noted(machine) == {0: {"1g.10gb": 1, "2g.20gb": 1, "3g.40gb": 1}}


def test_at_boot_a_card_that_is_gone_or_changed_does_not_stop_the_others(bare):  # noqa: F811
    bare.gpusim("init", "--cards", "a100-sxm4-80gb:1")
    note = {"version": "v1", "mig-configs": {"gpulab": [
        {"devices": [0], "mig-enabled": True, "mig-devices": {"7g.80gb": 1}},
        {"devices": [1], "mig-enabled": True, "mig-devices": {"7g.80gb": 1}},
    ]}}  # fmt: skip
    path = bare.root / "etc/gpulab/mig.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(note))
    assert bare.ask("gpulab", ["apply"])["kind"] == "InputError"
    error = bare.ask("gpulab", ["apply", "--boot"])["error"]
    assert error == "card 1: it is not there, this machine has one card, 0"
    assert names(bare) == ["7g"]
    assert json.loads(path.read_text()) == note
