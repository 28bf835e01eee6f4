"""Role bandwidth where the line cannot be shaped: one clear line, and nothing is left."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Play
    from testinfra.host import Host

TRACES = (
    "ls -d /etc/gpulab/conf.d/bandwidth.toml /etc/systemd/system/gpulab-net* /usr/local/sbin/gpulab-ssh-owner "
    "/etc/systemd/system/*/gpulab-net* /var/lib/gpulab/net /run/gpulab/net* 2>/dev/null; "
    "grep -s gpulab /etc/pam.d/sshd; ip -brief link | grep ifb; nft list tables 2>/dev/null | grep gpulab; true"
)
"""Prints what the role leaves behind."""

HOOK = (Path(__file__).parents[3] / "roles" / "bandwidth" / "files" / "ssh-owner").read_text()
GOOD = {"PAM_TYPE": "open_session", "PAM_USER": "bob", "SSH_CONNECTION": "10.9.0.2 40022 10.9.0.1 22"}


def run_hook(host: Host, environment: dict[str, str]) -> int:
    """Run the hook as pam_exec(8) does: with nothing else in its environment, not even PATH."""
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    status: int = host.run(f"env -i {given} /bin/sh /dev/stdin <<'END'\n{HOOK}\nEND").rc
    return status


def test_a_line_that_nobody_asked_about_is_left_alone(host: Host) -> None:
    assert host.run(TRACES).stdout == ""


def test_what_cannot_be_shaped_is_said_and_left_as_it_is(host: Host, play: Play) -> None:
    before = host.check_output("tc qdisc show")
    refused = play(bandwidth_enabled=True, bandwidth_rate="100mbit", bandwidth_interface="lo")
    assert refused.returncode != 0
    assert "this kernel lacks sch_htb" in refused.said
    assert host.check_output("tc qdisc show") == before
    wrong = play(bandwidth_enabled=True, bandwidth_rate="100mbit", bandwidth_interface="lab7")
    assert "lab7" in wrong.said
    assert "this server has" in wrong.said


def test_what_never_worked_is_not_tried_again(host: Host) -> None:
    kept = host.run("gpulab net apply --keep")
    assert (kept.rc, kept.stdout, kept.stderr) == (0, "", "")
    assert "not shaped" in host.run("gpulab net status").stderr


def test_a_session_tells_whose_connection_it_is(host: Host) -> None:
    table = (
        "table inet gpulab_net { map ssh4 { type ipv4_addr . inet_service . inet_service : mark; flags timeout; }; }"
    )
    made = host.run(f"echo {shlex.quote(table)} | nft --file -")
    if made.rc != 0:
        pytest.skip(f"no nftables here: {made.stderr}")
    uid = host.user("bob").uid
    for broken in (
        {"PAM_USER": "root"},
        {"PAM_USER": "nobody-such"},
        {"PAM_TYPE": "close_session"},
        {"SSH_CONNECTION": ""},
        {"SSH_CONNECTION": "10.9.0.2 40022 10.9.0.1 22 }; flush ruleset; {"},
        {"SSH_CONNECTION": "10.9.0.2;reboot 40022 10.9.0.1 22"},
    ):
        assert run_hook(host, {**GOOD, **broken}) == 0
    listed = "nft --json list map inet gpulab_net ssh4"
    assert str(uid) not in host.check_output(listed)
    assert run_hook(host, GOOD) == 0
    assert str(uid) in host.check_output(listed)
    host.run_expect([0], "nft delete table inet gpulab_net")
    assert run_hook(host, GOOD) == 0, "without shaping a login goes on all the same"


def test_it_goes_without_a_trace(host: Host, play: Play) -> None:
    gone = play()
    assert gone.returncode == 0, gone.stdout
    assert host.run(TRACES).stdout == ""
    assert "changed=0" in play().said
