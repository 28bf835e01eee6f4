"""Every role keeps the house rules: specs that agree with defaults, names with its prefix, a scenario with tests."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from gpulab.rules.windows import DEFAULT_TABLE, parse_windows
from gpulab.settings import USUAL, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = Path(__file__).resolve().parent.parent
ROLES = sorted(path.name for path in (TOP / "roles").iterdir() if path.is_dir())
SCENARIOS = sorted(path.parent for path in (TOP / "molecule").glob("*/molecule.yml"))
LAB_WIDE = {"preflight"}  # its inputs are the lab-wide variables, which have no prefix


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text()) if path.exists() else None


def options(role: str) -> dict[str, dict[str, Any]]:
    specs = load(TOP / "roles" / role / "meta" / "argument_specs.yml")
    assert specs, f"role {role} has no meta/argument_specs.yml"
    return specs["argument_specs"]["main"].get("options", {})


@pytest.mark.parametrize("role", ROLES)
def test_specs_and_defaults_agree(role: str) -> None:
    defaults = load(TOP / "roles" / role / "defaults" / "main.yml") or {}
    specified = {name: option["default"] for name, option in options(role).items() if "default" in option}
    assert specified == defaults


@pytest.mark.parametrize("role", sorted(set(ROLES) - LAB_WIDE))
def test_variables_carry_the_role_as_prefix(role: str) -> None:
    assert [name for name in options(role) if not name.startswith(f"{role}_")] == []


@pytest.mark.parametrize("role", ROLES)
def test_every_option_is_described_and_typed(role: str) -> None:
    def check(path: str, tree: dict[str, Any]) -> None:
        for name, option in tree.items():
            assert option.get("description"), f"{path}.{name} has no description"
            assert option.get("type"), f"{path}.{name} has no type"
            assert option["type"] != "list" or option.get("elements"), f"{path}.{name} is a list of what?"
            check(f"{path}.{name}", option.get("options", {}))

    check(role, options(role))


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_a_page_and_a_scenario_of_its_name(role: str) -> None:
    assert (TOP / "roles" / role / "README.md").exists()
    assert (TOP / "molecule" / role / "molecule.yml").exists()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_every_scenario_has_tests(scenario: Path) -> None:
    # Molecule takes a scenario without tests for a success.
    found = list((scenario / "tests").glob("test_*.py"))
    assert found
    assert all("def test_" in path.read_text() for path in found)


def all_defaults() -> dict[str, Any]:
    return {
        name: value
        for role in ROLES
        for name, value in (load(TOP / "roles" / role / "defaults" / "main.yml") or {}).items()
    }


def test_what_a_role_takes_from_another_falls_back_to_the_others_own_default() -> None:
    # The pages must not promise a limit that the role behind it does not set.
    known = all_defaults()
    borrowed = 0
    for name, value in known.items():
        found = re.fullmatch(r"\{\{ (\w+) \| default\((.*)\) \}\}", str(value))
        if found and found[1] in known:
            fallback, own = found[2], str(known[found[1]])
            expected = own.strip("{} ") if own.startswith("{{") else repr(known[found[1]])
            assert fallback == expected, f"{name} falls back to {fallback}, but {found[1]} is {expected}"
            borrowed += 1
    assert borrowed >= 8


def test_the_package_and_the_roles_have_the_same_defaults() -> None:
    known = all_defaults()
    owners = {"allocator": "tier_allocator", "booking": "tier_table", "checks": "checkers", "reclaim": "idle_reclaim"}
    for section, role in owners.items():
        for item in fields(getattr(Settings(), section)):
            value = getattr(getattr(Settings(), section), item.name)
            ours = list(value) if isinstance(value, tuple) else value
            theirs = known[f"{role}_{item.name}"]
            # What is taken from another role is compared with what holds without that role.
            borrowed = re.fullmatch(r"\{\{ \w+ \| default\((.*)\) \}\}", str(theirs))
            assert (ast.literal_eval(borrowed[1]) if borrowed else theirs) == ours, f"{role}_{item.name}"


def test_the_golden_hours_have_the_same_defaults_in_the_package_the_role_and_the_example() -> None:
    known = all_defaults()
    assert known["golden_hours_on_break"] == Settings().windows.on_break
    assert known["golden_hours_table"] == f"{{{{ gpu_windows | default('{USUAL}') }}}}"
    assert parse_windows(DEFAULT_TABLE) == Settings().windows.table
    example = (TOP / "inventory" / "example" / "group_vars" / "all.yml").read_text()
    shown = re.search(r"(?m)^# gpu_windows:\n(?:#   - .*\n)+", example)
    assert shown
    assert parse_windows(yaml.safe_load(shown[0].replace("# ", ""))["gpu_windows"]) == Settings().windows.table


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_a_scenario_with_a_playbook_of_its_own_uses_it(scenario: Path) -> None:
    """Molecule takes the shared ones otherwise, without a word."""
    playbooks = load(scenario / "molecule.yml").get("provisioner", {}).get("playbooks", {})
    for step in ("create", "prepare", "destroy"):
        if (scenario / f"{step}.yml").exists():
            assert playbooks.get(step) == f"{step}.yml"


@pytest.mark.parametrize("role", ROLES)
def test_no_role_loops_over_paths(role: str) -> None:
    def tasks(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for entry in entries:
            yield entry
            for part in ("block", "rescue", "always"):
                yield from tasks(entry.get(part, []))

    one_by_one = {f"ansible.builtin.{module}" for module in ("copy", "file", "template")}
    for path in sorted((TOP / "roles" / role / "tasks").glob("*.yml")):
        looped = [task["name"] for task in tasks(load(path) or []) if "loop" in task and one_by_one & task.keys()]
        assert looped == [], f"{path.name}: lab_paths does all of them in one call"
