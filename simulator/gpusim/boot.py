"""What outlives a reboot: the list of cards in /etc/gpusim.conf and the cards' own InfoROM.

`gpusim init --persist` writes the first, the library writes the second when a card's MIG mode changes, and
`gpusim boot` (gpusim-boot.service) makes the machine from both.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from . import store
from .errors import GpusimError
from .hardware import Plan

_CONFIGURATION = "/etc/gpusim.conf"
_INFOROM = "/var/lib/gpusim/inforom"


def _configuration() -> Path:
    return Path(os.environ.get("GPUSIM_CONF") or _CONFIGURATION)


def inforom() -> str:
    """Return the file of what cards remember without power; GPUSIM_INFOROM names another one for tests."""
    return os.environ.get("GPUSIM_INFOROM") or _INFOROM


def save(plan: Plan) -> None:
    """Note down how the machine is made.

    Raises:
        GpusimError: the files cannot be written by this user.
    """
    try:
        Path(plan.inforom).parent.mkdir(parents=True, exist_ok=True)
        Path(plan.inforom).unlink(missing_ok=True)
    except PermissionError as error:
        raise GpusimError(f"{plan.inforom} cannot be made; run it as root, or leave --persist out") from error
    store.replace(_configuration(), json.dumps(asdict(plan), indent=2) + "\n")


def load() -> Plan:
    """Return how the machine is made.

    Raises:
        GpusimError: nothing usable was noted down.
    """
    path = _configuration()
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Plan(**{**fields, "models": tuple(fields["models"]), "minors": tuple(fields["minors"])})
    except FileNotFoundError:
        raise GpusimError(f"{path} is not there; write it with: gpusim init --persist --cards ...") from None
    except (ValueError, TypeError, KeyError) as error:
        raise GpusimError(f"{path} cannot be used ({error}); write it again with: gpusim init --persist ...") from error
