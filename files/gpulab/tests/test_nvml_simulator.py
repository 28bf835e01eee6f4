"""Reading the cards through nvidia-ml-py itself and the simulator's library: real structs, real return codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from test_nvml_facts import REPOSITORY, run_module

GIB = 1 << 30
GPULAB = "import sys; from gpulab.commands.main import main; sys.exit(main(sys.argv[1:]))"
SPLIT_CARD_0 = """
import pynvml as nvml
nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
nvml.nvmlDeviceSetMigMode(card, nvml.NVML_DEVICE_MIG_ENABLE)
profile = nvml.nvmlDeviceGetGpuInstanceProfileInfo(card, nvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
for _ in range(2):
    instance = nvml.nvmlDeviceCreateGpuInstance(card, profile.id)
    part = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, nvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE, 0)
    nvml.nvmlGpuInstanceCreateComputeInstance(instance, part.id)
"""

pytestmark = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("make")), reason="the simulator is compiled with gcc and make"
)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpusim")
    subprocess.run(
        ["make", "--silent", "-C", REPOSITORY / "simulator", f"BUILD={folder}", f"PYTHON={sys.executable}", "all"],
        check=True,
        capture_output=True,
    )
    return folder


class Simulator:
    def __init__(self, build, state):
        self.build = build
        self.environment = {"GPUSIM_STATE": str(state), "LD_LIBRARY_PATH": str(build)}
        self("init", "--cards", "a100-sxm4-80gb:4")

    def call(self, *command):
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def __call__(self, *arguments):
        return self.call(self.build / "gpusim", *arguments)

    def start(self, *arguments):
        """Start a process that uses a card; it has begun to when this returns."""
        command = [self.build / "gpusim", "run", *arguments, "--", "sh", "-c", "echo ready; exec sleep 60"]
        child = subprocess.Popen(command, env={**os.environ, **self.environment}, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        return child

    def info(self):
        return json.loads(self.call(sys.executable, "-c", GPULAB, "info", "--json"))


@pytest.fixture
def simulator(build, tmp_path):
    return Simulator(build, tmp_path / "state")


@pytest.fixture
def user(simulator):
    children = []

    def start(*arguments):
        children.append(simulator.start(*arguments))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_cards_links_and_a_process(simulator, user):
    child = user("--gpu", "1", "--mem", "20G", "--sm", "90")
    found = simulator.info()
    assert (found["reason"], found["driver_version"], found["cuda_version"]) == ("", "550.163.01", "12.4")
    assert [card["index"] for card in found["cards"]] == [0, 1, 2, 3]
    assert len({card["uuid"] for card in found["cards"]}) == 4
    addresses = {card["bus_id"] for card in found["cards"]}
    first, busy = found["cards"][:2]
    assert (first["memory_total"], first["memory_used"], first["utilization"]) == (80 * GIB, 0, 0)
    assert len(first["nvlinks"]) == 12
    assert {link["remote_bus_id"] for link in first["nvlinks"]} == addresses - {first["bus_id"]}
    assert (busy["memory_used"], busy["utilization"]) == (20 * GIB, 90)
    (process,) = busy["processes"]
    with open(f"/proc/{child.pid}/stat", encoding="utf-8") as stream:
        start = int(stream.read().rpartition(")")[2].split()[19])
    assert (process["pid"], process["start_ticks"], process["uid"]) == (child.pid, start, os.getuid())
    assert (process["kind"], process["memory"]) == ("C", 20 * GIB)


def test_mig_instances_and_who_is_on_which(simulator, user):
    simulator.call(sys.executable, "-c", SPLIT_CARD_0)
    devices = simulator.info()["cards"][0]["mig_devices"]
    assert [device["profile"] for device in devices] == ["3g.40gb", "3g.40gb"]
    child = user("--mig", devices[1]["uuid"], "--mem", "5G")
    card = simulator.info()["cards"][0]
    assert (card["mig_capable"], card["mig_enabled"], card["utilization"]) == (True, True, None)
    place = {"gpu_instance": devices[1]["gpu_instance"], "compute_instance": devices[1]["compute_instance"]}
    (process,) = card["processes"]
    assert process.items() >= {"pid": child.pid, "memory": 5 * GIB, **place}.items()
    assert [device["memory_used"] for device in card["mig_devices"]] == [0, 5 * GIB]


def test_a_lost_card_keeps_its_place(simulator):
    simulator("fail", "--lost", "--gpu", "2")
    cards = simulator.info()["cards"]
    assert [card["lost"] for card in cards] == [False, False, True, False]
    assert cards[2]["processes"] is None


@pytest.mark.parametrize(
    ("fault", "words"), [(["--unloaded"], "modprobe nvidia"), (["--mismatch", "570.86.15"], "reboot")]
)
def test_a_driver_that_does_not_start_is_an_answer(simulator, fault, words):
    simulator("fail", *fault)
    found = simulator.info()
    assert found["cards"] == []
    assert words in found["reason"]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetUtilizationRates", "utilization"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "processes"),
        ("nvmlDeviceGetMigMode", "mig_capable"),
    ],
)
def test_one_failing_call_costs_one_field(simulator, call, field):
    simulator("fail", "--call", call, "--gpu", "0")
    failing, healthy, *_ = simulator.info()["cards"]
    assert failing[field] is None
    assert failing["reason"]
    assert healthy[field] is not None
    assert healthy["reason"] == ""


def test_a_card_without_mig(simulator):
    simulator("init", "--cards", "l40s:1")
    (card,) = simulator.info()["cards"]
    assert (card["mig_capable"], card["mig_enabled"], card["reason"]) == (False, None, "")


def test_the_ansible_module_sees_the_same(simulator, tmp_path):
    answer = run_module(tmp_path, **simulator.environment)
    found = simulator.info()
    assert len(found["cards"]) == 4
    assert {key: answer[key] for key in found} == found
