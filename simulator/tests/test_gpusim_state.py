"""The state file: both sides write the same text, writers at once lose nothing, broken text is no machine."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import NvmlError
from gpusim import catalogue
from gpusim.records import Machine, Record

INVALID_ARGUMENT, DRIVER_NOT_LOADED, OPERATING_SYSTEM, INSUFFICIENT_RESOURCES = 2, 9, 17, 23
EVERY_MODEL = ",".join(f"{name}:2" for name in catalogue.model_names())


def test_the_library_writes_what_the_command_wrote(bare_machine):
    bare_machine.gpusim("init", "--cards", EVERY_MODEL, "--seed", "50% of a seed")
    bare_machine.gpusim("fail", "--call", "nvmlDeviceGetFanSpeed*", "--gpu", 1)
    before = (bare_machine.state / "state").read_text()
    nvml = bare_machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetPersistenceMode(card, 1)
    changed = (bare_machine.state / "state").read_text()
    nvml.nvmlDeviceSetPersistenceMode(card, 0)
    assert (bare_machine.state / "state").read_text() == before != changed


def test_a_refused_change_changes_nothing(machine):
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    before = (machine.state / "state").read_text()
    for call, value in (
        (nvml.nvmlDeviceSetPersistenceMode, 7),
        (nvml.nvmlDeviceSetPowerManagementLimit, 1000),
        (nvml.nvmlDeviceSetMigMode, 2),
    ):
        with pytest.raises(NvmlError) as failure:
            call(card, value)
        assert failure.value.number == INVALID_ARGUMENT
    assert (machine.state / "state").read_text() == before
    assert nvml.nvmlDeviceGetPersistenceMode(card) == 0
    assert nvml.nvmlDeviceGetPowerManagementLimit(card) == 400_000
    assert nvml.nvmlDeviceGetMigMode(card) == [0, 0]


def test_a_change_that_cannot_be_written_fails_whole(bare_machine):
    """The folder of the InfoROM file is gone: the mode is neither changed nor half changed."""
    bare_machine.gpusim("init", "--persist", "--cards", "a30:1")
    (bare_machine.folder / "inforom").rmdir()
    nvml = bare_machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(NvmlError) as failure:
        nvml.nvmlDeviceSetMigMode(card, 1)
    assert failure.value.number == OPERATING_SYSTEM
    assert nvml.nvmlDeviceGetMigMode(card) == [0, 0]


def test_text_form_keeps_every_value():
    values = {"name": "a b%c=d\n\té", "empty": "", "number": 7}
    machine = Machine([Record("card", values), Record("driver", version=1)])
    again = Machine.parse(machine.render())
    assert [record.kind for record in again.records] == ["driver", "card"]
    assert again.records[1] == {"name": "a b%c=d\n\té", "empty": "", "number": "7"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:0],
        lambda text: text.replace("minor=0", "minor=x"),
        lambda text: text.replace(" minor=0", ""),
        lambda text: text.replace("minor=0", "minor=0 colour=red"),
        lambda text: text.replace("minor=0", "minor=99999999999"),
        lambda text: text.replace("starts=0,2,4", "starts=0,2,44"),
        lambda text: text.replace("model=a100-sxm4-80gb minor=1", "model=unknown minor=1"),
        lambda text: text.replace("uuid=GPU-", "uuid=" + "x" * 500),
        lambda text: text.replace("NVIDIA%20", "NVIDIA%2z"),
        lambda text: text.replace("NVIDIA%20", "NVIDIA%00"),
        lambda text: text + "card\n",
        lambda text: text + "stranger a=b\n",
        lambda text: text + text,
        lambda text: text * 200,
        lambda text: text + "fault call=nvmlDeviceGetName card=0 error=3\n" * 81,
        lambda text: text + "fault call=nvmlDeviceGetName card=0 error=3\n" * 5000,
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("\n", "\0"),
    ],
)
def test_a_state_that_is_not_understood_is_no_driver(machine, damage):
    path = machine.state / "state"
    text = path.read_text()
    damaged = damage(text)
    assert damaged != text
    path.write_text(damaged)
    with pytest.raises(NvmlError) as failure:
        machine.nvml()
    assert failure.value.number == DRIVER_NOT_LOADED


def test_eight_writers_at_once_make_seven_instances(machine):
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetMigMode(card, 1)
    assert nvml.create_at_once(card, 19, 8) == [0] * 7 + [INSUFFICIENT_RESOURCES]
    found = nvml.gpu_instances(card, 19)
    assert sorted(nvml.nvmlGpuInstanceGetInfo(instance).id for instance in found) == list(range(7, 14))


def test_command_and_library_change_at_once_and_lose_nothing(machine):
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetMigMode(card, 1)
    many = "any(main(['busy', '--gpu', '1', '--sm', str(percent)]) for percent in range(1, 41))"
    program = f"import sys; from gpusim.main import main; sys.exit({many})"
    other = subprocess.Popen([sys.executable, "-c", program], env=machine.environment)
    rounds = 0
    while other.poll() is None or rounds < 20:
        instance = nvml.nvmlDeviceCreateGpuInstance(card, 9)
        assert len(nvml.gpu_instances(card, 9)) == 1
        nvml.nvmlGpuInstanceDestroy(instance)
        rounds += 1
    assert other.returncode == 0
    assert nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(1)).gpu == 40
    assert nvml.nvmlDeviceGetMigMode(card) == [1, 1]
    assert sorted(path.name for path in machine.state.iterdir()) == ["lock", "procs.d", "state"]
