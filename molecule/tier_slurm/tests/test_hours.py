"""Role tier_slurm: golden hours move what a class is worth, and what does not fit waits for their end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.host import Host

    from ...conftest import Person

DAY = "2026-12-02"  # a Wednesday


def apply(host: Host, clock: str = "") -> str:
    """Put the hours of a moment in force, of this one when none is given; return what was said."""
    return host.check_output("gpulab slurm windows" + (f" --at '{DAY} {clock}'" if clock else ""))


def qos(host: Host) -> dict[str, str]:
    """Return what each QOS says."""
    rows = host.check_output("sacctmgr -nP show qos format=Name,Priority,MaxTRES,MaxWall").splitlines()
    return {row.split("|")[0]: row.partition("|")[2] for row in rows}


@pytest.fixture(autouse=True)
def _hours_of_now(host: Host) -> Iterator[None]:
    yield
    apply(host)


@pytest.mark.parametrize(
    ("clock", "golden", "limits"),
    [
        ("08:00", "long", "|"),
        ("11:59", "long", "|"),
        ("12:00", "", "|"),
        ("14:00", "short", "gres/gpu=1|04:00:00"),
        ("20:00", "offline", "|"),
        ("01:59", "offline", "|"),
    ],
)
def test_a_class_has_its_hours(host: Host, clock: str, golden: str, limits: str) -> None:
    apply(host, clock)
    found = qos(host)
    for name in ("long", "short", "offline", "normal"):
        assert found[name] == f"{1000 if name == golden else 500}|{limits}", name
    assert "done: " not in apply(host, clock)


def test_a_job_that_does_not_fit_the_hours_waits_for_their_end_and_is_told(host: Host, as_member: Person) -> None:
    apply(host, "15:00")
    done = as_member("bob", "sbatch --parsable --gres=gpu:a100:2 --wrap 'sleep 1'")
    assert done.rc == 0, done.stderr  # it queues; nobody is turned away
    job = done.stdout.strip()
    until(lambda: "QOSMax" in host.check_output(f"squeue -h -j {job} -o %r"), 60, "it waits for the hours")
    host.run_expect([0], "systemctl restart slurmctld")
    until(lambda: " is UP" in host.run("scontrol ping").stdout, 30, "the controller is back")
    until(lambda: "QOSMax" in host.run(f"squeue -h -j {job} -o %r").stdout, 60, "it still waits after a restart")
    running = as_member("bob", "srun --gres=gpu:1 true")
    assert running.rc == 0, running.stderr  # what fits runs
    apply(host, "18:00")
    until(lambda: not host.check_output(f"squeue -h -j {job} -o %T").strip(), 90, "it runs when the hours are over")
    assert host.check_output(f"sacct -nPX -j {job} -o State") == "COMPLETED"


def test_the_hour_of_submission_stays_with_the_job(host: Host, as_member: Person) -> None:
    """Which window it is while the tests run is chance: the weight the member is told is the one in sprio."""
    holder = as_member("alice", "sbatch --parsable --gres=gpu:a100:2 --wrap 'sleep 300'").stdout.strip()
    done = as_member("bob", "sbatch --parsable --gres=gpu:a100:2 --wrap 'sleep 1'")
    weight = float(re.search(r"submission x([0-9.]+)", done.stderr)[1])  # type: ignore[index] # None fails the test
    job = done.stdout.strip()
    until(lambda: host.run(f"sprio -h -j {job} -o %S").stdout.split() != [], 30, "sprio knows it")
    assert int(host.check_output(f"sprio -h -j {job} -o %S")) == round((weight - 1) * 12000)
    host.run_expect([0], "systemctl restart slurmctld")
    until(lambda: host.run(f"sprio -h -j {job} -o %S").stdout.split() != [], 60, "sprio knows it again")
    assert int(host.check_output(f"sprio -h -j {job} -o %S")) == round((weight - 1) * 12000)
    assert holder


def test_the_controller_judges_hours_as_the_table_says(host: Host) -> None:
    """The plugin's own reading of the clock, asked for every quarter of an hour of a week, against the package's."""
    package = (
        "from datetime import datetime, timedelta; from gpulab.settings import load; "
        "from gpulab.rules.windows import class_at; table = load().windows.table; start = datetime(2026, 11, 30); "
        "print(*(getattr(class_at(table, start + timedelta(minutes=15 * n)), 'name', '-') for n in range(672)))"
    )
    expected = host.check_output(f'/opt/gpulab/current/bin/python -c "{package}"').split()
    host.run_test("command -v lua5.1 >/dev/null || apt-get install -y --no-install-recommends lua5.1 >/dev/null")
    script = (
        "slurm = {NO_VAL = 1, NO_VAL16 = 2, SUCCESS = 0}; "
        "local text = io.open('/etc/slurm/job_submit.lua'):read('*a'); "
        "text = text:gsub('return slurm.SUCCESS%s*$', 'return window_at'); local at = loadstring(text)(); "
        "local start = os.time({year = 2026, month = 11, day = 30, hour = 0}); local found = {}; "
        "for n = 0, 671 do local w = at(start + 900 * n); found[#found + 1] = w and w.name or '-' end; "
        "print(table.concat(found, ' '))"
    )
    assert host.check_output(f'TZ=UTC lua5.1 -e "{script}"').split() == expected


def test_a_timer_is_set_for_the_next_edge(host: Host) -> None:
    following = host.check_output("systemctl show -P NextElapseUSecRealtime gpulab-slurm-windows.timer")
    assert re.search(r"(02|08|12|14|18|20):00:00", following)
    for clock in ("09:00", "15:00"):  # one of them is not like now
        apply(host, clock)
        if "would do: " in host.check_output("gpulab slurm windows --check"):
            break
    assert "would do: " in host.check_output("gpulab slurm windows --check")
    host.run_expect([0], "systemctl start gpulab-slurm-windows.service")
    assert "would do: " not in host.check_output("gpulab slurm windows --check")
