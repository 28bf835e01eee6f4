"""Role golden_hours: everybody sees which kind of work it is time for, and a booking that does not fit is told so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Person, Play
    from testinfra.host import Host

TABLE = "/etc/gpulab/conf.d/windows.toml"
RULE = (
    "window weekdays (00:00-24:00: short jobs, debugging, preprocessing) allows at most 1 card a job, not 2 and at "
    "most 2 h a job, not 6; it fits from "
)
FRIDAY = 5


def coming(host: Host, day: str) -> str:
    """Return the date of the next such day after today, on the server's calendar."""
    return host.check_output(f"date --date='next {day}' +%F")


def test_members_see_the_table_and_the_present_window(host: Host, as_member: Person) -> None:
    shown = as_member("bob", "gpulab windows")
    assert shown.rc == 0, shown.stderr
    assert "weekdays  00:00-24:00  Mon-Fri   short    1      2 h      short jobs, debugging" in shown.stdout
    assert 'weekend   00:00-24:00  Sat, Sun  offline  any    any      "nights" | days' in shown.stdout
    present = "weekdays" if int(host.check_output("date +%u")) <= FRIDAY else "weekend"
    assert json.loads(as_member("bob", "gpulab windows --json").stdout)["window"] == present


def test_a_booking_that_does_not_fit_is_refused_with_the_rule_and_when_it_does(host: Host, as_member: Person) -> None:
    monday, saturday = coming(host, "monday"), coming(host, "saturday")
    refused = as_member("bob", f"gpu-schedule add big --gpu 0,1 --start '{monday} 10:00' --hours 6")
    assert refused.rc == 2
    week_later = host.check_output(f"date --date='{monday} +5 days' +%F")
    assert refused.stderr == f"gpu-schedule: {RULE}{week_later} 00:00 on; `gpulab windows` shows them all\n"
    assert as_member("bob", "gpu-schedule list --mine").stdout.startswith("no bookings")
    fits = as_member("bob", f"gpu-schedule add big --gpu 0,1 --start '{saturday} 10:00' --hours 6")
    assert (fits.rc, "window" in fits.stderr) == (0, False)


def test_an_admin_is_only_warned(host: Host, as_member: Person) -> None:
    warned = as_member("alice", f"gpu-schedule add big --gpu 2,3 --start '{coming(host, 'monday')} 10:00' --hours 6")
    assert warned.rc == 0
    assert f"gpu-schedule: note: {RULE}" in warned.stderr


def test_a_table_that_makes_no_sense_is_refused_and_the_old_one_stays(host: Host, play: Play) -> None:
    before = host.file(TABLE).content_string
    done = play(gpu_windows=[{"name": "day", "from": "18:00", "to": "06:30", "class": "short"}])
    assert done.returncode != 0
    assert "window day: to is '06:30'; before its beginning, 18:00" in done.said
    assert host.file(TABLE).content_string == before


def test_the_usual_table_and_none_at_all(host: Host, play: Play) -> None:
    done = play(golden_hours_table="usual", golden_hours_on_break="warn")
    assert done.returncode == 0, done.stdout
    names = [window["name"] for window in json.loads(host.check_output("gpulab windows --json"))["windows"]]
    assert names == ["morning", "afternoon", "evening"]
    assert play(golden_hours_table=[]).returncode == 0
    assert host.check_output("gpulab windows") == "This server has no windows: all hours are equal."
    assert play().returncode == 0
