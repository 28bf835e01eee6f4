"""A simulated server for tests of MIG: its state is looked at in the simulator's own file, not through our code."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
WRITES = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstance",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
)


class Worker:
    """The process behind mig_worker.py, started once for all tests."""

    def __init__(self, build):
        self.build = build
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(build),
            "PYTHONPATH": str(REPOSITORY / "simulator"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("mig_worker.py")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request):
        self.process.stdin.write(f"{json.dumps(request)}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "crash" not in answer, answer["crash"]
        return answer

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(10) == 0
        self.process.stdout.close()


class Machine:
    """One simulated server with its own state and root folder."""

    def __init__(self, worker, folder):
        self.worker = worker
        self.root = folder / "root"
        self.environment = {"GPUSIM_STATE": str(folder / "state"), "GPUSIM_INFOROM": str(folder / "inforom")}
        self.trace = folder / "trace"
        self.children = []

    def ask(self, action, arguments, **environment):
        return self.worker.ask(
            action=action, root=str(self.root), arguments=arguments, environment={**self.environment, **environment}
        )

    def gpusim(self, *arguments):
        answer = self.ask("gpusim", [str(argument) for argument in arguments])
        assert answer.get("answer") == 0, answer

    def apply(self, layout, *, label="", record=False, lenient=False, **environment):
        arguments = {"layout": layout, "label": label, "record": record, "lenient": lenient}
        return self.ask("apply", arguments, **environment)

    def bind(self, layout, bindings, *, action="apply", spread=False, **environment):
        """Apply a layout and bind members to its instances, as module mig_layout does; or plan it."""
        arguments = {"layout": layout, "record": True, "bindings": bindings, "spread": spread}
        return self.ask(action, arguments, **environment)

    def must_apply(self, layout):
        """Apply and return what happened to each card."""
        answer = self.apply(layout)
        assert not [card for card in answer["answer"]["cards"] if card["result"] in {"refused", "failed"}], answer
        return [card["result"] for card in answer["answer"]["cards"]]

    def plan(self, layout, *, label="", record=False):
        return self.ask("plan", {"layout": layout, "label": label, "record": record})

    @property
    def _state(self):
        return Path(self.environment["GPUSIM_STATE"]) / "state"

    def snapshot(self):
        return self._state.read_bytes()

    def journal(self):
        """Return what the journal of changes holds; None when there is none."""
        path = self.root / "var/lib/gpulab/mig/unfinished.json"
        return json.loads(path.read_text()) if path.exists() else None

    def restore(self, snapshot):
        other = self._state.with_name("snapshot")
        other.write_bytes(snapshot)
        other.rename(self._state)

    def _records(self):
        for line in self._state.read_text().splitlines():
            kind, *fields = line.split()
            yield kind, {key: urllib.parse.unquote(value) for key, value in (field.split("=", 1) for field in fields)}

    def layout(self, card=0):
        """Return mode, pending mode, and each instance as (profile id, start, ((compute profile, start), ...))."""
        records = list(self._records())
        (mode,) = ((each["mig"], each["mig_pending"]) for kind, each in records if kind == "card" and _is(each, card))
        computes = [each for kind, each in records if kind == "ci" and int(each["card"]) == card]
        instances = [each for kind, each in records if kind == "gi" and int(each["card"]) == card]
        return (
            *(value == "1" for value in mode),
            tuple(
                sorted(
                    (
                        int(gi["profile"]),
                        int(gi["start"]),
                        tuple(
                            sorted((int(ci["profile"]), int(ci["start"])) for ci in computes if ci["gi"] == gi["id"])
                        ),
                    )
                    for gi in instances
                )
            ),
        )

    def uuids(self, card=0):
        """Return the UUIDs of a card's MIG devices by GPU instance id."""
        return {
            each["gi"]: each["uuid"] for kind, each in self._records() if kind == "ci" and int(each["card"]) == card
        }

    def calls(self, act):
        """Return the names of the NVML calls that something makes."""
        self.trace.unlink(missing_ok=True)
        act(GPUSIM_TRACE=str(self.trace))
        return [line.split()[1] for line in self.trace.read_text().splitlines()] if self.trace.exists() else []

    def start(self, *arguments):
        """Start a process that uses a card; it has begun to when this returns."""
        command = [self.worker.build / "gpusim", "run", *arguments, "--", "sh", "-c", "echo ready; exec sleep 60"]
        environment = {**os.environ, **self.environment}
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        assert child.stdout.readline() == "ready\n"
        return child

    def stop(self, child):
        child.send_signal(signal.SIGKILL)
        child.communicate()
        self.children.remove(child)

    def close(self):
        for child in list(self.children):
            with contextlib.suppress(ProcessLookupError):
                self.stop(child)


def _is(record, card):
    return int(record["index"]) == card


def names(machine, card=0):
    """Return the profiles of a card's instances; ids of the seven-slice family."""
    known = {19: "1g", 20: "1g+me", 15: "1g2m", 14: "2g", 9: "3g", 5: "4g", 0: "7g"}
    return sorted(known[profile] for profile, _, _ in machine.layout(card)[2])


def noted(machine):
    document = json.loads((machine.root / "etc/gpulab/mig.json").read_text())
    assert document["version"] == "v1"
    return {entry["devices"][0]: entry.get("mig-devices", "off") for entry in document["mig-configs"]["gpulab"]}


def writes(calls):
    return [call for call in calls if call.startswith(WRITES)]


@functools.cache
def built():
    """Build the simulator once for all tests of this run; return its folder."""
    folder = Path(tempfile.mkdtemp(prefix="gpulab-mig-build-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    arguments = [f"BUILD={folder}", f"PYTHON={sys.executable}", "CFLAGS=-O0", "all"]
    done = subprocess.run(
        ["make", "--silent", "-C", REPOSITORY / "simulator", *arguments], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@functools.cache
def _worker():
    worker = Worker(built())
    atexit.register(worker.close)
    return worker


@pytest.fixture
def bare():
    """A simulated server without cards."""
    if not (shutil.which("gcc") and shutil.which("make")):
        pytest.skip("the simulator is compiled with gcc and make")
    # In memory where possible: a change of layout writes to disk and waits for it, thousands of times in these tests.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="gpulab-mig-", dir=memory))
    machine = Machine(_worker(), folder)
    yield machine
    machine.close()
    shutil.rmtree(folder)
