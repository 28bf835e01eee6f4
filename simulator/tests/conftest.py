"""A simulated machine for each test: its own state, the library built once."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import pickle
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

SIMULATOR = Path(__file__).parent.parent
sys.path[:0] = [str(SIMULATOR), str(Path(__file__).parent)]

from gpusim.main import main  # noqa: E402 - found through the path set above

WORKER = Path(__file__).parent / "nvml_worker.py"
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"


class NvmlError(Exception):
    """A call of the library failed; `number` is its nvmlReturn_t."""

    def __init__(self, number):
        super().__init__(f"nvmlReturn_t {number}")
        self.number = number


def answer_unless(number, call, *arguments):
    """Return what the call answers, None when it fails with this number; another failure is one of the test."""
    try:
        return call(*arguments)
    except NvmlError as error:
        if error.number != number:
            raise
        return None


class Nvml:
    """The library as a client process sees it: call any function of nvidia-ml-py, or one of nvml_worker."""

    def __init__(self, environment, python=sys.executable, folder=WORKER.parent, user=None):
        self.process = subprocess.Popen(
            [python, folder / WORKER.name], env=environment, user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __getattr__(self, name):
        def call(*arguments):
            pickle.dump((name, arguments), self.process.stdin)
            self.process.stdin.flush()
            status, value = pickle.load(self.process.stdout)
            if status == "error":
                raise NvmlError(value)
            return value

        return call

    def close(self):
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        return self.process.wait(10)


def preload():
    """Return what a program needs in its environment when the library was built with sanitizers."""
    if not os.environ.get("GPUSIM_SANITIZE"):
        return {}
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    # Python itself never frees everything, so leaks are not looked for.
    return {"LD_PRELOAD": library.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}


class Machine:
    """One simulated machine."""

    def __init__(self, folder, build, shared):
        self.folder = folder
        self.build = build
        self.shared = shared
        self.environment = {
            **{key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"},
            "GPUSIM_STATE": str(folder / "state"),
            "GPUSIM_CONF": str(folder / "gpusim.conf"),
            "GPUSIM_INFOROM": str(folder / "inforom" / "modes"),
            "LD_LIBRARY_PATH": str(build),
            "PYTHONPATH": str(SIMULATOR),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.children = []
        self.clients = []

    @property
    def state(self):
        return Path(self.environment["GPUSIM_STATE"])

    def gpusim(self, *arguments):
        """Run a command of gpusim in this process; an error fails the test."""
        result = self.try_gpusim(*arguments)
        assert result.status == 0, result.err
        return result.out

    def try_gpusim(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                status = main([str(argument) for argument in arguments])
            except SystemExit as ended:  # argparse
                status = ended.code
        return SimpleNamespace(status=status, out=out.getvalue(), err=err.getvalue())

    def start(self, *arguments, command=("sleep", "60"), user=None, **environment):
        """Start a process that uses a card; it is registered when this returns."""
        program = [sys.executable, "-m", "gpusim"] if user is None else [user.python, self.build / "gpusim"]
        child = subprocess.Popen(
            [*program, "run", *map(str, arguments), "--", *command],
            env={**self.environment, **environment},
            user=user and user.number,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        deadline = time.monotonic() + 10
        while not list((self.state / "procs.d").glob(f"{child.pid}.*")):
            assert child.poll() is None, child.stderr.read()
            assert time.monotonic() < deadline, "the process was not registered"
            time.sleep(0.01)
        return child

    def nvml(self):
        """Return a client of the library that has called nvmlInit; all tests share its process."""
        self.shared.use_machine(str(self.state))
        self.shared.nvmlInit()
        return self.shared

    def client(self, user=None, **environment):
        """Return a client with a process of its own, not yet initialised."""
        environment = {**self.environment, **preload(), **environment}
        if user is None:
            client = Nvml(environment)
        else:
            client = Nvml({**environment, "PYTHONPATH": str(self.build)}, user.python, self.build, user.number)
        self.clients.append(client)
        return client

    def close(self):
        for child in self.children:
            child.kill()
            child.wait()
            child.stdout.close()
            child.stderr.close()
        return [client.close() for client in self.clients]


@pytest.fixture(scope="session")
def build():
    """Folder with libnvidia-ml.so.1 and gpusim, readable by other users too."""
    missing = [program for program in ("gcc", "make", "nm") if not shutil.which(program)]
    if missing:
        pytest.skip(f"the simulator is built with {', '.join(missing)}, which this machine lacks")
    sanitize = SANITIZE if os.environ.get("GPUSIM_SANITIZE") else ""
    with tempfile.TemporaryDirectory(prefix="gpusim-build-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        settings = [f"BUILD={folder}", f"PYTHON={sys.executable}", f"SANITIZE={sanitize}"]
        result = subprocess.run(
            ["make", "-j2", "-C", str(SIMULATOR), *settings], check=False, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
        yield folder


@pytest.fixture(scope="session")
def shared_client(build):
    """A client process that serves one machine after the other: starting one takes longer than most tests."""
    client = Nvml({**os.environ, **preload(), "LD_LIBRARY_PATH": str(build)})
    yield client
    assert client.close() == 0


@pytest.fixture
def bare_machine(build, shared_client):
    """A machine without cards: gpusim init was not called."""
    folder = Path(tempfile.mkdtemp(prefix="gpusim-test-"))
    folder.chmod(0o755)
    machine = Machine(folder, build, shared_client)
    yield machine
    statuses = machine.close()
    shutil.rmtree(folder)
    # A client that a sanitizer ended, or that crashed, fails the test that used it.
    assert all(status == 0 for status in statuses)


@pytest.fixture
def machine(bare_machine):
    """A machine with four A100 80GB."""
    bare_machine.gpusim("init", "--cards", "a100-sxm4-80gb:4")
    return bare_machine


@dataclass(frozen=True)
class User:
    """An ordinary user and a Python that he can start."""

    number: int
    python: str


@pytest.fixture(scope="session")
def other_user(build):
    """An ordinary user for whom worker and nvidia-ml-py lie beside the library."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process as another user")
    nobody = pwd.getpwnam("nobody").pw_uid
    specification = importlib.util.find_spec("pynvml")
    for source in (WORKER, Path(specification.origin)):
        shutil.copy(source, build)
        (build / source.name).chmod(0o644)
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", "pass"], check=False, user=nobody, env={}, cwd="/").returncode == 0:
                return User(nobody, python)
    pytest.skip("user nobody can start no Python of this machine")
