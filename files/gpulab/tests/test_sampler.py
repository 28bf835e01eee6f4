"""The sampler: what it reads from NVML and /proc, what it never takes for zero, and when it wakes idle reclaim."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from gpulab.adapters.nvml_library import Code
from gpulab.adapters.sample_history import read_looks
from gpulab.adapters.sample_store import SampleWriter
from gpulab.adapters.sampler import Sampler
from gpulab.rules.samples import LOST, MIG, OK, UNMEASURED, UNREADABLE
from gpulab.services.sampling import HEALTH_FILE, PENDING_FILE, WAKE_FILE, Watch, run
from idle_lab import hold
from nvml_binding import GIB, Binding, card, mig_device, process, running

NOW = 1_800_000_000


@pytest.fixture
def proc(tmp_path):
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


def sample(pid, sm, stamp=NOW * 10**6):
    return SimpleNamespace(pid=pid, timeStamp=stamp, smUtil=sm, memUtil=0)


def working(*pids, samples=(), rate=0, **answers):
    """Return a card with these processes and samples."""
    return card(
        0,
        nvmlDeviceGetComputeRunningProcesses=[running(pid) for pid in pids],
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=rate, memory=0),
        nvmlDeviceGetProcessUtilization=lambda _: list(samples) or Code.NOT_FOUND,
        **answers,
    )


def look(proc, *cards, leases=lambda: (), **system):
    return Sampler(Binding(*cards, **system), proc, 100, leases).look(NOW, NOW - 60)


def loads(tick):
    return {use.runner.pid: use.sm for use in tick.uses}


def test_who_has_no_sample_did_nothing(proc):
    for pid in (1, 2, 3):
        process(proc, pid, uid=1000 + pid)
    tick = look(proc, working(1, 2, 3, samples=[sample(1, 90), sample(2, 3), sample(2, 7)], rate=50))
    assert loads(tick) == {1: 90, 2: 7, 3: 0}
    assert [(each.index, each.state, each.utilization) for each in tick.cards] == [(0, OK, 50)]
    assert tick.uses[0].memory == GIB
    assert tick.uses[0].runner.uid == 1001


def test_samples_of_before_and_impossible_ones_do_not_count(proc):
    process(proc, 1)
    process(proc, 2)
    old = sample(1, 90, (NOW - 60) * 10**6)
    assert loads(look(proc, working(1, 2, samples=[old, sample(2, 4_000_000)]))) == {1: 0, 2: None}


@pytest.mark.parametrize("code", [Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.UNKNOWN, Code.NO_PERMISSION])
def test_a_card_without_samples_leaves_everybody_unknown(proc, code):
    process(proc, 1)
    tick = look(proc, {**working(1), "nvmlDeviceGetProcessUtilization": lambda _: code})
    assert (loads(tick), tick.cards[0].state) == ({1: None}, UNMEASURED)
    assert tick.cards[0].reason


def test_a_card_that_works_while_nobody_has_a_sample_is_not_believed(proc):
    process(proc, 1)
    for rate in (SimpleNamespace(gpu=40, memory=0), Code.NOT_SUPPORTED):
        answers = {**working(1), "nvmlDeviceGetUtilizationRates": rate}
        assert loads(look(proc, answers)) == {1: None}


def test_clients_of_mps_are_unknown_without_a_sample_of_their_own(proc):
    process(proc, 1)
    process(proc, 2)
    mps = {"nvmlDeviceGetMPSComputeRunningProcesses": [running(2)]}
    assert loads(look(proc, working(1, samples=[sample(1, 5)], **mps))) == {1: 5, 2: None}


def test_a_split_card_is_never_measured(proc):
    process(proc, 1)
    device = mig_device(3, nvmlDeviceGetComputeRunningProcesses=[running(1, 5 * GIB)])
    split = card(0, mig_devices=[device], nvmlDeviceGetProcessUtilization=lambda _: [sample(1, 90)])
    tick = look(proc, split)
    assert (tick.cards[0].state, tick.cards[0].utilization) == (MIG, None)
    assert [(use.sm, use.instance, use.memory) for use in tick.uses] == [(None, 3, 5 * GIB)]


def test_a_card_that_does_not_answer_hides_no_other(proc):
    process(proc, 1)
    silent = {**working(), "nvmlDeviceGetComputeRunningProcesses": Code.UNKNOWN}
    tick = look(proc, Code.GPU_IS_LOST, silent, working(1))
    assert [each.state for each in tick.cards] == [LOST, UNREADABLE, OK]
    assert loads(tick) == {1: 0}


def test_without_a_driver_there_is_a_reason_and_no_zero(proc):
    tick = look(proc, nvmlInit=Code.DRIVER_NOT_LOADED)
    assert (tick.cards, tick.uses) == ((), ())
    assert "modprobe nvidia" in tick.reason


def test_a_process_is_asked_who_it_is_once_and_again_when_its_pid_is_reused(proc):
    process(proc, 7, uid=1001)
    sampler = Sampler(Binding(working(7)), proc, 100, lambda: ())
    first = sampler.look(NOW, NOW - 60).uses[0]
    (proc / "7" / "status").unlink()  # it would not be found again
    assert sampler.look(NOW + 60, NOW).uses[0].runner is first.runner
    (proc / "7" / "stat").unlink()
    (proc / "7").rmdir()
    process(proc, 7, uid=1002, start=999_999)
    assert sampler.look(NOW + 120, NOW + 60).uses[0].runner.uid == 1002


def test_processor_time_is_what_passed_since_the_last_look(proc):
    process(proc, 7)
    sampler = Sampler(Binding(working(7)), proc, 100, lambda: ())
    assert sampler.look(NOW, 0).uses[0].cpu_ms is None
    text = (proc / "7" / "stat").read_text().split(" ")
    text[13], text[14] = "200", "50"
    (proc / "7" / "stat").write_text(" ".join(text))
    assert sampler.look(NOW + 60, NOW).uses[0].cpu_ms == 2500


def test_the_lease_of_a_process_is_its_scope(proc):
    process(proc, 7)
    (proc / "7" / "cgroup").write_text(
        "1:cpu:/x\n0::/gpulab.slice/gpulab-lease.slice/gpulab-lease-1001.slice/gpulab-lease-12.scope\n"
    )
    assert look(proc, working(7)).uses[0].runner.lease == 12


class Lab:
    """A sampler with its store below a folder, and a clock."""

    def __init__(self, root, proc, *cards, **options):
        self.root, self.now = root, NOW
        self.binding = Binding(*cards)
        (root / "var/lib/gpulab/samples").mkdir(parents=True)
        self.store = root / "var/lib/gpulab/samples/samples.db"
        sampler = Sampler(self.binding, proc, 100, options.pop("leases", lambda: ()))
        writer = SampleWriter(self.store, "boot")
        self.watch = Watch(
            root, sampler, writer, sample_seconds=60, percent=5, idle_seconds=900, clock=lambda: self.now, **options
        )

    def path(self, name):
        return self.root / str(name).lstrip("/")

    def look(self):
        """Look a minute later; return whether idle reclaim was woken."""
        self.now += 60
        self.path(WAKE_FILE).unlink(missing_ok=True)
        self.watch.look()
        return self.path(WAKE_FILE).exists()


def test_idle_reclaim_is_woken_when_somebody_was_not_busy_for_long_enough(tmp_path, proc):
    process(proc, 1)
    lab = Lab(tmp_path, proc, working(1))
    woken = [lab.look() for _ in range(20)]
    assert woken[0], "the first look: nobody knows what was before"
    assert woken.index(True, 1) == 15
    assert all(woken[15:])


def test_idle_reclaim_sleeps_while_everybody_works(tmp_path, proc):
    process(proc, 1)
    lab = Lab(tmp_path, proc, working(1, samples=[sample(1, 80, (NOW + 10**6) * 10**6)], rate=80))
    assert sum(lab.look() for _ in range(50)) == 1
    lab.path(PENDING_FILE).touch()
    assert lab.look()


def test_an_unused_lease_wakes_it_too(tmp_path, proc):
    lab = Lab(tmp_path, proc, working(), leases=lambda: (hold(),))
    assert [lab.look() for _ in range(17)].index(True, 1) == 15


def test_what_does_not_work_is_written_down_when_it_changes(tmp_path, proc):
    lab = Lab(tmp_path, proc, working(), Code.GPU_IS_LOST)
    assert lab.look()
    health = json.loads(lab.path(HEALTH_FILE).read_text())
    assert (health["nvml"], health["store"], list(health["cards"])) == ("", "", ["1"])
    assert not lab.look()
    lab.binding.system["nvmlInit"] = Code.DRIVER_NOT_LOADED
    assert lab.look()
    assert "modprobe" in json.loads(lab.path(HEALTH_FILE).read_text())["nvml"]


def test_a_store_that_cannot_be_written_stops_nothing(tmp_path, proc):
    process(proc, 1)
    lab = Lab(tmp_path, proc, working(1))
    lab.look()
    lab.store.unlink()
    lab.store.mkdir()
    lab.watch._writer.close()
    for _ in range(3):
        lab.look()
    assert str(lab.store) in json.loads(lab.path(HEALTH_FILE).read_text())["store"]
    lab.store.rmdir()
    lab.look()
    assert json.loads(lab.path(HEALTH_FILE).read_text())["store"] == ""
    assert len(read_looks(lab.store, 0, "boot")) == 1


def test_a_damaged_store_is_kept_aside_and_a_new_one_begun(tmp_path, proc):
    lab = Lab(tmp_path, proc, working())
    lab.store.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    lab.look()
    assert lab.store.with_name("samples.db.corrupt").exists()
    assert [each.at for each in read_looks(lab.store, 0, "boot")] == [lab.now]


def test_the_process_ends_when_nvml_does_not_start_or_something_changed():
    ticks = iter([SimpleNamespace(reason=""), SimpleNamespace(reason="mismatch")])
    told = []
    run(SimpleNamespace(look=lambda: next(ticks)), 0.01, lambda: True, told.append)
    assert told == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
    run(SimpleNamespace(look=lambda: SimpleNamespace(reason="")), 0.01, lambda: False, told.append)
