"""Who is on a card, and on which of its MIG instances."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from gpulab.adapters.nvml import read_cards
from gpulab.adapters.nvml_library import Code
from nvml_binding import GIB, Binding, card, mig_device, process, read_one, running


@pytest.fixture
def proc(tmp_path):
    return tmp_path


def test_old_drivers_answer_with_process_lists_of_version_2(proc):
    answers = card(0, nvmlDeviceGetComputeRunningProcesses_v2=[running(5)])
    del answers["nvmlDeviceGetComputeRunningProcesses"]
    (found,) = read_cards(Binding(answers), proc).cards
    assert [one.pid for one in found.processes] == [5]


def test_a_card_that_lists_no_processes_at_all_is_unknown_not_empty(proc):
    found = read_one(proc, nvmlDeviceGetComputeRunningProcesses=Code.NOT_SUPPORTED)
    assert found.processes is None
    assert found.reason == "processes: not supported by this card or driver"


def test_lists_are_joined_by_pid(proc):
    found = read_one(
        proc,
        nvmlDeviceGetComputeRunningProcesses=[running(9, memory=None), running(5, memory=3 * GIB)],
        nvmlDeviceGetGraphicsRunningProcesses=[running(5, memory=3 * GIB), running(6)],
        nvmlDeviceGetMPSComputeRunningProcesses=[running(7)],
    )
    assert [(one.pid, one.kind, one.memory) for one in found.processes] == [
        (5, "C+G", 3 * GIB),
        (6, "G", GIB),
        (7, "M+C", GIB),
        (9, "C", None),
    ]


def test_a_list_that_grew_while_it_was_read_is_read_again(proc):
    answers = iter([Code.INSUFFICIENT_SIZE, Code.INSUFFICIENT_SIZE, [running(5)]])
    found = read_one(proc, nvmlDeviceGetComputeRunningProcesses=lambda: next(answers))
    assert [one.pid for one in found.processes] == [5]


def test_a_list_that_never_fits_is_unknown(proc):
    found = read_one(proc, nvmlDeviceGetComputeRunningProcesses=Code.INSUFFICIENT_SIZE)
    assert found.processes is None
    assert found.reason.startswith("processes: ")


def test_processes_that_ended_keep_their_pid_and_nothing_else(proc):
    process(proc, 6, state="Z")
    found = read_one(proc, nvmlDeviceGetComputeRunningProcesses=[running(5), running(6)])
    assert [(one.pid, one.start_ticks, one.uid, one.user, one.command) for one in found.processes] == [
        (5, None, None, None, ""),
        (6, None, None, None, ""),
    ]


def test_a_process_name_is_data(proc):
    process(proc, 5, comm="a) R 1 (\x1b[2J", uid=4_000_000, start=99)
    (found,) = read_one(proc, nvmlDeviceGetComputeRunningProcesses=[running(5)]).processes
    assert found.command == "a) R 1 (?[2J"
    assert (found.start_ticks, found.uid, found.user) == (99, 4_000_000, "4000000")


@pytest.mark.parametrize("stat", ["", "5", "5 (x) S", "5 (x) S " + "0 " * 18 + "soon"])
def test_a_garbled_stat_is_taken_for_a_process_that_is_gone(proc, stat):
    process(proc, 5)
    (proc / "5/stat").write_text(stat)
    (found,) = read_one(proc, nvmlDeviceGetComputeRunningProcesses=[running(5)]).processes
    assert found.start_ticks is None


def test_mig_devices_and_where_processes_run(proc):
    devices = (mig_device(1, nvmlDeviceGetComputeRunningProcesses=[running(5, 4 * GIB)]), mig_device(2))
    found = read_one(proc, mig_devices=devices, nvmlDeviceGetComputeRunningProcesses=[running(5, 4 * GIB)])
    assert (found.mig_capable, found.mig_enabled, found.mig_pending) == (True, True, True)
    assert [(one.index, one.uuid, one.profile, one.gpu_instance, one.memory_total) for one in found.mig_devices] == [
        (0, "MIG-1", "3g.40gb", 1, 40 * GIB),
        (1, "MIG-2", "3g.40gb", 2, 40 * GIB),
    ]
    # One process, told once, with its place, although the card's own list did not say the place.
    assert [(one.pid, one.gpu_instance, one.compute_instance) for one in found.processes] == [(5, 1, 0)]


def test_utilisation_under_mig_is_unknown_even_if_the_driver_says_zero(proc):
    found = read_one(proc, mig_devices=(mig_device(1),), nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=0, memory=0))
    assert found.utilization is None
    assert found.reason == "utilisation: not measured by NVML while MIG is on"


def test_ordinary_users_see_mig_processes_through_the_devices(proc):
    found = read_one(
        proc,
        mig_devices=(mig_device(1, nvmlDeviceGetComputeRunningProcesses=[running(5)]),),
        nvmlDeviceGetComputeRunningProcesses=Code.NO_PERMISSION,
    )
    assert [one.pid for one in found.processes] == [5]


def test_gaps_in_mig_numbering_are_skipped(proc):
    handles = {0: Code.NOT_FOUND, 1: mig_device(3)}
    found = read_one(
        proc,
        mig_devices=(mig_device(3),),
        nvmlDeviceGetMigDeviceHandleByIndex=lambda index: handles.get(index, Code.NOT_FOUND),
    )
    assert [(one.index, one.uuid) for one in found.mig_devices] == [(1, "MIG-3")]


@pytest.mark.parametrize(
    ("card_mib", "memory_mib", "slices", "name"),
    [  # card memory and instance sizes as nvidia-smi printed them, NVIDIA MIG user guide and transcripts
        (81920, 9728, (1, 1), "1g.10gb"),
        (81920, 19968, (1, 1), "1g.20gb"),
        (81920, 40192, (3, 3), "3g.40gb"),
        (81920, 40192, (3, 1), "1c.3g.40gb"),
        (81920, 80896, (7, 7), "7g.80gb"),
        (40960, 4864, (1, 1), "1g.5gb"),
        (24576, 5952, (1, 1), "1g.6gb"),
        (143771, 16384, (1, 1), "1g.18gb"),
        (143771, 71424, (3, 3), "3g.71gb"),
        (183359, 22784, (1, 1), "1g.23gb"),
    ],
)
def test_a_profile_is_named_from_its_attributes_where_the_driver_does_not_name_it(
    proc, card_mib, memory_mib, slices, name
):
    device = mig_device(
        1,
        nvmlDeviceGetName="NVIDIA A100-SXM4-80GB",
        nvmlDeviceGetAttributes=SimpleNamespace(
            memorySizeMB=memory_mib, gpuInstanceSliceCount=slices[0], computeInstanceSliceCount=slices[1]
        ),
    )
    found = read_one(
        proc, mig_devices=(device,), nvmlDeviceGetMemoryInfo=SimpleNamespace(total=card_mib << 20, used=0, free=0)
    )
    assert found.mig_devices[0].profile == name


def test_a_mig_device_that_does_not_answer_is_noted(proc):
    found = read_one(proc, mig_devices=(mig_device(1, nvmlDeviceGetGpuInstanceId=Code.UNKNOWN), mig_device(2)))
    assert [one.uuid for one in found.mig_devices] == ["MIG-2"]
    assert "MIG instances: " in found.reason
