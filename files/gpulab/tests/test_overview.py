"""The overview: which cards are free, whose work there is, what is not known; nothing that hangs holds it up."""

from __future__ import annotations

import os
import time
from datetime import datetime
from types import SimpleNamespace

import pytest
from broker_world import GIB, Machine
from gpulab.adapters.apart import Apart
from gpulab.commands.overview import run
from gpulab.errors import GpulabError
from gpulab.rules import overview as rules
from gpulab.rules.machine import Disk
from gpulab.rules.overview import (
    BOOKED,
    BROKEN,
    FREE,
    RUNNING,
    TAKEN,
    UNSURE,
    USED,
    WAITING,
    Overview,
    Pool,
    Spot,
    Work,
)
from gpulab.rules.squeue import parse_jobs, parse_pool
from gpulab.services import overview as service
from gpulab.services import tier_work
from gpulab.services.overview import World, take
from gpulab.services.tier_work import bookings, jobs

NOW = datetime(2026, 12, 2, 15, 30)  # noqa: DTZ001 - naive server time
HEADER = "task_name,user,gpu_id,start_time,end_time,est_hours,status\n"
SHEET = (
    HEADER
    + "train,bob,0,2026-12-02 14:00,2026-12-02 18:00,4,booked\n"
    + "train,bob,1,2026-12-02 14:00,2026-12-02 18:00,4,booked\n"
    + "big,carol,2,2026-12-04 09:00,2026-12-04 21:00,12,booked\n"
    + "over,bob,3,2026-12-01 09:00,2026-12-01 10:00,1,booked\n"
    + "done,bob,3,2026-12-02 14:00,2026-12-02 18:00,4,done\n"
    + "far,bob,3,2026-12-20 14:00,2026-12-20 18:00,4,booked\n"
)


@pytest.fixture
def machine(tmp_path):
    folder = tmp_path / "home/admin"
    folder.mkdir(parents=True)
    (folder / "gpu_schedule.csv").write_text(SHEET)
    (tmp_path / "data").mkdir()
    return Machine(tmp_path)


def world(machine, **changes):
    values = {
        "root": machine.root,
        "places": (str(machine.root / "data"),),
        "look": lambda _run: machine.look(),
        "now": lambda: NOW,
        "patience": 0.3,
        **changes,
    }
    return World(**values)


def states(seen):
    return [seen.state_of(spot) for spot in seen.spots]


def test_a_card_is_free_that_nobody_is_on_and_nobody_has_booked_now(machine):
    machine.use(2, 4711, 1)
    machine.lost = {3}
    seen = take(world(machine), "table")
    assert states(seen) == [TAKEN, TAKEN, USED, BROKEN]
    assert seen.spots[2].people == ("dave (python, PID 4711)",)
    assert (seen.spots[2].name, seen.spots[2].model, seen.spots[2].used) == ("2", "A100", GIB)
    assert seen.spots[3].used is None


def test_bookings_of_the_week_are_joined_by_card_and_what_is_over_is_left_out(machine):
    work = take(world(machine), "table").desk.work
    assert [(each.user, each.what, each.state, each.cards) for each in work] == [
        ("bob", "train", RUNNING, (0, 1)),
        ("carol", "big", BOOKED, (2,)),
    ]


def test_without_the_sheet_no_card_is_called_free(machine):
    (machine.root / "home/admin/gpu_schedule.csv").unlink()
    seen = take(world(machine), "table")
    assert states(seen) == [UNSURE] * 4
    assert seen.desk.problem == rules.SHEET
    assert "is not there" in seen.desk.detail


def test_cards_that_cannot_be_read_are_a_reason(machine):
    machine.reason = "the driver is not loaded"
    seen = take(world(machine), "table")
    assert (seen.spots, seen.reason, seen.sure) == ((), "the driver is not loaded", False)


def test_leases_and_the_line_are_work(machine):
    first = machine.client("carol", 1002)
    machine.ask(first, cards=3, hours=2, command="python train.py")
    machine.broker.serve()
    machine.get(machine.client("bob", 1001), cards=2, wait=1, command="python test.py")
    seen = take(world(machine), "allocator")
    assert [(each.user, each.state, each.count) for each in seen.desk.work] == [
        ("carol", RUNNING, 3),
        ("bob", WAITING, 2),
    ]
    assert sorted(states(seen)) == [FREE, USED, USED, USED]
    assert seen.desk.work[0].end is not None
    machine.end(first.peer.pid)
    assert states(take(world(machine), "allocator")) == [FREE] * 4, "a lease ends with its last process"


def test_a_file_system_that_hangs_is_said_and_holds_up_nothing(machine, tmp_path, monkeypatch):
    # Opening a FIFO that nobody writes to blocks as statvfs(2) does on a dead file server; the kill does nothing.
    os.mkfifo(tmp_path / "fifo")
    real, asked = os.statvfs, tmp_path / "asked"

    def statvfs(path):
        if str(path).endswith("/data"):
            with asked.open("a") as stream:
                stream.write("x")
            (tmp_path / "fifo").read_text()
        return real(path)

    monkeypatch.setattr(service.os, "statvfs", statvfs)
    (tmp_path / "scratch").mkdir()
    place = world(machine, places=(f"{tmp_path}/data", f"{tmp_path}/scratch"), apart=Apart(lambda *_: None))
    for _ in range(3):
        began = time.monotonic()
        seen = take(place, "table")
        assert time.monotonic() - began < 5
        assert [disk.path for disk in seen.disks] == [f"{tmp_path}/data", f"{tmp_path}/scratch"]
        assert seen.disks[0].reason == "the file system does not answer within 0.3 s"
        assert seen.disks[1].total
        assert [each.user for each in seen.desk.work] == ["bob", "carol"]
    assert asked.read_text() == "x", "one process hangs, not one for each minute"
    (tmp_path / "fifo").write_text("")


def test_a_sheet_on_a_file_system_that_hangs_is_given_up(machine, monkeypatch):
    monkeypatch.setattr(tier_work, "read_sheet", lambda _root: time.sleep(60))
    monkeypatch.setattr(tier_work, "_PATIENCE", 0.2)
    found = bookings(machine.root, NOW, Apart())
    assert (found.problem, found.work) == (rules.SHEET, ())


def test_a_child_that_dies_is_no_end_of_the_overview(machine, monkeypatch):
    monkeypatch.setattr(tier_work, "read_sheet", lambda _root: os._exit(3))
    assert "died" in take(world(machine), "table").desk.detail


def test_folders_of_one_file_system_are_shown_once_and_absent_ones_not(machine, tmp_path):
    place = world(machine, places=(f"{tmp_path}/data", f"{tmp_path}/home", f"{tmp_path}/none"))
    assert [disk.path for disk in take(place, "table").disks] == [f"{tmp_path}/data"]


def test_limits_are_read_for_members_once_for_each_file_system(machine, tmp_path, monkeypatch):
    def read(_world, path, accounts):
        assert accounts == {"bob": 1001}
        return [SimpleNamespace(owner="bob", path=path)]

    path = f"{tmp_path}/data"
    policy = SimpleNamespace(folders=[SimpleNamespace(path=path), SimpleNamespace(path=f"{tmp_path}/home")])
    monkeypatch.setattr(service, "read_note", lambda _root: (policy, ("bob",)))
    monkeypatch.setattr(service, "account_ids", lambda members, _world: dict.fromkeys(members, 1001))
    monkeypatch.setattr(service, "read_folder", read)
    assert [each.path for each in take(world(machine), "table").quotas] == [path]


# Slurm

QUEUE = """\
5|bob|R|2026-12-02T14:00:00|2026-12-03T14:00:00|cpu=4,mem=1G,node=1,billing=4,gres/gpu=2|
6|carol|R|2026-12-02T14:00:00|2026-12-02T16:00:00|cpu=1,mem=256M,node=1,billing=1|
7|carol|PD|N/A|N/A||
8_[1-4]|bob|PD|2026-12-02T20:00:00|N/A||
a line of something else
"""
NODES = """\
NodeName=a Arch=x86_64 State=MIXED ThreadsPerCore=1 CfgTRES=cpu=2,mem=1M,gres/gpu=4 AllocTRES=cpu=2,gres/gpu=2
NodeName=b Arch=x86_64 State=IDLE CfgTRES=cpu=2,gres/gpu=2 AllocTRES=
NodeName=c Arch=x86_64 State=DOWN+DRAIN CfgTRES=cpu=2,gres/gpu=8 AllocTRES=
"""


def test_slurms_queue_is_work():
    assert [(each.user, each.what, each.state, each.count) for each in parse_jobs(QUEUE)] == [
        ("bob", "#5", RUNNING, 2),
        ("carol", "#7", WAITING, 0),
        ("bob", "#8_[1-4]", BOOKED, 0),
    ]
    assert next(parse_jobs(QUEUE)).end == datetime(2026, 12, 3, 14, 0)  # noqa: DTZ001 - as above


def test_slurms_cards_are_those_of_nodes_that_work():
    assert parse_pool(NODES) == Pool(free=4, total=6)
    assert parse_pool("") == Pool(0, 0)


def test_slurm_is_asked_without_being_waited_for(machine):
    def ask(argv, patience):
        assert patience <= 5
        return QUEUE if argv[0] == "squeue" else NODES

    found = jobs(machine.root, NOW, Apart(), ask)
    assert (len(found.work), found.pool) == (3, Pool(4, 6))

    def late(*_):
        raise TimeoutError

    assert jobs(machine.root, NOW, Apart(), late).problem == rules.SLURM


def test_beside_a_scheduler_an_empty_card_is_not_called_free():
    seen = Overview(
        NOW, "slurm", (Spot(0, "0"), Spot(1, "1", people=("bob (python)",))), desk=rules.Desk(pool=Pool(1, 2))
    )
    assert states(seen) == [UNSURE, USED]


# The service


def test_the_service_looks_every_full_minute_until_it_is_out_of_date():
    looks, slept, told = [], [], []
    current = iter([True, True, False])
    run(lambda: looks.append(1), lambda: next(current), told.append, sleep=slept.append, clock=lambda: 130.0)
    assert (len(looks), slept) == (3, [50.0, 50.0, 50.0])
    assert told == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]


def test_what_belongs_to_somebody_is_found_in_order():
    work = (
        Work("bob", "w", WAITING, (), 1, NOW),
        Work("bob", "b", BOOKED, (1,), 1, NOW),
        Work("bob", "r", RUNNING, (0,), 1, NOW),
        Work("carol", "r", RUNNING, (2,), 1, NOW),
    )
    seen = Overview(NOW, "table", desk=rules.Desk(work), disks=(Disk("/home"),))
    assert [each.what for each in seen.work_of("bob")] == ["r", "b", "w"]
    assert seen.concerned == {"bob", "carol"}


def test_an_overview_needs_root(monkeypatch):
    from gpulab.commands.overview import main  # noqa: PLC0415 - only here

    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    with pytest.raises(GpulabError, match="only root"):
        main([])
    with pytest.raises(GpulabError, match="--forever or nothing"):
        main(["--often"])
