"""Fixtures of the tests on a machine with a kernel of its own."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Person
    from testinfra.host import Host


@pytest.fixture(scope="module")
def rebooted(host: Host) -> bool:
    """Tell whether this is the second time that the tests run."""
    return host.file("/root/rebooted").exists


@pytest.fixture
def _once(rebooted: bool) -> None:
    """For what no reboot can change: every second here costs ten elsewhere."""
    if rebooted:
        pytest.skip("seen before the reboot")


@pytest.fixture(scope="module")
def session(host: Host) -> Person:
    """Return a function that types a command as a member in a session of its own.

    `runuser` would stay in the session that it was called from, with the limits of that one; this is what a login does:
    pam_systemd(8) begins a session below the member's slice.
    """

    def run(user: str, command: str):
        options = (
            f"--quiet --collect --wait --pipe --property=PAMName=login --uid={user} --working-directory=/home/{user}"
        )
        return host.run(f"printf %s {shlex.quote(command)} | systemd-run {options} bash --login")

    return run
