"""The inventories in the repository load and mean what they say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpulab.errors import InputError
from gpulab.rules.lab import VARIABLES, parse_lab

TOP = Path(__file__).resolve().parent.parent


def variables(name: str) -> dict[str, Any]:
    """Return the variables of the only server of an inventory, as Ansible sees them."""
    command = ["ansible-inventory", "--inventory", str(TOP / "inventory" / name), "--list"]
    listing = json.loads(subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True).stdout)
    (host,) = listing["gpu_servers"]["hosts"]
    return listing["_meta"]["hostvars"][host]


def lab_wide(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key in VARIABLES}


def test_the_demo_is_a_four_person_group_in_the_table_tier() -> None:
    found = lab_wide(variables("demo"))
    lab = parse_lab(found, defined=found)
    assert (lab.group_size, lab.tier, lab.admin) == (4, "table", "alice")


def test_the_example_shows_every_lab_wide_variable() -> None:
    text = (TOP / "inventory" / "example" / "group_vars" / "all.yml").read_text()
    assert [name for name in VARIABLES if f"{name}:" not in text] == []


def test_the_example_is_refused_only_for_the_key_that_must_be_replaced() -> None:
    found = lab_wide(variables("example"))
    with pytest.raises(InputError, match=r"alice.*ssh_keys"):
        parse_lab(found, defined=found)
    for member in found["lab_members"]:
        member.pop("ssh_keys", None)
    assert parse_lab(found, defined=found).tier == "table"


def test_the_examples_values_are_the_defaults_of_the_roles() -> None:
    example = yaml.safe_load((TOP / "inventory" / "example" / "group_vars" / "all.yml").read_text())
    for path in (TOP / "roles").glob("*/defaults/main.yml"):
        for name, default in (yaml.safe_load(path.read_text()) or {}).items():
            if name in example:
                assert example[name] == default, f"{name} in the example differs from its default"
