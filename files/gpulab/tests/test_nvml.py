"""Reading the cards through a stand-in for nvidia-ml-py that answers, refuses and loses cards as NVML does."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from gpulab.adapters.nvml import read_cards
from gpulab.adapters.nvml_library import Code
from gpulab.rules.cards import to_dict

GIB = 1 << 30
NO_INSTANCE = 0xFFFFFFFF


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value

    def __str__(self):
        return {23: "Insufficient Resources"}.get(self.value, "some text of NVML's")


class NVMLLibraryMismatchError(Exception):
    pass


def running(pid, memory=GIB, gpu_instance=NO_INSTANCE, compute_instance=NO_INSTANCE):
    return SimpleNamespace(
        pid=pid, usedGpuMemory=memory, gpuInstanceId=gpu_instance, computeInstanceId=compute_instance
    )


def mig_device(number, **answers):
    return {
        "nvmlDeviceGetUUID": f"MIG-{number}",
        "nvmlDeviceGetName": "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=40 * GIB, used=GIB),
        "nvmlDeviceGetGpuInstanceId": number,
        "nvmlDeviceGetComputeInstanceId": 0,
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": Code.NOT_SUPPORTED,
        "nvmlDeviceGetMPSComputeRunningProcesses": [],
        **answers,
    }


def card(index, *, mig_devices=(), links=(), **answers):
    """Answers of one card by function name: a value, a return code to fail with, or a function of the arguments."""
    return {
        "nvmlDeviceGetUUID": f"GPU-{index}",
        "nvmlDeviceGetName": "NVIDIA A100-SXM4-80GB",
        "nvmlDeviceGetMinorNumber": index,
        "nvmlDeviceGetPciInfo": SimpleNamespace(busId=f"00000000:0{index}:00.0".encode()),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=80 * GIB, used=2 * GIB),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=42, memory=7),
        "nvmlDeviceGetNvLinkState": lambda link: links[link][0] if link < len(links) else Code.NOT_SUPPORTED,
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda link: SimpleNamespace(busId=links[link][1]),
        "nvmlDeviceGetMigMode": [int(bool(mig_devices)), int(bool(mig_devices))],
        "nvmlDeviceGetMaxMigDeviceCount": 7 if mig_devices else 0,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda i: mig_devices[i] if i < len(mig_devices) else Code.NOT_FOUND,
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceGetMPSComputeRunningProcesses": [],
        **answers,
    }


class Binding:
    """Behaves as the module pynvml for the cards given; counts starts and shutdowns.

    The mapping `system` overrides what is asked of the whole machine.
    """

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    NVML_NVLINK_MAX_LINKS = 18

    def __init__(self, *cards, **system):
        self.open = 0
        setattr(self, "nvmlMemory_v2", 0x02000028)  # noqa: B010 - pynvml's own spelling
        self.system = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": "550.163.01",
            "nvmlSystemGetNVMLVersion": b"12.550.163.01",
            "nvmlSystemGetCudaDriverVersion_v2": 12040,
            "nvmlDeviceGetCount": len(cards),
            "nvmlDeviceGetHandleByIndex": lambda index: cards[index],
            **system,
        }

    def __getattr__(self, function):
        if function in self.system:

            def call(*arguments):
                self.open += {"nvmlInit": 1, "nvmlShutdown": -1}.get(function, 0)
                return self.answer(self.system[function], *arguments)

        else:

            def call(handle, *arguments):
                if isinstance(handle, Code):
                    raise NVMLError(handle)
                if function not in handle:
                    raise NVMLLibraryMismatchError(function)
                return self.answer(handle[function], *arguments)

        return call

    @staticmethod
    def answer(answer, *arguments):
        if callable(answer):
            answer = answer(*arguments)
        if isinstance(answer, Code):
            raise NVMLError(answer)
        return answer


def process(root, pid, *, comm="python", uid=0, start=4242, state="S"):
    folder = root / str(pid)
    folder.mkdir()
    fields = " ".join(["0"] * 18)
    (folder / "stat").write_text(f"{pid} ({comm}) {state} {fields} {start} 0 0\n")
    (folder / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t{uid + 7}\t0\t0\n")


@pytest.fixture
def proc(tmp_path):
    return tmp_path


def read_one(proc, **answers):
    found = read_cards(Binding(card(0, **answers)), proc)
    assert not found.reason
    return found.cards[0]


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
                raise NVMLError(23)
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


def test_old_drivers_answer_with_process_lists_of_version_2(proc):
    answers = card(0, nvmlDeviceGetComputeRunningProcesses_v2=[running(5)])
    del answers["nvmlDeviceGetComputeRunningProcesses"]
    (found,) = read_cards(Binding(answers), proc).cards
    assert [one.pid for one in found.processes] == [5]


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
    found = read_one(proc, mig_devices=(device,), nvmlDeviceGetMemoryInfo=SimpleNamespace(total=card_mib << 20, used=0))
    assert found.mig_devices[0].profile == name


def test_a_mig_device_that_does_not_answer_is_noted(proc):
    found = read_one(proc, mig_devices=(mig_device(1, nvmlDeviceGetGpuInstanceId=Code.UNKNOWN), mig_device(2)))
    assert [one.uuid for one in found.mig_devices] == ["MIG-2"]
    assert "MIG instances: " in found.reason


def test_everything_goes_through_json_with_one_type_a_key(proc):
    found = to_dict(read_cards(Binding(card(0), Code.GPU_IS_LOST, card(2, mig_devices=(mig_device(1),))), proc))
    assert json.loads(json.dumps(found)) == found
    kinds = {}
    for one in found["cards"]:
        for key, value in one.items():
            if value is not None:
                assert kinds.setdefault(key, type(value)) is type(value), key
    assert found["cards"][1]["processes"] is None
