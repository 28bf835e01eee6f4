"""The broker on a made-up server: who gets what, what is on file when, and what a killed one leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import pytest
from broker_world import Machine
from gpulab.rules.windows import DEFAULT_TABLE, parse_windows
from gpulab.services.lease_policy import Policy
from gpulab.services.leases import LeaseStore, live_leases
from gpulab.settings import Allocator, Windows

LEASE_1 = "gpulab.slice/gpulab-lease.slice/gpulab-lease-1001.slice/gpulab-lease-1.scope"


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_lease_has_its_card_its_scope_and_its_device_nodes(machine):
    client = machine.get(command="python train.py")
    assert client.last == {"verb": "lease", "id": "1", "visible": "GPU-0", "names": "card 0", "hint": ""}
    assert client.closed
    (move,) = machine.moved
    assert (move.pid, move.slice, move.scope) == (client.peer.pid, "gpulab-lease-1001.slice", "gpulab-lease-1.scope")
    # Card 0 has device minor 3 here: the index is not the minor.
    assert [node for node in move.nodes if node.startswith("/dev/nvidia")] == [
        "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia3",
    ]  # fmt: skip
    (lease,) = live_leases(machine.root)
    assert (lease.user, lease.command, lease.since) == ("bob", "python train.py", 1000.0)
    assert machine.files("queue") == []


def test_two_in_the_same_moment_get_different_cards(machine):
    clients = [machine.ask(machine.client()) for _ in range(4)]
    machine.broker.serve()
    assert sorted(client.last["visible"] for client in clients) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_without_wait_it_is_refused_with_who_has_what_and_what_to_type(machine):
    for name in ("bob", "bob", "carol", "carol"):
        machine.get(machine.client(name))
    client = machine.get()
    assert (client.last["verb"], client.last["status"]) == ("refused", "75")
    assert "bob has card 0, card 1; carol has card 2, card 3" in client.last["say"]
    assert "--wait" in client.last["say"]
    assert machine.files("queue") == []


def test_the_line_moves_when_a_command_ends_however_it_ends(machine):
    running = [machine.get() for _ in range(4)]
    first, second = machine.get(wait=1), machine.get(wait=1)
    assert (first.last["position"], second.last["position"], second.last["of"]) == ("1", "2", "2")
    assert not machine.broker.due()
    machine.end(running[2].peer.pid)
    assert machine.broker.due()
    machine.broker.serve()
    assert first.last["visible"] == "GPU-2"
    assert second.last["position"] == "1"
    assert len(machine.files("leases")) == 4, "what is over is swept up"


def test_a_lease_lives_while_anything_it_started_lives(machine):
    client = machine.get()
    group = machine.root / f"sys/fs/cgroup/{LEASE_1}/cgroup.procs"
    group.write_text(f"{client.peer.pid}\n9999\n")
    machine.end(client.peer.pid)
    assert [lease.id for lease in live_leases(machine.root)] == [1]


def test_ctrl_c_leaves_the_line_at_once(machine):
    for _ in range(4):
        machine.get()
    first, second = machine.get(wait=1), machine.get(wait=1)
    machine.broker.hang_up(first)
    machine.clock += 10
    machine.broker.serve()
    assert second.last["position"] == "1"
    assert len(machine.files("queue")) == 1


def test_the_position_is_told_only_when_it_changes(machine):
    for _ in range(4):
        machine.get()
    client = machine.get(wait=1)
    for _ in range(5):
        machine.clock += 10
        machine.broker.serve()
    assert len(client.heard) == 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cards": 5, "wait": 1}, "5 cards are asked for, but this server has 4 cards to give"),
        ({"mem": "100G", "wait": 1}, "the largest device has 80.0 GiB"),
    ],
)
def test_what_can_never_be_is_refused_though_somebody_would_wait(machine, values, words):
    client = machine.get(**values)
    assert words in client.last["say"]
    assert client.last["status"] == "125"


def test_a_driver_that_does_not_answer_frees_nothing_and_keeps_the_line(machine):
    running = [machine.get() for _ in range(4)]
    waits = machine.get(wait=1)
    machine.reason = "the driver did not answer in time"
    machine.end(running[0].peer.pid)
    for _ in range(3):
        machine.clock += 10
        machine.broker.serve()
    assert waits.last["verb"] == "wait"
    assert "did not answer" in waits.last["why"]
    assert "did not answer" in machine.get().last["say"]
    assert [line for line in machine.lines if "did not answer" in line] == [
        "the cards cannot be read: the driver did not answer in time"
    ], "told once"
    machine.reason = ""
    machine.clock += 10
    machine.broker.serve()
    assert waits.last["visible"] == "GPU-0"


def test_a_lost_card_is_never_free_and_says_why(machine):
    machine.lost = {0, 1, 2}
    assert machine.get().last["visible"] == "GPU-3"
    refused = machine.get().last["say"]
    assert "bob has card 3" in refused
    status = json.loads(machine.get(verb="status").last["document"])
    assert [device["reason"] for device in status["devices"]] == ["fallen off the bus"] * 3 + [""]
    assert status["devices"][0]["memory_free"] is None
    two = machine.get(cards=2, wait=1)
    assert "fallen off the bus" in two.last["why"]


def test_a_stranger_keeps_a_card_from_leases_but_not_from_shares(machine):
    for index in range(4):
        machine.use(index, 40 + index, gib=20)
    assert "used without a lease by dave (python, PID 40)" in machine.get().last["say"]
    assert machine.get(share=1, mem="60G").last["visible"] == "GPU-0"
    assert machine.get(share=1, mem="70G").last["verb"] == "refused"


def test_memory_used_inside_a_lease_is_not_counted_twice(machine):
    machine.count = 1
    first = machine.get(share=1, mem="30G")
    machine.use(0, first.peer.pid, gib=28)
    assert machine.get(share=1, mem="50G").last["verb"] == "lease"
    assert machine.get(share=1, mem="1G").last["verb"] == "refused"


def test_a_stopped_process_keeps_its_place_and_gets_no_card(machine):
    for _ in range(3):
        machine.get()
    last = machine.get()
    stopped, other = machine.get(wait=1), machine.get(wait=1)
    machine.process(stopped.peer.pid, 1001, state="T")
    machine.end(last.peer.pid)
    machine.broker.serve()
    assert stopped.last["verb"] == "wait"
    assert other.last["verb"] == "lease"


def test_a_bound_member_gets_the_own_device_and_others_do_not(machine):
    machine.policy = Policy({"carol": "GPU-0"}, Windows(()))
    assert machine.get().last["visible"] == "GPU-1"
    assert machine.get(machine.client("carol", 1002)).last["visible"] == "GPU-0"


def test_limits_of_a_member(machine):
    machine.settings = Allocator(max_leases=1)
    machine.start()
    machine.get()
    assert "you have 1 of the 1 leases" in machine.get().last["say"]
    assert machine.get(machine.client("carol", 1002)).last["verb"] == "lease"


def test_a_dry_run_says_which_card_and_why_and_takes_nothing(machine):
    machine.use(0, 40, gib=1, kind="G")
    client = machine.get(verb="plan")
    assert client.last["say"] == "card 1, GPU-1: 80 of 80 GiB free, nobody has it"
    assert (machine.moved, machine.files("leases"), machine.files("queue")) == ([], [], [])
    for _ in range(4):
        machine.get()
    assert machine.get(verb="plan").last["status"] == "75"


# The usual table: in the afternoon one card, four hours at most.


@pytest.mark.parametrize("admin", [False, True])
def test_the_golden_hours_hold_back_what_breaks_them_until_they_are_over(machine, admin):
    table = parse_windows(DEFAULT_TABLE)
    afternoon, evening = datetime(2026, 12, 1, 15), datetime(2026, 12, 1, 19)  # noqa: DTZ001 - server time is naive
    strict = Policy(windows=Windows(table, "refuse"), now=afternoon, admin=lambda _: admin)
    machine.policy = strict
    now = machine.get(cards=2)
    if admin:
        assert now.last["verb"] == "lease"
        assert "gpulab windows" in now.last["hint"]
        return
    waits, small = machine.get(cards=2, wait=1), machine.get()
    assert small.last["verb"] == "lease", "who keeps the rule is not held up"
    assert now.last["status"] == "75"
    assert "gpulab windows" in now.last["say"]
    assert "gpulab windows" in waits.last["why"]
    machine.policy = replace(strict, now=evening)
    machine.clock += 10
    machine.broker.serve()
    assert waits.last["verb"] == "lease"


def test_the_golden_hours_warn_where_they_do_not_refuse(machine):
    afternoon = datetime(2026, 12, 1, 15)  # noqa: DTZ001 - server time is naive
    machine.policy = Policy(windows=Windows(parse_windows(DEFAULT_TABLE)), now=afternoon, admin=lambda _: False)
    client = machine.get(hours=40)
    assert client.last["verb"] == "lease"
    assert "gpulab windows" in client.last["hint"]


# Restarts


def test_after_a_restart_leases_and_the_order_of_the_line_are_as_before(machine):
    running = [machine.get() for _ in range(4)]
    waiting = [machine.get(wait=1) for _ in range(3)]
    machine.start()
    # They come back in another order, and one that comes anew in between.
    late = machine.get(wait=1)
    back = [machine.get(machine.again(client), again=1, wait=1) for client in reversed(waiting)][::-1]
    assert [client.last["position"] for client in back] == ["1", "2", "3"]
    assert late.last["position"] == "4"
    machine.end(running[0].peer.pid)
    machine.broker.serve()
    assert back[0].last["visible"] == "GPU-0"
    assert [client.last["position"] for client in (*back[1:], late)] == ["1", "2", "3"]


def test_one_that_asks_again_while_the_driver_is_away_keeps_its_place(machine):
    for _ in range(4):
        machine.get()
    waits = machine.get(wait=1)
    machine.reason = "the driver did not answer in time"
    machine.start()
    back = machine.get(machine.again(waits), again=1, wait=1)
    assert (back.last["verb"], back.last["position"]) == ("wait", "1")


def test_one_whose_turn_comes_before_it_is_back_finds_its_card(machine):
    running = [machine.get() for _ in range(4)]
    waits = machine.get(wait=1)
    machine.start()
    machine.end(running[1].peer.pid)
    machine.clock += 10
    assert machine.broker.due()
    machine.broker.serve()
    assert machine.moved[-1].pid == waits.peer.pid
    back = machine.get(machine.again(waits), again=1, wait=1)
    assert back.last["visible"] == "GPU-1"
    assert len(machine.moved) == 5, "it is not moved twice"


def test_killed_between_the_lease_and_the_move_the_client_is_moved_when_it_asks_again(machine, monkeypatch):
    client = machine.ask(machine.client(), wait=1)
    monkeypatch.setattr(machine.broker, "_move", lambda _: None)
    machine.broker.serve()
    monkeypatch.undo()
    machine.start()
    other = machine.get()
    assert other.last["visible"] == "GPU-1", "its card is not given to another meanwhile"
    back = machine.get(machine.again(client), again=1, wait=1)
    assert back.last["visible"] == "GPU-0"
    assert machine.moved[-1].pid == client.peer.pid


def test_killed_between_the_lease_and_the_ticket_nobody_has_two_places(machine):
    client = machine.ask(machine.client(), wait=1)
    ticket = (machine.root / "run/gpulab/queue/1.json").read_text()
    machine.broker.serve()
    (machine.root / "run/gpulab/queue/1.json").write_text(ticket)
    machine.start()
    assert not machine.broker.waiting
    assert machine.files("queue") == []
    assert client.last["verb"] == "lease"


def test_a_client_that_died_meanwhile_leaves_nothing(machine):
    for _ in range(4):
        machine.get()
    waits = machine.get(wait=1)
    machine.start()
    machine.end(waits.peer.pid)
    machine.clock += 10
    machine.broker.serve()
    assert machine.files("queue") == []


def test_numbers_are_never_used_twice(machine):
    client = machine.get()
    machine.end(client.peer.pid)
    (machine.root / "run/gpulab/serial").write_text("not a number")
    machine.start()
    again = machine.get()
    assert int(again.last["id"]) == 2, "the lease on file is counted though the serial is damaged"


def test_a_damaged_file_hides_no_other(machine):
    machine.get()
    machine.get()
    (machine.root / "run/gpulab/leases/1.json").write_text('{"id": 1}')
    assert [lease.id for lease in LeaseStore(machine.root).leases()] == [2]


# Attacks


@pytest.mark.parametrize("again", [{}, {"again": 1}])
def test_a_process_inside_a_lease_gets_no_second_one(machine, again):
    client = machine.get()
    other = machine.client()
    machine.process(other.peer.pid, 1001)
    (machine.root / f"proc/{other.peer.pid}/cgroup").write_text(f"0::/{LEASE_1}\n")
    assert "runs inside lease 1 already" in machine.get(other, **again).last["say"]
    assert "runs inside lease 1 already" in machine.get(machine.again(client)).last["say"]
    assert len(machine.moved) == 1


def test_one_process_has_one_place_in_line(machine):
    for _ in range(4):
        machine.get()
    client = machine.get(wait=1)
    for values in ({"wait": 1}, {"wait": 1, "again": 1}):
        twin = machine.get(machine.again(client), **values)
        assert twin.last["say"] == "this process stands in line already"


def test_one_that_turned_into_a_setuid_program_while_waiting_gets_nothing(machine):
    running = [machine.get() for _ in range(4)]
    waits = machine.get(wait=1)
    machine.process(waits.peer.pid, 1001, uids="1001\t0\t0\t0")
    machine.end(running[0].peer.pid)
    machine.broker.serve()
    assert "other rights" in waits.last["say"]
    assert len(machine.moved) == 4
    assert len(live_leases(machine.root)) == 3


def test_one_that_dies_between_request_and_decision_is_not_moved_nor_its_pids_next_owner(machine):
    client = machine.ask(machine.client())
    machine.end(client.peer.pid)
    machine.process(client.peer.pid, 1002)  # reused by carol's process, with another start time
    stat = machine.root / f"proc/{client.peer.pid}/stat"
    stat.write_text(stat.read_text().replace("7 0", "8 0"))
    machine.broker.serve()
    assert machine.moved == []
    assert machine.files("leases") == []


def test_a_move_that_fails_leaves_no_lease(machine):
    machine.complaint = "systemd would not make gpulab-lease-1.scope: No such process"
    client = machine.get()
    assert client.last == {"verb": "refused", "status": "125", "say": machine.complaint}
    machine.complaint = ""
    assert machine.get().last["visible"] == "GPU-1", (
        "systemd may still move the process: its card is not free before it ends"
    )
    machine.end(client.peer.pid)
    assert machine.get().last["visible"] == "GPU-0"


def test_who_leaves_a_lease_with_others_in_it_does_not_free_its_card(machine):
    client = machine.get()
    scope = machine.root / f"sys/fs/cgroup/{LEASE_1}/cgroup.procs"
    machine.process(4999, 1001)
    scope.write_text("4999\n")  # a child stays; its owner's systemd took the process itself out
    (machine.root / f"proc/{client.peer.pid}/cgroup").write_text("0::/user.slice\n")
    machine.complaint = "systemd would not make gpulab-lease-1.scope: already loaded"
    back = machine.get(machine.again(client), again=1)
    assert "has left lease 1, in which others run" in back.last["say"]
    assert machine.files("leases") == ["1.json"]
    machine.complaint = ""
    assert machine.get().last["visible"] == "GPU-1"


def test_a_card_that_something_outside_still_has_open_is_not_free(machine):
    client = machine.get()
    machine.strays["/dev/nvidia3"] = "bob (python, PID 4999)"  # card 0 has minor 3
    machine.end(client.peer.pid)
    for _ in range(2):
        assert machine.get(machine.client("carol", 1002)).last["visible"] != "GPU-0"
    assert machine.files("leases") == ["1.json", "2.json", "3.json"]
    assert machine.lines == ["lease 1 of bob has ended, but bob (python, PID 4999) still has its card open"], (
        "told once"
    )
    status = json.loads(machine.get(machine.client("carol", 1002), "status").last["document"])
    assert status["leases"][0]["stray"] == "bob (python, PID 4999)"
    waits = machine.get(machine.client("carol", 1002), cards=2, wait=1)
    machine.clock += 1
    assert not machine.broker.due(), "a stray is no reason to ask NVML all the time"
    machine.strays.clear()
    machine.clock += 1
    assert machine.broker.due()
    machine.broker.serve()
    assert waits.last["visible"] == "GPU-0,GPU-3"


def test_leases_outlast_a_time_in_which_the_cards_cannot_be_read(machine):
    client = machine.get()
    machine.strays["/dev/nvidia3"] = "bob (python, PID 4999)"
    machine.end(client.peer.pid)
    machine.reason = "the driver is away"
    machine.get()
    machine.reason = ""
    assert machine.get().last["visible"] == "GPU-1"


def test_the_connection_of_an_asker_that_has_ended_is_ended(machine):
    for _ in range(4):
        machine.get()
    waits = machine.get(wait=1)
    machine.end(waits.peer.pid)  # a child still has its socket, so the connection stays open
    machine.broker.serve()
    assert waits.closed
    assert machine.files("queue") == []


def test_a_missing_node_is_told_to_the_admin_and_stops_nobody(machine):
    machine.nodes_complaint = "/dev/nvidia-uvm is not there"
    assert machine.get().last["verb"] == "lease"
    assert machine.lines == ["lease 1: /dev/nvidia-uvm is not there"]


def test_root_takes_no_lease(machine):
    assert "root takes no lease" in machine.get(machine.client("root", 0)).last["say"]


def test_a_full_disk_is_told_and_gives_nothing(machine, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LeaseStore, "save_lease", full)
    client = machine.get()
    assert "cannot write /run/gpulab (No space left on device)" in client.last["say"]
    assert machine.moved == []
