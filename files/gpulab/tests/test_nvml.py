"""Reading the cards: each field, and what is answered when NVML refuses it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from gpulab.adapters.nvml import read_cards
from gpulab.adapters.nvml_library import Code
from gpulab.rules.cards import to_dict
from nvml_binding import GIB, Binding, card, mig_device, process, read_one, running


@pytest.fixture
def proc(tmp_path):
    return tmp_path


def test_a_healthy_card_is_read_in_full(proc):
    process(proc, 71, uid=0)
    found = read_cards(
        Binding(
            card(0, links=[(1, "00000000:01:00.0"), (0, "")], nvmlDeviceGetComputeRunningProcesses=[running(71)]),
            card(1, nvmlDeviceGetMinorNumber=5),
        ),
        proc,
    )
    assert (found.driver_version, found.nvml_version, found.cuda_version) == ("550.163.01", "12.550.163.01", "12.4")
    first, second = found.cards
    assert (first.index, first.uuid, first.name, first.minor) == (0, "GPU-0", "NVIDIA A100-SXM4-80GB", 0)
    assert (first.bus_id, first.memory_total, first.memory_used) == ("00000000:00:00.0", 80 * GIB, 2 * GIB)
    assert first.memory_free == 77 * GIB
    assert (first.utilization, first.reason, first.lost) == (42, "", False)
    assert [(link.link, link.active, link.remote_bus_id) for link in first.nvlinks] == [
        (0, True, "00000000:01:00.0"),
        (1, False, ""),
    ]
    assert (first.mig_capable, first.mig_enabled, first.mig_pending) == (True, False, False)
    (only,) = first.processes
    assert (only.pid, only.start_ticks, only.uid, only.user) == (71, 4242, 0, "root")
    assert (only.command, only.memory, only.kind, only.gpu_instance) == ("python", GIB, "C", None)
    assert (second.index, second.minor, second.processes, second.nvlinks) == (1, 5, (), ())


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (Code.LIBRARY_NOT_FOUND, "install the driver"),
        (Code.DRIVER_NOT_LOADED, "modprobe nvidia"),
        (Code.LIBRARY_MISMATCH, "reboot"),
        (Code.UNKNOWN, "dmesg"),
        (Code.NO_PERMISSION, "not permitted"),
    ],
)
def test_nvml_that_does_not_start_is_an_answer(proc, code, words):
    found = read_cards(Binding(card(0), nvmlInit=code), proc)
    assert found.cards == ()
    assert found.driver_version == ""
    assert words in found.reason


def test_a_mismatch_names_the_kernel_module_that_is_loaded(proc):
    (proc / "driver/nvidia").mkdir(parents=True)
    (proc / "driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\nGCC version: 12.2.0\n"
    )
    assert "(loaded: 550.90.07)" in read_cards(Binding(nvmlInit=Code.LIBRARY_MISMATCH), proc).reason


def test_a_missing_binding_is_an_answer(proc, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    found = read_cards(None, proc)
    assert found.cards == ()
    assert "install the package nvidia-ml-py" in found.reason


def test_no_card_at_all_has_a_reason(proc):
    found = read_cards(Binding(), proc)
    assert found.cards == ()
    assert found.driver_version == "550.163.01"
    assert "sees no card" in found.reason


def test_cards_that_cannot_be_counted_have_a_reason(proc):
    assert "number of cards" in read_cards(Binding(nvmlDeviceGetCount=Code.UNKNOWN), proc).reason


@pytest.mark.parametrize("binding", [Binding(card(0)), Binding(), Binding(nvmlDeviceGetCount=Code.UNKNOWN)])
def test_nvml_is_shut_down_however_it_goes(proc, binding):
    read_cards(binding, proc)
    assert binding.open == 0


def test_a_failing_shutdown_does_not_hide_the_cards(proc):
    assert read_cards(Binding(card(0), nvmlShutdown=Code.UNKNOWN), proc).cards[0].uuid == "GPU-0"


@pytest.mark.parametrize("code", [Code.GPU_IS_LOST, Code.UNKNOWN])
def test_a_card_without_handle_is_lost_and_keeps_its_place(proc, code):
    handles = [card(0), code, card(2)]
    found = read_cards(Binding(*handles), proc)
    assert [(one.index, one.lost) for one in found.cards] == [(0, False), (1, True), (2, False)]
    assert found.cards[1].reason
    assert (found.cards[1].processes, found.cards[1].utilization, found.cards[1].memory_used) == (None, None, None)


def test_a_card_that_may_not_be_opened_is_not_lost(proc):
    found = read_cards(Binding(Code.NO_PERMISSION), proc).cards[0]
    assert not found.lost
    assert "not permitted" in found.reason


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetMPSComputeRunningProcesses",
    ],
)
def test_a_card_that_is_lost_half_way_is_lost_as_a_whole(proc, function):
    found = read_one(proc, **{function: Code.GPU_IS_LOST})
    assert found.lost
    assert "fallen off the bus" in found.reason
    assert found.uuid == "GPU-0"
    assert (found.processes, found.memory_total, found.utilization) == (None, None, None)


@pytest.mark.parametrize(
    ("function", "field", "unknown"),
    [
        ("nvmlDeviceGetUUID", "uuid", ""),
        ("nvmlDeviceGetName", "name", ""),
        ("nvmlDeviceGetMinorNumber", "minor", None),
        ("nvmlDeviceGetPciInfo", "bus_id", ""),
        ("nvmlDeviceGetMemoryInfo", "memory_total", None),
        ("nvmlDeviceGetUtilizationRates", "utilization", None),
        ("nvmlDeviceGetMigMode", "mig_capable", None),
        ("nvmlDeviceGetComputeRunningProcesses", "processes", None),
        ("nvmlDeviceGetGraphicsRunningProcesses", "processes", None),
    ],
)
@pytest.mark.parametrize("code", [Code.UNKNOWN, Code.TIMEOUT, Code.RESET_REQUIRED, Code.NO_PERMISSION])
def test_one_refusal_costs_one_field_and_is_explained(proc, function, field, unknown, code):
    found = read_one(proc, **{function: code})
    assert getattr(found, field) == unknown
    assert not found.lost
    assert found.reason
    healthy = read_one(proc)
    untouched = {"uuid", "name", "minor", "memory_total", "utilization", "mig_capable", "processes", "bus_id"} - {field}
    assert {name: getattr(found, name) for name in untouched} == {name: getattr(healthy, name) for name in untouched}


def test_a_code_that_is_not_in_our_list_comes_with_nvmls_own_words(proc):
    class Odd(Binding):
        @staticmethod
        def answer(answer, *arguments):
            if isinstance(answer, SimpleNamespace) and hasattr(answer, "gpu"):
                raise Binding.NVMLError(23)
            return Binding.answer(answer, *arguments)

    assert "NVML error 23 (Insufficient Resources)" in read_cards(Odd(card(0)), proc).cards[0].reason


def test_equal_refusals_are_told_once(proc):
    found = read_one(proc, nvmlDeviceGetMemoryInfo=Code.TIMEOUT, nvmlDeviceGetUtilizationRates=Code.TIMEOUT)
    assert found.reason == "memory, utilisation: the driver did not answer in time"


def test_old_drivers_answer_with_memory_version_1(proc):
    def memory(*version):
        return Code.FUNCTION_NOT_FOUND if version else SimpleNamespace(total=24 * GIB, used=GIB, free=23 * GIB)

    found = read_one(proc, nvmlDeviceGetMemoryInfo=memory)
    assert (found.memory_total, found.memory_used, found.reason) == (24 * GIB, GIB, "")


def test_a_passing_fault_is_not_papered_over_with_memory_version_1(proc):
    # Version 1 counts what the driver reserves as used: the card would seem to have been taken by somebody.
    def memory(*version):
        return Code.TIMEOUT if version else SimpleNamespace(total=24 * GIB, used=GIB, free=23 * GIB)

    found = read_one(proc, nvmlDeviceGetMemoryInfo=memory)
    assert (found.memory_total, found.memory_used) == (None, None)
    assert found.reason.startswith("memory: ")


def test_a_card_without_mig_says_no_and_one_without_display_still_lists_processes(proc):
    found = read_one(
        proc,
        nvmlDeviceGetMigMode=Code.NOT_SUPPORTED,
        nvmlDeviceGetGraphicsRunningProcesses=Code.NOT_SUPPORTED,
        nvmlDeviceGetMPSComputeRunningProcesses=Code.FUNCTION_NOT_FOUND,
        nvmlDeviceGetComputeRunningProcesses=[running(5)],
    )
    assert (found.mig_capable, found.mig_enabled, found.reason) == (False, None, "")
    assert [one.pid for one in found.processes] == [5]


def test_everything_goes_through_json_with_one_type_a_key(proc):
    found = to_dict(read_cards(Binding(card(0), Code.GPU_IS_LOST, card(2, mig_devices=(mig_device(1),))), proc))
    assert json.loads(json.dumps(found)) == found
    kinds = {}
    for one in found["cards"]:
        for key, value in one.items():
            if value is not None:
                assert kinds.setdefault(key, type(value)) is type(value), key
    assert found["cards"][1]["processes"] is None
