"""The whole server in the table tier: a day in the life of a four-person group."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Acceptance, Person, Play
    from testinfra.host import Host

MOST_TASKS = 75


def site(play: Play, *options: str, **variables: Any) -> str:
    """Run the whole playbook again and return what it printed."""
    done = play(*options, **variables)
    assert done.returncode == 0, done.stdout
    return done.stdout


def server_time(host: Host) -> datetime:
    return datetime.strptime(host.check_output("date '+%Y-%m-%d %H:%M'"), "%Y-%m-%d %H:%M")  # noqa: DTZ007 -- local


def test_what_was_promised_holds(acceptance: Acceptance) -> None:
    found = acceptance()
    assert {name: said for name, said in found.items() if not said.startswith(("holds", "not asked for"))} == {}
    for name in ("S1 hardware ledger", "S3 booking sheet", "S7 MIG layout", "S8 idle cards", "S13 usage report"):
        assert found[name].startswith("holds"), (name, found[name])


def test_a_member_books_sees_the_booking_and_others_cannot_take_the_card(host: Host, as_member: Person) -> None:
    booked = as_member("bob", "gpu-schedule add train --gpu 1 --start now --hours 2")
    assert booked.rc == 0, booked.stderr
    taken = as_member("carol", "gpu-schedule add mine --gpu 1 --start now --hours 1")
    assert taken.rc != 0
    assert "bob" in taken.stderr
    assert "train" in as_member("carol", "gpu-schedule list").stdout
    assert "train" in as_member("carol", "gpu-schedule week").stdout
    assert as_member("carol", "gpu-schedule cancel train").rc != 0
    assert as_member("carol", "gpu-schedule add other --gpu 2 --start now --hours 1").rc == 0


def test_the_checks_mail_the_member_once_and_kill_nobody(host: Host, as_member: Person) -> None:
    pid = host.check_output(
        "runuser -l carol -c 'nohup gpusim run --gpu 1 --mem 20G -- sleep 300 >/dev/null 2>&1 & echo $!'"
    )
    time.sleep(1)
    for _ in range(2):
        assert host.run("/usr/local/sbin/check_gpu.sh").rc == 0
    for _ in range(50):
        mail = host.run("cat /var/mail/carol").stdout
        if pid in mail:
            break
        time.sleep(0.2)
    else:
        pytest.fail(f"no mail to carol names process {pid}: {mail}")
    assert mail.count(f" {pid}") >= 1
    assert len(re.findall(r"(?m)^From ", mail)) == 1, "two runs, one mail"
    assert host.run(f"kill -0 {pid}").rc == 0, "the process lives"
    host.run_expect([0], f"kill {pid}")


def test_the_pages_say_what_the_cards_are(host: Host, as_member: Person) -> None:
    assert as_member("bob", "cat /home/admin/GPU_INFO.md").stdout.count("NVIDIA A100-SXM4-80GB") >= 4
    rules = as_member("bob", "cat /home/admin/GPU_SCHEDULE/README.md").stdout
    assert "alice" in rules
    assert "预约" in rules
    inventory = as_member("bob", "cat /home/admin/GPU_SCHEDULE/gpu_inventory.csv").stdout.splitlines()
    assert inventory[0] == "index, name, memory.total [MiB], memory.used [MiB]"
    assert len(inventory) == 5


def test_a_split_card_shows_its_instances(as_member: Person) -> None:
    assert as_member("bob", "gpulab info").stdout.count("3g.40gb") == 2


def test_a_member_with_an_instance_works_on_it_without_booking(host: Host, as_member: Person) -> None:
    device = as_member("bob", "echo $CUDA_VISIBLE_DEVICES").stdout.strip()
    assert device.startswith("MIG-")
    assert device in as_member("bob", "grep '| 3 | 0 |.*| bob |' /home/admin/GPU_INFO.md").stdout
    pid = host.check_output("runuser -l bob -c 'nohup gpusim run --mem 20G -- sleep 300 >/dev/null 2>&1 & echo $!'")
    time.sleep(1)
    assert pid in host.check_output("gpulab info --json")
    assert "unbooked" not in host.check_output("gpulab check-gpu --dry-run")
    host.run_expect([0], f"kill {pid}")


def test_the_golden_hours_are_told_and_stand_on_the_rules_page(host: Host, as_member: Person) -> None:
    tomorrow = (server_time(host) + timedelta(days=1)).strftime("%Y-%m-%d 15:00")
    warned = as_member("bob", f"gpu-schedule add wide --gpu 1,2 --start '{tomorrow}' --hours 1")
    assert warned.rc == 0, warned.stderr
    assert "note: window afternoon (14:00-18:00" in warned.stderr
    assert "it fits from 18:00 on" in warned.stderr
    rules = as_member("bob", "cat /home/admin/GPU_SCHEDULE/README.md").stdout
    assert "| afternoon | 14:00-18:00 | every day | short | 1 | 4 h | short jobs" in rules
    assert "| afternoon | 14:00-18:00 | 每天 | short | 1 | 4 小时 | 短任务" in rules


def test_a_plan_for_a_finished_server_is_short_and_foretells_nothing(play: Play) -> None:
    plan = site(play, "--check", "--diff")
    assert "changed=0" in plan
    assert plan.count("\nTASK [") <= MOST_TASKS


def test_a_member_who_leaves_is_gone_and_comes_back(host: Host, as_member: Person, play: Play) -> None:
    tomorrow = (server_time(host) + timedelta(days=1)).strftime("%Y-%m-%d 10:00")
    assert as_member("carol", f"gpu-schedule add later --gpu 3 --start '{tomorrow}' --hours 1").rc == 0
    assert as_member("carol", "echo results > results.txt").rc == 0
    people = [{"name": "alice", "admin": True}, {"name": "bob"}, {"name": "carol", "state": "absent"}]
    planned = site(play, "--check", lab_members=people)
    assert re.search(r"RISK .*carol", planned), "the plan names who leaves"
    assert as_member("carol", "true").rc == 0, "a plan changes nothing"
    site(play, lab_members=people)
    assert as_member("carol", "true").rc != 0
    assert "later" not in as_member("bob", "gpu-schedule list").stdout
    site(play)
    assert as_member("carol", "cat results.txt").stdout.strip() == "results"
