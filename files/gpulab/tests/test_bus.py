"""Calls over the system bus; what systemd makes of them is tested in scenario tier_allocator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gpulab.adapters import bus

SOURCE = Path(bus.__file__).parents[2]


@pytest.mark.parametrize(
    ("signature", "parts"),
    [
        ("ssa(sv)a(sa(sv))", ["s", "s", "a(sv)", "a(sa(sv))"]),
        ("aau(s(uv))v", ["aau", "(s(uv))", "v"]),
        ("", []),
    ],
)
def test_a_signature_is_split_into_complete_types(signature, parts):
    assert list(bus._parts(signature)) == parts


def test_without_a_bus_it_says_where_to_look():
    """In a process of its own: the library reads the address once."""
    code = (
        f"import sys; sys.path.append({str(SOURCE)!r})\n"
        "from gpulab.adapters import bus\n"
        "try: bus.call('a.b', '/a', ('a.b', 'C'), 's', 'x', seconds=1)\n"
        "except bus.BusError as error: print(error)"
    )
    environ = {"DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nowhere"}
    done = subprocess.run([sys.executable, "-IS", "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert "look at `systemctl status dbus`" in done.stdout or "libsystemd.so.0 cannot be loaded" in done.stdout
