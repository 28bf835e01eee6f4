"""The store of samples: what is written comes back, for whom it is, and what happens when it cannot be used."""

from __future__ import annotations

import os
import sqlite3
import stat
from dataclasses import replace

import pytest
from gpulab.adapters.sample_history import read_looks
from gpulab.adapters.sample_store import DamagedStoreError, SampleWriter, StoreError, forget_before
from gpulab.rules.samples import MIG, OK, Tick, Use
from idle_lab import MINUTE, T0, card, hold, look, runner, use


@pytest.fixture
def path(tmp_path):
    return tmp_path / "samples.db"


def count(path, table):
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_looks_come_back_as_they_were(path):
    written = (
        look(0, use(3), use(None, runner(101, user="carol"), index=1, memory=None), cards=(OK, MIG)),
        look(1, reason="the NVIDIA kernel module is not loaded"),
        look(2, use(90, cpu_ms=1200), holds=(hold(),)),
    )
    writer = SampleWriter(path, "boot")
    for tick in written:
        writer.write(tick)
    read = read_looks(path, 0, "boot")
    assert [(each.at, each.reason) for each in read] == [(each.at, each.reason) for each in written]
    assert [each.uses for each in read] == [each.uses for each in written]
    assert [each.holds for each in read] == [each.holds for each in written]
    assert [[seen.state for seen in each.cards] for each in read] == [[OK, MIG], [], [OK, OK]]
    assert writer.last() == written[-1].at


def test_a_process_on_two_instances_of_a_card_has_two_rows_and_on_one_its_memory_added(path):
    who = runner()
    uses = [Use(who, 0, instance, memory=5 << 30) for instance in (1, 2, 2)]
    SampleWriter(path, "boot").write(Tick(T0, (card(0, MIG),), tuple(uses)))
    (tick,) = read_looks(path, 0, "boot")
    assert [(each.instance, each.memory >> 30) for each in tick.uses] == [(1, 5), (2, 10)]


def test_the_same_pid_and_start_of_another_boot_is_another_process(path):
    SampleWriter(path, "monday").write(look(0, use(0)))
    SampleWriter(path, "tuesday").write(look(1, use(0)))
    assert [len(each.uses) for each in read_looks(path, 0, "tuesday")] == [0, 1]
    assert count(path, "processes") == 2


def test_the_same_moment_twice_is_one_look(path):
    writer = SampleWriter(path, "boot")
    writer.write(look(0, use(0)))
    writer.write(look(0, use(50)))
    assert [each.uses[0].sm for each in read_looks(path, 0, "boot")] == [0]


def test_it_is_for_root_and_its_group_alone(path):
    SampleWriter(path, "boot", gid=os.getgid()).write(look(0))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(each.name for each in path.parent.iterdir() if each.stat().st_size) == ["samples.db"]


def test_reading_writes_nothing_and_needs_no_right_to(path):
    with pytest.raises(FileNotFoundError):
        read_looks(path, 0, "boot")
    assert not path.exists()
    SampleWriter(path, "boot").write(look(0, use(0)))
    before = path.read_bytes()
    assert read_looks(path, 0, "boot")
    assert path.read_bytes() == before


def test_a_full_disk_changes_nothing_and_the_next_look_is_kept(path):
    writer = SampleWriter(path, "boot")
    writer.write(look(0, use(0)))
    many = [use(0, runner(pid)) for pid in range(1, 5000)]
    writer._open().execute("PRAGMA max_page_count = 20")  # what SQLite says then is what a full disk says
    with pytest.raises(StoreError, match="full"):
        writer.write(look(1, *many))
    assert [each.at for each in read_looks(path, 0, "boot")] == [T0]
    writer.write(look(2, *many))
    assert [len(each.uses) for each in read_looks(path, 0, "boot")] == [1, 4999]


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_says_so(path, content):
    path.write_bytes(content)
    with pytest.raises(DamagedStoreError, match=r"samples\.db"):
        SampleWriter(path, "boot").write(look(0))
    with pytest.raises(DamagedStoreError):
        read_looks(path, 0, "boot")


def test_a_store_of_the_release_before_goes_on(path):
    SampleWriter(path, "boot").write(look(0, use(0), holds=(hold(),)))
    with sqlite3.connect(path) as connection:  # as version 1 had it
        for column in ("asked", "given"):
            connection.execute(f"ALTER TABLE lease_samples DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 1")
    given = replace(hold(), asked=T0 - 60, given=T0)
    SampleWriter(path, "boot").write(look(1, use(0), holds=(given,)))
    assert [each.holds for each in read_looks(path, 0, "boot")] == [(hold(),), (given,)]


def test_a_store_of_a_later_release_is_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="version 99"):
        SampleWriter(path, "boot").write(look(0))


def test_old_looks_go_with_their_processes_and_others_stay(path):
    writer = SampleWriter(path, "boot")
    for minute in range(300):
        writer.write(look(minute, use(0, runner(1 if minute < 200 else 2)), holds=(hold(),)))
    assert forget_before(path, T0 + 200 * MINUTE) == 200
    assert count(path, "ticks") == count(path, "process_samples") == count(path, "lease_samples") == 100
    assert count(path, "card_samples") == 200
    assert count(path, "processes") == 2, "the holder of the lease and process 2"
    assert forget_before(path, T0 + 200 * MINUTE) == 0
    writer.write(look(300, use(0, runner(1))))
    assert read_looks(path, T0 + 300 * MINUTE, "boot")[0].uses[0].runner.pid == 1


def test_a_day_of_eight_cards_and_a_hundred_processes_is_as_small_as_documented(path):
    writer = SampleWriter(path, "boot")
    uses = [use(number % 100, runner(10_000 + number), number % 8, cpu_ms=60_000) for number in range(100)]
    for minute in range(144):
        writer.write(look(minute, *uses, cards=(OK,) * 8))
    assert path.stat().st_size * 10 < 4_600_000
