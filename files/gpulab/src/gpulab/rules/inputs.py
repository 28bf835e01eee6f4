"""Values of the inventory that every part reads the same way."""

from __future__ import annotations

from ..errors import InputError

_SWITCH = {"true": True, "yes": True, "false": False, "no": False}


def parse_switch(value: object, name: str) -> bool:
    """Read a switch; one that was given on the command line (-e x=false) arrives as text.

    Args:
        value: as the inventory has it.
        name: of the variable, for the message.

    Raises:
        InputError: it is neither true nor false.
    """
    found = value if isinstance(value, bool) else _SWITCH.get(str(value).lower())
    if found is None:
        raise InputError(f"{name} is {value!r}; give true or false")
    return found
