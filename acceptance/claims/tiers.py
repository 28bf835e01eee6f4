"""How cards are given out, and what is in force meanwhile: one tier after the other."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from .asking import GPULAB, claim, of_slices, rules, same, same_settings, slurm_has

if TYPE_CHECKING:
    from server import Server


@claim(
    "Tier **table**: a booking sheet for a small group<why>. Nothing on this server stops a program from starting on a "
    "card. The sheet works because everybody keeps to it, and because the server compares it with what really runs and "
    "says so by mail."
)
def _table(server: Server, words: dict[str, str]) -> None:
    _tier(server, "table", words["why"])


@claim("Tier **allocator**: cards are given out one by one<why>.")
def _allocator(server: Server, words: dict[str, str]) -> None:
    _tier(server, "allocator", words["why"])


@claim("Tier **slurm**: a scheduler gives out cards, processors and memory<why>.")
def _slurm(server: Server, words: dict[str, str]) -> None:
    _tier(server, "slurm", words["why"])


def _tier(server: Server, name: str, why: str) -> None:
    same("the tier", name, server.tier)
    if why != ", chosen by the admin":
        known = re.fullmatch(r", because the group has (\d+) members \(this tier: (\d+)(?:-(\d+)|\+)\)", why)
        assert known, f"nobody knows this reason: {why}"
        assert int(known[2]) <= int(known[1]) <= int(known[3] or known[1]), "that group is of another tier"


@claim("One booking lasts <hours> hours at most and starts within <days> days.")
def _bookings(server: Server, words: dict[str, str]) -> None:
    same_settings(server, "booking", words, hours="max_hours", days="max_days_ahead")


@claim("A card has one booking at a time; overlaps are refused.")
def _no_overlap(server: Server, _: dict[str, str]) -> None:
    rows = json.loads(server.as_member("gpu-schedule list --json").stdout)["bookings"]
    rows = sorted((row for row in rows if row["status"] == "booked"), key=lambda row: row["start_time"])
    for number, row in enumerate(rows):
        for other in rows[number + 1 :]:
            apart = row["end_time"] <= other["start_time"] or row["gpu_id"] != other["gpu_id"]
            assert apart, f"lines {row['line']} and {other['line']} of the sheet overlap"


@claim("You change your own bookings; admins can change all.")
def _own_bookings(server: Server, _: dict[str, str]) -> None:
    assert server.as_member("test ! -w /home/admin/gpu_schedule.csv").rc == 0, "a member can write the sheet itself"


@claim(
    "`check_gpu.sh` compares the sheet with the cards <times>. It writes once about each event. **It never ends a "
    "process.**"
)
def _check_times(server: Server, words: dict[str, str]) -> None:
    lines = server.told("cat /etc/cron.d/gpulab").splitlines()
    times = [_in_words(line.split()[:5]) for line in lines if line.endswith(" root /usr/local/sbin/check_gpu.sh")]
    same("its time in cron", words["times"], " and ".join(times) or "when the admin starts it")
    assert server.host.service("cron").is_running, "cron does not run"


def _in_words(time: list[str]) -> str:
    minute, hour, *rest = time
    if minute.isdigit() and hour.isdigit() and rest == ["*"] * 3:
        return f"every day at {int(hour):02d}:{int(minute):02d}"
    if minute.isdigit() and hour == "*" and rest == ["*"] * 3:
        return f"every hour at minute {minute}"
    return f"at `{' '.join(time)}` (crontab)"


@claim("| your booking begins within <minutes> minutes, or has begun | you |")
def _soon(server: Server, words: dict[str, str]) -> None:
    same_settings(server, "checks", words, minutes="soon_minutes")


@claim("| your booking has begun <minutes> minutes ago and you run nothing on the card | you |")
def _unused(server: Server, words: dict[str, str]) -> None:
    same_settings(server, "checks", words, minutes="unused_minutes")


@claim(
    "| your booking is over for <minutes> minutes and you still run on the card, with the process numbers | you |",
)
def _overrun(server: Server, words: dict[str, str]) -> None:
    same_settings(server, "checks", words, minutes="overrun_minutes")


@claim("| you run on a card without a booking | you |")
@claim("| somebody else runs on a card that you have booked now | you |")
@claim(
    "| a line of the sheet with your name cannot be read, overlaps or names a card that is not there | you and the "
    "admin |"
)
@claim("| a card or the sheet cannot be read, or somebody who is no member runs on a card | the admin |")
@claim("Somebody is on your card? Write to them first, then to the admin. Never end other people's processes.")
def _checks_work(server: Server, _: dict[str, str]) -> None:
    server.told(f"{GPULAB} check-gpu --dry-run")


@claim(
    "A program opens exactly the cards that `allocate_gpu` gave it. All other ways to a card are refused by the kernel "
    '("Operation not permitted"), in ssh sessions, cron jobs and services alike.'
)
def _closed(server: Server, _: dict[str, str]) -> None:
    server.refuses_cards()


@claim(
    "A program uses the cards that `allocate_gpu` gave it, and no others. Nothing stops one that does not keep to this."
)
def _open(server: Server, _: dict[str, str]) -> None:
    assert not server.guarded, "the kernel refuses them"


@claim("The card is yours alone until your program ends, however it ends, unless you share it (`--share`).")
def _alone(server: Server, _: dict[str, str]) -> None:
    held: dict[str, list[bool]] = {}
    for lease in _gpu_status(server)["leases"]:
        for device in lease["devices"]:
            held.setdefault(device["uuid"], []).append(device["shared"])
    for uuid, shared in held.items():
        assert len(shared) == 1 or all(shared), f"{uuid} was given to two"


@claim("One member has at most <number> cards at a time.")
def _most_cards(server: Server, words: dict[str, str]) -> None:
    same_settings(server, "allocator", words, number="max_cards")


@claim("One member runs at most <number> programs on cards at a time.")
def _most_leases(server: Server, words: dict[str, str]) -> None:
    same_settings(server, "allocator", words, number="max_leases")


@claim("Waiting is first come, first served. Nobody overtakes.")
def _in_line(server: Server, _: dict[str, str]) -> None:
    since = [entry["since"] for entry in _gpu_status(server)["queue"]]
    assert since == sorted(since), "somebody who came later stands before somebody else"


def _gpu_status(server: Server) -> Any:
    return json.loads(server.as_member("gpu-status --json").stdout)


@claim("Admins are exempt: they may open every card.")
def _admins(server: Server, _: dict[str, str]) -> None:
    for name, policy in of_slices(server, "DevicePolicy", server.admins).items():
        same(f"the device policy of {name}", "auto", policy)


@claim("A job opens its own cards and no others, and stays within its memory and cores.")
def _jobs(server: Server, words: dict[str, str]) -> None:
    _jobs_share_cores(server, words)
    slurm_has(server, r"ConstrainCores\s*=\s*yes", "ConstrainCores is not yes")


@claim("A job opens its own cards and no others, and stays within its memory. Cores are shared.")
def _jobs_share_cores(server: Server, _: dict[str, str]) -> None:
    slurm_has(server, r"TaskPlugin\s*=.*task/cgroup", "task/cgroup is not in force")
    for name in ("ConstrainDevices", "ConstrainRAMSpace"):
        slurm_has(server, rf"{name}\s*=\s*yes", f"{name} is not yes")


@claim("A job uses its own cards, memory and cores. The kernel of this machine cannot stop one that takes more.")
def _jobs_free(server: Server, _: dict[str, str]) -> None:
    slurm_has(server, r"TaskPlugin\s*=\s*task/none", "it does")


@claim(
    'All other ways to a card are refused by the kernel ("Operation not permitted"), in ssh sessions, cron jobs and '
    "services alike. Admins are exempt: their sessions may open every card."
)
def _sessions_closed(server: Server, words: dict[str, str]) -> None:
    server.refuses_cards()
    _admins(server, words)


@claim("Nothing stops sessions outside jobs from opening cards; keep to jobs.")
def _sessions_open(server: Server, words: dict[str, str]) -> None:
    _open(server, words)


@claim("One member has at most <cards> cards in running jobs at a time. What asks for more waits.")
@claim("One member has at most <jobs> running jobs at a time.")
def _slurm_limits(server: Server, words: dict[str, str]) -> None:
    own = {statement.split()[1] for _, statement in rules(server).statements if re.match(r"For \S+ it is ", statement)}
    _same_limits(server, words, *(name for name in server.members if name not in own))


@claim("For <name> it is <cards> cards.")
@claim("For <name> it is <jobs> running jobs.")
@claim("For <name> it is <cards> cards and <jobs> running jobs.")
def _own_limits(server: Server, words: dict[str, str]) -> None:
    _same_limits(server, words, words["name"])


def _same_limits(server: Server, words: dict[str, str], *names: str) -> None:
    for kind, field, pattern in (("cards", "GrpTRES", r"gres/gpu=(\d+)"), ("jobs", "MaxJobs", r"(\d+)")):
        if names and kind in words:
            where = f"where user={','.join(names)} format=user,{field}"  # an empty list would be everybody
            for line in server.told(f"sacctmgr --noheader --parsable2 show assoc {where}").splitlines():
                name, _, text = line.partition("|")
                limit = re.search(pattern, text)
                same(f"{field} of {name}", words[kind], limit[1] if limit else "any number of")


@claim("Who used much in the last days goes behind who used little (fair share); waiting makes up for it.")
def _fair_share(server: Server, _: dict[str, str]) -> None:
    for name in ("PriorityWeightFairShare", "PriorityWeightAge"):
        slurm_has(server, rf"{name}\s*=\s*[1-9]", f"{name} is 0")


@claim(
    "| <partition> | <longest> h | <usually> h | makes room for urgent jobs: <grace> minutes to save, then it "
    "starts again later |"
)
@claim("| <partition> | <longest> h | <usually> h | for <groups> |")
@claim("| <partition> | <longest> h | <usually> h | is never stopped for others |")
def _partition(server: Server, words: dict[str, str]) -> None:
    name = words["partition"].split("`")[1]
    row = dict(re.findall(r"(\w+)=(\S*)", server.told(f"scontrol --oneliner show partition {name}")))
    same("its longest job, minutes,", float(words["longest"]) * 60, _minutes(row["MaxTime"]))
    same("the time without --time, minutes,", float(words["usually"]) * 60, _minutes(row["DefaultTime"]))
    same("whether it is the default", words["partition"].endswith("(usual)"), row["Default"] == "YES")
    same("what happens for others' sake", "REQUEUE" if "grace" in words else "OFF", row["PreemptMode"])
    same("the time to save, seconds,", float(words.get("grace", 0)) * 60, float(row["GraceTime"]))
    same("who may use it", words.get("groups", "ALL"), row["AllowGroups"].replace(",", ", "))


def _minutes(time: str) -> int:
    """Read a time of Slurm, such as 2-00:00:00."""
    days, _, rest = time.rpartition("-")
    hours, minutes, _seconds = (int(part) for part in rest.split(":"))
    return int(days or 0) * 24 * 60 + hours * 60 + minutes
