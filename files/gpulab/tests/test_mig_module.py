"""The Ansible module mig_layout as Ansible runs it; in check mode, because it would change this very machine."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import fields

import yaml
from gpulab.services.mig import CardReport
from mig_machine import REPOSITORY, bare  # noqa: F401 - a fixture

MODULE = REPOSITORY / "plugins/modules/mig_layout.py"


def run(tmp_path, layout, bindings=None, **variables):
    """Run the module on this machine in check mode; return Ansible's verdict and the module's answer."""
    play = [{
        "hosts": "localhost", "gather_facts": False, "connection": "local",
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [{"mig_layout": {"layout": layout, "bindings": bindings or {}}}],
    }]  # fmt: skip
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    (tmp_path / "ansible.cfg").write_text("[defaults]\nstdout_callback = ansible.posix.json\n")
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
        "ANSIBLE_LIBRARY": str(MODULE.parent),
        "ANSIBLE_MODULE_UTILS": str(REPOSITORY / "files/gpulab/src"),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        "ANSIBLE_REMOTE_TEMP": str(tmp_path / "remote"),
        **variables,
    }
    command = [sys.executable, "-m", "ansible", "playbook", "--check", "--diff", str(tmp_path / "play.yml")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    document = json.loads(done.stdout)
    return document["plays"][0]["tasks"][0]["hosts"]["localhost"]


def test_what_is_returned_is_what_is_documented():
    (page,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(MODULE.read_text()).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "RETURN"
    )
    documented = yaml.safe_load(page)
    names = {field.name for field in fields(CardReport)}
    assert set(documented) == {"cards", "recorded", "bindings"}
    assert set(documented["bindings"]["contains"]) == set(documented["bindings"]["sample"][0])
    assert set(documented["cards"]["contains"]) == set(documented["cards"]["sample"][0]) == names


def test_numbers_and_off_arrive_as_they_were_meant(bare, tmp_path):  # noqa: F811
    bare.gpusim("init", "--cards", "a100-sxm4-80gb:2")
    environment = {**bare.environment, "LD_LIBRARY_PATH": str(bare.worker.build)}
    answer = run(tmp_path, {0: "3g.40gb,1g.10gb", 1: False}, **environment)
    assert answer["changed"] is True
    assert [card["result"] for card in answer["cards"]] == ["changed", "unchanged"]
    assert answer["diff"] == [{
        "before_header": "card 0 (NVIDIA A100-SXM4-80GB)", "after_header": "card 0 (NVIDIA A100-SXM4-80GB)",
        "before": "MIG off\n", "after": "MIG on\n1g.10gb at 3\n3g.40gb at 4\n",
    }]  # fmt: skip
    assert bare.layout(0) == (False, False, ())
    refused = run(tmp_path, {0: "3g.20gb"}, **environment)
    assert refused["msg"] == (
        "mig_layout: card 0 (NVIDIA A100-SXM4-80GB): 3g.20gb: the card has no 3g.20gb, its 3g profile is 3g.40gb; "
        "nearest that fit: 3g.40gb | 4g.40gb | 3g.40gb,1g.10gb"
    )


def test_who_would_be_bound_is_planned_and_what_cannot_be_is_refused(bare, tmp_path):  # noqa: F811
    bare.gpusim("init", "--cards", "a100-sxm4-80gb:1")
    environment = {**bare.environment, "LD_LIBRARY_PATH": str(bare.worker.build)}
    answer = run(tmp_path, {0: "3g.40gb,1g.10gb"}, {"bob": "mig-0-1", "carol": None}, **environment)
    assert answer["bindings"] == [{"user": "bob", "instance": "mig-0-1", "uuid": ""}]
    assert answer["diff"][1]["after"] == "bob mig-0-1 -\n"
    refused = run(tmp_path, {0: "3g.40gb,1g.10gb"}, {"bob": "mig-0-2"}, **environment)
    assert refused["msg"] == (
        "lab_members, member bob: gpu is mig-0-2; mig_layout makes only mig-0-0 to mig-0-1 there; choose one, or give "
        "another gpu"
    )


def test_a_new_server_without_a_driver_can_be_planned(tmp_path):
    # Found first by the loader and refused by it: as if there were no driver, also where there is one.
    (tmp_path / "libnvidia-ml.so.1").write_text("")
    answer = run(tmp_path, {0: "3g.40gb"}, LD_LIBRARY_PATH=str(tmp_path))
    assert answer["changed"] is True
    assert "there is no NVIDIA driver" in answer["warnings"][0]
