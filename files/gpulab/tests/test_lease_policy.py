"""The rules of the house that decide about a lease besides free cards."""

from __future__ import annotations

from datetime import datetime

import pytest
from gpulab.rules.leases import Request
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
