"""The rules page says nothing that acceptance does not ask of the machine, whatever a lab has switched on."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

TOP = Path(__file__).parent.parent
sys.path.insert(0, str(TOP / "acceptance"))

import claims  # noqa: E402
import rules_page  # noqa: E402 -- where the checks of a live server are
from server import Server  # noqa: E402

WINDOW = {
    "name": "afternoon", "hours": "14:00-18:00", "days_en": "every day", "days_zh": "每天", "class": "short",
    "max_cards": 1, "max_hours": 4.0, "weight": 0.5, "en": "short | jobs", "zh": "短任务",
}  # fmt: skip
FREE = WINDOW | {"name": "night", "hours": "20:00-02:00", "class": "offline", "max_cards": 0, "max_hours": None}
FOLDER = {"path": "/home", "soft": "200G", "hard": "1.5T", "files_hard": 2000000}
LITTLE: dict[str, Any] = {
    "handbook_tier": "table", "handbook_gpu_tier": "auto", "handbook_group_size": 3, "handbook_lab_name": "Vision lab",
    "handbook_lab_admin": "alice", "handbook_booking_max_hours": 168, "handbook_booking_max_days_ahead": 60,
    "handbook_check_times": [], "handbook_soon_minutes": 120, "handbook_unused_minutes": 30,
    "handbook_overrun_minutes": 10, "handbook_guarded": False, "handbook_max_cards": 0, "handbook_max_leases": 0,
    "handbook_slurm_limits": {}, "handbook_slurm_member_limits": {}, "handbook_slurm_confines": [],
    "handbook_slurm_partitions": [{"name": "batch", "default": True}], "handbook_reclaim_mode": "off",
    "handbook_reclaim_percent": 5, "handbook_reclaim_idle_minutes": 15, "handbook_reclaim_answer_minutes": 30,
    "handbook_reclaim_grace_seconds": 60, "handbook_reclaim_keep_max_hours": 24, "handbook_mail_forward": False,
    "handbook_tasks_max": 8192, "handbook_memory_max": "infinity", "handbook_quota_folders": [],
    "handbook_quota_overrides": [], "handbook_quota_projects": [], "handbook_quota_waiting": [],
    "handbook_line_up": "", "handbook_line_down": "", "handbook_line_cap": "", "handbook_line_exempt": [],
    "handbook_datasets_path": "", "handbook_curators": [], "handbook_windows_on_break": "warn", "handbook_board": "",
    "handbook_windows": [], "__handbook_admin": {"name": "alice"}, "__handbook_status": "gpulab info",
    "__handbook_tier_range": {"table": "1-4", "allocator": "5-10", "slurm": "11+"}, "__handbook_board_local": True,
}  # fmt: skip
"""A lab that has switched off what it can."""

MUCH: dict[str, Any] = LITTLE | {
    "handbook_check_times": ["0 3 * * *", "5 * * * *", "*/7 1,2 * * 1"], "handbook_guarded": True,
    "handbook_max_cards": 2, "handbook_max_leases": 3, "handbook_slurm_limits": {"cards": 4, "jobs": 20},
    "handbook_slurm_member_limits": {"bob": {"cards": 2}, "carol": {"jobs": None}, "dave": {"cards": 1, "jobs": 9}},
    "handbook_slurm_confines": ["cards", "memory", "cores"],
    "handbook_slurm_partitions": [
        {"name": "batch", "default": True, "preemptible": True, "max_hours": 48, "grace_minutes": 2},
        {"name": "short", "max_hours": 0.5},
        {"name": "urgent", "groups": ["gpu-admins", "vision"]},
    ],
    "handbook_reclaim_mode": "enforce", "handbook_mail_forward": True, "handbook_memory_max": "60%",
    "handbook_quota_folders": [FOLDER, {"path": "/data", "soft": 0, "hard": "2T", "grace": "14d"}],
    "handbook_quota_overrides": [{"member": "bob", "path": "/home", "hard": "2T"}],
    "handbook_quota_projects": [{"path": "/data/vision", "hard": "4T"}], "handbook_quota_waiting": ["/data"],
    "handbook_line_up": "500mbit", "handbook_line_down": "1gbit", "handbook_line_cap": "200mbit",
    "handbook_line_exempt": ["10.0.0.0/8", "fd00::/8"], "handbook_datasets_path": "/data/datasets",
    "handbook_curators": ["carol", "bob"], "handbook_windows_on_break": "refuse", "handbook_board": "127.0.0.1:8080",
    "handbook_windows": [WINDOW, FREE],
    "__handbook_admin": {"name": "alice", "full_name": "Alice Example", "mail": "alice@example.org"},
}  # fmt: skip
"""One that has everything."""

VARIANTS: dict[str, dict[str, Any]] = {
    "little": LITTLE,
    "much": MUCH,
    "told": LITTLE | {"handbook_group_size": 0, "handbook_windows": [WINDOW], "handbook_reclaim_mode": "notify"},
    "other": MUCH
    | {"handbook_slurm_confines": ["cards", "memory"], "handbook_curators": [], "handbook_quota_projects": []},
}
TIERS = ("table", "allocator", "slurm")
LABS = {f"{name}-{tier}": lab | {"handbook_tier": tier} for name, lab in VARIANTS.items() for tier in TIERS}
LABS |= {f"told-{tier}": LABS[f"told-{tier}"] | {"handbook_gpu_tier": tier} for tier in TIERS}


def rendered(lab: dict[str, Any]) -> str:
    """Fill in the templates as Ansible does, English first."""
    loader = jinja2.FileSystemLoader(TOP / "roles" / "handbook" / "templates")
    world = jinja2.Environment(loader=loader, trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False)
    world.filters["combine"] = lambda one, other: one | other
    world.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
    en, zh = (world.get_template(f"{language}/page.md.j2").render(lab) for language in ("en", "zh"))
    return f"{en}\n\n---\n\n{zh}"


@pytest.mark.parametrize("lab", LABS)
def test_each_statement_is_one_that_can_be_asked(lab: str) -> None:
    page = rules_page.english(rendered(LABS[lab]))
    assert len(page.statements) > 5
    unknown = [statement for _, statement in page.statements if claims.understood(statement) is None]
    assert unknown == []


@pytest.mark.parametrize("lab", LABS)
def test_both_languages_say_the_same_numbers(lab: str) -> None:
    found = rules_page.numbers(rendered(LABS[lab]))
    assert found["en"] == found["zh"]
    assert any(found["en"])


def test_each_check_is_of_something_that_a_page_can_say() -> None:
    said = {statement for lab in LABS.values() for _, statement in rules_page.english(rendered(lab)).statements}
    never = [pattern.pattern for pattern, _ in claims.CLAIMS if not any(pattern.fullmatch(each) for each in said)]
    assert never == []


def test_nothing_goes_unread() -> None:
    text = "\n## A\n\nOne thing.\n- two\n  lines\n- three\n\n| Head | of it |\n|---|---|\n| a | b |\n\n"
    text += "```sh\nls -l  # it\nA=b\n```\nFour.\n"
    page = rules_page.english(f"Written from the server's own settings\n{text}")
    assert [statement for _, statement in page.statements] == ["One thing.", "two lines", "three", "| a | b |", "Four."]
    assert page.commands == {"ls"}


def test_a_limit_of_zero_is_a_limit() -> None:
    limits = {"handbook_slurm_limits": {"cards": 0}, "handbook_slurm_member_limits": {"bob": {"cards": 0}}}
    lab = LABS["much-slurm"] | limits
    said = {statement for _, statement in rules_page.english(rendered(lab)).statements}
    assert "One member has at most 0 cards in running jobs at a time. What asks for more waits." in said
    assert "For bob it is 0 cards." in said


def test_what_a_server_tells_can_be_compared() -> None:
    class Host:
        def run(self, command: str) -> SimpleNamespace:
            return SimpleNamespace(rc=0, stdout=f"{command}\n", stderr="")

    settings = {"lab": {"tier": "table"}}
    assert Server(Host(), settings, (), ()).told("unchanged") == "unchanged"
