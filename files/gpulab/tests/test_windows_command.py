"""`gpulab windows` as a member types it."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from gpulab.commands import windows


@pytest.fixture
def show(tmp_path, capsys):
    folder = tmp_path / "etc/gpulab/conf.d"
    folder.mkdir(parents=True)

    def run(moment, *arguments, lab="", table=""):
        (tmp_path / "etc/gpulab/gpulab.toml").write_text(f"[lab]\n{lab}\n")
        (folder / "windows.toml").write_text(f"[windows]\n{table}\n")
        assert windows.main(arguments, root=tmp_path, now=lambda: datetime.fromisoformat(moment)) == 0
        return capsys.readouterr().out

    return run


def test_the_table_and_the_present_window(show):
    assert show("2026-12-01 15:20").splitlines() == [
        "Now (Tue 15:20): afternoon, for short jobs, debugging, preprocessing, until 18:00.",
        "",
        "WINDOW     HOURS        DAYS       CLASS    CARDS  LONGEST  FOR",
        "morning    08:00-12:00  every day  long     any    any      long, large-batch and multi-card work",
        "afternoon  14:00-18:00  every day  short    1      4 h      short jobs, debugging, preprocessing",
        "evening    20:00-02:00  every day  offline  any    any      offline inference and parameter search",
        "",
        "A job is judged by the window it starts in, or else by the first one it runs into.",
        "One that does not fit gets a warning.",
    ]


def test_between_windows_the_next_one_is_named(show):
    assert show("2026-12-01 18:20").startswith(
        "Now (Tue 18:20) it is outside every window; evening begins Tue 20:00.\n"
    )


def test_in_chinese_the_columns_line_up(show):
    lines = show("2026-12-01 23:00", lab='language = "zh"', table='on_break = "refuse"').splitlines()
    assert lines[0] == "现在（23:00）：evening，用于离线推理与超参搜索，到 02:00 为止。"
    assert lines[3] == "morning    08:00-12:00  每天  long     不限      不限    长任务、大批量、多卡训练"
    assert lines[-1].endswith("会被拒绝。")


def test_weights_are_shown_where_they_count(show):
    lines = show("2026-12-01 15:20", lab='tier = "slurm"').splitlines()
    assert lines[4].split()[5:9] == ["1", "4", "h", "0.5"]
    assert lines[2].split() == ["WINDOW", "HOURS", "DAYS", "CLASS", "CARDS", "LONGEST", "WEIGHT", "FOR"]
    assert lines[-1] == "Weight: factor of the priority of a job submitted in the window; 1 outside."


def test_without_windows_that_is_said(show):
    assert show("2026-12-01 15:20", table="table = []") == "This server has no windows: all hours are equal.\n"


def test_as_json(show):
    found = json.loads(show("2026-12-01 15:20", "--json"))
    assert (found["window"], found["class"], found["next_change"]) == ("afternoon", "short", "2026-12-01T18:00")
    assert found["windows"][0]["max_cards"] is None
    nothing = json.loads(show("2026-12-01 15:20", "--json", table="table = []"))
    assert (nothing["window"], nothing["next_change"], nothing["windows"]) == (None, None, [])
