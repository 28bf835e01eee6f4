"""The network line, shared and not, on an emulated machine with Debian's kernel, beside the recipe that all copy."""

from __future__ import annotations

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
        files = TOP / "molecule" / "kernel" / "files"
        _ssh("sh -s", (files / "outside.sh").read_text())
        _ssh("cat >/run/shares.py", (files / "shares.py").read_text())
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
    ping = f"(sleep 4; ping -q -c {(_SECONDS - 3) * 5} -i 0.2 10.9.0.2 >/run/ping) &"
    many, one = _shares(f"{ping} python3 /run/shares.py {_SECONDS} '--parallel 8' ''; wait")
    times = _ssh("cat /run/ping").rsplit("=", 1)[1].split("/")  # rtt min/avg/max/mdev = 0.1/0.2/0.3/0.0 ms
    (download,) = _shares(f"python3 /run/shares.py {_SECONDS} --reverse")
    return _Line(many, one, download, float(times[1]))


def _shares(command: str) -> list[float]:
    return [float(line) for line in _ssh(command).splitlines()]


def _ssh(command: str, given: str = "") -> str:
    done = subprocess.run([_TOOL, "ssh", MACHINE, command], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench: {command[:60]} failed: {done.stderr.strip()}")
    return done.stdout
