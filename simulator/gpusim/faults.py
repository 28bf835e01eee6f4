"""What real servers suffer, injected: lost cards, a mismatched driver, calls that fail."""

from __future__ import annotations

from . import catalogue
from .errors import GpusimError
from .records import Machine, Record

ANY_CARD = "*"
ANY_CALL = "*"
_MOST_FAULTS = 48  # nvml/state.h has room for these and for each card being lost

# nvmlReturn_t of nvml.h, by the words used on the command line
ERRORS = {
    "invalid-argument": 2,
    "not-supported": 3,
    "no-permission": 4,
    "not-found": 6,
    "insufficient-size": 7,
    "driver-not-loaded": 9,
    "timeout": 10,
    "function-not-found": 13,
    "corrupted-inforom": 14,
    "gpu-is-lost": 15,
    "reset-required": 16,
    "operating-system": 17,
    "lib-rm-version-mismatch": 18,
    "in-use": 19,
    "memory": 20,
    "no-data": 21,
    "insufficient-resources": 23,
    "not-ready": 27,
    "gpu-not-found": 28,
    "unknown": 999,
}


def lose(machine: Machine, card: int) -> None:
    """Let a card fall off the bus: every call about it answers "GPU is lost" until the next reboot."""
    machine.card(int(card))
    machine.remove("fault", call=ANY_CALL, card=card)
    machine.records.append(Record("fault", call=ANY_CALL, card=card, error=ERRORS["gpu-is-lost"]))


def fail_call(machine: Machine, call: str, card: str, error: str) -> None:
    """Let one NVML call fail, on one card or, with ANY_CARD, on all.

    Args:
        machine: the machine to change.
        call: name of the call as the client makes it, `nvmlDeviceGetMemoryInfo_v2`, or the beginning of several names
            and an asterisk, `nvmlDeviceGetMemoryInfo*`.
        card: index of the card or ANY_CARD.
        error: a word of ERRORS.

    Raises:
        GpusimError: the call or the card does not exist.
    """
    known = catalogue.symbols()
    call = known.get(call, call)
    stem = call.removesuffix("*")
    if call not in known and not (stem != call and any(name.startswith(stem) for name in known.values())):
        raise GpusimError(f'"{call}" is not an NVML call; write for instance --call nvmlDeviceGetMemoryInfo_v2')
    if card != ANY_CARD:
        machine.card(int(card))
    machine.remove("fault", call=call, card=card)
    if len(list(machine.all("fault"))) >= _MOST_FAULTS:
        raise GpusimError(f"there are {_MOST_FAULTS} injected faults already; heal some with: gpusim fail --clear")
    machine.records.append(Record("fault", call=call, card=card, error=ERRORS[error]))


def mismatch(machine: Machine, library: str) -> None:
    """Let the library be of another version than the loaded kernel module, as after an upgrade without a reboot."""
    if library == machine.driver["version"]:
        raise GpusimError(f"the loaded kernel module is of version {library} too; name another one")
    machine.driver["library"] = library


def unload(machine: Machine) -> None:
    """Let the kernel module not be loaded."""
    machine.driver["loaded"] = "0"


def clear(machine: Machine) -> None:
    """Heal everything."""
    machine.remove("fault")
    machine.driver["loaded"] = "1"
    machine.driver["library"] = machine.driver["version"]
