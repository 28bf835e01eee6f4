"""Golden hours as QOS rows."""

from __future__ import annotations

import subprocess
from datetime import datetime

import pytest
from gpulab.adapters.slurm import SlurmError
from gpulab.rules.slurm_qos import Qos, calendar, changes, short_work, table, wanted
from gpulab.rules.window_table import DEFAULT_TABLE, parse_windows
from gpulab.services import slurm_windows
from gpulab.services.slurm_windows import read_qos

WINDOWS = parse_windows(DEFAULT_TABLE)
WEDNESDAY = datetime(2026, 12, 2)  # noqa: DTZ001 - naive server time


def at(hour, windows=WINDOWS):
    return wanted(windows, WEDNESDAY.replace(hour=hour))


def test_a_window_raises_its_class_and_limits_every_one():
    assert at(15) == {
        "long": Qos(500, 1, 240),
        "short": Qos(1000, 1, 240),
        "offline": Qos(500, 1, 240),
        "normal": Qos(500, 1, 240),
    }
    assert at(9)["long"] == Qos(1000)
    assert at(1)["offline"] == Qos(1000)
    assert set(at(13).values()) == {Qos(500)}


def test_only_what_differs_is_written():
    assert changes(at(15), at(15)) == []
    assert changes(at(13), at(9)) == ["modify qos where name=long set Priority=1000"]
    assert "modify qos where name=short set Priority=500 MaxTRESPerJob=gres/gpu=-1 MaxWall=-1" in changes(
        at(15), at(18)
    )
    assert changes({}, at(9)) == []


def test_edges_are_moments_of_a_timer():
    assert list(calendar(WINDOWS)) == [f"*-*-* {hour:02}:00:00" for hour in (2, 8, 12, 14, 18, 20)]
    weekdays = parse_windows([
        {"name": "late", "from": "22:30", "to": "02:00", "days": ["fri", "sun"], "class": "long"},
    ])  # fmt: skip
    assert list(calendar(weekdays)) == ["Mon,Sat *-*-* 02:00:00", "Fri,Sun *-*-* 22:30:00"]


def test_systemd_understands_the_moments():
    for moment in ("*-*-* 02:00:00", "Mon,Sat *-*-* 02:00:00"):
        subprocess.run(["systemd-analyze", "calendar", moment], check=True, capture_output=True)


def test_short_work_is_what_the_windows_for_it_allow():
    assert short_work(WINDOWS) == (240, 1)
    assert short_work(()) == (240, 1)
    wide = parse_windows([
        {"name": "a", "from": "08:00", "to": "09:00", "class": "short", "max_hours": 2, "max_cards": 2},
    ])  # fmt: skip
    assert short_work(wide) == (120, 2)


def test_the_plugin_gets_minutes_of_the_week():
    evening = table(WINDOWS)[2]
    assert (evening["length"], evening["starts"][:2], evening["weight"]) == (360, [1200, 2640], 1.5)


class Database:
    def __init__(self, rows):
        self.rows = rows
        self.fed = ""
        self.obeys = True

    def __call__(self, argv, *, feed="", **_):
        if "show" in argv:
            return "".join(f"{row}\n" for row in self.rows)
        self.fed += feed
        if self.obeys:
            self.rows = ["long|1000||", "short|500||", "offline|500||", "normal|500||", "scale|1000||"]
        return ""


def test_rows_are_read_as_sacctmgr_prints_them():
    database = Database(["a|500|cpu=3,gres/gpu=2|1-02:30:00", "b|1000||", "c|0|gres/gpu=1|04:00:00"])
    assert read_qos(database) == {"a": Qos(500, 2, 26 * 60 + 30), "b": Qos(1000), "c": Qos(0, 1, 240)}


def test_hours_are_put_in_force_and_read_again():
    database = Database(["long|500||", "short|1000||", "offline|500||", "normal|500||"])
    done = slurm_windows.apply(WINDOWS, WEDNESDAY.replace(hour=9), run_command=database)
    assert done == [
        "modify qos where name=long set Priority=1000",
        "modify qos where name=short set Priority=500",
    ]
    assert slurm_windows.apply(WINDOWS, WEDNESDAY.replace(hour=9), run_command=database) == []


def test_a_database_that_does_not_obey_is_an_error():
    database = Database(["long|500||"])
    database.obeys = False
    with pytest.raises(SlurmError, match="still to do: modify qos where name=long"):
        slurm_windows.apply(WINDOWS, WEDNESDAY.replace(hour=9), run_command=database)
