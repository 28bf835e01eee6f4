"""The share of the network line that everybody has: the wish, judged, and what nft(8), ip(8) and tc(8) are given.

Upward one HTB class holds the rate and fq_codel below it serves members in turn. Downward the same hangs on an ifb(4)
device that the traffic is led through. Whose a packet is stands in the mark of its connection, which is the uid.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .inputs import parse_switch

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = "gpulab_net"
IFB = "ifb-gpulab"
"""Device that the traffic from outside is led through; names have 15 characters at most (IFNAMSIZ)."""

QUEUES = 4096
"""Queues for members: uids that follow each other never share one. Root and services have the one of uid 0."""

_UID_BITS = 24
_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(kbit|mbit|gbit)", re.IGNORECASE)
_LEAST, _MOST = 10**6, 400 * 10**9
_BURST_FLOOR = 128 * 1024
"""One packet of 64 KiB, as network cards take them (GSO), with the headers of its parts; less costs a whole core."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_rate(text: object, name: str) -> int:
    """Read a rate such as `500mbit`.

    Args:
        text: as the inventory has it.
        name: of the variable, for the message.

    Returns:
        Bits per second.

    Raises:
        InputError: it is no rate, or one that nobody could work with.
    """
    found = _RATE.fullmatch(str(text).strip())
    if found is None:
        raise InputError(f'{name} is "{text}"; give a number with a unit, such as 500mbit')
    bits = int(float(found[1]) * _UNITS[found[2].lower()])
    if not _LEAST <= bits <= _MOST:
        raise InputError(f'{name} is "{text}"; give 1mbit to 400gbit, or bandwidth_enabled: false for no shaping')
    return bits


def parse_networks(texts: list[str], name: str) -> tuple[Network, ...]:
    """Read networks such as `10.0.0.0/8`, those that overlap put together.

    Raises:
        InputError: an entry is no network, or is all there are.
    """
    found: list[Network] = []
    for text in texts:
        try:
            network = ipaddress.ip_network(text)
        except ValueError as error:
            raise InputError(f'{name} has "{text}", which is no network ({error}); write 10.0.0.0/8') from error
        if network.prefixlen == 0:
            raise InputError(f'{name} has "{text}", which is everything; use bandwidth_enabled: false')
        found.append(network)
    four = [each for each in found if isinstance(each, ipaddress.IPv4Network)]
    six = [each for each in found if isinstance(each, ipaddress.IPv6Network)]
    return (*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six))


def burst(rate: int, mtu: int) -> int:
    """Return how many bytes may leave at once at a rate (bits per second): a millisecond's worth, never too few."""
    return max(_BURST_FLOOR, rate // 8 // 1000, 2 * mtu)


@dataclass(frozen=True)
class Shape:
    """How the line is shaped.

    Attributes:
        interface: the network device.
        mtu: of the device, bytes.
        up: bits per second from this machine.
        down: bits per second to this machine.
        exempt: networks whose traffic is neither shaped nor counted.
        cap: the most that one member may have in each direction, bits per second; 0 is no cap.
    """

    interface: str
    mtu: int
    up: int
    down: int
    exempt: tuple[Network, ...] = ()
    cap: int = 0

    def networks(self, version: int) -> list[str]:
        """Return the exempt networks of IP version 4 or 6."""
        return [str(each) for each in self.exempt if each.version == version]


def nft_rules(shape: Shape) -> str:
    """Return the table for `nft --file -`, which takes the place of an earlier one in one step.

    `ct mark set meta skuid` is refused by nft (types), so the uid is copied bit by bit, once for each connection.
    """
    device = f'"{shape.interface}"'
    bits = [
        f"    meta skuid & {1 << bit:#x} == {1 << bit:#x} ct mark set ct mark | {1 << bit:#x}"
        for bit in range(_UID_BITS)
    ]
    families = [("ip", shape.networks(4)), ("ip6", shape.networks(6))]
    out = [f"    {fam} daddr {{ {', '.join(nets)} }} meta priority set 1:0 accept" for fam, nets in families if nets]
    back = [f"    {fam} saddr {{ {', '.join(nets)} }} accept" for fam, nets in families if nets]
    cap_sets: list[str] = []
    cap_up: list[str] = []
    cap_down: list[str] = []
    if shape.cap:
        limit = f"limit rate over {shape.cap // 8} bytes/second burst {burst(shape.cap, shape.mtu)} bytes"
        for way, lines in (("up", cap_up), ("down", cap_down)):
            cap_sets.append(f"  set cap_{way} {{ type mark; size 65535; flags dynamic; }}")
            lines.append(f"    ct mark != 0 update @cap_{way} {{ ct mark {limit} }} drop")
    lines = [
        f"table inet {TABLE}",
        f"delete table inet {TABLE}",
        f"table inet {TABLE} {{",
        "  set used_up { type mark; size 65535; flags dynamic; }",
        "  set used_down { type mark; size 65535; flags dynamic; }",
        *cap_sets,
        # sshd writes as root: the session hook says whose connection it is; the mark stays with the connection.
        "  map ssh4 { type ipv4_addr . inet_service . inet_service : mark; flags timeout; timeout 60s; }",
        "  map ssh6 { type ipv6_addr . inet_service . inet_service : mark; flags timeout; timeout 60s; }",
        "  chain owner {",
        *bits,
        "  }",
        "  chain up {",
        "    type filter hook postrouting priority 110; policy accept;",  # after source NAT (100)
        f"    oifname != {device} accept",
        *out,
        "    meta priority 1:0 meta priority set none",  # nobody exempts themselves (SO_PRIORITY)
        "    ct mark 0 meta skuid >= 1000 jump owner",
        "    ct mark 0 ct mark set ip daddr . tcp dport . tcp sport map @ssh4",
        "    ct mark 0 ct mark set ip6 daddr . tcp dport . tcp sport map @ssh6",
        *cap_up,
        "    update @used_up { ct mark counter }",
        "    meta mark set ct mark",
        "  }",
        "  chain down {",
        "    type filter hook prerouting priority mangle; policy accept;",
        f"    iifname != {device} accept",
        *back,
        *cap_down,
        "    update @used_down { ct mark counter }",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def ip_commands() -> tuple[str, ...]:
    """Return lines for `ip -batch -`."""
    return (f"link add {IFB} type ifb", f"link set {IFB} up")


def tc_commands(shape: Shape) -> tuple[str, ...]:
    """Return lines for `tc -batch -`, in an order in which traffic passes at every moment."""
    lines = []
    for device, rate in ((IFB, shape.down), (shape.interface, shape.up)):
        room = burst(rate, shape.mtu)
        lines += [
            f"qdisc add dev {device} root handle 1: htb default 1",
            f"class add dev {device} parent 1: classid 1:1 htb rate {rate}bit burst {room} cburst {room} quantum 60000",
            f"qdisc add dev {device} parent 1:1 handle 10: fq_codel flows {QUEUES}",
            f"filter add dev {device} parent 10: handle 1 protocol all flow map key mark divisor {QUEUES}",
        ]
    lines.append(f"qdisc add dev {shape.interface} clsact")
    for version, protocol, place in ((4, "ip", 1), (6, "ipv6", 2)):
        lines += [
            f"filter add dev {shape.interface} ingress protocol {protocol} prio {place} flower src_ip {net} action pass"
            for net in shape.networks(version)
        ]
    lines.append(
        f"filter add dev {shape.interface} ingress protocol all prio 3 matchall "
        f"action connmark pipe action mirred egress redirect dev {IFB}"
    )
    return tuple(lines)


VARIABLES = (
    "bandwidth_enabled",
    "bandwidth_rate",
    "bandwidth_rate_up",
    "bandwidth_rate_down",
    "bandwidth_interface",
    "bandwidth_exempt",
    "bandwidth_member_cap",
    "bandwidth_undo_seconds",
)
"""What the inventory may say (role bandwidth)."""


def plan(variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Judge what the inventory says about the line; change nothing.

    Returns:
        The lines of the plan that are about it; none when it is not to be shaped.

    Raises:
        InputError: a value makes no sense; with its name and what to give instead.
    """
    if not parse_switch(variables.get("bandwidth_enabled", False), "bandwidth_enabled"):
        return ()
    rate = variables.get("bandwidth_rate", "")
    rates = []
    for name in ("bandwidth_rate_up", "bandwidth_rate_down"):
        given = variables.get(name, rate)
        rates.append(parse_rate(given, "bandwidth_rate" if given == rate else name))
    if variables.get("bandwidth_member_cap"):
        parse_rate(variables["bandwidth_member_cap"], "bandwidth_member_cap")
    exempt = variables.get("bandwidth_exempt", [])
    if not isinstance(exempt, list):
        raise InputError(f"bandwidth_exempt is {exempt!r}; give a list, such as [10.0.0.0/8]")
    parse_networks([str(each) for each in exempt], "bandwidth_exempt")
    up, down = (f"{each / 1e6:g} Mbit/s" for each in rates)
    return (f"network line: {up} up, {down} down, members in turn; a change that cuts us off undoes itself",)
