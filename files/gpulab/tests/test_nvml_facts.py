"""The Ansible module nvml_facts: its documentation is true, and it runs as Ansible runs it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from gpulab.rules.cards import Card, Cards, MigDevice, NvLink, Process

REPOSITORY = Path(__file__).parents[3]
MODULE = REPOSITORY / "plugins/modules/nvml_facts.py"


def documentation(name):
    for node in ast.parse(MODULE.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return yaml.safe_load(ast.literal_eval(node.value))
    raise AssertionError(name)


RETURN = documentation("RETURN")
CARD = RETURN["cards"]["contains"]


@pytest.mark.parametrize(
    ("documented", "kind"),
    [
        (set(RETURN) - {"ansible_facts"}, Cards),
        (CARD, Card),
        (RETURN["cards"]["sample"][0], Card),
        (CARD["nvlinks"]["contains"], NvLink),
        (CARD["mig_devices"]["contains"], MigDevice),
        (CARD["processes"]["contains"], Process),
        (RETURN["cards"]["sample"][0]["processes"][0], Process),
    ],
)
def test_what_is_returned_is_what_is_documented(documented, kind):
    assert set(documented) == {field.name for field in fields(kind)}


def test_documented_types_are_those_of_the_package():
    names = {"int": "int", "str": "str", "bool": "bool", "tuple": "list"}
    for field in fields(Card):
        kind = field.type.partition(" |")[0].partition("[")[0]
        assert CARD[field.name]["type"] == names[kind], field.name


def run_module(tmp_path, *arguments, **variables):
    """Run the module through Ansible on this machine, with environment variables."""
    configuration = tmp_path / "ansible.cfg"
    configuration.write_text("[defaults]\n")
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(configuration),
        "ANSIBLE_LIBRARY": str(MODULE.parent),
        "ANSIBLE_MODULE_UTILS": str(REPOSITORY / "files/gpulab/src"),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        "ANSIBLE_REMOTE_TEMP": str(tmp_path / "remote"),
        **variables,
    }
    interpreter = f"ansible_python_interpreter={sys.executable}"
    ansible = [sys.executable, "-m", "ansible", "adhoc", "--inventory", "localhost,", "--connection", "local", "-o"]
    command = [*ansible, "--extra-vars", interpreter, "--module-name", "nvml_facts", "localhost", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict, _, answer = done.stdout.partition(" => ")
    assert verdict == "localhost | SUCCESS"
    return json.loads(answer)


def test_a_host_without_driver_answers_with_a_reason(tmp_path):
    # Found first by the loader and refused by it: as if there were no driver, also where there is one.
    (tmp_path / "libnvidia-ml.so.1").write_text("")
    answer = run_module(tmp_path, "--check", LD_LIBRARY_PATH=str(tmp_path))
    assert answer["changed"] is False
    assert answer["cards"] == []
    assert answer["driver_version"] == ""
    assert "there is no NVIDIA driver" in answer["reason"]
    assert answer["ansible_facts"]["gpulab_nvml"] == {field.name: answer[field.name] for field in fields(Cards)}
