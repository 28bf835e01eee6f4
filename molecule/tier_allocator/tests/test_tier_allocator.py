"""Role tier_allocator: a card for a command while it runs, in the order of asking, whatever is killed."""

from __future__ import annotations

import itertools
import json
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Person, Play
    from testinfra.host import Host

FILES = Path(__file__).parent.parent / "files"
OPEN_NODES = (
    "for n in /dev/nvidia[0-3]; do (: <>$n) 2>&1 | grep -q 'not permitted' && echo no || echo yes; done | tr '\\n' ' '"
)
"""Whether each node may be opened: behind a bare one is no driver, so what is let through ends in ENXIO."""


def leases(host: Host) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(host.check_output("gpulab leases --json"))
    return found


def eventually(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline, pause = time.monotonic() + seconds, 0.1
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(pause)
        pause = min(1.0, 1.5 * pause)  # each question costs the machine something


def put(host: Host, name: str) -> str:
    """Copy a script of this scenario to the machine; return where it is."""
    path = f"/tmp/{name}"
    text = (FILES / name).read_text()
    host.run_expect([0], f"cat >{path} <<'END-OF-SCRIPT'\n{text}\nEND-OF-SCRIPT\nchmod 755 {path}")
    return path


def start(host: Host, user: str, command: str) -> None:
    """Start something in the background, in a login session of its own."""
    host.run_expect([0], f"setsid runuser -l {user} -c {shlex.quote(command)} </dev/null >/dev/null 2>&1 &")


@pytest.fixture(autouse=True)
def free_cards(host: Host) -> Iterator[None]:
    """Begin and end each test with nobody on the cards and nobody in line."""
    yield
    host.run("gpusim fail --clear; pkill -KILL -x allocate_gpu; pkill -KILL -f '^sleep 9[0-9][0-9]'")
    host.run("for s in $(systemctl list-units --plain --no-legend 'gpulab-lease-*.scope' | cut -d' ' -f1); do "
             "systemctl kill --signal=KILL $s; done")  # fmt: skip
    eventually(lambda: not leases(host), "no lease is left")


def hold(host: Host, user: str, options: str = "", seconds: int = 900) -> dict[str, Any]:
    """Let a member have cards; return the lease."""
    before = {lease["id"] for lease in leases(host)}
    start(host, user, f"allocate_gpu {options} -- sleep {seconds}")
    found: list[dict[str, Any]] = []

    def new() -> bool:
        found[:] = [lease for lease in leases(host) if lease["id"] not in before]
        return bool(found)

    eventually(new, f"{user} has a lease")
    return found[0]


# A card for a command


def test_a_command_gets_a_card_and_ends_as_it_ends(as_member: Person) -> None:
    ran = as_member("bob", "allocate_gpu -- sh -c 'echo $CUDA_VISIBLE_DEVICES; exit 7'")
    assert ran.rc == 7
    assert ran.stdout.startswith("GPU-")


def test_two_members_get_different_cards_and_the_emptiest_ones(host: Host, as_member: Person) -> None:
    host.run_expect([0], "gpusim busy --gpu 0 --mem 9G; gpusim busy --gpu 1 --mem 3G")
    hold(host, "bob")
    hold(host, "carol")
    cards = sorted(lease["cards"][0]["index"] for lease in leases(host))
    host.run_expect([0], "gpusim busy --gpu 0 --mem 0G; gpusim busy --gpu 1 --mem 0G")
    assert cards == [2, 3]


def test_a_leased_command_may_open_its_own_cards_and_no_other(host: Host, as_member: Person) -> None:
    taken = hold(host, "carol")["cards"][0]["index"]
    script = f"{OPEN_NODES}; echo; cat /proc/self/cgroup"
    ran = as_member("bob", f"allocate_gpu --gpus 2 -- sh -c {shlex.quote(script)}")
    opened = ran.stdout.splitlines()[0].split()
    assert opened.count("yes") == 2
    assert opened[taken] == "no"
    assert "/gpulab.slice/gpulab-lease.slice/gpulab-lease-" in ran.stdout
    everything = "for n in nvidiactl nvidia-uvm null zero urandom ptmx; do (: <>/dev/$n) 2>&1; done"
    assert "not permitted" not in as_member("bob", f"allocate_gpu -- sh -c {shlex.quote(everything)}").stdout


def test_programs_see_only_the_card_of_the_lease(host: Host, as_member: Person) -> None:
    show = "echo $CUDA_VISIBLE_DEVICES; gpu-status --json"
    ran = as_member("bob", f"allocate_gpu -- gpusim run --mem 5G -- sh -c '{show}'")
    assert ran.rc == 0, ran.stderr
    uuid, _, document = ran.stdout.partition("\n")
    device = next(each for each in json.loads(document)["devices"] if each["uuid"] == uuid)
    assert device["memory_used"] == 5 << 30
    assert device["strangers"] == []
    assert device["memory_free"] == 0, "the card is promised as a whole"


def test_a_login_shell_sees_no_card_and_a_program_says_what_to_type(host: Host, as_member: Person) -> None:
    for user in ("bob", "alice"):
        assert as_member(user, "echo $ALWAYS_SEPARATE_VISIBLE_DEVICES").stdout == "1\n"
        ran = as_member(user, "gpusim run -- true")
        assert ran.rc != 0
        assert "no CUDA-capable device is detected" in ran.stderr
        assert "run-with-allocate_gpu" in ran.stderr
    inside = as_member("bob", "allocate_gpu -- sh -lc 'gpusim run -- true'")
    assert inside.rc == 0, "a login shell inside keeps the card"
    assert host.run("sh -lc 'gpusim run -- true'").rc == 0, "root's shell is as it was"


def test_both_names_and_the_tools_are_there(host: Host, as_member: Person) -> None:
    assert as_member("bob", "allocate_gpu.py -- true").rc == 0
    assert as_member("bob", "gpustat").stdout.count("A100") == 4
    assert "A100" in as_member("bob", "nvitop --once").stdout
    assert "--gpus N" in as_member("bob", "allocate_gpu --help").stdout


def test_at_a_terminal_nothing_is_different(host: Host, as_member: Person) -> None:
    script = put(host, "terminal.py")
    ran = as_member("bob", f"python3 {script}")
    assert ran.rc == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout) == [
        "<tty True True True>",
        "<foreground True>",
        "<typed hello>",
        "<size 111 33>",
        "<interrupted>",
        "Stopped",
        "<continued>",
        "<typed end>",
        "status=42",
        "number 1 of 1 in line",
        "status=130",
    ]


def test_a_full_server_says_who_has_what_and_what_to_type(host: Host, as_member: Person) -> None:
    hold(host, "bob", "--gpus 4")
    ran = as_member("carol", "allocate_gpu -- true")
    assert ran.rc == 75
    assert "bob has card 0, card 1, card 2, card 3" in ran.stderr
    assert "--wait" in ran.stderr
    dry = as_member("carol", "allocate_gpu --dry-run -- true")
    assert dry.rc == 75


def test_jobs_share_a_card_while_their_memory_fits(host: Host, as_member: Person) -> None:
    first = hold(host, "bob", "--share --mem 30G")
    second = hold(host, "carol", "--share --mem 30G")
    third = hold(host, "bob", "--share --mem 30G")
    index = [lease["cards"][0]["index"] for lease in (first, second, third)]
    assert index[0] == index[1] != index[2]
    alone = hold(host, "carol")
    assert alone["cards"][0]["index"] not in index


def test_mig_cards_are_given_by_instance(host: Host, as_member: Person) -> None:
    layout = json.dumps({"3": "3g.40gb,3g.40gb"})
    host.run_expect([0], f"echo {shlex.quote(layout)} >/tmp/layout.json; gpulab mig apply --file /tmp/layout.json")
    host.run_expect([0], "gpusim devnodes")
    try:
        hold(host, "carol", "--gpus 3")
        caps = (
            "echo $CUDA_VISIBLE_DEVICES; for n in /dev/nvidia3 /dev/nvidia-caps/nvidia-cap[0-9]*; do "
            "(: <$n) 2>&1 | grep -q 'not permitted\\|denied' || echo $n; done"
        )
        ran = as_member("bob", f"allocate_gpu -- sh -c {shlex.quote(caps)}")
        uuid, card, *opened = ran.stdout.split()
        assert uuid.startswith("MIG-")
        assert card == "/dev/nvidia3"
        assert len(opened) == 2, "the capability nodes of its GPU instance and compute instance, and no others"
        hold(host, "bob")
        other = as_member("bob", "allocate_gpu -- sh -c 'echo $CUDA_VISIBLE_DEVICES'").stdout.strip()
        assert other.startswith("MIG-")
        assert as_member("bob", "allocate_gpu --gpus 4 -- true").rc == 125, "the split card is no whole one"
    finally:
        host.run("rm -f /etc/gpulab/mig.json; systemctl kill --signal=KILL 'gpulab-lease-*.scope'; sleep 1")
        host.run("""echo '{"3": "off"}' >/tmp/layout.json; gpulab mig apply --file /tmp/layout.json""")
        host.run("rm -f /etc/gpulab/mig.json; gpusim devnodes")


# What ends, and what survives


@pytest.mark.parametrize("blow", ["kill -KILL {pid}", "systemctl kill --signal=KILL {scope}"])
def test_a_lease_ends_with_its_command_however_that_ends(host: Host, blow: str) -> None:
    lease = hold(host, "bob")
    host.run_expect([0], blow.format(**lease))
    eventually(lambda: not leases(host), "the card is free")


def test_what_a_command_leaves_running_keeps_the_card(host: Host) -> None:
    start(host, "bob", "allocate_gpu -- sh -c 'setsid sleep 901 & exit'")
    eventually(lambda: bool(leases(host)), "there is a lease")
    eventually(lambda: host.run("pgrep -x allocate_gpu").rc != 0, "the command itself is over")
    assert len(leases(host)) == 1
    host.run_expect([0], "pkill -KILL -f '^sleep 901'")
    eventually(lambda: not leases(host), "the card is free")


def test_leases_and_the_line_survive_whatever_happens_to_the_broker(host: Host, as_member: Person) -> None:
    lease = hold(host, "bob", "--gpus 4")
    for number in (1, 2, 3):
        start(host, "carol", f"allocate_gpu --wait -- sh -c 'echo {number} >>/tmp/carol-turns; sleep 0.2'")
        eventually(lambda number=number: len(status(as_member)["queue"]) == number, f"{number} wait")
    waiting = [ticket["pid"] for ticket in status(as_member)["queue"]]
    pid = host.check_output("systemctl show -P MainPID gpulab-broker.service")
    for blow in (f"kill -KILL {pid}", "systemctl restart gpulab-broker.service", "systemctl daemon-reload",
                 "systemctl stop gpulab-broker.service", "systemctl restart gpulab-broker.socket"):  # fmt: skip
        host.run_expect([0], blow)
        eventually(lambda: len(status(as_member)["queue"]) == 3, f"the line is there after {blow}")
        assert [ticket["pid"] for ticket in status(as_member)["queue"]] == waiting
        assert [each["id"] for each in leases(host)] == [lease["id"]]
    host.run_expect([0], f"kill {lease['pid']}")
    eventually(lambda: host.run("grep -c . /tmp/carol-turns").stdout == "3\n", "all three had their turn")
    host.run("rm -f /tmp/carol-turns")


def status(as_member: Person, user: str = "carol") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(as_member(user, "gpu-status --json").stdout)
    return document


def test_waiting_ends_when_the_time_is_over_or_at_once_with_ctrl_c(host: Host, as_member: Person) -> None:
    hold(host, "bob", "--gpus 4")
    ran = as_member("carol", "allocate_gpu --wait 2s -- true")
    assert (ran.rc, "no card came free in time" in ran.stderr) == (75, True)
    ran = as_member("carol", "timeout --signal=INT 2 allocate_gpu --wait -- true")
    assert status(as_member)["queue"] == []


def test_a_small_request_does_not_overtake_a_large_one(host: Host, as_member: Person) -> None:
    lease = hold(host, "bob", "--gpus 3")
    start(host, "carol", "allocate_gpu --wait --gpus 4 -- sleep 902")
    eventually(lambda: bool(status(as_member)["queue"]), "carol waits")
    ran = as_member("bob", "allocate_gpu -- true")
    assert "card 3 is kept for those who came before you" in ran.stderr
    host.run_expect([0], f"kill {lease['pid']}")
    eventually(lambda: [len(each["cards"]) for each in leases(host)] == [4], "carol has all four")


def test_shared_memory_of_jobs_outlives_the_login(host: Host) -> None:
    logind = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
    assert host.check_output(f"busctl get-property {logind} RemoveIPC") == "b false"


# Fifty at once


@pytest.fixture(scope="module")
def crowd(host: Host) -> Iterator[None]:
    """Add fifty members."""
    names = " ".join(f"member{number:02}" for number in range(1, 51))
    host.run_expect([0], f"for n in {names}; do useradd --no-create-home --groups gpu-members $n || exit 1; done")
    yield
    host.run(f"for n in {names}; do pkill -KILL -u $n; userdel $n; done")


@pytest.mark.usefixtures("crowd")
@pytest.mark.parametrize(("seed", "kills"), [("quiet", 0), ("rough", 20)])
def test_fifty_members_ask_in_the_same_second(host: Host, seed: str, kills: int) -> None:
    script = put(host, "rush.py")
    ran = host.run(f"python3 {script} {seed} {kills}")
    assert ran.rc == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["stuck"] == 0
    if not kills:
        assert seen["statuses"] == [0] * 50
    assert set(seen["statuses"]) <= {0, -9}, "nobody is refused, nothing else goes wrong"
    # First come, first served: numbers are drawn in the order of asking, cards are given in the order of numbers.
    given = [lease["since"] for lease in seen["leases"]]
    assert given == sorted(given)
    # No card is had by two at a time.
    for uuid in {command["card"] for command in seen["commands"].values()}:
        turns = sorted(
            (command["began"], command["ended"]) for command in seen["commands"].values() if command["card"] == uuid
        )
        assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(turns))
    assert len({command["card"] for command in seen["commands"].values()}) == 4
    assert (seen["left"], seen["waiting"]) == ([], 0)


# Members who try


def test_a_member_cannot_touch_leases_scopes_or_the_line(host: Host, as_member: Person) -> None:
    lease = hold(host, "carol")
    group = host.check_output(f"cat /proc/{lease['pid']}/cgroup").rpartition("0::")[2]
    assert as_member("bob", "ls /run/gpulab/leases").rc != 0
    assert as_member("bob", "touch /run/gpulab/queue/1.json /run/gpulab/x").rc != 0
    assert as_member("bob", f"echo $$ >/sys/fs/cgroup{group}/cgroup.procs").rc != 0
    call = (
        "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager "
        "StartTransientUnit 'ssa(sv)a(sa(sv))' evil.scope fail 1 PIDs au 1 $$ 0"
    )
    assert as_member("bob", call).rc != 0
    assert as_member("bob", f"systemctl stop {lease['scope']}").rc != 0
    assert as_member("bob", "systemctl stop gpulab-broker.socket gpulab-broker.service").rc != 0
    assert [each["id"] for each in leases(host)] == [lease["id"]]


def test_a_member_inside_a_lease_cannot_widen_it(host: Host, as_member: Person) -> None:
    ran = as_member("bob", "allocate_gpu -- sh -c 'allocate_gpu --gpus 3 -- true; echo $?'")
    assert ran.stdout == "125\n"
    assert "runs inside lease" in ran.stderr


def test_root_and_strangers_get_no_lease(host: Host, as_member: Person) -> None:
    assert "root takes no lease" in host.run("allocate_gpu -- true").stderr
    assert "root takes no lease" in as_member("alice", "sudo -n allocate_gpu -- true || true").stderr
    host.run("useradd --create-home visitor")
    assert "visitor is no member of the lab" in as_member("visitor", "allocate_gpu -- true").stderr
    assert host.run("gpu-status").rc == 0, "root may look"


def test_a_flood_of_connections_leaves_the_others_room(host: Host, as_member: Person) -> None:
    flood = (
        "import socket,time\n"
        "held=[]\n"
        "for n in range(300):\n"
        "    s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET); held.append(s)\n"
        "    s.connect('/run/gpulab/broker.sock')\n"
        "    n % 2 and s.send(b'lease\\n' + b'x'*5000)\n"
        "print('ready', flush=True); time.sleep(900)\n"
    )
    host.run_expect([0], f"cat >/tmp/flood.py <<'END'\n{flood}END")
    host.run_expect([0], "setsid runuser -u bob -- python3 /tmp/flood.py >/tmp/flood.out 2>&1 &")
    eventually(lambda: host.run("grep -q ready /tmp/flood.out").rc == 0, "bob floods")
    began = time.monotonic()
    assert as_member("carol", "allocate_gpu -- true").rc == 0
    assert time.monotonic() - began < 5
    host.run("pkill -KILL -f /tmp/flood.py")


def test_a_name_cannot_control_the_terminal(host: Host, as_member: Person) -> None:
    start(host, "bob", r"allocate_gpu -- python3 -c $'import time; time.sleep(900) # \e]0;evil\a'")
    eventually(lambda: bool(leases(host)), "bob has a card")
    shown = as_member("carol", "gpu-status").stdout
    assert "bob for" in shown
    assert all(line.isprintable() for line in shown.splitlines())
    host.run("pkill -KILL -f 'time.sleep.900'")


# What is broken is not free


def test_a_lost_card_is_shown_with_its_reason_and_never_given(host: Host, as_member: Person) -> None:
    host.run_expect([0], "gpusim fail --lost --gpu 2")
    shown = as_member("bob", "gpu-status").stdout
    assert "cannot be given: the card has fallen off the bus" in shown
    assert shown.count("free") == 3
    ran = as_member("bob", "allocate_gpu --gpus 4 -- true")
    assert (ran.rc, "fallen off the bus" in ran.stderr) == (75, True)


def test_without_a_driver_nothing_is_given_and_running_work_goes_on(host: Host, as_member: Person) -> None:
    lease = hold(host, "bob")
    host.run_expect([0], "gpusim fail --unloaded")
    time.sleep(1.5)
    shown = as_member("carol", "gpu-status")
    assert (shown.rc, "free" in shown.stdout) == (1, False)
    assert "kernel module is not loaded" in shown.stdout
    ran = as_member("carol", "allocate_gpu --wait -- true")
    assert (ran.rc, "kernel module is not loaded" in ran.stderr) == (125, True)
    assert [each["id"] for each in leases(host)] == [lease["id"]]


# The broker itself


def test_the_broker_is_small_and_holds_no_card_open(host: Host, as_member: Person) -> None:
    hold(host, "bob")
    pid = host.check_output("systemctl show -P MainPID gpulab-broker.service")
    resident = int(host.check_output(f"awk '/VmRSS/ {{print $2}}' /proc/{pid}/status"))
    assert resident < 30 * 1024
    assert "nvidia" not in host.check_output(f"ls -l /proc/{pid}/fd; cat /proc/{pid}/maps")


def test_limits_of_a_member(host: Host, as_member: Person) -> None:
    hold(host, "bob", "--gpus 3")
    refused = as_member("bob", "allocate_gpu --gpus 2 -- true").stderr
    assert "you have 3 of the 4 cards a member may have at a time, and ask for 2" in refused
    assert as_member("carol", "allocate_gpu -- true").rc == 0


def test_changed_settings_are_in_force_at_once(host: Host, as_member: Person) -> None:
    settings = "/etc/gpulab/conf.d/allocator.toml"
    lease = hold(host, "bob")
    host.run_expect([0], f"cp -p {settings} /tmp/allocator.toml; sed -i 's/^max_cards.*/max_cards = 1/' {settings}")
    try:
        assert "you have 1 of the 1 cards" in as_member("bob", "allocate_gpu -- true").stderr
        host.run_expect([0], f"echo 'max_cards = oops' >{settings}")
        told = as_member("carol", "allocate_gpu -- true")
        assert (told.rc, f"{settings}: " in told.stderr) == (125, True), "who asks hears what is wrong, and where"
    finally:
        host.run_expect([0], f"mv /tmp/allocator.toml {settings}")
    assert as_member("carol", "allocate_gpu -- true").rc == 0
    assert [each["id"] for each in leases(host)] == [lease["id"]]


def test_the_way_out_may_wait_for_running_work_while_nothing_new_starts(
    host: Host, as_member: Person, play: Play
) -> None:
    lease = hold(host, "bob")
    with ThreadPoolExecutor() as apart:
        run = apart.submit(play, tasks="in_use.yml", rescale_drain=True, rescale_drain_minutes=1)
        eventually(lambda: "is about to change" in as_member("carol", "allocate_gpu -- true").stderr, "closed", 60)
        assert not run.done()
        host.run(f"kill {lease['pid']}")
        assert run.result(120).returncode == 0, run.result().stdout
    host.run_expect([0], "gpulab leases --drain 0")
    assert as_member("carol", "allocate_gpu -- true").rc == 0


def test_the_way_out_refuses_while_work_runs_or_ends_it_and_leaves_nothing(
    host: Host, as_member: Person, play: Play
) -> None:
    lease = hold(host, "bob")
    refused = play(tasks="absent.yml")
    assert refused.returncode != 0
    assert "the allocator tier is in use: bob: card" in refused.said
    assert as_member("carol", "allocate_gpu -- true").rc == 0, "and nothing was taken away"
    start(host, "carol", "allocate_gpu -- sh -c 'trap \"echo saved >~/saved; exit\" TERM; sleep 900 & wait'")
    eventually(lambda: len(leases(host)) == 2, "carol has a card")
    host.run_expect([0], "gpulab leases --drain 5")
    ran = play(tasks="absent.yml", rescale_force=True)
    assert ran.returncode == 0, ran.stdout
    assert host.run(f"kill -0 {lease['pid']}").rc != 0
    assert as_member("carol", "cat saved").stdout == "saved\n"
    left = host.run(
        "ls -d /usr/local/bin/*allocate* /usr/local/bin/gpu-status /usr/local/bin/gpustat /usr/local/bin/nvitop "
        "/etc/systemd/system/*gpulab-broker* /etc/systemd/system/*/gpulab-broker* /etc/profile.d/*gpulab* "
        "/opt/gpulab/tools /etc/gpulab/conf.d/allocator.toml /run/gpulab/* /etc/systemd/logind.conf.d/gpulab*; "
        "systemctl list-units --all --plain --no-legend 'gpulab-broker*'"
    )
    assert left.stdout == ""
    assert as_member("bob", "gpusim run -- true").rc == 0, "a login shell sees the cards again"
    again = play(tasks="absent.yml")
    assert (again.returncode, "changed=0" in again.stdout) == (0, True)
    assert play().returncode == 0
    assert as_member("carol", "allocate_gpu -- true").rc == 0
