"""The machine with a kernel of its own: what role members and role mig promise, where only a kernel can keep it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[3] / "acceptance"))

from claims import rules, understood
from server import read_server

if TYPE_CHECKING:
    from conftest import Person
    from testinfra.host import Host


def test_the_kernel_is_the_distributions_own(host: Host) -> None:
    release = host.check_output("uname -r")
    assert host.run(f"dpkg --search /boot/vmlinuz-{release}").stdout.startswith(f"linux-image-{release}:")
    assert host.check_output("stat --file-system --format %T /sys/fs/cgroup") == "cgroup2fs"


def test_everything_has_started(host: Host) -> None:
    state = host.run("systemctl is-system-running --wait").stdout.strip()
    assert state == "running", host.run("systemctl --failed --no-legend").stdout


FORKS = """python3 -c '
import os, signal
children = []
try:
    while len(children) < 300:
        children.append(os.fork())
        if not children[-1]:
            signal.pause()
finally:
    print(len(children), flush=True)
    for child in children:
        os.kill(child, signal.SIGKILL)
'"""


def test_a_member_cannot_start_more_processes_than_allowed(session: Person) -> None:
    tried = session("bob", FORKS)
    assert "Resource temporarily unavailable" in tried.stderr
    assert 100 < int(tried.stdout) < 200
    assert session("carol", "echo goes on").stdout == "goes on\n"


def test_what_the_rules_page_says_of_limits_is_in_force(host: Host) -> None:
    server = read_server(host)
    sections = ("Limits for everybody", "Disk space", "Network line", "Datasets", "Mail")
    said = [(where, words) for where, words in rules(server).statements if where in sections]
    assert {where for where, _ in said} == set(sections)
    for _, statement in said:
        known = understood(statement)
        assert known, statement
        check, words = known
        check(server, words)


def test_the_boot_brings_the_layout_of_the_cards_back(host: Host) -> None:
    cards = json.loads(host.check_output("gpulab info --json"))["cards"]
    assert [[each["profile"] for each in card["mig_devices"]] for card in cards] == [[], ["3g.40gb", "3g.40gb"]]
