"""Role mig: cards are split as asked for, never under anybody's work, never by half, and again after a reboot."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Person, Play
    from testinfra.host import Host

ASKED = {0: ["1g.10gb", "2g.20gb", "3g.40gb"], 1: "off", 2: ["3g.40gb", "4g.40gb"]}
NOTE = "/etc/gpulab/mig.json"
BINDINGS = "/run/gpulab/bindings"
UNIT = "gpulab-mig.service"


def layout(host: Host) -> dict[int, Any]:
    """Return the profiles that programs can be given, as NVML shows them to everybody."""
    cards = json.loads(host.check_output("gpulab info --json"))["cards"]
    return {
        card["index"]: sorted(device["profile"] for device in card["mig_devices"]) if card["mig_enabled"] else "off"
        for card in cards
        if card["mig_capable"]
    }


def in_order(host: Host) -> dict[int, list[str]]:
    """Return the UUIDs of each card's MIG devices."""
    cards = json.loads(host.check_output("gpulab info --json"))["cards"]
    return {card["index"]: [device["uuid"] for device in card["mig_devices"]] for card in cards}


@pytest.fixture(autouse=True)
def _back_to_the_layout_asked_for(host: Host) -> Iterator[None]:
    yield
    host.run("gpusim fail --clear")
    host.run_expect([0], "gpulab mig apply")


@contextmanager
def work(host: Host, user: str, *arguments: str) -> Iterator[int]:
    """Let somebody use a card; yield the pid."""
    options = " ".join(arguments)
    host.run_expect([0], f"runuser -l {user} -c 'setsid gpusim run {options} -- sleep 900 >/dev/null 2>&1 &'")
    for _ in range(50):
        seen = json.loads(host.check_output("gpulab info --json"))["cards"]
        pids = [each["pid"] for card in seen for each in card["processes"] or [] if each["user"] == user]
        if pids:
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"no process of {user} shows up")
    try:
        yield pids[0]
    finally:
        host.run_expect([0], f"kill {pids[0]}")
        for _ in range(50):
            if host.run(f"kill -0 {pids[0]}").rc != 0:
                break
            time.sleep(0.1)


def run(play: Play, tasks: str = "main.yml", **variables: Any) -> tuple[int, str]:
    """Run the role on this machine with other variables; return the exit status and all that was said."""
    ran = play(tasks=tasks, **variables)
    return ran.returncode, ran.said


def test_the_cards_have_what_is_asked_for(host: Host) -> None:
    assert layout(host) == ASKED
    assert host.check_output("gpulab mig plan").count("as it shall be") == 3


def test_a_member_can_use_an_instance_and_sees_only_that(host: Host) -> None:
    uuid = in_order(host)[0][0]
    with work(host, "bob", "--mig", uuid, "--mem", "5G"):
        cards = json.loads(host.check_output("runuser -u bob -- gpulab info --json"))["cards"]
        assert [device["memory_used"] for device in cards[0]["mig_devices"] if device["uuid"] == uuid] == [5 << 30]


def test_a_card_in_use_is_refused_by_name_and_the_others_are_changed(host: Host, play: Play) -> None:
    before = in_order(host)
    with work(host, "bob", "--mig", before[0][0]) as pid:
        others = {"0": "7g.80gb", "1": "off", "2": "7g.80gb"}
        status, said = run(play, mig_config=others, mig_members=[{"name": "bob", "gpu": "mig-0-0"}])
        assert status != 0
        assert f"card 0 (NVIDIA A100-SXM4-80GB): in use by bob (sleep, PID {pid}); run this again when" in said
        assert in_order(host)[0] == before[0]
        assert layout(host)[2] == ["7g.80gb"]
        # What is noted down for the next boot is what each card has.
        assert "as it shall be" in host.check_output("gpulab mig plan").splitlines()[0]
        assert host.run("gpulab mig apply").rc == 0
    status, said = run(play)
    assert status == 0, said
    assert layout(host) == ASKED


def test_a_failure_in_the_middle_brings_the_former_layout_back(host: Host, play: Play) -> None:
    host.run_expect([0], "gpusim fail --call nvmlGpuInstanceCreateComputeInstance --gpu 0")
    status, said = run(play, mig_config={"0": "3g.40gb,2g.20gb,1g.10gb,1g.10gb", "1": "off", "2": "4g.40gb,3g.40gb"})
    assert status != 0
    assert "make 1g.10gb at 0: the driver answered `Unknown Error`; look for lines with NVRM in dmesg" in said
    assert "the former layout is in place" in said
    assert layout(host) == ASKED


def test_after_a_reboot_of_the_cards_the_service_brings_the_layout_back(host: Host) -> None:
    host.run_expect([0], "gpusim reboot")
    assert layout(host) == {0: [], 1: "off", 2: "off"}  # Ampere remembers that MIG is on, Hopper does not
    host.run_expect([0], f"systemctl restart {UNIT}")
    assert layout(host) == ASKED


def test_a_rebooted_machine_has_its_layout_before_anything_may_use_the_cards(host: Host) -> None:
    before = in_order(host)
    subprocess.run(["podman", "restart", "--time=2", host.backend.name], check=True, capture_output=True)
    for _ in range(100):
        if host.run("systemctl is-active multi-user.target").stdout.strip() == "active":
            break
        time.sleep(0.1)
    assert layout(host) == ASKED
    assert in_order(host) != before  # it really went and came back

    def moment(unit: str, what: str) -> int:
        return int(host.check_output(f"systemctl show --property={what}TimestampMonotonic --value {unit}"))

    assert host.check_output(f"cat {BINDINGS}") == f"bob {own(host, 1)}"
    done = moment(UNIT, "ActiveEnter")
    assert 0 < done <= moment("basic.target", "ActiveEnter")
    for later in ("systemd-user-sessions.service", "systemd-logind.service", "multi-user.target"):
        assert done <= moment(later, "InactiveExit"), later
    assert "ordering cycle" not in host.check_output("journalctl --boot --no-pager")


def test_a_dead_card_does_not_cost_the_others_their_layout_at_boot(host: Host) -> None:
    host.run_expect([0], "gpusim reboot")
    host.run_expect([0], "gpusim fail --lost --gpu 0")
    assert host.run(f"systemctl restart {UNIT}").rc != 0
    cards = json.loads(host.check_output("gpulab info --json"))["cards"]
    assert sorted(device["profile"] for device in cards[2]["mig_devices"]) == ASKED[2]
    assert "card 0: the card has fallen off the bus" in host.check_output(f"journalctl --no-pager --unit {UNIT}")


def test_the_recipe_from_the_web_is_refused_with_what_would_work(host: Host, play: Play) -> None:
    before, note = in_order(host), host.file(NOTE).content_string
    status, said = run(play, mig_config={"0": "1G.10gb,3G.20gb,3G.20gb"})
    assert status != 0
    assert "3g.40gb,3g.40gb,1g.10gb would not fit: it takes 9 memory slices of 8; nearest that fit: 3g.40gb," in said
    assert "changed=0" in said
    assert (in_order(host), host.file(NOTE).content_string) == (before, note)


DOCUMENT = {"version": "v1", "mig-configs": {"a": [{"devices": [0], "mig-enabled": False}], "b": [{"devcies": "all"}]}}


@pytest.mark.parametrize(
    ("layout_text", "message"),
    [
        ('{"3": "1g.10gb"}', "card 3 (NVIDIA L40S): MIG is asked for and the card cannot be split"),
        ('{"9": "1g.10gb"}', "card 9: it is not there, this machine has 4 cards, 0 to 3"),
        ('{"0": "off", "0": "off"}', "key '0' stands 2 times"),
        (json.dumps(DOCUMENT), "'b', entry 1: key 'devcies' is unknown"),
    ],
    ids=["no MIG", "index", "twice", "key"],
)
def test_bad_input_is_one_line_and_touches_nothing(host: Host, layout_text: str, message: str) -> None:
    before, note = in_order(host), host.file(NOTE).content_string
    ran = host.run(f"printf %s {shlex.quote(layout_text)} > /tmp/other.json; gpulab mig apply --file /tmp/other.json")
    assert (ran.rc, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert message in ran.stderr
    assert (in_order(host), host.file(NOTE).content_string) == (before, note)


def test_members_may_look_and_not_touch(host: Host) -> None:
    refused = host.run("runuser -u bob -- gpulab mig apply")
    assert refused.rc == 3
    assert refused.stderr.endswith("gpulab: only root may change MIG; use sudo\n")
    assert host.run(f"runuser -u bob -- cat {NOTE}").rc == 0


DEVICE = "echo $CUDA_VISIBLE_DEVICES"


def own(host: Host, number: int, card: int = 0) -> str:
    """Return the UUID of an instance by its numbers, as a member would look it up."""
    return in_order(host)[card][number]


def test_a_bound_member_logs_in_and_works_on_their_own_instance(host: Host, as_member: Person) -> None:
    assert as_member("bob", DEVICE).stdout.strip() == own(host, 1)
    assert as_member("carol", DEVICE).stdout.strip() == ""
    with work(host, "bob"):
        cards = json.loads(host.check_output("gpulab info --json"))["cards"]
        used = {device["uuid"] for device in cards[0]["mig_devices"] if device["memory_used"]}
        places = {(each["gpu_instance"], each["compute_instance"]) for each in cards[0]["processes"]}
        assert used == {own(host, 1)}
        assert places == {(cards[0]["mig_devices"][1]["gpu_instance"], 0)}


@pytest.mark.parametrize(
    "shell",
    [
        "runuser -u bob -- env -i LOGNAME=bob HOME=/home/bob SSH_CLIENT='192.0.2.1 1 22' bash -c 'CMD'",  # ssh HOST CMD
        "runuser -u bob -- env -i LOGNAME=bob HOME=/home/bob bash -ic 'CMD'",
        "runuser -u bob -- env -i LOGNAME=bob HOME=/home/bob zsh -c 'CMD'",
        "runuser -u bob -- env -i LOGNAME=bob HOME=/home/bob dash -lc 'CMD'",
        "su -l bob -c 'CMD'",
    ],
    ids=["ssh command", "interactive", "zsh", "dash", "su"],
)
def test_other_shells_know_it_too(host: Host, shell: str) -> None:
    assert host.check_output(shell.replace("CMD", DEVICE)).strip() == own(host, 1)


def test_what_a_member_has_chosen_stays(as_member: Person) -> None:
    for chosen in ("2", ""):
        inner = f"CUDA_VISIBLE_DEVICES={chosen} bash -lc 'echo \"<$CUDA_VISIBLE_DEVICES>\"'"
        assert as_member("bob", inner).stdout.strip() == f"<{chosen}>"
    assert as_member("bob", "unset CUDA_VISIBLE_DEVICES; bash -lc 'echo ${CUDA_VISIBLE_DEVICES-no}'").stdout == "no\n"


def test_a_new_layout_and_a_reboot_bring_new_uuids_to_new_shells(host: Host, as_member: Person, play: Play) -> None:
    before = own(host, 1)
    status, said = run(play, mig_config={"0": "4g.40gb,3g.40gb", "1": "off", "2": "4g.40gb,3g.40gb"})
    assert status == 0, said
    changed = own(host, 1)
    assert changed != before
    assert as_member("bob", DEVICE).stdout.strip() == changed
    # A shell within a session that is older than the layout, as in tmux.
    old = f"CUDA_VISIBLE_DEVICES={before} GPULAB_MIG_DEVICE={before} bash -lc '{DEVICE}'"
    assert as_member("bob", old).stdout.strip() == changed
    status, said = run(play)
    assert status == 0, said
    host.run_expect([0], "gpusim reboot")
    host.run_expect([0], "rm /run/gpulab/bindings")
    host.run_expect([0], f"systemctl restart {UNIT}")
    assert as_member("bob", DEVICE).stdout.strip() == own(host, 1) != changed


def test_members_are_spread_and_bound_again_and_let_go(host: Host, as_member: Person, play: Play) -> None:
    status, said = run(play, mig_spread=True)
    assert status == 0, said
    everybody = {user: as_member(user, DEVICE).stdout.strip() for user in ("alice", "bob", "carol")}
    assert everybody["bob"] == own(host, 1)
    assert len(set(everybody.values())) == 3
    assert all(uuid.startswith("MIG-") for uuid in everybody.values())
    for expected in ("changed=1 ", "changed=0 "):
        status, said = run(play, mig_members=[{"name": "bob", "gpu": "mig-0-0"}])
        assert status == 0, said
        assert as_member("bob", DEVICE).stdout.strip() == own(host, 0)
        assert as_member("carol", DEVICE).stdout.strip() == ""
        assert expected in said
    status, said = run(play, mig_members=[])
    assert status == 0, said
    assert as_member("bob", DEVICE).stdout.strip() == ""
    assert host.run("ls -d /run/gpulab/bindings /etc/gpulab/bindings.json /etc/profile.d/gpulab-mig.sh").stdout == ""
    assert host.run("grep gpulab /etc/bash.bashrc /etc/zsh/zshenv").stdout == ""
    status, said = run(play)
    assert status == 0, said


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ("mig-0-3", "gpu is mig-0-3; mig_layout makes only mig-0-0 to mig-0-2 there; choose one, or give another gpu"),
        ("first", "gpu is 'first'; give an instance as mig-CARD-INSTANCE, such as mig-0-1, or none"),
    ],
)
def test_an_instance_that_is_not_there_is_refused_before_anything_changes(
    host: Host, play: Play, gpu: str, message: str
) -> None:
    before = in_order(host), host.file(NOTE).content_string
    status, said = run(
        play,
        mig_config={"0": "3g.40gb,2g.20gb,1g.10gb", "1": "off", "2": "7g.80gb"},
        mig_members=[{"name": "bob", "gpu": gpu}],
    )
    assert status != 0
    assert f"lab_members, member bob: {message}" in said
    assert "changed=0" in said
    assert (in_order(host), host.file(NOTE).content_string) == before


def test_the_way_out_leaves_the_cards_as_they_are(host: Host, play: Play) -> None:
    before = in_order(host)
    for expected in ("changed=3 ", "changed=0 "):  # service and notes, hook, lines in start files
        status, said = run(play, mig_config={})
        assert status == 0, said
        assert expected in said
    assert host.run(f"ls -d {NOTE} {BINDINGS} /var/lib/gpulab/mig /etc/systemd/system/{UNIT}").stdout == ""
    assert host.run(f"systemctl cat {UNIT}").rc != 0
    assert in_order(host) == before
    status, said = run(play)
    assert status == 0, said
    assert in_order(host) == before
    assert host.file(NOTE).exists
