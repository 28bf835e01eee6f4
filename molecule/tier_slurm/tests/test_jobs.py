"""Role tier_slurm: a job gets its cards and nothing else, and makes room without losing its work."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
from conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.host import Host

    from ...conftest import Person

EXAMPLES = "/home/admin/GPU_SCHEDULE/examples"
PROBE = r"""
import errno, glob, os
# The first two are for making and watching instances, and belong to none.
instances = set(glob.glob("/dev/nvidia-caps/nvidia-cap*")) - {f"/dev/nvidia-caps/nvidia-cap{n}" for n in (1, 2)}
for path in sorted(glob.glob("/dev/nvidia[0-9]")) + sorted(instances):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        print(path, errno.errorcode[error.errno])
"""


def submit(as_member: Person, user: str, command: str) -> str:
    """Submit a job; return its number."""
    done = as_member(user, f"sbatch --parsable {command}")
    assert done.rc == 0, done.stderr
    return done.stdout.strip()


def state(host: Host, job: str) -> str:
    """Return a job's state from the controller, or from the accounts when it has ended."""
    live = host.run(f"squeue --noheader --jobs={job} --states=all --format=%T").stdout.split()
    return live[0] if live else host.check_output(f"sacct --noheader --parsable2 -X -j {job} -o State").split("\n")[-1]


def opened(as_member: Person, user: str, request: str) -> tuple[set[str], set[str]]:
    """Return which device files a job was let through to, and which it was refused (there is no driver behind them)."""
    as_member(user, f"cat >probe.py <<'END'\n{PROBE}\nEND")
    answer = as_member(user, f"srun {request} --mem=100 python3 probe.py")
    assert answer.rc == 0, answer.stderr
    pairs = [line.split() for line in answer.stdout.splitlines()]
    return {path for path, code in pairs if code == "ENXIO"}, {path for path, code in pairs if code == "EPERM"}


def test_a_member_gets_a_card_at_once(host: Host, as_member: Person) -> None:
    answer = as_member("bob", "srun --gres=gpu:1 printenv SLURM_GPUS_ON_NODE")
    assert (answer.rc, answer.stdout.strip()) == (0, "1"), answer.stderr
    assert "class short (1 card, 240 min)" in answer.stderr
    until(lambda: set(host.check_output("sinfo --noheader --format=%T").split()) == {"idle"}, 30, "the node is idle")
    assert (
        host.check_output("scontrol --oneliner show node | grep -o 'Gres=[^ ]*'")
        == "Gres=gpu:a100:2,gpu:a100_3g.40gb:2"
    )


def test_a_job_opens_its_own_cards_only(host: Host, as_member: Person) -> None:
    minors = {0: "/dev/nvidia2", 1: "/dev/nvidia0", 2: "/dev/nvidia1"}  # index to device file; card 2 is split
    whole, refused = opened(as_member, "bob", "--gres=gpu:a100:1")
    assert whole == {minors[0]}
    assert {minors[1], minors[2]} <= refused
    both, _ = opened(as_member, "bob", "--gres=gpu:a100:2")
    assert both == {minors[0], minors[1]}
    part, refused = opened(as_member, "bob", "--gres=gpu:a100_3g.40gb:1")
    assert minors[2] in part
    assert {minors[0], minors[1]} <= refused
    assert len([path for path in part if "cap" in path]) == 2
    assert len([path for path in refused if "cap" in path]) >= 2
    none, refused = opened(as_member, "bob", "--ntasks=1")
    assert none == set()
    assert set(minors.values()) <= refused


def test_a_job_on_a_split_card_has_the_uuid_of_its_instance(host: Host, as_member: Person) -> None:
    """In steps and in batch scripts; CUDA knows instances by nothing else."""
    found = json.loads(host.check_output("gpulab info --json"))["cards"]
    uuids = {instance["uuid"] for card in found for instance in card["mig_devices"]}
    assert len(uuids) == 2
    one = as_member("bob", "srun --gres=gpu:a100_3g.40gb:1 printenv CUDA_VISIBLE_DEVICES")
    assert one.stdout.strip() in uuids, one.stderr
    both = as_member("bob", "srun --gres=gpu:a100_3g.40gb:2 printenv CUDA_VISIBLE_DEVICES")
    assert set(both.stdout.strip().split(",")) == uuids, both.stderr
    submit(as_member, "bob", "--wait --output=seen --gres=gpu:a100_3g.40gb:1 --wrap 'printenv CUDA_VISIBLE_DEVICES'")
    assert as_member("bob", "cat seen").stdout.strip() in uuids
    whole = as_member("bob", "srun --gres=gpu:a100:1 printenv CUDA_VISIBLE_DEVICES")
    assert whole.stdout.strip() == "0"
    # The instance whose UUID it has is the one that it opens.
    code = "printenv CUDA_VISIBLE_DEVICES; python3 probe.py"
    opened(as_member, "bob", "--gres=gpu:a100:1")  # leaves probe.py there
    seen = as_member("bob", f"srun --gres=gpu:a100_3g.40gb:1 --mem=100 sh -c '{code}'").stdout.split()
    device = next(
        line.split()[0] for line in host.file("/run/gpulab/slurm-cards").content_string.splitlines() if seen[0] in line
    )
    assert seen[seen.index(device) + 1] == "ENXIO"


def test_a_job_stays_within_its_memory(as_member: Person) -> None:
    answer = as_member("bob", "srun --mem=60 python3 -c 'x = bytearray(300 << 20); print(len(x))'")
    assert answer.rc != 0
    assert "Out Of Memory" in answer.stderr or "oom" in answer.stderr.lower()


def test_memory_follows_the_cards(host: Host, as_member: Person) -> None:
    job = submit(as_member, "bob", "--gres=gpu:2 --wrap 'sleep 60'")
    until(lambda: state(host, job) == "RUNNING", 30, "the job runs")
    assert "mem=800M" in host.check_output(f"scontrol --oneliner show job {job}")


def test_a_member_is_held_to_the_limit_of_cards_and_told(host: Host, as_member: Person) -> None:
    first = submit(as_member, "carol", "--gres=gpu:1 --wrap 'sleep 300'")
    second = submit(as_member, "carol", "--gres=gpu:1 --wrap 'sleep 300'")
    until(lambda: state(host, first) == "RUNNING", 20, "carol's first job runs")
    until(lambda: "AssocGrpGRES" in host.check_output(f"squeue -h -j {second} -o %r"), 60, "her second one waits")
    said = as_member("carol", "gpu-why").stdout
    assert f"Job {first} of carol (short, 1 card) has run since" in said
    assert "You are at your limit of cards: 1 at once" in said
    chinese = as_member("carol", f"LC_ALL=zh_CN.UTF-8 gpu-why {second}").stdout
    assert "你已达到用卡上限：运行中的任务合计 1 张" in chinese


def test_gpu_why_tells_who_has_the_cards_and_what_the_priority_is_made_of(host: Host, as_member: Person) -> None:
    holder = submit(as_member, "alice", "--gres=gpu:a100:2 --time=300 --wrap 'sleep 300'")
    until(lambda: state(host, holder) == "RUNNING", 20, "alice's job runs")
    waiting = submit(as_member, "bob", "--gres=gpu:a100:1 --nice=7 --wrap 'sleep 1'")
    until(lambda: "Resources" in host.check_output(f"squeue -h -j {waiting} -o %r"), 60, "bob's job waits for cards")
    said = as_member("bob", "gpu-why").stdout
    assert "What it asks for is not free yet." in said
    assert "It is the next to start in its turn." in said
    assert f"job {holder} of alice: 2 cards, until" in said
    priority = int(host.check_output(f"squeue -h -j {waiting} -o %Q"))
    parts = [int(part) for part in re.findall(r"^ +([+-]\d+)  ", said, re.MULTILINE)]
    assert sum(parts) == priority
    assert "-7  nice" in said
    assert as_member("bob", "gpu-why 999999").rc == 2
    assert as_member("bob", "gpu-why '1; id'").stderr.startswith("gpu-why: '1; id' is not a job number")


def test_a_job_that_makes_room_saves_its_state_and_goes_on(host: Host, as_member: Person) -> None:
    """Bob's job runs from the template; alice's urgent one needs its cards."""
    as_member("bob", f"rm -rf run; mkdir run; cp {EXAMPLES}/checkpoint.sbatch {EXAMPLES}/train.py run/")
    job = submit(as_member, "bob", "--chdir=run --gres=gpu:a100:2 --export=ALL,STEPS=25 run/checkpoint.sbatch")
    output = f"/home/bob/run/checkpoint-{job}.out"
    until(lambda: "begins at step 0" in host.run(f"cat {output}").stdout, 30, "the program begins")
    urgent = submit(as_member, "alice", "--partition=urgent --gres=gpu:a100:1 --wrap 'sleep 5'")
    until(lambda: "saved at step" in host.run(f"cat {output}").stdout, 30, "the program saved its state")
    until(lambda: state(host, urgent) in {"RUNNING", "COMPLETED"}, 300, "the urgent job starts")
    until(lambda: state(host, job) == "COMPLETED", 300, "the stopped job has finished")
    text = host.check_output(f"cat {output}")
    saved = int(re.findall(r"saved at step (\d+)", text)[0])
    assert 0 < saved < 25
    assert f"begins at step {saved}" in text
    assert "finished at step 25" in text
    assert host.check_output(f"sacct -n -P -X -D -j {job} -o State").split() == ["PREEMPTED", "COMPLETED"]


def test_members_without_the_right_cannot_be_urgent(as_member: Person) -> None:
    refused = as_member("bob", "sbatch --partition=urgent --gres=gpu:1 --wrap true")
    assert refused.rc != 0
    assert "not permitted" in refused.stderr or "Invalid account" in refused.stderr or "access" in refused.stderr


@pytest.mark.parametrize("unit", ["slurmctld", "slurmd", "slurmdbd", "munge"])
def test_a_daemon_that_is_killed_comes_back_and_jobs_go_on(host: Host, as_member: Person, unit: str) -> None:
    job = submit(as_member, "bob", "--gres=gpu:1 --wrap 'sleep 900'")
    until(lambda: state(host, job) == "RUNNING", 30, "the job runs")
    time.sleep(10)  # slurmctld writes its state every few seconds; what it never wrote it cannot know again
    before = host.check_output(f"systemctl show -P MainPID {unit}")
    host.run_expect([0], f"systemctl kill --kill-whom=main --signal=KILL {unit}")
    until(
        lambda: host.check_output(f"systemctl show -P MainPID {unit}") not in {before, "0"},
        30,
        f"{unit} is there again",
    )
    until(lambda: as_member("bob", "timeout 20 srun --gres=gpu:1 true").rc == 0, 90, "another job can be run")
    assert state(host, job) == "RUNNING"


def test_the_database_may_be_away_for_a_while(host: Host, as_member: Person) -> None:
    host.run_expect([0], "systemctl stop mariadb")
    job = submit(as_member, "bob", "--gres=gpu:1 --wrap true")
    until(
        lambda: host.run(f"squeue -h -j {job} -t all -o %T").stdout.strip() in {"COMPLETED", ""}, 60, "the job has run"
    )
    host.run_expect([0], "systemctl start mariadb")
    until(
        lambda: host.run(f"sacct -n -P -X -j {job} -o State").stdout.strip() == "COMPLETED", 120, "its record is there"
    )


@pytest.fixture
def small_var(host: Host) -> Iterator[str]:
    """Keep what Slurm writes on a file system of 24 MiB for a while; return the path of a file to fill it with."""
    place, small = "/var/lib/slurm", "/mnt/small-var"
    daemons = "slurmctld slurmd"
    host.run_expect([0], f"systemctl stop {daemons}")
    host.run_expect([0], f"mkdir -p {small} && mount -t tmpfs -o size=24M small-var {small}")
    host.run_expect([0], f"cp -a {place}/. {small}/ && mount --bind {small} {place}")
    host.run_expect([0], f"systemctl start {daemons}")
    yield f"{place}/fill"
    host.run("scancel --state=RUNNING; scancel --state=PENDING")
    until(lambda: not host.check_output("squeue --noheader"), 60, "no job is left")
    host.run_expect([0], f"systemctl stop {daemons}")
    host.run_expect([0], f"rm -f {place}/fill; umount {place} && cp -a {small}/. {place}/ && umount {small}")
    host.run_expect([0], f"systemctl start {daemons}")
    until(lambda: "idle" in host.run("sinfo --noheader --format=%T").stdout, 60, "the node is back")


def test_a_full_disk_costs_no_job_and_no_daemon(host: Host, as_member: Person, small_var: str) -> None:
    until(lambda: as_member("bob", "timeout 20 srun --gres=gpu:1 true").rc == 0, 60, "jobs can be run")
    job = submit(as_member, "bob", "--gres=gpu:1 --wrap 'sleep 900'")
    until(lambda: state(host, job) == "RUNNING", 30, "the job runs")
    before = host.check_output("systemctl show -P MainPID slurmctld slurmd")
    host.run(f"dd if=/dev/zero of={small_var} bs=64k")
    assert host.check_output("df --output=avail /var/lib/slurm | tail -1").strip() == "0"
    refused = as_member("bob", "sbatch --gres=gpu:1 --wrap true")
    assert refused.rc != 0, "a job that cannot be kept is not taken"
    assert "I/O error" in refused.stderr, refused.stderr
    time.sleep(10)  # the controller fails to write its state meanwhile
    assert state(host, job) == "RUNNING"
    assert host.check_output("systemctl show -P MainPID slurmctld slurmd") == before
    host.run_expect([0], f"rm {small_var}")
    until(lambda: as_member("bob", "timeout 20 srun --gres=gpu:1 true").rc == 0, 60, "jobs can be run again")
    time.sleep(10)
    host.run_expect([0], "systemctl kill --kill-whom=main --signal=KILL slurmctld")
    until(lambda: host.run("scontrol ping").stdout.find("UP") >= 0, 30, "the controller is there again")
    assert state(host, job) == "RUNNING", "what was written after the disk had room again is whole"


def test_a_job_that_died_with_the_machine_does_not_seem_to_run(host: Host, as_member: Person) -> None:
    job = submit(as_member, "bob", "--gres=gpu:1 --no-requeue --wrap 'sleep 900'")
    until(lambda: state(host, job) == "RUNNING", 30, "the job runs")
    time.sleep(10)  # its state is written
    # A power cut: everything ends at once and unsaid. Then the daemons start together, as at boot.
    host.run_expect([0], "systemctl kill --signal=KILL slurmctld slurmd; true")
    host.run_expect([0], "pkill --signal KILL slurmstepd; pkill --signal KILL --uid bob; true")
    host.run_expect([0], "systemctl restart slurmctld slurmd")
    time.sleep(25)  # a node must have been up for 20 s before the controller believes it about missing jobs
    host.run_expect([0], "systemctl start gpulab-slurm-boot.service")
    until(lambda: state(host, job) not in {"RUNNING", "COMPLETING"}, 60, "the job is known to have ended")
    until(lambda: as_member("bob", "timeout 20 srun --gres=gpu:1 true").rc == 0, 90, "another job can be run")
