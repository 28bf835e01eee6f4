"""Role preflight: it says what the run is about, refuses nonsense in one line, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Play
    from testinfra.host import Host


def test_changes_nothing(host: Host) -> None:
    assert not host.file("/etc/gpulab").exists
    assert not host.user("alice").exists


def test_prints_the_tier_and_who_is_new(play: Play) -> None:
    run = play()
    assert run.returncode == 0, run.stdout
    assert "tier: table (3 present members)" in run.stdout
    assert "new members: alice, bob, carol" in run.stdout


def test_says_that_the_cards_will_be_closed_and_what_doing_without_means(play: Play) -> None:
    assert "RISK  the cards are closed to members' sessions, open ones too" in play(group_size=7).stdout
    run = play(group_size=7, gpu_guard_enabled=False)
    assert "RISK  gpu_guard_enabled is false: members can open every card without allocate_gpu" in run.stdout
    assert "open ones too" not in run.stdout


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"group_size": "seven"}, "group_size is 'seven'; give a whole number from 1 to 10000"),
        ({"lab_langauge": "zh"}, "lab_langauge is not a variable of gpulab; did you mean lab_language?"),
    ],
)
def test_refuses_in_one_line(play: Play, variables: dict[str, Any], line: str) -> None:
    run = play(**variables)
    assert run.returncode != 0
    assert line in run.stdout
    assert "Traceback" not in run.stdout


def test_keeps_the_mail_password_to_itself(host: Host, play: Play) -> None:
    secret = "correct-horse-battery"
    run = play(lab_mail={"smarthost": "mail.example.org", "user": "lab", "password": secret})
    assert run.returncode == 0, run.stdout
    journal = host.check_output("journalctl --no-pager")
    assert "lab_preflight" in journal, "the journal records module calls"
    assert secret not in journal
