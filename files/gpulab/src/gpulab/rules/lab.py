"""The lab-wide inputs of the inventory: checked as a whole before anything is changed, and the tier that follows."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from . import mig_bindings
from .bandwidth import VARIABLES as BANDWIDTH_VARIABLES
from .board import VARIABLES as BOARD_VARIABLES
from .datasets import VARIABLES as DATASET_VARIABLES
from .guard import VARIABLES as GUARD_VARIABLES
from .inputs import parse_switch
from .members import Member, parse_members, require_admin
from .mig_layout import parse_layout
from .quota import VARIABLES as QUOTA_VARIABLES
from .windows import DEFAULT_TABLE, parse_windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .windows import Window

TIERS = ("table", "allocator", "slurm")

TABLE_AT_MOST = 4
ALLOCATOR_AT_MOST = 10
LARGEST_GROUP = 10_000

VARIABLES = (
    "group_size",
    "gpu_tier",
    "gpu_windows",
    "lab_admin",
    "lab_language",
    "lab_mail",
    "lab_members",
    "lab_name",
    "mig_label",
    "mig_layout",
    "mig_spread",
)
"""Every lab-wide variable; anything else that begins like one is a typing error."""

LANGUAGES = ("en", "zh")
_MAIL_KEYS = ("smarthost", "port", "user", "domain", "password")
_LAST_PORT = 65535
_NAME_LIMIT = 60


@dataclass(frozen=True)
class Lab:
    """What the inventory asks for.

    Attributes:
        group_size: how many people the rules are made for.
        tier: `table`, `allocator` or `slurm`.
        tier_reason: why this tier, in words.
        admin: account name of the person in charge.
        members: everybody in the list, leavers included.
        windows: the golden hours.
    """

    group_size: int
    tier: str
    tier_reason: str
    admin: str
    members: tuple[Member, ...]
    windows: tuple[Window, ...]


def tier_for(group_size: int) -> str:
    """Return the lightest tier that works for a group of this size (mission: 1-4, 5-10, 11 and more)."""
    if group_size <= TABLE_AT_MOST:
        return "table"
    return "allocator" if group_size <= ALLOCATOR_AT_MOST else "slurm"


def parse_lab(raw: Mapping[str, Any], *, defined: Iterable[str]) -> Lab:
    """Check and read the lab-wide inputs.

    Args:
        raw: variable name to value; a name that is absent was not given.
        defined: names of all variables of the inventory that look like lab-wide ones (`lab_*`, `gpu_*`, `group_size*`,
            `mig_l*`, `mig_s*`), and some of other roles (`board_*`, `bandwidth_*`, `disk_quota_*`, `datasets_*`).

    Raises:
        InputError: naming the variable, its value and the remedy.
    """
    known = (*VARIABLES, *BOARD_VARIABLES, *GUARD_VARIABLES, *QUOTA_VARIABLES, *DATASET_VARIABLES, *BANDWIDTH_VARIABLES)
    for name in sorted(defined):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"gpulab knows {', '.join(VARIABLES)}"
            raise InputError(f"{name} is not a variable of gpulab; {remedy}")
    members = parse_members(raw.get("lab_members", ()))
    present = sum(member.present for member in members)
    admin = _text(raw, "lab_admin", "name the account of the person in charge, such as lab_admin: alice")
    require_admin(members, admin)
    if "lab_name" in raw:
        name = _text(raw, "lab_name", "give the lab's name")
        if len(name) > _NAME_LIMIT or not name.isprintable():
            raise InputError(f"lab_name is {name[:_NAME_LIMIT]!r}; give one line of at most {_NAME_LIMIT} characters")
    _choice(raw, "lab_language", LANGUAGES)
    _check_mail(raw.get("lab_mail", {}))
    _check_bindings(raw, members)
    windows = parse_windows(raw.get("gpu_windows", DEFAULT_TABLE))
    size = _group_size(raw["group_size"]) if "group_size" in raw else present
    tier, reason = _tier(raw, size, explicit="group_size" in raw)
    return Lab(group_size=size, tier=tier, tier_reason=reason, admin=admin, members=members, windows=windows)


def _tier(raw: Mapping[str, Any], size: int, *, explicit: bool) -> tuple[str, str]:
    asked = _choice(raw, "gpu_tier", ("auto", *TIERS))
    origin = f"group_size is {size}" if explicit else f"{size} present members"
    return (tier_for(size), origin) if asked in {"", "auto"} else (asked, f"gpu_tier is {asked}")


def _group_size(value: object) -> int:
    # A number given on the command line (-e group_size=7) arrives as text.
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if type(number) is not int or not 1 <= number <= LARGEST_GROUP:
        raise InputError(f"group_size is {value!r}; give a whole number from 1 to {LARGEST_GROUP}")
    return number


def _choice(raw: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    if name not in raw:
        return ""
    if raw[name] not in choices:
        raise InputError(f"{name} is {raw[name]!r}; give one of {', '.join(choices)}")
    return str(raw[name])


def _text(raw: Mapping[str, Any], name: str, remedy: str) -> str:
    value = raw.get(name, "")
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{name} is {value!r}; {remedy}" if name in raw else f"{name} is not set; {remedy}")
    return value


def _check_bindings(raw: Mapping[str, Any], members: Iterable[Member]) -> None:
    """Refuse members' MIG instances that the layout does not make, as far as the inventory alone can tell."""
    spread = parse_switch(raw.get("mig_spread", False), "mig_spread")
    asked = {member.name: member.gpu for member in members if member.present}
    wishes = mig_bindings.parse_wishes(asked, spread=spread)
    if not wishes:
        return  # then the layout is the business of role mig alone
    label = raw.get("mig_label", "")
    counts = mig_bindings.counts_of(parse_layout(raw.get("mig_layout"), label=str(label or "")))
    if counts is not None:  # else role mig knows, once it has seen the cards
        mig_bindings.check(wishes, counts)


def _check_mail(mail: object) -> None:
    if not isinstance(mail, dict):
        raise InputError(
            f"lab_mail is {mail!r}; give keys and values, such as lab_mail: {{smarthost: mail.example.org}}"
        )
    for key, value in mail.items():
        if key not in _MAIL_KEYS:
            raise InputError(f"lab_mail.{key} is not known; expected one of {', '.join(_MAIL_KEYS)}")
        if key == "port":
            if not str(value).isdigit() or not 1 <= int(value) <= _LAST_PORT:
                raise InputError(f"lab_mail.port is {value!r}; give a TCP port, such as 587")
        elif not isinstance(value, str) or not value.isprintable():
            # The password is not here: role runtime handles it out of sight.
            raise InputError(f"lab_mail.{key} is {value!r}; give one line of text, in quotes")
        elif key in {"smarthost", "domain"} and (set(value) & set(" |:/@#") or value.startswith("-")):
            raise InputError(f"lab_mail.{key} is {value!r}; give a host name, such as mail.example.org")
