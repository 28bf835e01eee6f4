#!/usr/bin/python3
"""Let several people use the line lab0 at the same time; print what arrives for each, Mbit/s.

Usage: shares.py SECONDS OPTIONS..., where each OPTIONS is one person's options of iperf3 in one word; `''` sends with
one connection. The kernel counts where packets arrive, and only while all of them are at it: who begins late, or goes
on alone when the others have ended, does not change the figures.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time

FIRST_UID, FIRST_PORT = 1501, 5201
"""Of people without accounts, and of the servers that outside.sh started: each person has one."""

OUTSIDE = ["ip", "netns", "exec", "outside"]
BEGUN = 100_000
"""Bytes: more than a greeting."""

COUNT = """
table inet seen
delete table inet seen
table inet seen {{
  {counters}
  chain arriving {{
    type filter hook input priority 0;
    meta l4proto {{ tcp, udp }} counter name th {end} map {{ {ports} }}
  }}
}}
"""


def count(people: int) -> None:
    """Have both sides count what arrives, by the servers' ports."""
    ports = range(FIRST_PORT, FIRST_PORT + people)
    for where, end in (([], "sport"), (OUTSIDE, "dport")):
        rules = COUNT.format(
            counters="\n".join(f"counter p{port} {{}}" for port in ports),
            ports=", ".join(f'{port} : "p{port}"' for port in ports),
            end=end,
        )
        subprocess.run([*where, "nft", "-f", "-"], input=rules, text=True, check=True)


def arrived(where: list[str]) -> tuple[float, dict[str, int]]:
    """Return the time and the bytes that have arrived, by counter."""
    command = [*where, "nft", "--json", "list", "counters", "table", "inet", "seen"]
    listing = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["nftables"]
    counters = {entry["counter"]["name"]: entry["counter"]["bytes"] for entry in listing if "counter" in entry}
    return time.monotonic(), counters


class Person:
    """Somebody with a uid and a server of their own, who begins at once."""

    def __init__(self, number: int, options: str) -> None:
        """Number from 0; options as on the command line."""
        self.counter = f"p{FIRST_PORT + number}"
        self.where = [] if "--reverse" in options else OUTSIDE
        to = [] if "--client" in options else ["--client", "10.9.0.2"]
        self.command = ["setpriv", f"--reuid={FIRST_UID + number}", "--clear-groups", "iperf3", *to]
        self.command += [*shlex.split(options), "--port", str(FIRST_PORT + number), "--time", "120"]
        self.begin()

    def begin(self) -> None:
        """Start iperf3."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def begun(self) -> bool:
        """Tell whether data arrive; begin again when the server was busy with the last one."""
        if self.process.poll() is not None:
            self.begin()
        return arrived(self.where)[1][self.counter] > BEGUN

    def end(self) -> None:
        """Stop iperf3 so that its server knows."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def main(seconds: float, *options: str) -> None:
    """Measure; exit with what iperf3 said when somebody does not begin within a minute."""
    count(len(options))
    people = [Person(number, words) for number, words in enumerate(options)]
    try:
        late = time.monotonic() + 60
        while not all(person.begun() for person in people):
            if time.monotonic() > late:
                sys.exit(f"somebody did not begin: {[person.process.poll() for person in people]}")
            time.sleep(0.2)
        time.sleep(1)  # a new connection is slow for a moment
        before = [arrived([]), arrived(OUTSIDE)]
        time.sleep(seconds)
        after = [arrived([]), arrived(OUTSIDE)]
        for person in people:
            side = 1 if person.where else 0
            (began, first), (ended, last) = before[side], after[side]
            print((last[person.counter] - first[person.counter]) * 8e-6 / (ended - began))
            if person.process.poll() is not None:
                sys.exit(f"iperf3 ended while it was measured: {person.process.communicate()[1]}")
    finally:
        for person in people:
            person.end()


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
