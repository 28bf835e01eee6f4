"""Takes a card, leaves a child in the lease, walks out of it through the user's own service manager, and asks again.

Prints what the child may still open, and which card a second request of the same process gets.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

SOCKET = "/run/gpulab/broker.sock"


def ask(*lines: str) -> dict[str, str]:
    """Send one request and return its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(30)
        connection.connect(SOCKET)
        connection.send("\n".join(lines).encode())
        verb, *rest = connection.recv(1 << 18).decode().split("\n")
    return {"verb": verb, **dict(line.split("=", 1) for line in rest)}


def group() -> str:
    """Return the control group of this process."""
    with open("/proc/self/cgroup", encoding="ascii") as stream:
        return stream.read().splitlines()[-1]


def walk_out() -> bool:
    """Have the service manager of this account take this process into a scope of its own."""
    manager = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
    order = ("StartTransientUnit", "ssa(sv)a(sa(sv))", f"out-{os.getpid()}.scope", "fail", "1", "PIDs", "au", "1")
    subprocess.run(["busctl", "--user", "call", *manager, *order, str(os.getpid()), "0"], check=True)
    for _ in range(100):
        if "gpulab-lease" not in group():
            return True
        time.sleep(0.05)
    return False


first = ask("lease", "cards=1")
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
out = walk_out()
again = ask("lease", "cards=1", "again=1")
second = ask("lease", "cards=1")
status = json.loads(ask("status")["document"])
print(json.dumps({"first": first, "out": out, "again": again, "second": second, "leases": status["leases"]}))
child.communicate(b"\n")
