"""People with real login sessions: they come in over ssh, so that PAM and logind treat them as on a server."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from conftest import Play
    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

REFUSED = "Operation not permitted"
THROUGH = "No such device or address"  # let through by the kernel; no driver is behind the node
SSH = "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ConnectTimeout=10 -o LogLevel=ERROR"


class Session(Protocol):
    """Runs a command line in a fresh login session."""

    def __call__(self, user: str, command: str, options: str = "") -> CommandResult:
        """Return exit status and output; options are ssh's."""


@pytest.fixture(scope="module")
def session(host: Host) -> Session:
    """Return a function that logs in as somebody and types a command."""

    def run(user: str, command: str, options: str = "") -> CommandResult:
        return host.run(f"{SSH} {options} {user}@localhost {shlex.quote(command)}")

    return run


@pytest.fixture(scope="module")
def answer(session: Session) -> Any:
    """Return a function that tells what somebody gets who opens a node in a fresh session."""

    def ask(user: str, node: str = "/dev/nvidia0") -> str:
        return verdict(session(user, f"cat {node}").stderr)

    return ask


def verdict(text: str) -> str:
    """Return REFUSED or THROUGH, whichever a program's complaint ends with, or the complaint itself."""
    return next((word for word in (REFUSED, THROUGH) if text.strip().endswith(word)), text.strip())


class RolePlay(Protocol):
    """Runs the role alone on the machine under test."""

    def __call__(self, tasks: str = "main.yml", *options: str, **variables: Any) -> str:
        """Return all that was said; options are ansible-playbook's."""


@pytest.fixture(scope="module")
def guard(play: Play) -> RolePlay:
    """Return a function that runs the role, or another file of its tasks."""

    def run(tasks: str = "main.yml", *options: str, **variables: Any) -> str:
        return play(*options, tasks=tasks, **variables).said

    return run
