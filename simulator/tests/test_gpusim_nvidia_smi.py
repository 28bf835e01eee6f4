"""The real nvidia-smi on the simulated library: what it prints and how it exits.

`make -C simulator honesty` downloads the program and runs these tests; without it they are skipped.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest
from conftest import NvmlError, preload

SMI = os.environ.get("GPUSIM_NVIDIA_SMI", "")

if not os.access(SMI, os.X_OK):
    pytest.skip("nvidia-smi is not here; run: make -C simulator honesty", allow_module_level=True)


class Smi:
    def __init__(self, machine):
        self.machine = machine

    def __call__(self, *arguments, user=None, expect=0, **environment):
        result = subprocess.run(
            [SMI, *map(str, arguments)],
            env={**self.machine.environment, **preload(), **environment},
            user=user,
            check=False,
            capture_output=True,
            text=True,
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return result.stdout

    def rows(self, *arguments):
        return list(csv.reader(self(*arguments).splitlines(), skipinitialspace=True))


@pytest.fixture
def smi(machine):
    return Smi(machine)


@pytest.fixture
def split(smi):
    smi("-i", 0, "-mig", 1)
    return smi


def test_table(machine, smi):
    child = machine.start("--gpu", 2, "--mem", "20G", "--sm", 90, command=("sleep", "61"))
    graphics = machine.start("--gpu", 2, "--mem", "1G", "--kind", "G")
    table = smi()
    assert re.search(r"NVIDIA-SMI 550\.\S+ +Driver Version: 550\.163\.01 +CUDA Version: 12\.4", table)
    assert table.count("NVIDIA A100-SXM4-80GB") == 4
    assert len(re.findall(r"0MiB / +81920MiB \| +0% ", table)) == 3
    assert len(re.findall(r"21504MiB / +81920MiB \| +90% ", table)) == 1
    assert re.search(rf"\| +2 +N/A +N/A +{child.pid} +C +sleep 61 +20480MiB \|", table)
    assert re.search(rf"\| +2 +N/A +N/A +{graphics.pid} +G +sleep 60 +1024MiB \|", table)


def test_inventory_columns(machine, smi):
    machine.start("--gpu", 1, "--mem", "5G")
    assert smi("--query-gpu=index,name,memory.total,memory.used", "--format=csv").splitlines() == [
        "index, name, memory.total [MiB], memory.used [MiB]",
        "0, NVIDIA A100-SXM4-80GB, 81920 MiB, 0 MiB",
        "1, NVIDIA A100-SXM4-80GB, 81920 MiB, 5120 MiB",
        "2, NVIDIA A100-SXM4-80GB, 81920 MiB, 0 MiB",
        "3, NVIDIA A100-SXM4-80GB, 81920 MiB, 0 MiB",
    ]


def test_compute_processes(machine, smi):
    child = machine.start("--gpu", 3, "--mem", "5G")
    query = "--query-compute-apps=pid,process_name,used_gpu_memory,gpu_uuid"
    uuid = machine.nvml().nvmlDeviceGetUUID(machine.nvml().nvmlDeviceGetHandleByIndex(3))
    (process,) = smi.rows(query, "--format=csv,noheader,nounits")
    assert process == [str(child.pid), "sleep", "5120", uuid]


def test_list_names_every_device(split):
    split("mig", "-cgi", "19,14,5", "-C")
    lines = split("-L").splitlines()
    assert [line.split("(")[0].split() for line in lines[:4]] == [
        ["GPU", "0:", "NVIDIA", "A100-SXM4-80GB"],
        ["MIG", "4g.40gb", "Device", "0:"],
        ["MIG", "2g.20gb", "Device", "1:"],
        ["MIG", "1g.10gb", "Device", "2:"],
    ]
    assert len(lines) == 7
    assert len(set(re.findall(r"UUID: ([A-Z]+-[0-9a-f-]{36})", "\n".join(lines)))) == 7


def test_report_and_its_xml(smi):
    assert "Attached GPUs                             : 4" in smi("-q")
    root = ET.fromstring(smi("-q", "-x"))
    assert [card.findtext("product_name") for card in root.iter("gpu")] == ["NVIDIA A100-SXM4-80GB"] * 4
    assert [card.findtext("minor_number") for card in root.iter("gpu")] == ["0", "1", "2", "3"]
    assert root.find("gpu/mig_mode/current_mig").text == "Disabled"


def test_topology(smi):
    rows = [line.split() for line in smi("topo", "-m").splitlines() if re.match(r"GPU\d\s", line)]
    assert [row[1:5] for row in rows] == [["NV4" if column != row else "X" for column in range(4)] for row in range(4)]
    assert smi("nvlink", "-s", "-i", 0).count("25.781 GB/s") == 12


def test_profiles_as_the_guide_prints_them(split):
    table = split("mig", "-lgip")
    rows = re.findall(r"\|   0  MIG (\S+) +(\d+) +(\d/\d) +([\d.]+) +No +(\d+) ", table)
    assert rows == [
        ("1g.10gb", "19", "7/7", "9.50", "14"),
        ("1g.10gb+me", "20", "1/1", "9.50", "14"),
        ("1g.20gb", "15", "4/4", "19.50", "14"),
        ("2g.20gb", "14", "3/3", "19.50", "28"),
        ("3g.40gb", "9", "2/2", "39.25", "42"),
        ("4g.40gb", "5", "1/1", "39.25", "56"),
        ("7g.80gb", "0", "1/1", "78.75", "98"),
    ]
    assert "GPU  0 Profile ID  9 Placements: {0,4}:4" in split("mig", "-lgipp")
    assert "GPU  0 Profile ID  0 Placement : {0}:8" in split("mig", "-lgipp")


def instances(smi):
    return re.findall(r"\| +0 +MIG (\S+) +\d+ +(\d+) +(\d:\d) ", smi("mig", "-lgi"))


def test_making_and_destroying(split):
    made = split("mig", "-cgi", "9,3g.40gb", "-C")
    assert re.findall(r"GPU instance ID +(\d) on GPU +0 using profile MIG 3g\.40gb \(ID +9\)", made) == ["2", "1"]
    assert instances(split) == [("3g.40gb", "2", "4:4"), ("3g.40gb", "1", "0:4")]
    assert "0/7" in split("mig", "-lgip")
    in_use = 19
    assert "In use by another client" in split("mig", "-dgi", expect=in_use)
    assert split("mig", "-dci").count("Successfully destroyed compute instance ID  0") == 2
    made = split("mig", "-cci", "0,0,0", "-gi", 1)
    assert re.findall(r"compute instance ID +(\d) on .* profile MIG 1c\.3g\.40gb", made) == ["0", "1", "2"]
    assert "1c.3g.40gb" in split("mig", "-lci")
    assert re.search(r"MIG 3g\.40gb +2\* +0/1 ", split("mig", "-lcip", "-gi", 1))
    split("mig", "-dci")
    assert split("mig", "-dgi").count("Successfully destroyed GPU instance") == 2


def test_explicit_placement(split):
    split("mig", "-cgi", "9:4,9:0")
    assert instances(split) == [("3g.40gb", "2", "4:4"), ("3g.40gb", "1", "0:4")]
    split("mig", "-dgi")
    invalid = 2
    split("mig", "-cgi", "9:2", expect=invalid)


def test_mig_devices_in_the_table(machine, split):
    split("mig", "-cgi", "9,9", "-C")
    uuid = re.findall(r"UUID: (MIG-\S+)\)", split("-L"))[1]
    child = machine.start("--mig", uuid, "--mem", "10G")
    table = split()
    assert re.search(r"\| +0 +1 +0 +0 +\| +0MiB / 40192MiB ", table)
    assert re.search(r"\| +0 +2 +0 +1 +\| +10240MiB / 40192MiB ", table)
    assert re.search(rf"\| +0 +2 +0 +{child.pid} +C +sleep 60 ", table)
    assert split.rows("--query-gpu=utilization.gpu,mig.mode.current", "--format=csv,noheader")[:2] == [
        ["[N/A]", "Enabled"],
        ["0 %", "Disabled"],
    ]


@pytest.mark.parametrize(
    ("model", "layout", "status", "left"),
    [
        ("a100-sxm4-80gb", "1G.10gb,3G.20gb,3G.20gb", 2, []),
        ("a100-sxm4-80gb", "1g.10gb,3g.20gb,3g.20gb", 2, ["1g.10gb"]),
        ("a100-sxm4-40gb", "1g.10gb,3g.20gb,3g.20gb", 23, ["1g.10gb", "3g.20gb"]),
        ("a100-sxm4-40gb", "3g.20gb,3g.20gb,1g.10gb", 23, ["3g.20gb", "3g.20gb"]),
        ("a100-sxm4-40gb", "3g.20gb,1g.10gb,1g.10gb", 0, ["3g.20gb", "1g.10gb", "1g.10gb"]),
        ("h100-sxm5-80gb", "1g.10gb,3g.20gb,3g.20gb", 2, ["1g.10gb"]),
    ],
)
def test_a_recipe_from_the_web(machine, smi, model, layout, status, left):
    """It is valid on no card, and what it made before it failed stays."""
    machine.gpusim("init", "--cards", model)
    smi("-mig", 1)
    smi("mig", "-cgi", layout, expect=status)
    assert len(json.loads(machine.gpusim("status", "--json"))["cards"][0]["gpu_instances"]) == len(left)
    if left:
        assert sorted(name for name, _, _ in instances(smi)) == sorted(left)


def test_exit_codes_that_say_success(machine, smi):
    """The mode of a busy card does not change, MIG without MIG cards does nothing, and both exit with 0."""
    machine.start("--gpu", 0)
    assert "pending enable state" in smi("-i", 0, "-mig", 1)
    query = ("--query-gpu=mig.mode.current,mig.mode.pending", "--format=csv,noheader")
    assert smi.rows(*query)[0] == ["Disabled", "Enabled"]
    assert "No MIG-enabled devices found" in smi("mig", "-cgi", "19")


def test_nothing_there_is_not_found(split):
    not_found = 6
    for option in ("-lgi", "-lci", "-dgi", "-dci"):
        split("mig", option, expect=not_found)


def test_persistence_mode(smi):
    assert smi("-pm", 1).count("Enabled persistence mode") == 4
    assert {row[0] for row in smi.rows("--query-gpu=persistence_mode", "--format=csv,noheader")} == {"Enabled"}


def test_mismatch_of_versions(machine, smi):
    machine.gpusim("fail", "--mismatch", "550.90.07")
    assert "Failed to initialize NVML: Driver/library version mismatch" in smi(expect=18)


def test_no_driver(machine, smi):
    machine.gpusim("fail", "--unloaded")
    assert "couldn't communicate with the NVIDIA driver" in smi(expect=9)


def test_a_lost_card(machine, smi):
    machine.gpusim("fail", "--lost", "--gpu", 1)
    lost = 15
    assert "GPU is lost" in smi(expect=lost)


def test_ordinary_users(machine, split, other_user, build):
    shutil.copy(SMI, build / "nvidia-smi")
    split("mig", "-cgi", "9", "-C")

    def as_user(*arguments, expect=0):
        command = [str(build / "nvidia-smi"), *arguments]
        result = subprocess.run(
            command,
            env={**machine.environment, **preload()},
            user=other_user.number,
            check=False,
            capture_output=True,
            text=True,
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return result.stdout

    assert "MIG 3g.40gb" in as_user("-L")
    no_permission = 4
    for arguments in (("-pm", "1"), ("-mig", "0"), ("mig", "-cgi", "9"), ("mig", "-dci"), ("mig", "-lgi")):
        as_user(*arguments, expect=no_permission)


def test_eight_at_once_make_seven_instances(machine, split):
    processes = [
        subprocess.Popen([SMI, "mig", "-cgi", "19"], env={**machine.environment, **preload()}, stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    statuses = []
    for process in processes:
        process.communicate()
        statuses.append(process.returncode)
    insufficient = 23
    assert sorted(statuses) == [0] * 7 + [insufficient]
    nvml = machine.nvml()
    assert len(nvml.gpu_instances(nvml.nvmlDeviceGetHandleByIndex(0), 19)) == 7
    with pytest.raises(NvmlError):
        nvml.nvmlDeviceCreateGpuInstance(nvml.nvmlDeviceGetHandleByIndex(0), 19)
