"""Processes that use cards: real ones, seen as long as they are there, and believed only when they prove it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import NvmlError
from gpusim import processes

GIB = 1 << 30
INSUFFICIENT_SIZE, NOT_FOUND = 7, 6
NO_INSTANCE = 0xFFFFFFFF


def seen(nvml, index=0):
    return nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index))


def test_a_process_is_seen_with_its_memory_and_load(machine):
    child = machine.start("--gpu", 2, "--mem", "20G", "--sm", 90, "--memory-load", 40)
    nvml = machine.nvml()
    (process,) = seen(nvml, 2)
    assert (process.pid, process.usedGpuMemory) == (child.pid, 20 * GIB)
    assert process.gpuInstanceId == process.computeInstanceId == NO_INSTANCE
    card = nvml.nvmlDeviceGetHandleByIndex(2)
    rates = nvml.nvmlDeviceGetUtilizationRates(card)
    assert (rates.gpu, rates.memory) == (90, 40)
    assert nvml.nvmlDeviceGetMemoryInfo(card, 0x2000028).used == 20 * GIB
    (sample,) = nvml.nvmlDeviceGetProcessUtilization(card, 0)
    assert (sample.pid, sample.smUtil, sample.memUtil) == (child.pid, 90, 40)
    assert seen(nvml, 0) == []


def test_samples_are_of_the_last_moment_and_of_busy_processes(machine):
    child = machine.start("--gpu", 0, "--sm", 5)
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    (sample,) = nvml.nvmlDeviceGetProcessUtilization(card, 0)
    assert abs(sample.timeStamp / 1e6 - time.time()) < 60
    machine.gpusim("busy", "--pid", child.pid, "--sm", 0)
    for since in (0, int((time.time() + 3600) * 1e6)):
        with pytest.raises(NvmlError) as failure:
            nvml.nvmlDeviceGetProcessUtilization(card, since)
        assert failure.value.number == NOT_FOUND


def test_a_process_can_use_several_cards(machine):
    child = machine.start("--gpu", "1,3", "--mem", "512M")
    nvml = machine.nvml()
    assert [[process.pid for process in seen(nvml, index)] for index in range(4)] == [[], [child.pid], [], [child.pid]]


def test_size_query(machine):
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.size_query(card, 0) == [0, 0]
    machine.start("--gpu", 0)
    machine.start("--gpu", 0)
    assert nvml.size_query(card, 0) == [INSUFFICIENT_SIZE, 2]
    assert nvml.size_query(card, 1) == [INSUFFICIENT_SIZE, 2]


def test_kinds_have_lists_of_their_own(machine):
    graphics = machine.start("--gpu", 0, "--kind", "G")
    mps = machine.start("--gpu", 0, "--kind", "M")
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    assert seen(nvml) == []
    assert [process.pid for process in nvml.nvmlDeviceGetGraphicsRunningProcesses(card)] == [graphics.pid]
    assert [process.pid for process in nvml.nvmlDeviceGetMPSComputeRunningProcesses(card)] == [mps.pid]


def test_a_process_that_ended_is_gone_even_before_it_is_reaped(machine):
    child = machine.start("--gpu", 0)
    nvml = machine.nvml()
    assert len(seen(nvml)) == 1
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still a zombie
    assert Path(f"/proc/{child.pid}").exists()
    assert seen(nvml) == []
    assert machine.gpusim("status").count("PID") == 0


def test_signal_and_exit_status_are_the_commands_own(machine):
    child = machine.start("--gpu", 0)
    child.terminate()
    assert child.wait(10) == -signal.SIGTERM
    assert machine.start("--gpu", 0, command=("sh", "-c", "sleep 0.3; exit 7")).wait(10) == 7


def test_a_reused_pid_is_not_the_old_process(machine):
    child = machine.start("--gpu", 0)
    (path,) = (machine.state / "procs.d").iterdir()
    path.rename(path.with_name(f"{child.pid}.{int(path.suffix[1:]) - 1}"))
    assert seen(machine.nvml()) == []


def test_load_and_memory_change_while_it_runs(machine):
    child = machine.start("--gpu", 0, "--mem", "2G", "--sm", 80)
    machine.gpusim("busy", "--pid", child.pid, "--sm", 3, "--mem", "4G")
    nvml = machine.nvml()
    assert seen(nvml)[0].usedGpuMemory == 4 * GIB
    assert nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(0)).gpu == 3


def test_load_is_never_above_a_hundred(machine):
    for _ in range(2):
        machine.start("--gpu", 0, "--sm", 70)
    nvml = machine.nvml()
    assert nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(0)).gpu == 100


@pytest.mark.parametrize(
    "content", ["", "nonsense\n", "use card=99 gi=-1 ci=-1 mib=1 sm=1 memory=0 kind=C\n", "\xff" * 4000]
)
def test_a_broken_registration_harms_nobody(machine, content):
    good = machine.start("--gpu", 0)
    stray = machine.state / "procs.d" / f"{os.getpid()}.{processes.start_time(os.getpid())}"
    stray.write_text(content, encoding="latin-1")
    (machine.state / "procs.d" / "README").write_text("not a registration")
    (machine.state / "procs.d" / f"{os.getppid()}.{processes.start_time(os.getppid())}").symlink_to("/etc/passwd")
    assert [process.pid for process in seen(machine.nvml())] == [good.pid]
    assert machine.gpusim("status").count("PID") == 1


def test_others_processes_cannot_be_claimed(machine, other_user):
    mine = machine.start("--gpu", 0)
    (path,) = (machine.state / "procs.d").iterdir()
    os.chown(path, other_user.number, -1)
    assert seen(machine.nvml()) == []
    assert machine.gpusim("status").count("PID") == 0
    assert mine.poll() is None


def test_any_user_may_run_and_is_seen(machine, other_user):
    child = machine.start("--gpu", 1, "--mem", "3G", user=other_user)
    nvml = machine.nvml()
    assert [process.pid for process in seen(nvml, 1)] == [child.pid]
    client = machine.client(user=other_user)
    client.nvmlInit()
    assert [process.pid for process in seen(client, 1)] == [child.pid]


def try_to_run(machine, *arguments, **environment):
    command = [sys.executable, "-m", "gpusim", "run", *map(str, arguments), "--", "true"]
    result = subprocess.run(
        command, env={**machine.environment, **environment}, check=False, capture_output=True, text=True
    )
    return result.returncode, result.stderr


def test_memory_that_is_not_there_is_refused(machine):
    machine.start("--gpu", 0, "--mem", "70G")
    assert try_to_run(machine, "--gpu", 0, "--mem", "9G") == (0, "")
    status, message = try_to_run(machine, "--gpu", 0, "--mem", "20G")
    assert status == 1
    assert "out of memory on card 0: 20480 MiB asked for, 9643 MiB free" in message


def test_the_visible_device_is_used(machine):
    nvml = machine.nvml()
    uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(3))
    child = machine.start(CUDA_VISIBLE_DEVICES="2")
    by_uuid = machine.start(CUDA_VISIBLE_DEVICES=uuid)
    default = machine.start()
    assert [[process.pid for process in seen(nvml, index)] for index in (0, 2, 3)] == [
        [default.pid],
        [child.pid],
        [by_uuid.pid],
    ]


def test_several_visible_devices_up_to_the_first_that_is_none(machine):
    child = machine.start(CUDA_VISIBLE_DEVICES="3,1,9,0")
    nvml = machine.nvml()
    assert [[process.pid for process in seen(nvml, index)] for index in range(4)] == [[], [child.pid], [], [child.pid]]


@pytest.mark.parametrize("visible", ["", "-1", "7", "GPU-none", "MIG-none"])
def test_no_visible_device(machine, visible):
    status, message = try_to_run(machine, CUDA_VISIBLE_DEVICES=visible)
    assert status == 1
    assert "no CUDA-capable device is detected" in message


def test_a_command_that_is_not_there(machine):
    command = [sys.executable, "-m", "gpusim", "run", "--gpu", "0", "--", "/no/such/program"]
    result = subprocess.run(command, env=machine.environment, check=False, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == "gpusim: /no/such/program cannot be started: No such file or directory\n"
    assert list((machine.state / "procs.d").iterdir()) == []


def test_what_ended_is_swept_away(machine):
    machine.start("--gpu", 0, command=("true",)).wait(10)
    assert try_to_run(machine, "--gpu", 0) == (0, "")
    assert len(list((machine.state / "procs.d").iterdir())) == 1  # only that of the last one, not swept yet
