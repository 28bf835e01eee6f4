"""One number, on a server that lives: what people own stays, what a tier installed goes, and every stop is survived."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from machines import fingerprint, interrupt, power_off, power_on

if TYPE_CHECKING:
    from conftest import Acceptance, Person, Play
    from testinfra.host import Host

SEED = int(os.environ.get("GPULAB_SEED", "1"))
"""Chooses where runs are stopped; other ones are worth trying: GPULAB_SEED=$RANDOM."""
CHANGE = "Take away the tiers of before|Note tier"
"""The first task that a change of tier is about; a run that finds the old tier gone begins with the second one."""

SLICES = {"": 60, CHANGE: 24}
"""In how many tasks a run is stopped, counted from the first one that is called so; every run has some more."""

OWNED = (
    "getent passwd alice bob carol; getent group vision; cat /home/bob/result; stat -c '%U %a' /home/bob; "
    "cut -d: -f1,2 /etc/shadow | grep -E '^(alice|bob|carol):'"
)
"""Prints what people own."""

OPENS = "systemd-run --quiet --pipe --wait --uid=bob --property=PAMName=login sh -lc 'cat /dev/nvidia0' </dev/null"
"""Opens a card in a login session that logind knows, as ssh makes one."""

DATA = re.compile(
    r"/var/lib/gpulab/(slurm|samples|reclaim|leases|booking|reports|checks|ledger|quota)(/| |$)"
    r"|/home/admin/(gpu_schedule\.csv|GPU_INFO\.md)|/home/bob/|/etc/(passwd|shadow|group|gshadow|sub[ug]id) "
    r"|/etc/(alternatives|perl)[/ ]|/etc/profile\.d/gawk\."
)
"""Lines of a fingerprint about what people and agents wrote, and what packages leave: accounts, gawk."""


def site(play: Play, size: int, *options: str) -> str:
    done = play(*options, group_size=size)
    assert done.returncode == 0, done.stdout
    return done.said


def stops(host: Host, size: int, *kinds: str, count_from: str = CHANGE) -> list[str]:
    """Begin a run as often as there are kinds, and stop each one inside a task further on.

    Kinds are `killed`, the controller dies, and `power cut`, the server does.
    """
    machine = host.backend.name
    command = [
        *("ansible-playbook", "-i", os.environ["MOLECULE_INVENTORY_FILE"]),
        *("-e", json.dumps({"group_size": size}), str(Path(__file__).parent.parent / "converge.yml")),
    ]
    choose = random.Random(f"{SEED} {size} {kinds}")
    share = SLICES[count_from] // len(kinds)
    told = []
    for part, kind in enumerate(kinds):
        task = choose.randint(1 + part * share, (part + 1) * share)
        cut = functools.partial(power_off, machine) if kind == "power cut" else lambda: None
        where = interrupt(command, task, choose.random(), cut, count_from=count_from)
        if kind == "power cut":
            power_on(machine)
        assert where, f"seed {SEED}: after {told} a run ended before task {task}, where it was to be stopped"
        told.append(f"{kind} in {where}")
    return [f"seed {SEED}", *told]


def installed(host: Host) -> set[str]:
    """Return what there is of files, units and processes that gpulab has a part in, without what people own."""
    files = {line for line in fingerprint(host.backend.name) if not DATA.search(line)}
    units = host.check_output(
        "systemctl list-unit-files --no-legend --plain | awk '$2 !~ /transient|generated/ {print $1, $2}'"
    ).splitlines()
    waiting = host.check_output("systemctl list-units --no-legend --plain --type=socket,timer | awk '{print $1}'")
    services = "slurmctld slurmd slurmdbd munge mariadb gpulab-sampler gpulab-overview"
    # The two that end themselves after new settings start again within seconds.
    running = host.check_output(
        f"for second in $(seq 20); do systemctl is-active {services} | grep -q activating || break; sleep 1; done; "
        f"systemctl is-active {services} || :"
    ).split()
    return {*files, *units, *(f"active {name}" for name in waiting.splitlines()), f"{services}: {running}"}


def same(now: set[str], before: set[str], told: list[str]) -> None:
    if now != before:
        pytest.fail(
            "\n".join([*told, *(f"+ {each}" for each in now - before), *(f"- {each}" for each in before - now)])
        )


def bookings(host: Host) -> list[tuple[str, str]]:
    sheet = host.check_output("cat /home/admin/gpu_schedule.csv").splitlines()[1:]
    return sorted((row.split(",")[0], row.split(",")[-1]) for row in sheet)


def holds(found: dict[str, str]) -> None:
    assert {name: said for name, said in found.items() if not said.startswith(("holds", "not asked for"))} == {}


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """Return what earlier sizes looked like."""
    return {}


def test_a_first_run_survives_every_stop(host: Host, play: Play, acceptance: Acceptance) -> None:
    told = stops(host, 4, "killed", "power cut", "power cut", count_from="")
    site(play, 4)
    assert "changed=0" in site(play, 4), told
    holds(acceptance())


def test_four_people_book(host: Host, as_member: Person, seen: dict[str, Any]) -> None:
    begin = "$(date -d tomorrow '+%F 09:00')"
    assert as_member("bob", "gpu-schedule add now --gpu 0 --start now --hours 3 && echo 42 >result").rc == 0
    assert as_member("carol", f'gpu-schedule add later --gpu 1 --start "{begin}" --hours 2').rc == 0
    assert as_member("bob", f'gpu-schedule add given-up --gpu 2 --start "{begin}" --hours 2').rc == 0
    seen["owned"] = host.check_output(OWNED)
    seen[4] = installed(host)


def test_seven_people_share_by_leases(host: Host, as_member: Person, play: Play, seen: dict[str, Any]) -> None:
    told = stops(host, 7, "killed", "power cut")
    site(play, 7)
    assert as_member("bob", "allocate_gpu -- true").rc == 0
    assert host.check_output(OWNED) == seen["owned"], told
    assert not host.exists("gpu-schedule")
    assert bookings(host) == [("given-up", "booked"), ("later", "booked"), ("now", "booked")]
    assert "changed=0" in site(play, 7), told
    seen[7] = installed(host)


def test_running_work_is_not_ended(host: Host, play: Play) -> None:
    hold = "allocate_gpu -- gpusim run --mem 5G -- sleep 900"
    host.run_expect([0], f"setsid runuser -l bob -c {shlex.quote(hold)} </dev/null >/dev/null 2>&1 &")
    host.run_expect([0], "timeout 30 sh -c 'until gpulab leases --json | grep -q pid; do sleep 1; done'")
    refused = play(group_size=12)
    assert refused.returncode != 0
    assert "RISK tier allocator goes" in refused.said
    assert "the allocator tier is in use: bob" in refused.said
    assert "changed=0" in refused.said
    host.run_expect(
        [0], "pkill -u bob sleep; timeout 30 sh -c 'while gpulab leases --json | grep -q pid; do sleep 1; done'"
    )


def test_twelve_people_have_a_scheduler(host: Host, play: Play, acceptance: Acceptance, seen: dict[str, Any]) -> None:
    assert play(playbook="cgroups.yml").returncode == 0
    told = stops(host, 12, "killed", "killed", "killed", "killed")
    site(play, 12)
    assert "changed=0" in site(play, 12), told
    assert host.check_output(OWNED) == seen["owned"], told
    assert host.run("ls /usr/local/bin/allocate_gpu /etc/gpulab/conf.d/allocator.toml 2>/dev/null").stdout == ""
    holds(acceptance())


def test_a_booking_holds_its_own_card_and_no_other(host: Host, as_member: Person) -> None:
    if host.system_info.codename == "bookworm":
        pytest.skip("Slurm 22.05 cannot reserve GPUs")
    reserved = host.check_output("scontrol --oneliner show reservation")
    assert reserved.count("ReservationName=booking-") == 3
    submit = "sbatch --parsable --output=/dev/null --gres=gpu:1 --time=20 --wrap 'sleep 300'"
    jobs = as_member("carol", f"for n in 1 2 3 4; do {submit}; done").stdout.split()
    states = "squeue --noheader --format=%T --sort=i --jobs=" + ",".join(jobs)
    host.run_expect([0], f"timeout 60 sh -c 'until [ $({states} | grep -c RUNNING) = 3 ]; do sleep 1; done'")
    assert host.check_output(states).split() == ["RUNNING"] * 3 + ["PENDING"]
    ran = as_member("bob", "srun --gres=gpu:1 --time=20 sh -c 'echo $SLURM_JOB_RESERVATION'")
    assert ran.stdout.startswith("booking-bob-gpu0-"), ran.stderr
    assert host.check_output(states).split() == ["RUNNING"] * 3 + ["PENDING"]
    host.run_expect([0], f"scancel {' '.join(jobs)}; timeout 60 sh -c 'while squeue -h | grep -q .; do sleep 1; done'")
    name = next(field for field in reserved.split() if field.startswith("ReservationName=booking-bob-gpu2"))
    host.run_expect([0], f"scontrol delete {name}")


def test_seven_people_again(host: Host, as_member: Person, play: Play, seen: dict[str, Any]) -> None:
    told = stops(host, 7, "killed", "power cut")
    site(play, 7)
    assert host.check_output(OWNED) == seen["owned"], told
    same(installed(host), seen[7], told)
    assert as_member("bob", "allocate_gpu -- true").rc == 0
    assert "Operation not permitted" in host.run(OPENS).stderr
    assert "changed=0" in site(play, 7), told


def test_four_people_again(
    host: Host, as_member: Person, play: Play, acceptance: Acceptance, seen: dict[str, Any]
) -> None:
    told = stops(host, 4, "killed", "killed")
    site(play, 4)
    assert host.check_output(OWNED) == seen["owned"], told
    same(installed(host), seen[4], told)
    given_up = "booked" if host.system_info.codename == "bookworm" else "cancelled"
    assert bookings(host) == [("given-up", given_up), ("later", "booked"), ("now", "booked")]
    assert "later" in as_member("carol", "gpu-schedule list").stdout
    assert "Operation not permitted" not in host.run(OPENS).stderr
    assert as_member("bob", "echo [$CUDA_VISIBLE_DEVICES]").stdout == "[]\n"
    assert "changed=0" in site(play, 4), told
    holds(acceptance())
