"""MIG on cards that the simulator does not model: virtual machines, talkative drivers, and who holds a card open."""

from __future__ import annotations

import ctypes
import os
import signal
from types import SimpleNamespace

import pynvml
import pytest
from gpulab.adapters.mig import opened
from gpulab.adapters.mig_holders import holders
from gpulab.adapters.nvml_library import Code
from gpulab.commands.mig import main
from gpulab.errors import NotPermittedError
from gpulab.rules.mig_known import known_profiles
from gpulab.rules.mig_layout import parse_layout
from gpulab.services import mig

A100_80, B200 = 0x20B210DE, 0x290110DE
LAYOUT = parse_layout({0: "3g.40gb"})


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value


class Driver:
    """Behaves as the module pynvml for one card that is not in MIG mode.

    The attribute `activation` is what a mode change says about its second half, `talks` and `places` whether profiles
    and their places can be asked for while MIG is off.
    """

    NVMLError = NVMLError
    c_nvmlGpuInstancePlacement_t = pynvml.c_nvmlGpuInstancePlacement_t  # noqa: N815 - pynvml's own spelling

    def __init__(self, device=A100_80, *, activation=0, talks=False, places=True, minor=0):
        self.device, self.activation, self.talks, self.places, self.minor = device, activation, talks, places, minor
        self.current = self.pending = 0
        self.switched = []

    def nvmlInit(self):  # noqa: N802 - NVML's own names
        pass

    nvmlShutdown = nvmlInit  # noqa: N815

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        assert uuid == "GPU-0"
        return 0

    def nvmlDeviceGetUUID(self, _handle):  # noqa: N802
        return b"GPU-0"

    def nvmlDeviceGetName(self, _handle):  # noqa: N802
        return "NVIDIA Test"

    def nvmlDeviceGetMinorNumber(self, _handle):  # noqa: N802
        if self.minor is None:
            raise NVMLError(Code.NOT_SUPPORTED)
        return self.minor

    def nvmlDeviceGetPciInfo(self, _handle):  # noqa: N802
        return SimpleNamespace(pciDeviceId=self.device, pciSubSystemId=0)

    def nvmlDeviceGetMigMode(self, _handle):  # noqa: N802
        return [self.current, self.pending]

    def nvmlDeviceSetMigMode(self, _handle, mode):  # noqa: N802
        self.switched.append(mode)
        self.pending = mode
        return self.activation if mode != self.current else 0

    def nvmlDeviceGetGpuInstanceProfileInfo(self, _handle, slot):  # noqa: N802
        found = known_profiles(A100_80)
        if not self.talks:
            raise NVMLError(Code.NOT_SUPPORTED)
        if slot >= len(found):
            raise NVMLError(Code.INVALID_ARGUMENT)
        profile = found[slot]
        return SimpleNamespace(
            id=profile.id, name=f"MIG {profile.name}", sliceCount=profile.slices, instanceCount=profile.maximum
        )

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, _handle, number, places, count):  # noqa: N802
        if not self.places:
            raise NVMLError(Code.NOT_SUPPORTED)
        profile = next(each for each in known_profiles(A100_80) if each.id == number)
        for position, start in enumerate(profile.starts):
            places[position].start, places[position].size = start, profile.size
        ctypes.cast(count, ctypes.POINTER(ctypes.c_uint))[0] = len(profile.starts)

    def nvmlDeviceGetComputeRunningProcesses(self, _handle):  # noqa: N802
        return []

    nvmlDeviceGetGraphicsRunningProcesses = nvmlDeviceGetComputeRunningProcesses  # noqa: N815
    nvmlDeviceGetMPSComputeRunningProcesses = nvmlDeviceGetComputeRunningProcesses  # noqa: N815


@pytest.fixture
def world(tmp_path):
    def make(driver):
        boot = tmp_path / "proc/sys/kernel/random"
        boot.mkdir(parents=True, exist_ok=True)
        (boot / "boot_id").write_text("first\n")
        return mig.World(root=tmp_path / "root", proc_root=tmp_path / "proc", binding=driver)

    return make


def read(driver):
    with opened(driver) as found:
        return found.read_cards()[0]


@pytest.mark.parametrize("activation", [Code.RESET_REQUIRED, Code.NOT_SUPPORTED])
def test_in_a_virtual_machine_the_mode_waits_for_a_reboot(world, activation):
    driver = Driver(activation=activation)
    first = mig.apply(LAYOUT, world(driver))
    assert (first.cards[0].result, first.changed, first.errors) == ("waiting", True, ())
    assert first.warnings == (
        (
            "card 0 (NVIDIA Test): this card cannot be reset from here: MIG goes on with the next reboot, and "
            "gpulab-mig.service then does the rest"
        ),
    )
    assert (driver.current, driver.pending) == (0, 1)
    again = mig.apply(LAYOUT, world(driver), record=True)
    assert (again.cards[0].result, again.cards[0].changed) == ("waiting", False)
    assert again.recorded  # so that the boot finishes it
    off = mig.apply(parse_layout({0: "off"}), world(driver))
    assert (off.cards[0].result, driver.pending) == ("changed", 0)


def test_a_card_that_somebody_holds_open_is_not_left_to_change_at_some_later_time(world):
    driver = Driver(activation=19)
    made = world(driver)
    descriptors = made.proc_root / "812/fd"
    descriptors.mkdir(parents=True)
    (descriptors / "7").symlink_to("/dev/nvidia0")
    (made.proc_root / "812/stat").write_text(f"812 (nvidia-persiste) S {'0 ' * 18}4242 0\n")
    (made.proc_root / "812/status").write_text("Uid:\t0\t0\t0\t0\n")
    report = mig.apply(LAYOUT, made)
    (error,) = report.errors
    assert error == (
        "card 0 (NVIDIA Test): switch MIG on: nvidia-persiste (PID 812) has the card open, so it cannot be reset; "
        "stop it and try again; the former layout is in place"
    )
    assert (driver.switched, driver.pending) == ([1, 0], 0)


def test_a_driver_that_tells_profiles_while_mig_is_off_is_believed():
    card = read(Driver(B200, talks=True))
    assert card.measured
    assert card.profiles == known_profiles(A100_80)


def test_profiles_without_places_are_judged_by_the_documented_table():
    card = read(Driver(A100_80, talks=True, places=False))
    assert not card.measured
    assert card.profiles == known_profiles(A100_80)
    assert read(Driver(B200, talks=True, places=False)).profiles == ()


def test_a_card_in_no_table_is_planned_with_a_warning(world):
    report = mig.plan(parse_layout({0: "1g.23gb"}), world(Driver(B200)))
    assert (report.cards[0].steps, report.cards[0].after) == (("switch MIG on",), ("MIG on", "1g.23gb"))
    assert "what it can make is only known once MIG is on" in report.warnings[0]


def test_a_card_without_a_device_minor_can_be_looked_at():
    assert read(Driver(minor=None)).minor is None


def test_who_holds_a_card_open(tmp_path):
    for pid, target in (("30", "/dev/nvidia1"), ("7", "/dev/nvidia1"), ("8", "/dev/nvidia10"), ("9", "/tmp/x")):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "fd/3").symlink_to(target)
    (tmp_path / "self").mkdir()
    (tmp_path / str(os.getpid()) / "fd").mkdir(parents=True)
    (tmp_path / str(os.getpid()) / "fd/4").symlink_to("/dev/nvidia1")
    assert holders(1, tmp_path) == ("a program (PID 7)", "a program (PID 30)")
    assert holders(2, tmp_path) == ()


def test_the_boot_waits_for_the_driver_for_a_bounded_time(tmp_path):
    moments = iter(range(100))
    slept = []

    class Absent(Driver):
        def nvmlInit(self):  # noqa: N802
            if len(slept) < 3:
                raise NVMLError(Code.DRIVER_NOT_LOADED)

    def wait(seconds):
        slept.clear()
        mig.wait_for_driver(
            mig.World(binding=Absent()), seconds=seconds, sleep=slept.append, monotonic=lambda: next(moments)
        )
        return len(slept)

    assert wait(30) == 3
    assert wait(2) == 1


class Interrupted(Driver):
    """Somebody presses Ctrl-C, or systemd stops the service, in the middle of the first change."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def nvmlDeviceSetMigMode(self, handle, mode):  # noqa: N802
        first = not self.switched
        super().nvmlDeviceSetMigMode(handle, mode)
        if first:
            os.kill(os.getpid(), self.number)
        return 0


@pytest.mark.parametrize(
    ("number", "ending"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["ctrl-c", "stop"]
)
def test_a_change_that_is_interrupted_is_taken_back(world, number, ending):
    made = world(Interrupted(number))
    path = made.root / "etc/gpulab/mig.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"0": "3g.40gb"}')
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(ending):
            main(["apply"], made)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert (made.binding.switched, made.binding.pending) == ([1, 0], 0)
    assert '"cards": {}' in (made.root / "var/lib/gpulab/mig/unfinished.json").read_text()


def test_only_root_may_change(world, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    driver = Driver()
    with pytest.raises(NotPermittedError, match="only root may change MIG; use sudo"):
        mig.apply(LAYOUT, world(driver))
    assert driver.switched == []
