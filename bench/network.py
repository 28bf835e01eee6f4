"""The network line, shared and not, on an emulated machine with Debian's kernel, beside the recipe that all copy."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from measure import MACHINE, TOP, Figure, inventory, play, say, start

if TYPE_CHECKING:
    from pathlib import Path

RATE = 40
"""Mbit/s: what an emulated machine carries with ease."""

_TOOL = TOP / "scripts" / "kernel-machine"
_SETTINGS = f'[bandwidth]\nup = "{RATE}mbit"\ndown = "{RATE}mbit"\ninterface = "lab0"\n'
_RECIPE = f"tc qdisc add dev lab0 root tbf rate {RATE}mbit burst 32kbit latency 400ms"
_SECONDS = 8


@dataclass(frozen=True)
class _Line:
    """What a line gave: Mbit/s of one with 8 connections, one with 1, one alone who downloads; ping under load, ms."""

    many: float
    one: float
    download: float
    ping: float


def measure_network(folder: Path) -> list[Figure]:
    """Measure gpulab's shaping and `tbf` on one machine, one after the other."""
    say("a network line, on an emulated machine")
    start(MACHINE, "debian13-kernel")
    play(TOP / "bench" / "network.yml", inventory(folder, 3))
    subprocess.run([_TOOL, "boot", MACHINE], check=True, stdout=sys.stderr)
    try:
        outside = (TOP / "molecule" / "kernel" / "files" / "outside.sh").read_text()
        _ssh("sh -s", outside)
        _ssh("cat >/etc/gpulab/conf.d/bandwidth.toml", _SETTINGS)
        _ssh("/opt/gpulab/current/bin/gpulab net apply")
        ours = _line()
        _ssh("/opt/gpulab/current/bin/gpulab net remove")
        _ssh(_RECIPE)
        recipe = _line()
    finally:
        subprocess.run([_TOOL, "stop", MACHINE], check=True)
    return [
        Figure(
            "network: what 8 connections have for what 1 has, gpulab / tbf",
            ours.many / ours.one,
            recipe.many / recipe.one,
            "x",
            0.5,
        ),
        Figure("network: both together / the rate asked for", ours.many + ours.one, RATE, "Mbit/s", 1.02),
        Figure("network: a download / the rate asked for", ours.download, RATE, "Mbit/s", 1.02),
        Figure("network: a download with tbf / the rate asked for", recipe.download, RATE, "Mbit/s", None),
        Figure("network: ping of root under load, gpulab / tbf", ours.ping, recipe.ping, "ms", 1.0),
    ]


def _line() -> _Line:
    clients = [
        f"setpriv --reuid={1501 + number} --clear-groups iperf3 --client 10.9.0.2 --parallel {parallel} "
        f"--port {5201 + number} --time {_SECONDS} --omit 1 --json >/run/{number}.json &"
        for number, parallel in enumerate((8, 1))
    ]
    ping = f"sleep 2; ping -q -c {(_SECONDS - 3) * 5} -i 0.2 10.9.0.2 >/run/ping"
    _ssh(f"{' '.join(clients)} {ping}; wait")
    many, one = (_arrived(f"/run/{number}.json") for number in (0, 1))
    times = _ssh("cat /run/ping").rsplit("=", 1)[1].split("/")  # rtt min/avg/max/mdev = 0.1/0.2/0.3/0.0 ms
    _ssh(f"iperf3 --client 10.9.0.2 --reverse --port 5201 --time {_SECONDS} --omit 1 --json >/run/down.json")
    return _Line(many, one, _arrived("/run/down.json"), float(times[1]))


def _arrived(path: str) -> float:
    received: float = json.loads(_ssh(f"cat {path}"))["end"]["sum_received"]["bits_per_second"]
    return received / 1e6


def _ssh(command: str, given: str = "") -> str:
    done = subprocess.run([_TOOL, "ssh", MACHINE, command], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench: {command[:60]} failed: {done.stderr.strip()}")
    return done.stdout
