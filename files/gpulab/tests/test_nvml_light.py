"""The small binding beside nvidia-ml-py, on the simulator's library: the same answers, the same errors."""

from __future__ import annotations

import json
import sys

import pytest
from gpulab.adapters import nvml_light
from test_nvml_simulator import SPLIT_CARD_0, build, pytestmark, simulator, user  # noqa: F401 - fixtures

LOOK = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
import pynvml
from gpulab.adapters.nvml_light import Binding
from gpulab.adapters.sampler import Sampler
for binding in (Binding(), pynvml):
    tick = Sampler(binding, Path("/proc"), 100, tuple).look(2_000_000_000, 0)
    print(json.dumps(asdict(tick)))
"""


@pytest.fixture
def looks(simulator):  # noqa: F811 - the fixture
    """Return a function that looks once with each binding."""
    return lambda: [json.loads(line) for line in simulator.call(sys.executable, "-c", LOOK).splitlines()]


def test_both_see_the_same_processes_and_loads(user, looks):  # noqa: F811 - the fixture
    user("--gpu", "0,2", "--mem", "20G", "--sm", "70")
    user("--gpu", "0", "--mem", "5G", "--kind", "G")
    user("--gpu", "3", "--mem", "1G")
    ours, theirs = looks()
    assert ours == theirs
    assert [(use["card"], use["memory"] >> 30, use["sm"]) for use in ours["uses"]] == [
        (0, 20, 70),
        (0, 5, 0),
        (2, 20, 70),
        (3, 1, 0),
    ]


def test_both_see_instances_and_measure_nothing_there(simulator, user, looks):  # noqa: F811 - the fixtures
    simulator.call(sys.executable, "-c", SPLIT_CARD_0)
    user("--mig", simulator.info()["cards"][0]["mig_devices"][1]["uuid"], "--mem", "5G")
    ours, theirs = looks()
    assert ours == theirs
    assert [(use["instance"], use["sm"]) for use in ours["uses"]] == [(2, None)]
    assert ours["cards"][0]["state"] == "mig"


@pytest.mark.parametrize(
    "fault",
    [
        ["--lost", "--gpu", "1"],
        ["--unloaded"],
        ["--mismatch", "1.2.3"],
        ["--call", "nvmlDeviceGetMemoryInfo_v2", "--error", "not-supported"],
        ["--call", "nvmlDeviceGetProcessUtilization", "--error", "not-supported"],
        ["--call", "nvmlDeviceGetComputeRunningProcesses*", "--gpu", "0"],
    ],
    ids=lambda fault: " ".join(fault[:2]),
)
def test_both_refuse_in_the_same_way(simulator, user, looks, fault):  # noqa: F811 - the fixtures
    user("--gpu", "0", "--mem", "20G", "--sm", "70")
    simulator("fail", *fault)
    ours, theirs = looks()
    assert ours == theirs


def test_without_a_library_it_says_so(monkeypatch):
    monkeypatch.setattr(nvml_light, "LIBRARY", "libnvidia-ml-that-is-not-there.so.1")
    with pytest.raises(nvml_light.NVMLError) as failure:
        nvml_light.Binding().nvmlInit()
    assert failure.value.value == 12
