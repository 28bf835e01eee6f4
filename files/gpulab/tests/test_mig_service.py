"""MIG as a transaction, through nvidia-ml-py and the simulated library: whatever happens, the old layout or the new."""

from __future__ import annotations

import json
import os
import pwd
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gpulab.rules.mig_check import layouts
from gpulab.rules.mig_known import known_profiles
from mig_machine import Machine, Worker, bare, built, names, noted, writes  # noqa: F401 - bare is a fixture

UNKNOWN = 999
SIGKILL = 9
SWITCH = "nvmlDeviceSetMigMode"
LAYOUT = {0: "3g.40gb,2g.20gb,1g.10gb"}
OTHER = {0: "4g.40gb,3g.40gb"}
USER = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def machine(bare):  # noqa: F811 - the fixture imported above
    bare.gpusim("init", "--cards", "a100-sxm4-80gb:1,h100-sxm5-80gb:1")
    return bare


def test_a_layout_is_made_with_a_compute_instance_in_each_part(machine):
    assert machine.must_apply(LAYOUT) == ["changed"]
    assert machine.layout(0) == (True, True, ((9, 4, ((2, 0),)), (14, 2, ((1, 0),)), (19, 1, ((0, 0),))))
    assert machine.layout(1) == (False, False, ())


def test_both_generations_and_off(machine):
    assert machine.must_apply({0: "7g.80gb", 1: "1g.10gb"}) == ["changed", "changed"]
    assert (names(machine, 0), names(machine, 1)) == (["7g"], ["1g"])
    assert machine.must_apply({0: "off", 1: "off"}) == ["changed", "changed"]
    assert machine.layout(0) == machine.layout(1) == (False, False, ())


def test_the_second_time_nothing_is_written(machine):
    first = machine.calls(lambda **traced: machine.apply(LAYOUT, **traced))
    assert len(writes(first)) == 7
    second = machine.calls(lambda **traced: machine.apply(LAYOUT, **traced))
    assert writes(second) == []
    assert machine.apply(LAYOUT)["answer"]["changed"] is False


def test_looking_changes_nothing(machine):
    before = machine.snapshot()
    planned = machine.plan(LAYOUT)["answer"]
    assert planned["changed"] is True
    assert planned["cards"][0]["steps"] == [
        "switch MIG on",
        "make 1g.10gb at 1",
        "make 2g.20gb at 2",
        "make 3g.40gb at 4",
    ]
    assert machine.snapshot() == before
    machine.must_apply(LAYOUT)
    assert machine.plan(LAYOUT)["answer"]["changed"] is False


def test_what_fits_already_keeps_its_name(machine):
    machine.must_apply(LAYOUT)
    before = machine.uuids()
    machine.must_apply(OTHER)
    assert names(machine) == ["3g", "4g"]
    kept = set(before.values()) & set(machine.uuids().values())
    assert len(kept) == 1


def test_narrower_compute_instances(machine):
    machine.must_apply({0: ["1c.3g.40gb", "2c.3g.40gb", "3g.40gb"]})
    assert [computes for _, _, computes in machine.layout()[2]] == [((2, 0),), ((0, 2), (1, 0))]
    assert machine.must_apply({0: ["1c.3g.40gb", "2c.3g.40gb", "3g.40gb"]}) == ["unchanged"]
    machine.must_apply({0: "3g.40gb,3g.40gb"})
    assert {computes for _, _, computes in machine.layout()[2]} == {((2, 0),)}


BAD = {
    "case and name": (
        {0: "1G.10gb,3G.20gb,3G.20gb"},
        "card 0 (NVIDIA A100-SXM4-80GB): 1G.10gb: profile names are",
    ),
    "no room, though the other card could": ({1: "1g.10gb", 0: "3g.40gb,3g.40gb,1g.10gb"}, "it takes 9 memory slices"),
    "index": ({0: "1g.10gb", 9: "1g.10gb"}, "card 9: it is not there, this machine has 3 cards, 0 to 2"),
    "no MIG": ({2: "1g.10gb", 0: "1g.10gb"}, "card 2 (NVIDIA L40S): MIG is asked for and the card cannot be split"),
}


@pytest.mark.parametrize(("layout", "message"), BAD.values(), ids=BAD)
def test_a_layout_that_cannot_be_is_refused_before_anything_is_touched(bare, layout, message):  # noqa: F811
    bare.gpusim("init", "--cards", "a100-sxm4-80gb:1,h100-sxm5-80gb:1,l40s:1")
    calls = bare.calls(lambda **traced: bare.apply(layout, **traced))
    assert writes(calls) == []
    answer = bare.apply(layout, record=True)
    assert (answer["kind"], "\n" in answer["error"]) == ("InputError", False)
    assert message in answer["error"]
    assert not list(bare.root.glob("etc/**/*.json"))


def test_equal_problems_are_told_once(bare):  # noqa: F811
    bare.gpusim("init", "--cards", "a100-sxm4-40gb:2,a100-sxm4-80gb:2")
    error = bare.plan(dict.fromkeys(range(4), "1G.10gb,3G.20gb,3G.20gb"))["error"]
    assert error.count("cards 0, 1 (NVIDIA A100-SXM4-40GB): 1G.10gb, 3G.20gb: profile names are lower case") == 1
    assert error.count("cards 2, 3 (NVIDIA A100-SXM4-80GB): 1G.10gb: profile names are lower case") == 1
    assert "it takes 10 memory slices of 8; nearest that fit: 3g.20gb,2g.10gb,1g.10gb | 3g.20gb,3g.20gb |" in error
    assert "it takes 9 memory slices of 8; nearest that fit: 3g.40gb,3g.40gb |" in error


@pytest.mark.parametrize(("model", "device", "number"), [("a30", 0x20B710DE, 19), ("h200-sxm5-141gb", 0x233510DE, 25)])
def test_from_any_layout_to_any_other(bare, model, device, number):  # noqa: F811
    """The places we choose are ones the library takes, whatever is there before."""
    bare.gpusim("init", "--cards", f"{model}:1")
    possible = list(layouts(known_profiles(device)))
    for wanted in random.Random(model).sample(possible, number):
        assert set(bare.must_apply({0: ",".join(profile.name for profile in wanted)})) <= {"changed", "unchanged"}
        made = bare.layout(0)[2]
        assert sorted(profile for profile, _, _ in made) == sorted(profile.id for profile in wanted)
        assert all(len(computes) == 1 for _, _, computes in made)


# In use


def test_a_card_in_use_is_left_alone_and_the_other_is_not(machine):
    child = machine.start("--gpu", "0", "--mem", "5G")
    before = machine.layout(0)
    answer = machine.apply({0: "7g.80gb", 1: "7g.80gb"}, record=True)["answer"]
    assert [card["result"] for card in answer["cards"]] == ["refused", "changed"]
    assert f"in use by {USER} (sleep, PID {child.pid})" in answer["cards"][0]["reason"]
    assert (machine.layout(0), names(machine, 1)) == (before, ["7g"])
    assert noted(machine) == {1: {"7g.80gb": 1}}
    machine.stop(child)
    assert machine.must_apply({0: "7g.80gb", 1: "7g.80gb"}) == ["changed", "unchanged"]


def test_a_process_in_an_instance_that_would_stay_still_protects_the_card(machine):
    machine.must_apply(LAYOUT)
    uuid = machine.uuids()["2"]
    child = machine.start("--mig", uuid)
    answer = machine.apply(OTHER)["answer"]["cards"][0]
    assert answer["result"] == "refused"
    assert f"PID {child.pid}" in answer["reason"]
    assert machine.plan(OTHER)["answer"]["cards"][0]["result"] == "refused"
    assert machine.must_apply(LAYOUT) == ["unchanged"]


def test_a_card_whose_processes_are_unknown_counts_as_in_use(machine):
    machine.gpusim("fail", "--call", "nvmlDeviceGetComputeRunningProcesses*", "--gpu", 0)
    answer = machine.apply(LAYOUT)["answer"]["cards"][0]
    assert answer["result"] == "refused"
    assert answer["reason"].startswith("whether it is in use cannot be told")
    assert machine.layout(0) == (False, False, ())


# Faults


SHARED = {0: ["1c.3g.40gb", "1c.3g.40gb", "2g.20gb"]}
CHANGES = {
    "on": ([], LAYOUT),
    # One instance goes, one comes, and one stays with other compute instances in it.
    "other": ([SHARED], OTHER),
    "off": ([OTHER], {0: "off"}),
}


def begin(bare, history, wanted):  # noqa: F811
    """Bring a machine into its old state.

    Returns:
        The machine, the wanted layout, the old state and the new one of card 0, how many NVML calls the change takes,
        and everything about the old state.
    """
    bare.gpusim("init", "--cards", "a100-pcie-80gb:1")
    for layout in history:
        bare.must_apply(layout)
    old, start = bare.layout(0), bare.snapshot()
    # nvmlInit and nvmlShutdown are not among those that the simulator counts.
    calls = len(bare.calls(lambda **traced: bare.apply(wanted, **traced))) - 2
    new = bare.layout(0)
    assert old != new
    return bare, wanted, old, new, calls, start


@pytest.fixture(params=CHANGES.values(), ids=CHANGES)
def change(request, bare):  # noqa: F811
    return begin(bare, *request.param)


def restart(machine, start):
    """Put the card back into its old state, with no memory of earlier runs."""
    machine.restore(start)
    shutil.rmtree(machine.root, ignore_errors=True)


def test_killed_at_any_call_the_next_run_arrives(change):
    machine, wanted, _, new, calls, start = change
    arrived = {}
    for number in range(1, calls + 1):
        restart(machine, start)
        assert machine.apply(wanted, GPUSIM_KILL_AT=str(number)) == {"killed": SIGKILL}, number
        # From the same half the next run does the same; each half is gone on from once.
        half = machine.snapshot(), json.dumps(machine.journal())
        if half not in arrived:
            machine.must_apply(wanted)
            arrived[half] = machine.layout(0)
            assert not machine.journal() or machine.journal()["cards"] == {}
    assert set(arrived.values()) == {new}
    assert len(arrived) > 3  # it was really caught half way


def test_a_failure_at_any_call_leaves_the_old_layout_or_the_new(change):
    machine, wanted, old, new, calls, start = change
    for number in range(1, calls + 1):
        restart(machine, start)
        answer = machine.apply(wanted, GPUSIM_FAIL_AT=f"{number}:{UNKNOWN}")
        found = machine.layout(0)
        assert found in {old, new}, number
        succeeded = "answer" in answer and answer["answer"]["cards"][0]["result"] == "changed"
        assert (found == new) == succeeded, number
        assert not machine.journal() or machine.journal()["cards"] == {}


def test_killed_half_way_and_then_failing_the_layout_from_before_the_kill_comes_back(bare):  # noqa: F811
    machine, wanted, old, _, calls, start = begin(bare, *CHANGES["other"])
    backs = 0
    for number in range(1, calls + 1):
        restart(machine, start)
        machine.apply(wanted, GPUSIM_KILL_AT=str(number))
        if machine.layout(0) == old or number % 4:
            continue
        # Late enough to be after the look at the cards, whatever the half looks like.
        answer = machine.apply(wanted, GPUSIM_FAIL_AT=f"{calls - 40}:{UNKNOWN}")
        card = answer["answer"]["cards"][0]
        if card["result"] == "failed" and card["uuid"]:
            assert card["reason"].endswith("; the former layout is in place")
            assert machine.layout(0) == old, number
            backs += 1
    assert backs


def test_when_even_the_way_back_fails_it_says_so_and_finds_it_later(machine):
    machine.must_apply(LAYOUT)
    old = machine.layout(0)
    machine.gpusim("fail", "--call", "nvmlDeviceCreateGpuInstanceWithPlacement", "--error", "insufficient-resources")
    answer = machine.apply({0: "7g.80gb"})["answer"]["cards"][0]
    assert answer["result"] == "failed"
    assert answer["reason"] == (
        "make 7g.80gb at 0: it does not fit beside what is there (NVML: Insufficient Resources); and the former layout "
        "could not be brought back: make 1g.10gb at 1: it does not fit beside what is there "
        "(NVML: Insufficient Resources)"
    )
    machine.gpusim("fail", "--clear")
    machine.gpusim("fail", "--call", "nvmlGpuInstanceCreateComputeInstance", "--gpu", 0)
    assert machine.apply({0: "7g.80gb"})["answer"]["cards"][0]["result"] == "failed"
    machine.gpusim("fail", "--clear")
    machine.gpusim("fail", "--call", "nvmlDeviceSetMigMode")
    assert machine.apply({0: "off"})["answer"]["cards"][0]["reason"].endswith("; the former layout is in place")
    assert machine.layout(0) == old


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            ["--call", "nvmlDeviceSetMigMode", "--error", "no-permission"],
            "switch MIG on: only root may do this; use sudo",
        ),
        (["--call", "nvmlDeviceSetMigMode", "--error", "timeout"], "switch MIG on: the driver did not answer in time"),
        (
            ["--call", SWITCH, "--error", "in-use"],
            (
                "switch MIG on: another program has, such as nvidia-persistenced, DCGM, a monitoring exporter or a "
                "display server, the card open, so it cannot be reset; stop it and try again"
            ),
        ),
        (
            ["--call", "nvmlDeviceCreateGpuInstanceWithPlacement", "--error", "invalid-argument"],
            "make 1g.10gb at 1: the driver knows no such profile or place (NVML: Invalid Argument)",
        ),
        (
            ["--call", "nvmlGpuInstanceCreateComputeInstance", "--error", "unknown"],
            "make 1g.10gb at 1: the driver answered `Unknown Error`; look for lines with NVRM in dmesg",
        ),
    ],
)
def test_what_failed_is_said_in_words_and_the_old_layout_is_there(machine, fault, words):
    machine.gpusim("fail", *fault)
    answer = machine.apply(LAYOUT)["answer"]
    assert answer["changed"] is False
    assert answer["cards"][0]["reason"] == f"{words}; the former layout is in place"
    assert machine.layout(0) == (False, False, ())


def test_a_lost_card_is_reported_and_the_other_gets_its_layout(machine):
    machine.gpusim("fail", "--lost", "--gpu", 0)
    answer = machine.apply({0: "7g.80gb", 1: "7g.80gb"})["answer"]
    assert [card["result"] for card in answer["cards"]] == ["failed", "changed"]
    assert "fallen off the bus" in answer["cards"][0]["reason"]


@pytest.mark.parametrize(("fault", "words"), [(["--unloaded"], "modprobe nvidia"), (["--mismatch", "1.2"], "reboot")])
def test_without_a_driver_it_says_what_to_do(machine, fault, words):
    machine.gpusim("fail", *fault)
    for act in (machine.plan, machine.apply):
        error = act(LAYOUT)["error"]
        assert error.startswith("MIG cannot be looked at: ")
        assert words in error


# Others at the same time


def test_changes_at_the_same_time_wait_for_each_other(machine):
    """Two runs with different wishes: each sees the other's result, and none half of it."""
    other = Machine(Worker(built()), machine.root.parent)
    other.environment = machine.environment
    wishes = [LAYOUT, {0: "1g.10gb,1g.10gb,1g.10gb,1g.10gb"}]
    ends = set()
    machine.must_apply({0: "7g.80gb"})
    start = machine.snapshot()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            machine.restore(start)
            answers = list(pool.map(lambda pair: pair[0].apply(pair[1]), zip((machine, other), wishes, strict=True)))
            assert [answer["answer"]["cards"][0]["result"] for answer in answers] == ["changed", "changed"]
            ends.add(tuple(names(machine)))
    other.worker.close()
    assert ends <= {("1g", "2g", "3g"), ("1g", "1g", "1g", "1g")}


@pytest.mark.parametrize("content", ['{"boot": ', "[]", '{"boot": "BOOT", "cards": {"GPU-0": {"enabled": true}}}'])
def test_a_damaged_journal_is_put_aside(machine, content):
    journal = machine.root / "var/lib/gpulab/mig/unfinished.json"
    journal.parent.mkdir(parents=True)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    journal.write_text(content.replace("BOOT", boot))
    assert machine.must_apply(LAYOUT) == ["changed"]
    assert journal.with_name("unfinished.json.corrupt").exists()
    assert json.loads(journal.read_text())["cards"] == {}
