"""Measure gpulab beside what people would do without it, in one run on one machine, as ratios.

Usage: run.py RESULT.json. Machines differ; ratios of two things measured side by side differ little.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from measure import (
    MACHINE,
    ROUNDS,
    TOP,
    Figure,
    apt_floor,
    inventory,
    packages,
    play,
    podman,
    quiet,
    remove,
    say,
    start,
)
from network import measure_network
from slurm import measure_slurm
from tiers import measure_tiers


def measure_site(folder: Path) -> list[Figure]:
    """First run against the packages alone; no-change runs with 10, 100 and 1,000 members; tasks."""
    site = TOP / "playbooks" / "site.yml"
    few, some, many = (inventory(folder, members) for members in (10, 100, 1000))
    start(MACHINE)
    play(TOP / "playbooks" / "demo.yml", few)
    say("first run with 10 members")
    first = play(site, few)
    say("the same packages with apt-get alone")
    floor = apt_floor(packages(MACHINE))
    say(f"no-change runs with 10 members ({ROUNDS} times)")
    ten = quiet(site, few)
    say("no-change runs with a loop of ansible.builtin.user over 10 members")
    play(TOP / "bench" / "loop.yml", few)
    loop = quiet(TOP / "bench" / "loop.yml", few)
    members_only = quiet(TOP / "bench" / "members.yml", few)
    say(f"no-change runs with 100 members ({ROUNDS} times)")
    play(site, some)
    hundred = quiet(site, some)
    say("first run with 1,000 members")
    play(site, many)
    say(f"no-change runs with 1,000 members ({ROUNDS} times)")
    thousand = quiet(site, many)
    return [
        Figure("first run / apt-get install of its packages", first.seconds, floor, "s", None),
        Figure("no-change run, 100 / 10 members", hundred.seconds, ten.seconds, "s", 1.5),
        Figure("no-change run, 1,000 / 10 members", thousand.seconds, ten.seconds, "s", 1.5),
        Figure("tasks of a no-change run, 1,000 / 10 members", thousand.tasks, ten.tasks, "tasks", 1.0),
        Figure("tasks of a no-change run / allowed", ten.ran, 75, "tasks", 1.0),
        Figure("10 members unchanged, role members / loop", members_only.seconds, loop.seconds, "s", None),
    ]


def measure_commands() -> list[Figure]:
    """What members and cron start, against the bare start of Python, CPU and wall time inside the machine."""
    script = (
        "import subprocess, sys, time\n"
        "def best(*command):\n"
        "    times = []\n"
        "    for _ in range(10):\n"
        "        began = time.perf_counter()\n"
        "        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)\n"
        "        times.append(time.perf_counter() - began)\n"
        "    return min(times)\n"
        "bare = best('/opt/gpulab/current/bin/python', '-c', 'pass')\n"
        "print(bare, best('gpu-schedule', 'list'), best('gpulab', 'check-gpu', '--dry-run'))\n"
    )
    done = podman("exec", "--interactive", MACHINE, "python3", "-", input=script)
    bare, listing, check = (float(part) for part in done.stdout.split())
    return [
        Figure("gpu-schedule list / bare Python start", listing, bare, "s", None),
        Figure("check_gpu, 4 cards / bare Python start", check, bare, "s", None),
    ]


def measure_allocator(folder: Path) -> list[Figure]:
    """What a job pays for its card, against the bare start of Python; what the broker keeps in memory."""
    say("a card for a command")
    play(TOP / "bench" / "allocator.yml", inventory(folder, 10))
    script = (
        "import subprocess, time\n"
        "def best(command, rounds, before=()):\n"
        "    times = []\n"
        "    for _ in range(rounds):\n"
        "        before and subprocess.run(before, check=True)\n"
        "        began = time.perf_counter()\n"
        "        subprocess.run(member + command, check=True, stdout=subprocess.DEVNULL)\n"
        "        times.append(time.perf_counter() - began)\n"
        "    return min(times)\n"
        "member = ['setpriv', '--reuid=member0001', '--regid=member0001', '--init-groups', '--']\n"
        "bare = best(['python3', '-c', 'pass'], 60)\n"
        "lease = ['allocate_gpu', '--', 'true']\n"
        "cold = best(lease, 5, ['systemctl', 'stop', 'gpulab-broker.service'])\n"
        "warm = best(lease, 60)\n"
        "show = ['systemctl', 'show', '--property=MainPID', '--value', 'gpulab-broker.service']\n"
        "pid = subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip()\n"
        "status = open(f'/proc/{pid}/status').read()\n"
        "print(bare, warm, cold, status.split('VmRSS:')[1].split()[0])\n"
    )
    done = podman("exec", "--interactive", MACHINE, "python3", "-", input=script)
    bare, warm, cold, resident = (float(part) for part in done.stdout.split())
    return [
        Figure("allocate_gpu -- true / python3 -c pass", warm, bare, "s", 3.0),
        Figure("the same when the broker has to start first", cold, bare, "s", None),
        Figure("memory of the broker / allowed", resident / 1024, 30, "MiB", 1.0),
    ]


def measure_sampler(folder: Path) -> list[Figure]:
    """One look of the sampler against one call of Debian's nvidia-smi: 8 cards, 100 processes, processor time."""
    say("a look of the sampler and a call of nvidia-smi, 8 cards, 100 processes")
    fetched = subprocess.run([TOP / "simulator" / "honesty" / "fetch-nvidia-smi", folder], check=False)
    if fetched.returncode:
        sys.exit("bench: nvidia-smi could not be fetched; see above")
    podman("cp", str(folder / "nvidia-smi"), f"{MACHINE}:/usr/local/bin/nvidia-smi")
    podman("exec", MACHINE, "gpusim", "init", "--cards", "a100-sxm4-80gb:8")
    script = (TOP / "bench" / "look.py").read_text()
    python = "/opt/gpulab/current/bin/python"
    done = podman("exec", "--interactive", MACHINE, python, "-", "100", input=script)
    look, call = (float(part) for part in done.stdout.split())
    return [Figure("a look of the sampler / nvidia-smi --query-compute-apps", look / 1000, call / 1000, "s", 1.5)]


def measure_report() -> list[Figure]:
    """A report on two months with many jobs, against reading sacct's lines apart; processor time on this machine."""
    jobs = 100_000
    say(f"a report on {jobs:,} jobs")
    script = (TOP / "bench" / "jobs.py").read_text()
    source = str(TOP / "files" / "gpulab" / "src")
    done = subprocess.run(
        [sys.executable, "-", str(jobs)], input=script, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": source, "TZ": "Europe/Berlin"},
    )  # fmt: skip
    report, lines = (float(part) for part in done.stdout.split())
    return [Figure(f"report on {jobs:,} jobs / csv.reader over the same lines", report, lines, "s", None)]


def main(argv: list[str]) -> int:
    """Measure, print, write; 1 when a limit is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        figures = measure_site(place) + measure_commands() + measure_allocator(place) + measure_sampler(place)
        figures += measure_report()
        figures += measure_slurm(place) + measure_tiers(place) + measure_network(place)
    remove()
    width = max(len(figure.what) for figure in figures)
    print(f"{'':{width}}  {'ours':>11}  {'other':>11}  {'ratio':>7}  limit")
    for figure in figures:
        limit = "" if figure.limit is None else f"{figure.limit:.1f} {'kept' if figure.holds else 'BROKEN'}"
        values = f"{figure.ours:>8.3f} {figure.unit[:2]:<2}  {figure.other:>8.3f} {figure.unit[:2]:<2}"
        print(f"{figure.what:{width}}  {values}  {figure.ratio:>7.2f}  {limit}")
    result = [{**asdict(figure), "ratio": figure.ratio} for figure in figures]
    Path(argv[0]).write_text(json.dumps(result, indent=2))
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
