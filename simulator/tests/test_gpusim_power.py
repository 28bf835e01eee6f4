"""Resets, reboots, device nodes and what they keep."""

from __future__ import annotations

import os
import stat

import pytest
from gpusim import devnodes, store
from gpusim.records import Machine

THREE = 9


def split(nvml, index):
    card = nvml.nvmlDeviceGetHandleByIndex(index)
    nvml.nvmlDeviceSetMigMode(card, 1)
    instance = nvml.nvmlDeviceCreateGpuInstance(card, THREE)
    nvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    return card


@pytest.fixture
def generations(bare_machine):
    """Card 0 is an Ampere card, card 1 a Hopper card, each with one instance."""
    bare_machine.gpusim("init", "--persist", "--cards", "a100-sxm4-80gb:1,h200-sxm5-141gb:1")
    nvml = bare_machine.nvml()
    return bare_machine, nvml, [split(nvml, 0), split(nvml, 1)]


@pytest.mark.parametrize("how", ["reboot", "boot"])
def test_ampere_keeps_its_mode_and_hopper_does_not(generations, how):
    """`reboot` happens in the running machine, `boot` after /run was lost."""
    machine, nvml, (ampere, hopper) = generations
    if how == "boot":
        (machine.state / "state").unlink()
    machine.gpusim(how)
    assert nvml.nvmlDeviceGetMigMode(ampere) == [1, 1]
    assert nvml.nvmlDeviceGetMigMode(hopper) == [0, 0]
    assert nvml.gpu_instances(ampere, THREE) == []


def test_a_reset_keeps_the_mode_and_drops_the_instances(generations):
    machine, nvml, (ampere, hopper) = generations
    machine.gpusim("reset", "--gpu", "0,1")
    for card in (ampere, hopper):
        assert nvml.nvmlDeviceGetMigMode(card) == [1, 1]
        assert nvml.gpu_instances(card, THREE) == []


def test_the_pending_mode_is_what_a_reboot_brings(machine):
    machine.start("--gpu", 0)
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetMigMode(card, 1)
    assert nvml.nvmlDeviceGetMigMode(card) == [0, 1]
    machine.gpusim("reboot")
    assert nvml.nvmlDeviceGetMigMode(card) == [1, 1]
    assert nvml.nvmlDeviceGetComputeRunningProcesses(card) == []


def test_a_reboot_heals_and_forgets(machine):
    machine.gpusim("fail", "--lost", "--gpu", 0)
    machine.gpusim("fail", "--mismatch", "550.90.07")
    machine.gpusim("set", "--gpu", 1, "--persistence", "on", "--temperature", 90)
    machine.gpusim("busy", "--gpu", 1, "--sm", 50, "--mem", "1G")
    machine.gpusim("reboot")
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0)) == "NVIDIA A100-SXM4-80GB"
    assert nvml.nvmlDeviceGetPersistenceMode(card) == 0
    assert nvml.nvmlDeviceGetUtilizationRates(card).gpu == 0
    assert nvml.nvmlDeviceGetTemperature(card, 0) < 50


def test_boot_makes_the_same_cards(generations):
    machine, nvml, cards = generations
    before = [nvml.nvmlDeviceGetUUID(card) for card in cards]
    (machine.state / "state").unlink()
    machine.gpusim("boot")
    assert [nvml.nvmlDeviceGetUUID(card) for card in cards] == before


@pytest.mark.parametrize("content", [None, "", "{}", '{"models": 7}', '{"models": [], "minors": [], "colour": 1}'])
def test_boot_without_a_usable_configuration(bare_machine, content):
    path = bare_machine.folder / "gpusim.conf"
    if content is not None:
        path.write_text(content)
    result = bare_machine.try_gpusim("boot")
    assert result.status == 1
    assert result.err.startswith(f"gpusim: {path} ")
    assert result.err.count("\n") == 1


def test_minors_of_instances_are_the_drivers():
    assert devnodes.instance_minor(0, 0) == 3
    assert devnodes.instance_minor(0, 1) == 12
    assert devnodes.instance_minor(1, 2, 0) == 3 + 135 + 18 + 1
    lines = devnodes.mig_minors().splitlines()
    assert lines[:4] == ["config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4"]
    assert lines[-1] == "gpu31/gi14/ci7/access 4322"
    assert [int(line.split()[1]) for line in lines] == list(range(1, 4323))


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need root")
def test_device_nodes(bare_machine):
    bare_machine.gpusim("init", "--cards", "a100-sxm4-80gb:2", "--minors", "1,0")
    nvml = bare_machine.nvml()
    card = split(nvml, 0)
    root = bare_machine.folder / "dev"
    root.mkdir()
    first = bare_machine.gpusim("devnodes", "--root", root).split()
    gi, ci = devnodes.instance_minor(1, 2), devnodes.instance_minor(1, 2, 0)
    caps = root / "nvidia-caps"
    assert sorted(first) == sorted(
        str(path)
        for path in (
            *(root / name for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")),
            *(caps / f"nvidia-cap{minor}" for minor in (1, 2, gi, ci)),
        )
    )
    status = (root / "nvidia1").stat()
    assert (stat.S_ISCHR(status.st_mode), os.major(status.st_rdev), os.minor(status.st_rdev)) == (True, 195, 1)
    assert stat.S_IMODE((caps / "nvidia-cap1").stat().st_mode) == 0o400
    nvml.nvmlComputeInstanceDestroy(nvml.compute_instances(nvml.gpu_instances(card, THREE)[0], 2)[0])
    bare_machine.gpusim("devnodes", "--root", root)
    assert (caps / f"nvidia-cap{gi}").exists()
    assert not (caps / f"nvidia-cap{ci}").exists()


def test_proc_driver(machine):
    text = Machine.parse((machine.state / "state").read_text())
    devnodes.write_proc(text, machine.folder)
    version = (machine.folder / "nvidia/version").read_text()
    assert version.startswith("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01 ")
    card = (machine.folder / "nvidia/gpus/0000:c1:00.0/information").read_text()
    assert "Device Minor: \t 3\n" in card
    assert f"GPU UUID: \t {text.card(3)['uuid']}\n" in card
    assert store.DEFAULT_FOLDER == "/run/gpusim"
