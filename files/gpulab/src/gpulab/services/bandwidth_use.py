"""Who uses the network line: the counters that the kernel keeps for each member."""

from __future__ import annotations

import json
import pwd
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..rules.bandwidth import TABLE

if TYPE_CHECKING:
    from .bandwidth import World

OTHERS = "(root, services)"
_WAYS = {"used_up": 0, "used_down": 1}


@dataclass(frozen=True)
class Use:
    """What one account moved.

    Attributes:
        user: account name; the uid as text when no account has it; OTHERS for what is nobody's.
        up: bytes from this server since shaping began.
        down: bytes to this server since then.
        up_rate: bits per second at this moment.
        down_rate: likewise, to this server.
    """

    user: str
    up: int
    down: int
    up_rate: float
    down_rate: float


def read(world: World) -> dict[int, tuple[int, int]]:
    """Return bytes up and down by uid.

    Raises:
        GpulabError: nft does not answer, or there is no shaping.
    """
    listing = json.loads(world.say("nft", "--json", "list", "table", "inet", TABLE))
    found: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for item in listing.get("nftables", ()):
        way = _WAYS.get(item.get("set", {}).get("name", ""))
        if way is None:
            continue
        for entry in item["set"].get("elem", ()):
            element = entry["elem"]
            found[int(element["val"])][way] = int(element["counter"]["bytes"])
    return {uid: (up, down) for uid, (up, down) in found.items()}


def uses(before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]], seconds: float) -> list[Use]:
    """Compare two readings.

    Args:
        before: from `read`.
        after: likewise, later.
        seconds: time between them.

    Returns:
        One entry for each account, those who move most now first.
    """
    found = []
    for uid, (up, down) in after.items():
        up_before, down_before = before.get(uid, (0, 0))
        rates = [8 * max(0, now - then) / seconds for now, then in ((up, up_before), (down, down_before))]
        found.append(Use(_name(uid), up, down, *rates))
    return sorted(found, key=lambda use: (-use.up_rate - use.down_rate, -use.up - use.down, use.user))


def _name(uid: int) -> str:
    if uid == 0:
        return OTHERS
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
