"""`gpulab check-gpu`: what it prints for whom, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpulab.adapters.mail import MailError
from gpulab.commands import check_gpu
from gpulab.errors import GpulabError, InputError
from gpulab.settings import Checks
from test_check_gpu import SETTINGS, Lab4
from test_checks import BOBS, CAROLS


@pytest.fixture
def lab(tmp_path):
    return Lab4(tmp_path)


@pytest.mark.parametrize("name", ["soon_minutes", "unused_minutes", "overrun_minutes"])
@pytest.mark.parametrize("minutes", [-1, 10081])
def test_senseless_times_are_refused_by_name(name, minutes):
    with pytest.raises(InputError, match=rf"\[checks\] {name} is {minutes}; expected 0 to 10080 minutes"):
        Checks(**{name: minutes})


@pytest.fixture
def command(lab, monkeypatch):
    """Main with the test's lab around it."""
    monkeypatch.setattr(check_gpu, "World", lambda **_: lab.world())
    monkeypatch.setattr(check_gpu.settings, "load", lambda _: SETTINGS)
    return check_gpu.main


def test_cron_hears_nothing_when_all_is_well(command, capsys):
    assert command([]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_summary(command, capsys):
    assert command(["--verbose"]) == 0
    assert command(["--verbose"]) == 0
    first, second = capsys.readouterr().out.split("2026-12-01 12:30: cards: 1, bookings: 1, events: 1\n")[1:]
    assert first.split() == ["overrun", "card", "0", "to", "bob", "mailed", "now", "'train'"]
    assert "told 2026-12-01 12:30" in second


def test_dry_run_prints_the_mails(command, lab, capsys):
    assert command(["--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "would be mailed now" in out
    assert "To: bob\nSubject: [gpulab gpu1] card 0: " in out
    assert "    kill 1\n" in out
    assert not lab.inbox


def test_json_is_for_machines(command, capsys):
    assert command(["--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (event,) = document["events"]
    assert (event["kind"], event["user"], event["gpu_id"], event["told"]) == ("overrun", "bob", 0, None)
    assert [process["pid"] for process in event["processes"]] == [1]
    assert document["mails"][0]["recipient"] == "bob"


def test_failed_mail_ends_with_one_line_and_a_status(command, lab):
    lab.refuses = frozenset({"bob"})
    with pytest.raises(MailError, match=r"^mail to bob was not sent: refused; it is tried again in the next run$"):
        command([])
    lab.bookings, lab.refuses = (BOBS, CAROLS), frozenset({"bob", "carol"})
    with pytest.raises(MailError, match=r"refused; that and mail to carol is tried again in the next run$"):
        command([])


def test_without_the_members_group_nobody_is_called_a_stranger(monkeypatch):
    monkeypatch.setattr(check_gpu.names, "MEMBERS_GROUP", "no-such-group-here")
    with pytest.raises(GpulabError, match="no group no-such-group-here; run the playbook"):
        check_gpu.read_members()


def test_boot_time_fits_a_process_that_just_began():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ticks = int(Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        now = time.time()
        boot = check_gpu.read_boot()
        assert abs(boot.epoch + ticks / boot.ticks_per_second - now) < 5
    finally:
        child.communicate(b"\n")
