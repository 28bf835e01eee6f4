"""`gpulab mig` as the admin types it."""

from __future__ import annotations

import json

import pytest
from mig_machine import bare  # noqa: F401 - a fixture


@pytest.fixture
def machine(bare):  # noqa: F811
    bare.gpusim("init", "--cards", "a100-sxm4-80gb:1,l40s:1")
    return bare


def note(machine, layout):
    path = machine.root / "etc/gpulab/mig.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(layout if isinstance(layout, str) else json.dumps(layout))


def gpulab(machine, *arguments):
    return machine.ask("gpulab", list(arguments))


def test_without_a_layout_nothing_is_done_and_that_is_said(machine):
    for action in ("plan", "apply"):
        answer = gpulab(machine, action)
        assert answer["answer"] == 0
        assert answer["printed"].startswith(
            "no layout is asked for (/etc/gpulab/mig.json is not there); set mig_layout"
        )
        assert json.loads(gpulab(machine, action, "--json")["printed"]) == {
            "changed": False,
            "recorded": False,
            "cards": [],
            "bindings": [],
        }
    assert machine.layout(0) == (False, False, ())


def test_plan_and_apply_say_the_steps(machine):
    note(machine, {"0": "3g.40gb,1g.10gb"})
    assert gpulab(machine, "plan")["printed"].splitlines() == [
        "card 0 (NVIDIA A100-SXM4-80GB): would get MIG on, 1g.10gb at 3, 3g.40gb at 4",
        "  switch MIG on",
        "  make 1g.10gb at 3",
        "  make 3g.40gb at 4",
    ]
    assert gpulab(machine, "apply")["printed"].startswith(
        "card 0 (NVIDIA A100-SXM4-80GB): has now MIG on, 1g.10gb at 3"
    )
    assert gpulab(machine, "apply")["printed"] == (
        "card 0 (NVIDIA A100-SXM4-80GB): as it shall be (MIG on, 1g.10gb at 3, 3g.40gb at 4)\n"
    )


def test_show(machine):
    note(machine, {"0": "7g.80gb"})
    lines = gpulab(machine, "show")["printed"].splitlines()
    assert lines[:2] == ["card 0 (NVIDIA A100-SXM4-80GB): MIG off", "  asked for: 7g.80gb"]
    assert lines[2].startswith("  can have at most, each alone: 7 x 1g.10gb, 1 x 1g.10gb+me")
    assert lines[3] == "card 1 (NVIDIA L40S): cannot be split"
    gpulab(machine, "apply")
    cards = json.loads(gpulab(machine, "show", "--json")["printed"])
    assert [(card["enabled"], card["capable"]) for card in cards] == [(True, True), (False, False)]
    assert cards[0]["asked"] == {"mig_enabled": True, "mig_devices": {"7g.80gb": 1}}
    assert cards[0]["instances"][0]["name"] == "7g.80gb"


def test_another_file_becomes_the_layout_in_force_when_applied(machine, tmp_path):
    document = {
        "version": "v1",
        "mig-configs": {
            "a": [{"devices": [0], "mig-enabled": True, "mig-devices": {"7g.80gb": 1}}],
            "b": [{"devices": "all", "mig-enabled": False}],
        },
    }
    file = tmp_path / "mig-parted.json"
    file.write_text(json.dumps(document))
    assert "choose one with mig_label: a, b" in gpulab(machine, "plan", "--file", str(file))["error"]
    assert "would get MIG on" in gpulab(machine, "plan", "--file", str(file), "--label", "a")["printed"]
    assert not (machine.root / "etc").exists()
    gpulab(machine, "apply", "--file", str(file), "--label", "a")
    machine.gpusim("reboot")
    gpulab(machine, "apply", "--boot")
    assert [profile for profile, _, _ in machine.layout(0)[2]] == [0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "mig.json is not JSON"),
        ('{"0": "off", "0": "off"}', "mig.json: key '0' stands 2 times"),
        (
            '{"0": "1G.10gb"}',
            "mig.json: card 0 (NVIDIA A100-SXM4-80GB): 1G.10gb: profile names are lower case; nearest",
        ),
        ('{"5": "1g.10gb"}', "card 5: it is not there, this machine has 2 cards, 0 to 1"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_touches_nothing(machine, content, message):
    note(machine, content)
    for action in ("plan", "apply"):
        answer = gpulab(machine, action)
        assert message in answer["error"]
        assert answer["kind"] == "InputError"
    assert machine.layout(0) == (False, False, ())


def test_a_link_in_place_of_the_file_is_not_followed(machine, tmp_path):
    (tmp_path / "secret").write_text('{"0": "off"}')
    path = machine.root / "etc/gpulab/mig.json"
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "secret")
    assert gpulab(machine, "apply")["kind"] == "UnsafeFileError"
    gone = gpulab(machine, "plan", "--file", str(path.with_name("gone.json")))
    assert (gone["error"].endswith("/gone.json is not there"), gone["kind"]) == (True, "InputError")


def test_a_refused_change_ends_with_an_error_that_names_who(machine):
    note(machine, {"0": "7g.80gb"})
    child = machine.start("--gpu", "0")
    planned = gpulab(machine, "plan")
    assert planned["answer"] == 0
    assert "would get MIG on, 7g.80gb at 0, if it were free" in planned["printed"]
    applied = gpulab(machine, "apply")
    assert f"PID {child.pid}" in applied["error"]
    assert applied["printed"] == "card 0 (NVIDIA A100-SXM4-80GB): left as it is\n"


def test_a_card_that_cannot_be_looked_at_is_an_error_of_the_plan_too(machine):
    note(machine, {"0": "7g.80gb"})
    machine.gpusim("fail", "--lost", "--gpu", 0)
    answer = gpulab(machine, "plan")
    assert answer["printed"] == "card 0: cannot be looked at\n"
    assert answer["error"].startswith("card 0: the card has fallen off the bus")
