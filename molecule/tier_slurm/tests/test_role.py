"""Role tier_slurm: changes reach a running scheduler safely, accounts follow the list, and the way out is complete."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from conftest import until
from test_jobs import state, submit

if TYPE_CHECKING:
    from testinfra.host import Host

    from ...conftest import Person, Play

MEMBERS: list[dict[str, Any]] = [
    {"name": "alice", "admin": True, "groups": ["vision"]},
    {"name": "bob", "groups": ["vision"]},
    {"name": "carol"},
]
BATCH = {"name": "batch", "default": True, "max_hours": 48, "default_hours": 4, "preemptible": True}


def tree(host: Host) -> dict[str, str]:
    """Return each user's account, shares and limits."""
    rows = host.check_output("sacctmgr -nP show assoc format=User,Account,Share,GrpTRES,MaxSubmitJobs").splitlines()
    return {row.split("|")[0]: row.partition("|")[2] for row in rows if not row.startswith("|")}


def files(host: Host) -> str:
    """Return a fingerprint of the configuration."""
    return host.check_output("cat /etc/slurm/*.conf /etc/slurm/job_submit.lua | sha256sum")


def test_accounts_are_as_the_inventory_says(host: Host) -> None:
    found = tree(host)
    assert found["bob"] == "vision|1|gres/gpu=3|100"
    assert found["carol"] == "members|1|gres/gpu=1|100"
    assert host.check_output("sacctmgr -nP show assoc where account=vision user= format=Share").split("\n")[0] == "2"
    assert host.check_output("sacctmgr -nP show user alice format=AdminLevel") == "Administrator"


def test_there_is_no_password(host: Host) -> None:
    assert host.run("grep -ri pass /etc/slurm/slurmdbd.conf /etc/slurm/slurm.conf").stdout.count("StoragePass") == 0
    assert host.file("/etc/slurm/slurmdbd.conf").mode == 0o600
    refused = host.run("runuser -u bob -- mariadb --user=slurm slurm_acct_db -e 'show tables'")
    assert refused.rc != 0
    assert "Access denied" in refused.stderr


def test_a_bad_configuration_is_refused_and_the_scheduler_goes_on(host: Host, as_member: Person, play: Play) -> None:
    job = submit(as_member, "bob", "--gres=gpu:1 --wrap 'sleep 900'")
    until(lambda: state(host, job) == "RUNNING", 30, "the job runs")
    before, pid = files(host), host.check_output("systemctl show -P MainPID slurmctld")
    ran = play(tasks="main.yml", tier_slurm_settings={"SchedulerTpye": "sched/backfill"})
    assert ran.returncode != 0
    assert "slurmctld would not start" in ran.said
    assert "SchedulerTpye" in ran.said
    assert files(host) == before
    assert host.check_output("systemctl show -P MainPID slurmctld") == pid
    assert state(host, job) == "RUNNING"


def test_a_new_partition_and_a_leaver_reach_the_scheduler_while_jobs_run(
    host: Host, as_member: Person, play: Play
) -> None:
    job = submit(as_member, "bob", "--gres=gpu:1 --wrap 'sleep 900'")
    past = submit(as_member, "carol", "--wrap true")
    until(lambda: state(host, past) == "COMPLETED", 60, "carol's job has ended")
    hers = submit(as_member, "carol", "--gres=gpu:1 --wrap 'sleep 900'")
    until(lambda: state(host, job) == state(host, hers) == "RUNNING", 30, "both jobs run")
    members = [*MEMBERS[:2], {"name": "carol", "state": "absent"}]
    ran = play(
        tasks="main.yml",
        lab_members=members,
        tier_slurm_partitions=[BATCH, {"name": "night"}],
        tier_slurm_member_limits={},
    )
    assert ran.returncode == 0, ran.stdout
    assert set(host.check_output("sinfo -h -o %R").split()) == {"batch", "night"}
    assert state(host, job) == "RUNNING"
    assert "carol" not in tree(host)
    assert state(host, hers) == "CANCELLED" or "CANCELLED" in state(host, hers)
    assert as_member("carol", "sbatch --wrap true").rc != 0
    assert host.check_output(f"sacct -nPX -j {past} -o User,State") == "carol|COMPLETED"
    ran = play(tasks="main.yml")
    assert ran.returncode == 0, ran.stdout
    assert tree(host)["carol"] == "members|1|gres/gpu=1|100"
    assert state(host, job) == "RUNNING"


def test_cards_change_only_under_nobody(host: Host, as_member: Person, play: Play) -> None:
    """The names of types change here, which is the same to Slurm as cards that go and come."""
    types = {"NVIDIA A100-SXM4-80GB": "big"}
    job = submit(as_member, "bob", "--gres=gpu:1 --wrap 'sleep 900'")
    until(lambda: state(host, job) == "RUNNING", 30, "the job runs")
    before = files(host)
    ran = play(tasks="main.yml", tier_slurm_card_types=types)
    assert ran.returncode != 0
    assert f"which would kill its jobs: {job} (bob)" in ran.said
    assert files(host) == before
    assert state(host, job) == "RUNNING"
    assert "drain" not in host.check_output("sinfo -h -o %T")
    host.run_expect([0], f"scancel {job}")
    ran = play(tasks="main.yml", tier_slurm_card_types=types, tier_slurm_drain_minutes=2)
    assert ran.returncode == 0, ran.stdout
    assert "Gres=gpu:big:2,gpu:big_3g.40gb:2" in host.check_output("scontrol --oneliner show node")
    assert as_member("bob", "srun --gres=gpu:big:1 true").rc == 0
    ran = play(tasks="main.yml")
    assert ran.returncode == 0, ran.stdout
    assert as_member("bob", "srun --gres=gpu:a100:2 true").rc == 0


def test_nonsense_is_refused_before_anything_changes(host: Host, play: Play) -> None:
    before = files(host)
    ran = play(tasks="main.yml", tier_slurm_partitions=[{**BATCH, "max_hour": 3}])
    assert ran.returncode != 0
    assert "tier_slurm_partitions[0]: the key 'max_hour' is unknown; did you mean max_hours?" in ran.said
    assert files(host) == before


def test_the_way_out_is_complete_and_the_way_back_knows_the_past(host: Host, as_member: Person, play: Play) -> None:
    job = submit(as_member, "bob", "--gres=gpu:1 --wrap true")
    until(lambda: state(host, job) == "COMPLETED", 60, "a job has run")
    running = submit(as_member, "bob", "--gres=gpu:1 --wrap 'sleep 900'")
    until(lambda: state(host, running) == "RUNNING", 30, "another one runs")
    ran = play(tasks="absent.yml")
    assert ran.returncode != 0
    assert f"Slurm still runs jobs: {running} (bob)" in ran.said
    with ThreadPoolExecutor() as apart:
        drain = apart.submit(play, tasks="in_use.yml", rescale_drain=True, rescale_drain_minutes=1)
        until(lambda: "gpulab-drain" in host.check_output("scontrol show reservation"), 60, "nothing new starts")
        late = submit(as_member, "bob", "--gres=gpu:1 --wrap 'sleep 900'")
        time.sleep(5)
        assert (state(host, late), state(host, running)) == ("PENDING", "RUNNING")
        host.run_expect([0], f"scancel {running}")
        assert drain.result(120).returncode == 0, drain.result().stdout
    host.run_expect([0], "scontrol delete ReservationName=gpulab-drain")
    until(lambda: state(host, late) == "RUNNING", 60, "the late one runs")
    ran = play(tasks="absent.yml", rescale_force=True)
    assert ran.returncode == 0, ran.stdout
    leftovers = (
        "/etc/slurm /var/lib/slurm /etc/munge /var/lib/mysql /usr/local/bin/gpu-why /etc/systemd/system/slurm*.d"
    )
    assert not host.run(f"ls -d {leftovers} 2>/dev/null").stdout
    assert host.run("pgrep 'slurm(ctld|dbd|d)|mariadbd|munged'").rc != 0
    assert host.file("/var/lib/gpulab/slurm/accounts.sql").mode == 0o600
    ran = play(tasks="absent.yml")
    assert ran.returncode == 0
    assert "changed=0" in ran.said
    ran = play(tasks="main.yml")
    assert ran.returncode == 0, ran.stdout
    assert as_member("bob", "srun --gres=gpu:1 true").rc == 0
    assert f"{job}|bob|COMPLETED" in host.check_output(f"sacct -nPX -S now-1days -j {job} -o JobID,User,State")
