"""What a member is told: the rules, the hardware, and that both stay true when something changes."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from testinfra.host import Host

RULES = "/home/admin/GPU_SCHEDULE/README.md"
INVENTORY = "/home/admin/GPU_SCHEDULE/gpu_inventory.csv"
INFO = "/home/admin/GPU_INFO.md"
CARDS = "a100-sxm4-80gb:4"
MIB = 1 << 20


@pytest.fixture
def cards(host: Host) -> Generator[list[dict[str, Any]]]:
    """Return the cards the simulator made, and undo afterwards whatever a test did to them."""
    yield json.loads(host.check_output("gpulab info --json"))["cards"]
    host.check_output("gpusim fail --clear")
    host.check_output(f"gpusim init --cards {CARDS}")
    host.check_output("gpulab ledger")


@pytest.fixture
def read(host: Host, as_member: Any) -> Callable[[str], str]:
    """Return a function that reads a page as bob."""

    def page(path: str) -> str:
        answer = as_member("bob", f"cat {path}")
        assert answer.rc == 0, answer.stderr
        return answer.stdout

    return page


def test_a_member_reads_the_rules_in_both_languages(read: Callable[[str], str]) -> None:
    rules = read(RULES)
    assert 0 < rules.index("## 怎样用卡") < rules.index("## Get a card"), "lab_language is zh: Chinese comes first"
    assert rules.count("gpu-schedule add") >= 2 * 3


def test_the_rules_are_those_of_the_inventory(read: Callable[[str], str]) -> None:
    rules = read(RULES)
    for said in ("Vision lab", "Tier **table**", "group has 2 members", "lasts 36 hours", "within 45 minutes"):
        assert said in rules
    for said in ("档位 **table**", "本组 2 人", "一次预约最长 36 小时", "45 分钟内开始"):
        assert said in rules
    for whose in ("everybody | 200G | 220G | none", "bob | 200G | 500G | none", "每个人 | 200G | 220G | 不限"):
        assert f"| /home | {whose} / 2000000 | 7d |" in rules
    assert rules.count("Alice Example") == rules.count("alice@example.org") == 2


def test_members_cannot_change_the_pages(as_member: Any) -> None:
    for path in (RULES, INVENTORY, INFO, "/etc/motd.d/50-gpulab"):
        assert as_member("bob", f"echo x >> {path}").rc != 0
        assert as_member("bob", f"rm -f {path} || mv {path} /tmp/").rc != 0


def test_the_ledger_agrees_with_the_simulator(cards: list[dict[str, Any]], read: Callable[[str], str]) -> None:
    info = read(INFO)
    assert len(cards) == 4
    for card in cards:
        rows = [line for line in info.splitlines() if line.startswith(f"| {card['index']} |")]
        assert any(
            card["uuid"] in row and card["name"] in row and f"| {card['memory_total'] // MIB} MiB |" in row
            for row in rows
        )
    for said in ("NVLink", "MIG", "关闭", "内存", "/home", "| /data | 没有这个目录 |", "## 变更记录", "550.163.01"):
        assert said in info


def test_the_inventory_has_the_columns_of_nvidia_smi(cards: list[dict[str, Any]], read: Callable[[str], str]) -> None:
    header, *rows = csv.reader(io.StringIO(read(INVENTORY)), skipinitialspace=True)
    assert header == ["index", "name", "memory.total [MiB]", "memory.used [MiB]"]
    assert [row[:3] for row in rows] == [
        [str(card["index"]), card["name"], f"{card['memory_total'] // MIB} MiB"] for card in cards
    ]


def test_use_is_shown_without_being_a_change(
    host: Host, as_member: Any, cards: list[dict[str, Any]], read: Callable[[str], str]
) -> None:
    as_member("bob", "setsid -f gpusim run --gpu 2 --mem 20G -- sleep 60 </dev/null >/dev/null 2>&1; sleep 1")
    try:
        seen = as_member("bob", "gpulab info").stdout
        assert "bob  C  20480 MiB  sleep" in seen
        assert host.check_output("gpulab ledger") == "unchanged"
        assert "2, NVIDIA A100-SXM4-80GB, 81920 MiB, 20480 MiB" in read(INVENTORY)
    finally:
        host.check_output("pkill -u bob -x sleep")


def test_other_cards_are_told_in_the_history(
    host: Host, cards: list[dict[str, Any]], read: Callable[[str], str]
) -> None:
    host.check_output("gpusim init --cards l40s:2 --seed other")
    told = host.check_output("gpulab ledger")
    assert told.startswith("changed\n")
    assert "card 0 replaced: NVIDIA A100-SXM4-80GB" in told
    assert "card 3 removed" in told
    info = read(INFO)
    assert "更换 0 号卡：NVIDIA A100-SXM4-80GB" in info
    assert "移除 3 号卡" in info
    assert len(read(INVENTORY).splitlines()) == 1 + 2
    assert host.check_output("gpulab ledger") == "unchanged"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("--unloaded", "the kernel module is not loaded; run `modprobe nvidia`"),
        ("--mismatch 570.86.15", "of different versions, as after a driver update; reboot"),
    ],
)
def test_a_driver_that_fails_is_said_with_the_remedy(
    host: Host, as_member: Any, cards: list[dict[str, Any]], read: Callable[[str], str], fault: str, reason: str
) -> None:
    host.check_output(f"gpusim fail {fault}")
    assert host.check_output("gpulab ledger").startswith("changed\n")
    assert reason in read(INFO)
    assert reason in as_member("bob", "gpulab info").stdout
    assert read(INVENTORY).splitlines() == ["index, name, memory.total [MiB], memory.used [MiB]"]
    host.check_output("gpusim fail --clear")
    host.check_output("gpulab ledger")
    assert "显卡恢复可读" in read(INFO)


def test_a_lost_card_keeps_its_row(host: Host, cards: list[dict[str, Any]], read: Callable[[str], str]) -> None:
    host.check_output("gpusim fail --lost --gpu 1")
    assert f"card 1 fell off the bus: {cards[1]['name']} ({cards[1]['uuid']})" in host.check_output("gpulab ledger")
    assert "1, [N/A], [N/A], [N/A]" in read(INVENTORY)
    assert cards[2]["uuid"] in read(INFO)


def test_a_change_of_the_sheet_refreshes_the_ledger(host: Host) -> None:
    written = f"stat -c %y {INFO}"
    before = host.check_output(written)
    host.check_output("echo >> /home/admin/gpu_schedule.csv")
    waited = host.run(f'timeout 15 sh -c \'while [ "$({written})" = "{before}" ]; do sleep 0.2; done\'')
    assert waited.rc == 0, host.run("systemctl status gpulab-ledger.path gpulab-ledger.service").stdout


def test_the_rules_are_shown_at_login(host: Host) -> None:
    # login(1) as on a console: PAM shows the message, as it does for ssh. script(1) gives it a terminal.
    screen = host.check_output("echo exit | timeout 30 script -qec 'exec login -f bob' /dev/null")
    assert "Vision lab：用卡前请先预约" in screen
    assert "book a card before you use it" in screen
    assert RULES in screen


def test_members_are_told_who_may_rewrite_the_ledger(as_member: Any) -> None:
    answer = as_member("bob", "gpulab ledger")
    assert (answer.rc, answer.stdout) == (3, "")
    assert answer.stderr.startswith("gpulab: ")
    assert answer.stderr.rstrip().endswith("run `gpulab ledger` as root")


def test_ansible_sees_the_same_cards(host: Host, cards: list[dict[str, Any]]) -> None:
    # The server's own Python has no nvidia-ml-py: the module goes on under that of the package.
    name, inventory = host.backend.name.removeprefix("gpulab-handbook-"), os.environ["MOLECULE_INVENTORY_FILE"]
    command = ["ansible", name, "--inventory", inventory, "--module-name", "nvml_facts", "--one-line"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer = json.loads(output.partition(" | SUCCESS => ")[2])
    assert answer["changed"] is False
    assert answer["cards"] == cards
