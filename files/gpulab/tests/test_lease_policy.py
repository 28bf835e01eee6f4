"""The rules of the house that decide about a lease besides free cards."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest
from gpulab.commands import leases as command
from gpulab.rules.leases import Request
from gpulab.services import lease_drain
from gpulab.services.lease_policy import Policy, load_policy
from gpulab.settings import Lab, Settings, Windows

AFTERNOON = datetime.fromisoformat("2026-12-01 15:00")
RULE = (
    "window afternoon (14:00-18:00: short jobs, debugging, preprocessing) allows at most 1 card a job, not 2; it fits "
    "from 18:00 on; `gpulab windows` shows them all"
)


def judge(request, user="bob", on_break="warn"):
    policy = Policy(windows=Windows(on_break=on_break), admin=lambda name: name == "alice", now=AFTERNOON)
    return policy.judge(request, user)


def test_the_golden_hours_tell_or_hold_up():
    assert judge(Request(cards=2)) == ("", RULE)
    assert judge(Request(cards=2), on_break="refuse") == (RULE, "")
    assert judge(Request(cards=2), user="alice", on_break="refuse") == ("", RULE)
    assert judge(Request(cards=1), on_break="refuse") == ("", "")


@pytest.mark.parametrize(("hours", "held"), [(None, False), (4, False), (4.5, True)])
def test_who_does_not_say_how_long_breaks_no_rule_about_length(hours, held):
    assert bool(judge(Request(hours=hours), on_break="refuse")[0]) == held


def test_the_table_and_the_language_are_those_of_the_settings(tmp_path):
    found = load_policy(tmp_path, Settings(lab=Lab(language="zh"), windows=Windows(table=())))
    assert (found.language, found.windows.table, found.bindings) == ("zh", (), {})


def test_while_the_server_is_drained_nobody_is_given_a_card(tmp_path):
    until = AFTERNOON + timedelta(minutes=90)
    lease_drain.begin(until.timestamp(), tmp_path)
    why = lease_drain.reason(AFTERNOON, "en", tmp_path)
    assert why.endswith("starts no new commands on cards (until 16:30 at the latest)")
    assert "16:30" in lease_drain.reason(AFTERNOON, "zh", tmp_path)
    closed = Policy(windows=Windows(()), admin=lambda _: True, now=AFTERNOON, closed=why)
    assert closed.judge(Request(), "alice") == (why, "")


def test_a_drain_ends_by_itself_or_by_hand_and_a_bad_note_closes_nothing(tmp_path):
    told = []
    assert lease_drain.reason(AFTERNOON, "en", tmp_path) == ""
    lease_drain.begin(AFTERNOON.timestamp(), tmp_path)
    assert lease_drain.reason(AFTERNOON, "en", tmp_path) == ""
    (tmp_path / "run/gpulab/drain").write_text("{")
    assert lease_drain.reason(AFTERNOON, "en", tmp_path, told.append) == ""
    assert "is not JSON" in told[0]
    lease_drain.begin(AFTERNOON.timestamp() + 60, tmp_path)
    lease_drain.end(tmp_path)
    lease_drain.end(tmp_path)
    assert list((tmp_path / "run/gpulab").iterdir()) == []
    for odd in (None, "later", [1]):
        lease_drain.begin(odd, tmp_path)
        assert lease_drain.reason(AFTERNOON, "en", tmp_path) == ""


def test_a_drain_is_part_of_the_rules_that_hold_now(tmp_path):
    lease_drain.begin(time.time() + 3600, tmp_path)
    assert "no new commands on cards" in load_policy(tmp_path, Settings()).closed


@pytest.mark.parametrize("minutes", ["-1", "10081", "soon"])
def test_a_drain_has_bounds(minutes, capsys):
    with pytest.raises(SystemExit):
        command.main(["--drain", minutes])
    assert "--drain" in capsys.readouterr().err
