"""Role datasets: there before anybody logs in, on a file system of its own, and read-only after every boot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Person
    from testinfra.host import Host

FILE = "/data/datasets/notes-1/notes"


def test_a_curator_publishes_and_nobody_writes(host: Host, rebooted: bool, session: Person) -> None:
    if not rebooted:
        make = "echo words > notes && gpu-dataset add notes-1 notes --source here --licence CC0"
        published = session("carol", f"{make} && gpu-dataset publish notes-1")
        assert "found whole" in published.stdout, published.stderr
    read = session("bob", f"cat {FILE}; echo more >> {FILE}")
    assert read.stdout == "words\n"
    assert "Permission denied" in read.stderr or "Read-only file system" in read.stderr
    assert "Read-only file system" in host.run(f"touch {FILE}").stderr
    assert host.file(FILE).user == "root"


def test_the_mount_waits_for_the_disk_and_logins_wait_for_the_mount(host: Host) -> None:
    shown = host.check_output("systemctl show --property After,Requires,Before data-datasets.mount")
    orders = {key: value.split() for key, _, value in (line.partition("=") for line in shown.splitlines())}
    assert "data.mount" in orders["After"]
    assert "data.mount" in orders["Requires"]
    assert "systemd-user-sessions.service" in orders["Before"]
    mounted = json.loads(host.check_output("findmnt --json --output OPTIONS,FSTYPE /data/datasets"))["filesystems"][0]
    assert mounted["fstype"] == "xfs"
    assert {"ro", "nosuid", "nodev"} <= set(mounted["options"].split(","))
