"""Where the board may be served: the variables of role board, as preflight judges them."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .inputs import parse_switch

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES = ("board_enabled", "board_listen")
"""The variables of role board that preflight judges."""

DEFAULT_LISTEN = "127.0.0.1:8080"

_LISTEN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9.]+):([0-9]{1,5})")
_LAST_PORT = 65535


def check_listen(value: object) -> str:
    """Return an address and port that nginx listens on.

    Who can reach the address can read the page: it has to be this machine's own, or one of a local network.

    Raises:
        InputError: it is something else; with value and remedy.
    """
    remedy = "give a loopback or LAN address of the server and a port, such as 127.0.0.1:8080 or [fd00::7]:8080"
    found = _LISTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 1 <= int(found[2]) <= _LAST_PORT:
        raise InputError(f"board_listen is {value!r}; {remedy}")
    try:
        address = ipaddress.ip_address(found[1].strip("[]"))
    except ValueError:
        raise InputError(f"board_listen is {value!r}, which is no address; {remedy}") from None
    if address.is_unspecified or address.is_multicast or address.is_global:
        raise InputError(f"board_listen is {value!r}, which more than the lab may reach; {remedy}")
    return str(value)


def plan(variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the line of the plan about the board; none when there is none.

    Args:
        variables: those of the inventory that are set.

    Raises:
        InputError: one cannot be understood.
    """
    enabled = parse_switch(variables.get("board_enabled", False), "board_enabled")
    listen = check_listen(variables.get("board_listen", DEFAULT_LISTEN))
    return (f"board: http://{listen}/, for everybody who can reach it",) if enabled else ()
