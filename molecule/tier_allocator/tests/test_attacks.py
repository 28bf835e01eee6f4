"""What a member could do to leases from inside; each attack first shows that it got so far."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

AGAIN = Path(__file__).parent.parent / "files" / "again.py"
MANAGER = "org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(30,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


class Typed(Protocol):
    """Runs a command of bob's."""

    def __call__(self, command: str) -> CommandResult:
        """Return exit status and output."""


@pytest.fixture(autouse=True)
def free_cards(host: Host) -> Iterator[None]:
    """End each test with nobody on the cards."""
    yield
    host.run("systemctl kill --signal=KILL 'gpulab-lease-*.scope'; pkill -KILL -f /tmp/again.py")
    for _ in range(100):
        if not json.loads(host.check_output("gpulab leases --json")):
            return
        time.sleep(0.1)
    pytest.fail("a lease is left")


@pytest.fixture(scope="module")
def bob(host: Host) -> Iterator[Typed]:
    """Return a function that types a command as bob, whose own service manager runs and can be asked over D-Bus."""
    number = host.check_output("id -u bob")
    host.run_expect([0], "loginctl enable-linger bob")
    for _ in range(100):
        if host.file(f"/run/user/{number}/bus").exists:
            break
        time.sleep(0.1)
    else:
        pytest.fail("bob's service manager does not come up")

    def run(command: str) -> CommandResult:
        return host.run(f"runuser -u bob -- env XDG_RUNTIME_DIR=/run/user/{number} {command}")

    yield run
    host.run_expect([0], "loginctl disable-linger bob")


def test_asking_again_from_outside_frees_no_card_that_is_in_use(host: Host, bob: Typed) -> None:
    host.run_expect([0], f"cat >/tmp/again.py <<'END'\n{AGAIN.read_text()}END")
    run = bob("python3 /tmp/again.py")
    assert run.rc == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["first"]["verb"] == "lease"
    assert found["out"], "the process did not get out, so this shows nothing"
    # The child still runs in the first lease: that lease stands, and its card goes to nobody else.
    assert found["first"]["id"] in {str(lease["id"]) for lease in found["leases"]}
    assert found["again"]["verb"] == "refused"
    assert found["second"].get("visible") != found["first"]["visible"]


def test_a_program_without_its_first_thread_keeps_its_lease(host: Host, bob: Typed) -> None:
    host.run_expect([0], f"cat >/tmp/headless.py <<'END'\n{HEADLESS}END")
    bob("sh -c 'allocate_gpu -- python3 /tmp/headless.py >/dev/null 2>&1 &'")
    for _ in range(100):
        pids = [lease["pid"] for lease in json.loads(host.check_output("gpulab leases --json"))]
        if pids and host.run(f"cut -d')' -f2 /proc/{pids[0]}/stat").stdout.strip().startswith("Z"):
            break
        time.sleep(0.1)
    else:
        pytest.fail("the first thread does not end")
    assert "bob" in host.check_output("gpu-status")


@pytest.mark.parametrize("unit", ["the lease", "gpulab-lease.slice"])
def test_nobody_joins_the_lease_of_somebody_else(host: Host, bob: Typed, unit: str) -> None:
    host.run_expect([0], "runuser -u carol -- sh -c 'allocate_gpu -- sleep 60 >/dev/null 2>&1 &'")
    for _ in range(100):
        scopes = host.run("systemctl list-units --plain --no-legend 'gpulab-lease-*.scope'").stdout.split()[:1]
        if scopes:
            break
        time.sleep(0.1)
    else:
        pytest.fail("carol gets no lease")
    target = scopes[0] if unit == "the lease" else unit
    run = bob(f"sh -c 'busctl call {MANAGER} AttachProcessesToUnit ssau {target} \"\" 1 $$; echo status=$?'")
    assert "status=1" in run.stdout, run.stderr
    assert "Process migration not available on non-delegated units" in run.stderr
