"""Role runtime: the package runs, mail arrives, an older release can come back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Play
    from testinfra.host import Host


def test_the_command_is_on_everybodys_path(host: Host) -> None:
    host.run_expect([0], "useradd --create-home bob || id bob")
    assert host.run("runuser -l bob -c 'gpulab --version'").stdout.startswith("gpulab ")


def test_the_settings_in_force_are_the_inventorys(host: Host) -> None:
    settings = json.loads(host.check_output("gpulab settings"))
    assert settings["lab"] == {"name": 'Lab "of" sights 视觉', "admin": "root", "language": "en", "tier": "table"}


def test_a_settings_file_that_is_wrong_is_named(host: Host) -> None:
    host.run("printf '[lab]\\nnmae = 1\\n' > /tmp/wrong.toml")
    checked = host.run("gpulab settings --check /tmp/wrong.toml")
    assert checked.rc == 2
    assert checked.stderr.startswith("gpulab: /tmp/wrong.toml: [lab] nmae is unknown")


def test_mail_to_a_member_is_in_the_mailbox(host: Host) -> None:
    host.run_expect([0], "useradd --create-home bob || id bob")
    host.run_expect([0], "printf 'Subject: hello\\n\\nworld\\n' | /usr/sbin/sendmail -i -f root -- bob")
    for _ in range(50):
        if host.run("grep -q 'Subject: hello' /var/mail/bob").rc == 0:
            return
        time.sleep(0.2)
    pytest.fail("no mail in /var/mail/bob")


def test_members_cannot_change_what_root_runs(host: Host) -> None:
    writable = host.check_output("find /opt/gpulab /etc/gpulab ! -type l \\( -perm /022 -o ! -user root \\)")
    assert writable == ""


def test_a_half_made_release_is_made_anew(host: Host, play: Play) -> None:
    current = host.check_output("readlink /opt/gpulab/current")
    host.run_expect([0], f"rm /opt/gpulab/{current}/.complete /opt/gpulab/{current}/bin/gpulab")
    assert host.run("gpulab --version").rc != 0
    run = play()
    assert run.returncode == 0, run.stdout
    assert host.run("gpulab --version").rc == 0


def test_an_older_release_can_be_switched_to_and_an_unknown_one_is_refused(host: Host, play: Play) -> None:
    current = Path(host.check_output("readlink /opt/gpulab/current")).name
    host.run_expect([0], f"cp -a /opt/gpulab/releases/{current} /opt/gpulab/releases/0.0.1-older")
    run = play(runtime_release="0.0.1-older")
    assert run.returncode == 0, run.stdout
    assert host.check_output("readlink /opt/gpulab/current") == "releases/0.0.1-older"
    run = play(runtime_release="0.0.2-gone")
    assert run.returncode != 0
    assert 'runtime_release is "0.0.2-gone", which is not under /opt/gpulab/releases' in run.said
    assert host.check_output("readlink /opt/gpulab/current") == "releases/0.0.1-older"
    assert play().returncode == 0
    assert host.check_output("readlink /opt/gpulab/current") == f"releases/{current}"
