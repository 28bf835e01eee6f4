"""Programs people really use, unchanged, on the simulated library. nvidia-smi: see test_gpusim_nvidia_smi.py."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys

import pytest
from conftest import preload


def run(machine, *command):
    environment = {**machine.environment, **preload(), "TERM": "dumb", "COLUMNS": "120", "LC_ALL": "C.UTF-8"}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_gpustat(machine):
    pytest.importorskip("gpustat")
    child = machine.start("--gpu", 1, "--mem", "20G", "--sm", 90)
    report = json.loads(run(machine, sys.executable, "-m", "gpustat", "--json"))
    assert report["driver_version"] == "550.163.01"
    assert [gpu["utilization.gpu"] for gpu in report["gpus"]] == [0, 90, 0, 0]
    assert [gpu["memory.total"] for gpu in report["gpus"]] == [81920] * 4
    (process,) = report["gpus"][1]["processes"]
    assert (process["pid"], process["username"], process["command"]) == (child.pid, getpass.getuser(), "sleep")
    assert process["gpu_memory_usage"] == 20480


def test_nvitop(machine):
    pytest.importorskip("nvitop")
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(3)
    nvml.nvmlDeviceSetMigMode(card, 1)
    nvml.nvmlGpuInstanceCreateComputeInstance(nvml.nvmlDeviceCreateGpuInstance(card, 9), 2)
    whole = machine.start("--gpu", 0, "--mem", "20G", "--sm", 90)
    part = machine.start("--gpu", 3, "--mem", "5G")
    screen = run(machine, sys.executable, "-m", "nvitop", "-1", "--no-unicode")
    assert "Driver Version: 550.163.01" in screen
    assert screen.count("A100-SXM4-80GB") == 4
    assert re.search(r"3g\.40gb @ GI/CI: +2/0", screen)
    assert re.search(rf"\| +0 +{whole.pid} C .* 20\.00GiB +90 ", screen)
    assert re.search(rf"{part.pid} C .* 5120MiB ", screen)
    assert os.path.basename(sys.executable) not in screen  # the process is the command itself, not gpusim
