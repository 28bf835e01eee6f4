"""Whether a machine can become a gpulab server, judged from Ansible's facts about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

TESTED = ("Debian 12", "Debian 13")
EXPECTED_TO_WORK = ("Ubuntu 22.04", "Ubuntu 24.04")
"""Same package names; not part of our tests (their archive cannot be reached from them)."""

_OLDEST_PYTHON = (3, 10)


@dataclass(frozen=True)
class Server:
    """What counts about a machine.

    Attributes:
        system: distribution and version, such as `Debian 13`.
        service_manager: `systemd` is the one that works.
        uid: effective user id of the connection, 0 for root.
        python: version of the Python that runs modules.
    """

    system: str
    service_manager: str
    uid: int
    python: tuple[int, int]


def parse_server(facts: Mapping[str, Any]) -> Server:
    """Read Ansible's facts (setup module, subsets distribution, service_mgr, python, user)."""
    distribution = str(facts.get("distribution", "unknown"))
    version = facts.get("distribution_version" if distribution == "Ubuntu" else "distribution_major_version", "")
    python = facts.get("python", {}).get("version", {})
    return Server(
        system=f"{distribution} {version}".strip(),
        service_manager=str(facts.get("service_mgr", "unknown")),
        uid=int(facts.get("effective_user_id", -1)),
        python=(int(python.get("major", 0)), int(python.get("minor", 0))),
    )


def judge(server: Server) -> tuple[str, ...]:
    """Return warnings about a machine that can be used.

    Raises:
        InputError: it cannot be used; the message says what to do.
    """
    if server.uid != 0:
        raise InputError(
            f"connected with user id {server.uid}, but the roles need root; "
            "connect as root, or set ansible_become: true in the inventory"
        )
    if server.system not in TESTED + EXPECTED_TO_WORK:
        known = ", ".join(TESTED + EXPECTED_TO_WORK)
        raise InputError(f"the server runs {server.system}; gpulab knows {known}")
    if server.service_manager != "systemd":
        raise InputError(f"the server's service manager is {server.service_manager}; gpulab needs systemd")
    if server.python < _OLDEST_PYTHON:
        found = ".".join(map(str, server.python))
        raise InputError(f"Python on the server is {found}; gpulab needs 3.10 or newer")
    if server.system in EXPECTED_TO_WORK:
        return (f"{server.system} should work but is not tested; Debian 12 and 13 are",)
    return ()
