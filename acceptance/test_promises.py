"""What a lab was promised, asked of its live server. Each check only reads, or tries what must be refused."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from server import Server

GPULAB = "/opt/gpulab/current/bin/gpulab"
PUBLIC = "/home/admin"
RULES = f"{PUBLIC}/GPU_SCHEDULE/README.md"
CARDS_HEAD = "index, name, memory.total [MiB], memory.used [MiB]"
SHEET_HEAD = "task_name,user,gpu_id,start_time,end_time,est_hours,status"

promise = pytest.mark.promise


def only_in(server: Server, *tiers: str) -> None:
    """Skip what another tier is for."""
    if server.tier not in tiers:
        pytest.skip(f"the server is in the {server.tier} tier")


@promise("S1", "hardware ledger")
def test_the_ledger_is_what_the_machine_is(server: Server) -> None:
    answer = server.document(f"{GPULAB} ledger --check --json")
    assert not answer["changed"], f"it differs from the machine: {'; '.join(answer['changes']) or 'edited by hand'}"
    page = server.told(f"cat {PUBLIC}/GPU_INFO.md")
    missing = [card["uuid"] for card in server.document(f"{GPULAB} info --json")["cards"] if card["uuid"] not in page]
    assert not missing, f"cards that are not in it: {missing}"


@promise("S2", "card list")
def test_the_card_list_has_every_card(server: Server) -> None:
    lines = server.told(f"cat {PUBLIC}/GPU_SCHEDULE/gpu_inventory.csv").splitlines()
    assert lines[0] == CARDS_HEAD
    cards = server.document(f"{GPULAB} info --json")["cards"]
    assert [line.split(",")[0] for line in lines[1:]] == [str(card["index"]) for card in cards]


@promise("S3", "booking sheet")
def test_members_read_the_sheet_and_cron_checks_it(server: Server) -> None:
    only_in(server, "table")
    text = server.told(f"head -c 1000 {PUBLIC}/gpu_schedule.csv").removeprefix("\ufeff")
    assert next(csv.reader(io.StringIO(text))) == SHEET_HEAD.split(",")
    listed = server.as_member("gpu-schedule list --json")
    assert listed.rc == 0, listed.stderr
    assert "bookings" in json.loads(listed.stdout)
    assert "check_gpu.sh" in server.told("cat /etc/cron.d/gpulab")


@promise("S3", "booking sheet")
def test_nobody_writes_the_sheet_past_the_command(server: Server) -> None:
    only_in(server, "table")
    refused = server.as_member(f"test ! -w {PUBLIC}/gpu_schedule.csv && test ! -w {PUBLIC}")
    assert refused.rc == 0, "a member could write the sheet or its folder"


@promise("S4", "allocator")
def test_a_member_would_get_a_card_or_hears_why_not(server: Server) -> None:
    only_in(server, "allocator")
    answer = server.as_member("allocate_gpu --dry-run -- true")
    assert answer.rc in {0, 75}, answer.stderr.strip()
    status = json.loads(server.as_member("gpu-status --json").stdout)
    assert not status["reason"], status["reason"]


@promise("S4", "cards are closed without a lease")
def test_the_kernel_refuses_a_card_to_a_members_session(server: Server) -> None:
    only_in(server, "allocator", "slurm")
    if not server.guarded:
        pytest.skip("gpu_guard_enabled is false")
    if not server.refuses_cards():
        pytest.skip("there is no card")


@promise("S5", "scheduler")
def test_the_scheduler_takes_a_members_job(server: Server) -> None:
    only_in(server, "slurm")
    # --test-only: says when the job would start, and submits nothing (sbatch(1)).
    answer = server.as_member("sbatch --test-only --gres=gpu:1 --time=1 --wrap true")
    assert answer.rc == 0, answer.stderr.strip().rpartition("\n")[2]  # above it stand the hours and the class


@promise("S5", "scheduler")
def test_every_member_has_an_account_in_the_database(server: Server) -> None:
    only_in(server, "slurm")
    known = set(server.told("sacctmgr --noheader --parsable2 show assoc format=user").split())
    missing = [name for name in server.members if name not in known]
    assert not missing, f"without an account in Slurm: {', '.join(missing)}"


@promise("S5", "jobs are confined")
def test_jobs_are_held_to_their_cards_and_memory(server: Server) -> None:
    only_in(server, "slurm")
    configuration = server.told("scontrol show config")
    assert re.search(r"^TaskPlugin\s*=.*task/cgroup", configuration, re.MULTILINE), "task/cgroup is not in force"
    for setting in ("ConstrainDevices", "ConstrainRAMSpace"):
        assert re.search(rf"^{setting}\s*=\s*yes", configuration, re.MULTILINE), f"{setting} is not yes"


@promise("S6", "golden hours")
def test_members_see_the_golden_hours(server: Server) -> None:
    shown = server.as_member("gpulab windows --json")
    assert shown.rc == 0, shown.stderr
    windows = json.loads(shown.stdout)["windows"]
    assert [each["name"] for each in windows] == [each["name"] for each in server.settings["windows"]["table"]]
    if not windows:
        pytest.skip("gpu_windows is empty")


@promise("S7", "MIG layout")
def test_the_cards_are_split_as_asked(server: Server) -> None:
    if not server.host.file("/etc/gpulab/mig.json").exists:
        pytest.skip("no mig_layout")
    plan = server.document(f"{GPULAB} mig plan --json")
    assert not plan["changed"], "cards are not as mig_layout says; see `gpulab mig plan`"
    assert server.host.service("gpulab-mig.service").is_enabled, "the layout would not come back after a reboot"


def last_look(server: Server) -> tuple[int, bool]:
    """Return when the sampler looked last, 0 for never, and whether it was started after that; the server's seconds."""
    newest = (
        "import sqlite3; db = sqlite3.connect('file:/var/lib/gpulab/samples/samples.db?mode=ro', uri=True); "
        "print(db.execute('SELECT max(at) FROM ticks').fetchone()[0] or 0)"
    )
    started = "systemctl show --timestamp=unix --property=ActiveEnterTimestamp --value gpulab-sampler.service"
    looked = server.host.run(f'python3 -c "{newest}"')  # before the first look there is no store
    at = int(looked.stdout) if looked.rc == 0 else 0
    return at, at < int(server.told(started).removeprefix("@") or 0)


@pytest.fixture(scope="module")
def looked(server: Server) -> None:
    """Wait, where the sampler was started just now, until it has looked: it does so at full minutes."""
    if server.tier == "slurm":
        return
    deadline = time.monotonic() + float(server.settings["reclaim"]["sample_seconds"]) + 15
    while last_look(server)[1] and time.monotonic() < deadline:
        time.sleep(2)


@promise("S8", "idle cards")
@pytest.mark.usefixtures("looked")
def test_the_sampler_looks_and_can_keep_what_it_sees(server: Server) -> None:
    only_in(server, "table", "allocator")
    mode, seconds = (server.settings["reclaim"][key] for key in ("mode", "sample_seconds"))
    assert server.host.service("gpulab-sampler.service").is_running, "the sampler does not run"
    at, _ = last_look(server)
    assert at, "the sampler never looked; see journalctl -u gpulab-sampler"
    age = int(server.told("date +%s")) - at
    assert age <= 3 * seconds + 10, f"the last look is {age} s old"
    if mode == "off":
        pytest.skip("idle_reclaim_mode is off")


@promise("S9", "disk limits")
def test_the_kernel_enforces_the_disk_limits(server: Server) -> None:
    seen = server.document(f"{GPULAB} quota show --json")
    if not (seen["on"] or seen["off"]):
        pytest.skip("disk_quota_folders is empty")
    assert not seen["off"], f"the kernel enforces no limits on {', '.join(seen['off'])}; see `gpulab quota apply`"


@promise("S10", "datasets")
def test_datasets_are_read_only(server: Server) -> None:
    if not server.host.file("/etc/gpulab/conf.d/datasets.toml").exists:
        pytest.skip("datasets_enabled is false, or the server has no place for them")
    path = server.settings["datasets"]["path"]
    options = server.told(f"findmnt --noheadings --output OPTIONS {path}").strip().split(",")
    assert {"ro", "nosuid", "nodev"} <= set(options), f"{path} is mounted {','.join(options)}"
    assert server.as_member(f"touch {path}/.try").rc != 0, f"a member could write to {path}"


@promise("S11", "network line")
def test_the_line_is_shaped_as_asked(server: Server) -> None:
    if not server.settings["bandwidth"]["up"]:
        pytest.skip("bandwidth_enabled is false")
    compared = server.told(f"{GPULAB} net apply --check")
    assert compared == "unchanged", compared
    timer = server.told("systemctl is-active gpulab-net.timer; true")
    assert timer == "active", f"gpulab-net.timer is {timer}: nothing brings the shape back after a reboot"
    assert "gpulab-ssh-owner" in server.told("cat /etc/pam.d/sshd"), "what ssh moves counts for nobody"


@promise("S12", "rules page")
def test_the_rules_page_is_there_for_everybody_in_both_languages(server: Server) -> None:
    page = server.as_member(f"cat {RULES}")
    assert page.rc == 0, page.stderr
    ways = {"table": "gpu-schedule", "allocator": "allocate_gpu", "slurm": "sbatch"}
    assert ways[server.tier] in page.stdout, "it does not tell how to get a card in this tier"
    assert re.search(r"[\u4e00-\u9fff]", page.stdout), "no Chinese in it"
    assert server.settings["lab"]["name"] in page.stdout
    assert server.host.file("/etc/motd.d/50-gpulab").exists, "nothing is shown at login"


@promise("S12", "login message")
def test_shells_find_lines_of_this_minute(server: Server) -> None:
    lines = server.as_member("cat /run/gpulab/login/en; cut -d. -f1 /proc/uptime").stdout.splitlines()
    assert len(lines) == 5, "there are none; see journalctl -u gpulab-overview"  # noqa: PLR2004 - four and the time now
    age = int(lines[4]) - int(lines[0])
    assert age <= 150, f"the lines are {age} s old; see journalctl -u gpulab-overview"  # noqa: PLR2004 - a look and more
    assert server.host.file("/etc/profile.d/gpulab-login.sh").exists, "no shell reads them"


@promise("S13", "usage report")
@pytest.mark.usefixtures("looked")
def test_a_report_of_today_can_be_made(server: Server) -> None:
    began = time.monotonic()
    report = server.document(f"{GPULAB} report --last 24h --format json")
    assert report["watched_hours"] > 0, "nothing was recorded in the last 24 hours"
    assert time.monotonic() - began < 60  # noqa: PLR2004 - seconds, over any connection
    assert "gpulab report" in server.told("cat /etc/cron.d/gpulab"), "nobody is mailed one"


@promise("S14", "job templates and answers")
def test_members_have_templates_and_are_told_why_they_wait(server: Server) -> None:
    only_in(server, "slurm")
    found = server.as_member(f"cat {PUBLIC}/GPU_SCHEDULE/examples/*.sbatch")
    assert found.rc == 0, found.stderr.strip()
    assert "--requeue" in found.stdout
    assert "--signal=B:USR1@" in found.stdout
    answer = server.as_member("gpu-why")
    assert answer.rc == 0, answer.stderr.strip()


@promise("S15", "driver")
def test_driver_and_library_belong_together_and_stay(server: Server) -> None:
    info = server.document(f"{GPULAB} info --json")
    assert not info["reason"], info["reason"]
    installed = server.told(
        "dpkg-query --show --showformat='${db:Status-Abbrev} ${Package}\\n' 'nvidia-*' 2>/dev/null; true"
    )
    packages = [line.split()[-1] for line in installed.splitlines() if line.startswith(("ii", "hi"))]
    drivers = [name for name in packages if re.match(r"nvidia-(smi|utils-|driver|kernel-dkms|open-kernel-dkms)", name)]
    if not drivers:
        pytest.skip("the driver is no package of the distribution")
    held = server.told("apt-mark showhold").split()
    loose = [name for name in drivers if name not in held]
    assert not loose, f"an upgrade could change the driver under running work: {', '.join(loose)} is not on hold"


@promise("S16", "members")
def test_accounts_are_as_listed(server: Server) -> None:
    entries = server.document(f"{GPULAB} members --json")
    assert entries, "there are no members"
    problems = [f"{entry['name']}: {entry['problem']}" for entry in entries if entry["problem"]]
    assert not problems, "; ".join(problems)
    group = set(server.told("getent group gpu-members").strip().rpartition(":")[2].split(","))
    missing = [name for name in server.members if name not in group]
    assert not missing, f"not in gpu-members: {', '.join(missing)}"
    for entry in entries:
        if entry["state"] != "present":
            shadow = server.host.run(f"getent shadow {entry['name']}").stdout
            assert not shadow or shadow.split(":")[1].startswith("!"), f"{entry['name']} has left and can log in"


@promise("S16", "members")
def test_nothing_that_root_runs_can_be_written_by_others(server: Server) -> None:
    found = server.told(
        "find /opt/gpulab /etc/gpulab /etc/cron.d/gpulab /var/lib/gpulab -xdev ! -type l "
        "\\( -perm /002 -o ! -user root \\) ! -path '/var/lib/gpulab/*/projects/*' 2>/dev/null | head -n 5"
    )
    assert not found, f"writable by others or not root's: {found.split()}"


@promise("S17", "facts about the cards")
def test_the_driver_library_tells_what_modules_need(server: Server) -> None:
    info = server.document(f"{GPULAB} info --json")
    assert not info["reason"], info["reason"]
    for card in info["cards"]:
        unknown = [key for key in ("uuid", "name", "bus_id", "minor", "memory_total") if card[key] in {None, ""}]
        assert not unknown, f"card {card['index']} does not tell its {', '.join(unknown)}"


@promise("S18", "checks are of this release")
def test_the_server_has_what_this_checkout_installs(server: Server, release: str) -> None:
    installed = server.told("basename $(readlink /opt/gpulab/current)")
    assert installed == release, (
        f"the server has {installed}, this checkout is {release}; `make plan` shows what differs"
    )


@promise("S19", "every machine serves")
def test_no_node_is_lost(server: Server) -> None:
    only_in(server, "slurm")
    nodes = [line.split("|") for line in server.told("sinfo --noheader --Node --format='%N|%T'").splitlines()]
    assert nodes, "Slurm knows no machine"
    lost = {
        name: state for name, state in nodes if state.startswith(("down", "fail", "unknown")) or state.endswith("*")
    }
    assert not lost, f"nodes that do not answer: {', '.join(f'{name} ({state})' for name, state in lost.items())}"
