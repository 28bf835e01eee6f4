"""What a run will be about, from inventory and server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gpulab import names
from gpulab.errors import InputError
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


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"disk_quota_folders": "/home"}, "disk_quota_folders is '/home'; give a list"),
        ({"disk_quota_folders": [{"path": "/home", "hard": 500}]}, 'hard is "500"; give a number with a unit'),
        ({"disk_quota_folders": [{"path": "/home", "soft": "3G", "hard": "2G"}]}, "lower soft or raise hard"),
        ({"disk_quota_folders": [{"path": "/nowhere", "hard": "2G"}]}, "there is no folder /nowhere; make it"),
        ({"disk_quota_folders": [{"path": "/proc", "hard": "2G"}]}, "/proc lies on proc"),
        ({"disk_quota_enabled": "perhaps"}, "disk_quota_enabled is 'perhaps'; give true or false"),
        ({"disk_quota_folder": []}, "did you mean disk_quota_folders?"),
    ],
)
def test_disk_limits_that_cannot_be_are_refused_before_anything_changes(
    tmp_path: Path, variables: dict[str, Any], line: str
) -> None:
    with pytest.raises(InputError) as caught:
        inspect(tmp_path, **variables)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("8080", "give a loopback or LAN address of the server and a port, such as 127.0.0.1:8080"),
        (8080, "board_listen is 8080; give"),
        ("127.0.0.1", "such as 127.0.0.1:8080"),
        ("127.0.0.1:0", "board_listen is '127.0.0.1:0'; give"),
        ("127.0.0.1:65536", "give a loopback"),
        ("127.0.0.300:80", "which is no address; give"),
        ("[fd00::1::2]:80", "which is no address; give"),
        ("fd00::7:8080", "such as 127.0.0.1:8080 or [fd00::7]:8080"),
        ("gpu1.example.org:8080", "give a loopback"),
        ("0.0.0.0:8080", "which more than the lab may reach; give"),
        ("[::]:8080", "which more than the lab may reach; give"),
        ("8.8.8.8:8080", "which more than the lab may reach; give"),
        ("[2001:4860:4860::8888]:80", "which more than the lab may reach; give"),
        ("127.0.0.1:8080; root /etc", "give a loopback"),
        ("127.0.0.1:8080\n", "give a loopback"),
    ],
)
def test_a_board_for_everybody_in_the_world_is_refused(tmp_path: Path, listen: object, why: str) -> None:
    for enabled in (True, False):
        with pytest.raises(InputError) as caught:
            inspect(tmp_path, board_enabled=enabled, board_listen=listen)
        assert str(caught.value).startswith(f"board_listen is {listen!r}")
        assert why in str(caught.value)


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:8080", "[::1]:80", "192.168.1.10:8080", "10.0.0.1:1", "100.64.0.1:8080", "[fd00::7]:65535"]
)
def test_a_board_for_the_lab_is_told_of_in_the_plan(tmp_path: Path, listen: str) -> None:
    plan = inspect(tmp_path, board_enabled=True, board_listen=listen).plan
    assert f"board: http://{listen}/, for everybody who can reach it" in plan
    assert not [line for line in inspect(tmp_path, board_listen=listen).plan if line.startswith("board")]


@pytest.mark.parametrize(("role", "wishes"), [("board", {}), ("bandwidth", {"bandwidth_rate": "500mbit"})])
def test_what_few_labs_need_is_known_also_from_before(tmp_path: Path, role: str, wishes: dict[str, str]) -> None:
    assert inspect(tmp_path, **{f"{role}_enabled": True}, **wishes).extras == (role,)
    assert inspect(tmp_path).extras == ()
    (tmp_path / "etc/gpulab/conf.d").mkdir(parents=True)
    (tmp_path / f"etc/gpulab/conf.d/{role}.toml").write_text(f"[{role}]\n")
    assert inspect(tmp_path, **{f"{role}_enabled": False}).extras == (role,)


def test_mistyped_words_about_the_board_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="board_enabled is 'perhaps'; give true or false"):
        inspect(tmp_path, board_enabled="perhaps")
    with pytest.raises(InputError, match="did you mean board_enabled"):
        inspect(tmp_path, board_enable=True)


def test_limits_that_are_switched_off_may_speak_of_a_missing_folder(tmp_path: Path) -> None:
    folders = [{"path": "/nowhere", "hard": "2G"}]
    assert not [
        line
        for line in inspect(tmp_path, disk_quota_folders=folders, disk_quota_enabled=False).plan
        if line.startswith("disk limits")
    ]


def test_a_folder_for_datasets_is_judged_where_there_are_some(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    place = {"datasets_path": str(data / "shared"), "datasets_store": str(data / ".shared"), "datasets_enabled": "auto"}
    line = f"datasets: {data}/shared, from {data}/.shared"
    assert line in inspect(tmp_path, **place).plan
    (data / "shared" / "old").mkdir(parents=True)
    with pytest.raises(InputError, match="holds 1 things already"):
        inspect(tmp_path, **place)
    assert line not in inspect(tmp_path, **place | {"datasets_enabled": False}).plan
    place["datasets_path"] = "/nowhere/shared"
    assert not [line for line in inspect(tmp_path, **place).plan if "datasets" in line]
    with pytest.raises(InputError, match="there is no folder /nowhere; make it, or set datasets_enabled: false"):
        inspect(tmp_path, **place | {"datasets_enabled": True})
