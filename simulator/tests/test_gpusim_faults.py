"""Injected faults: what real servers suffer, as a client meets it."""

from __future__ import annotations

import signal

import pytest
from conftest import NvmlError

NOT_SUPPORTED, NOT_FOUND, DRIVER_NOT_LOADED, GPU_IS_LOST, MISMATCH, UNKNOWN = 3, 6, 9, 15, 18, 999


def number_of(call, *arguments):
    with pytest.raises(NvmlError) as failure:
        call(*arguments)
    return failure.value.number


def test_a_lost_card_is_counted_and_answers_nothing(machine):
    nvml = machine.nvml()
    card, other = nvml.nvmlDeviceGetHandleByIndex(1), nvml.nvmlDeviceGetHandleByIndex(2)
    uuid = nvml.nvmlDeviceGetUUID(card)
    machine.gpusim("fail", "--lost", "--gpu", 1)
    assert nvml.nvmlDeviceGetCount() == 4
    for call, argument in (
        (nvml.nvmlDeviceGetName, card),
        (nvml.nvmlDeviceGetMemoryInfo, card),
        (nvml.nvmlDeviceGetComputeRunningProcesses, card),
        (nvml.nvmlDeviceGetHandleByIndex, 1),
        (nvml.nvmlDeviceGetHandleByUUID, uuid),
        (nvml.nvmlDeviceGetHandleByPciBusId, "00000000:41:00.0"),
    ):
        assert number_of(call, argument) == GPU_IS_LOST
    assert nvml.nvmlDeviceGetName(other) == "NVIDIA A100-SXM4-80GB"
    assert "LOST" in machine.gpusim("status")
    assert "card 1 does not answer" in machine.try_gpusim("run", "--gpu", 1, "--", "true").err


def test_driver_and_library_of_different_versions(machine):
    machine.gpusim("fail", "--mismatch", "550.90.07")
    assert number_of(machine.nvml) == MISMATCH
    assert "DRIVER_MISMATCH" in machine.try_gpusim("run", "--", "true").err
    client = machine.client()
    assert number_of(client.nvmlInit) == MISMATCH
    assert client.nvmlSystemGetNVMLVersion() == "12.550.90.07"  # it still says which version it is
    machine.gpusim("fail", "--clear")
    assert machine.nvml().nvmlDeviceGetCount() == 4


def test_no_kernel_module(machine):
    machine.gpusim("fail", "--unloaded")
    assert number_of(machine.nvml) == DRIVER_NOT_LOADED
    assert "no CUDA-capable device" in machine.try_gpusim("run", "--", "true").err


def test_one_call_fails_on_one_card(machine):
    machine.gpusim("fail", "--call", "nvmlDeviceGetMemoryInfo_v2", "--gpu", 1, "--error", "unknown")
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(1)
    assert number_of(nvml.nvmlDeviceGetMemoryInfo, card, 0x2000028) == UNKNOWN
    assert nvml.nvmlDeviceGetMemoryInfo(card).total == 81920 << 20
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0), 0x2000028).used == 0


def test_a_group_of_calls_fails_on_all_cards(machine):
    machine.gpusim("fail", "--call", "nvmlDeviceGetMemoryInfo*", "--error", "not-supported")
    nvml = machine.nvml()
    for index in range(4):
        card = nvml.nvmlDeviceGetHandleByIndex(index)
        assert number_of(nvml.nvmlDeviceGetMemoryInfo, card) == NOT_SUPPORTED
        assert number_of(nvml.nvmlDeviceGetMemoryInfo, card, 0x2000028) == NOT_SUPPORTED
        assert nvml.nvmlDeviceGetMinorNumber(card) == index


def test_another_name_of_a_call_means_the_same_call(machine):
    machine.gpusim("fail", "--call", "nvmlDeviceGetCount")
    assert number_of(machine.nvml().nvmlDeviceGetCount) == UNKNOWN


def test_initialisation_fails(machine):
    machine.gpusim("fail", "--call", "nvmlInit*", "--error", "unknown")
    assert number_of(machine.nvml) == UNKNOWN


def test_a_later_fault_on_the_same_call_replaces_the_former(machine):
    for error in ("unknown", "timeout"):
        machine.gpusim("fail", "--call", "nvmlDeviceGetName", "--gpu", 0, "--error", error)
    nvml = machine.nvml()
    timeout = 10
    assert number_of(nvml.nvmlDeviceGetName, nvml.nvmlDeviceGetHandleByIndex(0)) == timeout


def test_as_many_faults_as_the_library_reads(bare_machine):
    bare_machine.gpusim("init", "--cards", "a30:32")
    calls = ["nvmlDeviceGetName", "nvmlDeviceGetFanSpeed"]
    results = [
        bare_machine.try_gpusim("fail", "--call", call, "--gpu", card).status for call in calls for card in range(32)
    ]
    assert results == [0] * 48 + [1] * 16
    for card in range(32):
        bare_machine.gpusim("fail", "--lost", "--gpu", card)
    assert bare_machine.nvml().nvmlDeviceGetCount() == 32


def test_clear_heals_everything(machine):
    machine.gpusim("fail", "--lost", "--gpu", 0)
    machine.gpusim("fail", "--call", "nvmlDeviceGetName")
    machine.gpusim("fail", "--clear")
    nvml = machine.nvml()
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0)) == "NVIDIA A100-SXM4-80GB"


def test_the_nth_call_of_a_process_fails_once(machine):
    client = machine.client(GPUSIM_FAIL_AT="3:999")
    client.nvmlInit()
    card = client.nvmlDeviceGetHandleByIndex(0)  # the first call after initialisation
    assert client.nvmlDeviceGetIndex(card) == 0
    assert number_of(client.nvmlDeviceGetIndex, card) == UNKNOWN
    assert client.nvmlDeviceGetIndex(card) == 0


def test_the_process_is_killed_at_its_nth_call(machine):
    client = machine.client(GPUSIM_KILL_AT="2")
    client.nvmlInit()
    card = client.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(EOFError):
        client.nvmlDeviceSetMigMode(card, 1)
    assert client.process.wait(10) == -signal.SIGKILL
    machine.clients.remove(client)
    client.close()
    nvml = machine.nvml()
    assert nvml.nvmlDeviceGetMigMode(card) == [0, 0]
    assert nvml.nvmlDeviceSetMigMode(card, 1) == 0  # the dead process left no lock


def test_every_call_and_its_answer_is_traced(machine):
    trace = machine.folder / "trace"
    client = machine.client(GPUSIM_TRACE=str(trace))
    client.nvmlInit()
    card = client.nvmlDeviceGetHandleByIndex(2)
    number_of(client.nvmlDeviceGetFanSpeed, card)
    number_of(client.nvmlDeviceGetHandleByUUID, "GPU-none")
    assert [line.split() for line in trace.read_text().splitlines()] == [
        [str(client.process.pid), name, str(result)]
        for name, result in (
            ("nvmlInitWithFlags", 0),
            ("nvmlDeviceGetHandleByIndex_v2", 0),
            ("nvmlDeviceGetFanSpeed", NOT_SUPPORTED),
            ("nvmlDeviceGetHandleByUUID", NOT_FOUND),
        )
    ]
