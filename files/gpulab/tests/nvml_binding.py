"""A stand-in for nvidia-ml-py that answers, refuses and loses cards as NVML does, and processes for a made-up /proc."""

from __future__ import annotations

from types import SimpleNamespace

from gpulab.adapters.nvml import read_cards
from gpulab.adapters.nvml_library import Code

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
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=40 * GIB, used=GIB, free=39 * GIB),
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
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=80 * GIB, used=2 * GIB, free=77 * GIB),
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


def read_one(proc, **answers):
    found = read_cards(Binding(card(0, **answers)), proc)
    assert not found.reason
    return found.cards[0]
