"""Every module documents exactly the options it takes, and says how it behaves in check mode."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

TOP = Path(__file__).resolve().parent.parent
MODULES = sorted((TOP / "plugins" / "modules").glob("*.py"))


def constant(path: Path, name: str) -> str:
    """Return a string constant of a module without importing it (its imports only resolve inside Ansible)."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return str(ast.literal_eval(node.value))
    pytest.fail(f"{path.name} has no {name}")


def argument_spec(path: Path) -> dict[str, Any]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "argument_spec":
            value = node.value
            if isinstance(value, ast.Name):
                return ast.literal_eval(_assigned(path, value.id))
            return ast.literal_eval(value)
    pytest.fail(f"{path.name} has no argument_spec")


def _assigned(path: Path, name: str) -> ast.expr:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return node.value
    pytest.fail(f"{path.name}: {name} is not assigned a literal")


FALLBACKS = {"type": "str", "elements": None, "choices": None, "default": None, "required": False}


def compare(path: str, documented: dict[str, Any], taken: dict[str, Any]) -> None:
    assert set(documented) == set(taken), path
    for name, option in taken.items():
        page = documented[name]
        for key, fallback in FALLBACKS.items():
            assert page.get(key, fallback) == option.get(key, fallback), f"{path}.{name}: {key}"
        compare(f"{path}.{name}", page.get("suboptions", {}), option.get("options", {}))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_documentation_and_argument_spec_agree(path: Path) -> None:
    page = yaml.safe_load(constant(path, "DOCUMENTATION"))
    assert page["module"] == path.stem
    compare(path.stem, page.get("options", {}), argument_spec(path))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_documentation_declares_how_it_behaves(path: Path) -> None:
    page = yaml.safe_load(constant(path, "DOCUMENTATION"))
    assert {"check_mode", "diff_mode", "idempotent"} <= set(page["attributes"])
    assert yaml.safe_load(constant(path, "EXAMPLES"))
    assert yaml.safe_load(constant(path, "RETURN"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_is_documentation_and_a_short_main(path: Path) -> None:
    tree = ast.parse(path.read_text())
    lines = sum(node.end_lineno - node.lineno + 1 for node in tree.body if isinstance(node, ast.FunctionDef))
    assert lines <= 80, "work belongs in the package"
