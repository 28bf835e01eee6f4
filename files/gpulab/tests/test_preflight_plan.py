"""What a run will be about, from inventory and server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpulab import names
from gpulab.services import preflight

if TYPE_CHECKING:
    from pathlib import Path

FACTS: dict[str, Any] = {
    "distribution": "Debian",
    "distribution_version": "13.1",
    "distribution_major_version": "13",
    "service_mgr": "systemd",
    "effective_user_id": 0,
    "python": {"version": {"major": 3, "minor": 13}},
}


def inspect(root: Path, **variables: Any) -> preflight.Preflight:
    lab = {"lab_admin": "alice", "lab_members": [{"name": "alice", "admin": True}, {"name": "bob"}], **variables}
    return preflight.inspect(lab, defined=lab, facts=FACTS, root=root)


def mark(root: Path, *tiers: str) -> None:
    folder = root / names.TIERS_STATE_DIR.relative_to("/")
    folder.mkdir(parents=True)
    for tier in tiers:
        (folder / tier).touch()


def test_a_new_server_has_no_earlier_tier(tmp_path: Path) -> None:
    found = inspect(tmp_path)
    assert found.old_tiers == ()
    assert found.plan[0].endswith("new to gpulab")


def test_an_earlier_tier_is_named_first_and_as_a_risk(tmp_path: Path) -> None:
    mark(tmp_path, "table", "slurm")
    found = inspect(tmp_path)
    assert found.old_tiers == ("slurm",)
    assert found.plan[0] == "RISK  tier slurm goes: its commands and rules are taken away, data stays"


def test_what_is_no_tier_is_left_alone(tmp_path: Path) -> None:
    mark(tmp_path, "table", "notes.txt")
    assert inspect(tmp_path).old_tiers == ()
