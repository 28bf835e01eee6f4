"""Fixtures of all scenarios: the machines under test, and people who type commands on them."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import testinfra

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from testinfra.backend.base import CommandResult
    from testinfra.host import Host


_FACTS = ["!all", "!min", "distribution", "service_mgr", "python", "user", "platform", "pkg_mgr"]
"""What playbooks/site.yml gathers."""


@functools.cache
def _inventory() -> dict[str, dict[str, Any]]:
    """Return host variables by host name, as Ansible itself reads the inventory."""
    command = ["ansible-inventory", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], "--list"]
    listing = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    hosts = listing["gpu_servers"]["hosts"]
    return {name: listing["_meta"]["hostvars"].get(name, {}) for name in hosts}


def _connect(name: str) -> Host:
    """Reach a machine: by podman, by ssh over one connection, or through Ansible (a process for each command)."""
    variables = _inventory()[name]
    address, options = (
        str(variables.get(key, "")).replace("{{ inventory_hostname }}", name)
        for key in ("ansible_host", "ansible_ssh_common_args")
    )
    if variables.get("ansible_connection") == "containers.podman.podman":
        return testinfra.get_host(f"podman://{address}")
    if variables.get("ansible_connection") == "ssh" and options.startswith("-F "):
        return testinfra.get_host(f"ssh://{address}?ssh_config={options.removeprefix('-F ')}&timeout=60")
    return testinfra.get_host(f"ansible://{name}", ansible_inventory=os.environ["MOLECULE_INVENTORY_FILE"])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that asks for a host on every machine of the scenario, or on those its module names in MACHINES."""
    if "host" in metafunc.fixturenames:
        machines = getattr(metafunc.module, "MACHINES", None) or sorted(_inventory())
        metafunc.parametrize("host", machines, indirect=True, scope="module")


@pytest.fixture(scope="module")
def host(request: pytest.FixtureRequest) -> Host:
    """Return the machine under test."""
    return _connect(request.param)


class Person(Protocol):
    """Runs a command line in a fresh login session of a member."""

    def __call__(self, user: str, command: str) -> CommandResult:
        """Return exit status and output of the command."""


@pytest.fixture(scope="module")
def as_member(host: Host) -> Person:
    """Return a function that types a command as a member, in a login shell; one that hangs ends after ten minutes."""

    def run(user: str, command: str) -> CommandResult:
        return host.run(f"timeout --foreground 600 runuser -l {user} -c {shlex.quote(command)}")

    return run


@dataclass(frozen=True)
class Played:
    """What a run of a playbook came to."""

    returncode: int
    """Exit status of ansible-playbook."""

    stdout: str
    """All that it printed, on either stream: under Molecule the message of a failed task goes to standard error."""

    @property
    def said(self) -> str:
        """All that it printed, with long lines put together again."""
        return " ".join(self.stdout.split())


class Play(Protocol):
    """Runs a playbook again on the machine under test, as an admin with a changed inventory would."""

    def __call__(self, *options: str, playbook: str = "converge.yml", tasks: str = "", **variables: Any) -> Played:
        """Return exit status and output.

        Options are ansible-playbook's; the playbook is one of the scenario's; with tasks, a file of tasks of the role
        that the scenario is named after is run alone instead.
        """


@pytest.fixture(scope="module")
def play(request: pytest.FixtureRequest, host: Host, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Return a function that runs the scenario's own converge.yml, or another, on the machine under test."""
    name = next(name for name in _inventory() if host.backend.hostname.endswith(name))
    inventory = os.environ["MOLECULE_INVENTORY_FILE"]
    scenario = request.path.parent.parent
    alone = tmp_path_factory.mktemp("play") / "alone.yml"

    def run(*options: str, playbook: str = "converge.yml", tasks: str = "", **variables: Any) -> Played:
        path = scenario / playbook
        if tasks:
            path = alone
            include = {"ansible.builtin.include_role": {"name": scenario.name, "tasks_from": tasks}}
            path.write_text(json.dumps([{"hosts": "gpu_servers", "gather_subset": _FACTS, "tasks": [include]}]))
        command = ["ansible-playbook", "-i", inventory, "-l", name, "-e", json.dumps(variables), *options, str(path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return Played(done.returncode, done.stdout)

    return run


@pytest.fixture(scope="module")
def still_cron(host: Host) -> Generator[None]:
    """Hold cron, for tests that do themselves what its lines do: at some minute it would have been first.

    It is stopped as a process, not as a service: a playbook that is run meanwhile finds nothing to change.
    """
    host.run_expect([0], "systemctl kill --signal=STOP cron.service")
    yield
    host.run_expect([0], "systemctl kill --signal=CONT cron.service")


@pytest.fixture(scope="module")
def lose(host: Host, play: Play) -> Callable[[str], None]:
    """Return a function that loses the machine for good; a bare one takes its name, with what a playbook gives it."""

    def run(prepare: str) -> None:
        name = host.backend.name
        image = name.rpartition("-")[2]
        top = os.environ["MOLECULE_PROJECT_DIRECTORY"]
        subprocess.run(["podman", "rm", "--force", "--time", "0", name], check=True, capture_output=True)
        subprocess.run([f"{top}/scripts/machine", name, image, image], check=True, capture_output=True)
        prepared = play(playbook=prepare)
        if prepared.returncode:
            pytest.fail(prepared.stdout)

    return run


class Acceptance(Protocol):
    """Asks the machine under test what `make accept` asks a live server."""

    def __call__(self) -> dict[str, str]:
        """Return what each promise came to, by its number and words."""


@pytest.fixture(scope="module")
def acceptance(host: Host) -> Acceptance:
    """Return a function that runs scripts/accept."""
    top = os.environ["MOLECULE_PROJECT_DIRECTORY"]
    target = f"podman://{host.backend.name}"

    def run() -> dict[str, str]:
        command = [f"{top}/scripts/accept", os.environ["MOLECULE_INVENTORY_FILE"], "--hosts", target]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if re.match(r" +S\d+  ", line)]
        if not lines:
            pytest.fail(done.stdout)
        return {f"{number} {words[:34].strip()}": words[34:].strip() for number, words in lines}

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the machine's journal beside a failed test."""
    report = yield
    machine = getattr(item, "funcargs", {}).get("host")
    if report.when == "call" and report.failed and machine is not None:
        journal = machine.run("journalctl --no-pager --lines=40")
        report.sections.append((f"journal of {machine.backend.hostname}", journal.stdout))
    return report
