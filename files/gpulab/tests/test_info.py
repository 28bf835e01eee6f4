"""`gpulab info` and `gpulab ledger`, as typed."""

from __future__ import annotations

import json

import pytest
from gpulab.commands import info, ledger
from gpulab.commands.main import main
from gpulab.rules.cards import Card, Cards, MigDevice, Process, to_dict
from gpulab.services.ledger import Outcome

GIB = 1 << 30
CARDS = Cards(
    cards=(
        Card(
            0,
            uuid="GPU-0",
            name="NVIDIA A100-SXM4-80GB",
            memory_total=80 * GIB,
            memory_used=20 * GIB,
            utilization=7,
            processes=(
                Process(pid=71, start_ticks=1, uid=1000, user="bob", command="python", memory=20 * GIB),
                Process(pid=72, start_ticks=None, uid=None, user=None, command="", memory=None),
            ),
        ),
        Card(
            1,
            uuid="GPU-1",
            name="NVIDIA A100-SXM4-80GB",
            mig_enabled=True,
            mig_devices=(MigDevice(0, "MIG-a", "3g.40gb", 1, 0, 40 * GIB, 0),),
            processes=(Process(73, 1, 1001, "carol", "train", GIB, "C", 1, 0),),
            reason="utilisation: not measured by NVML while MIG is on",
        ),
        Card(2, lost=True, reason="the card has fallen off the bus"),
    ),
    driver_version="550.163.01",
    cuda_version="12.4",
)


@pytest.fixture
def found(monkeypatch):
    def give(cards):
        monkeypatch.setattr(info, "read_cards", lambda: cards)

    return give


def test_info_shows_cards_instances_processes_and_reasons(found, capsys):
    found(CARDS)
    assert main(["info"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "driver 550.163.01, CUDA up to 12.4",
        "card 0  NVIDIA A100-SXM4-80GB  20480 of 81920 MiB  7 %  GPU-0",
        "    pid 71  bob  C  20480 MiB  python",
        "    pid 72  ?  C  ? MiB  (ended)",
        "card 1  NVIDIA A100-SXM4-80GB  ? of ? MiB  ? %  GPU-1",
        "    MIG 0  3g.40gb  0 of 40960 MiB  MIG-a",
        "    pid 73  carol  C  1024 MiB  GI 1 CI 0  train",
        "    note: utilisation: not measured by NVML while MIG is on",
        "card 2  LOST",
        "    note: the card has fallen off the bus",
    ]


def test_no_cards_is_an_answer_with_a_reason(found, capsys):
    found(Cards(reason="there is no NVIDIA driver"))
    assert main(["info"]) == 0
    assert capsys.readouterr().out == "no cards: there is no NVIDIA driver\n"


def test_info_as_json_is_everything(found, capsys):
    found(CARDS)
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == to_dict(CARDS)


@pytest.fixture
def refreshed(monkeypatch):
    calls = []

    def refresh(root, *, dry_run, **_):
        calls.append(dry_run)
        return Outcome(changed=True, changes=(), cards=4, reason="")

    monkeypatch.setattr(ledger, "refresh", refresh)
    return calls


def test_ledger_says_changed(refreshed, capsys):
    assert main(["ledger"]) == 0
    assert capsys.readouterr().out == "changed\n"
    assert refreshed == [False]


def test_ledger_check_json_is_one_line_for_the_playbook(refreshed, capsys):
    assert main(["ledger", "--check", "--json"]) == 0
    answer = capsys.readouterr().out
    assert answer.count("\n") == 1
    assert json.loads(answer) == {"changed": True, "changes": [], "cards": 4, "reason": ""}
    assert refreshed == [True]
