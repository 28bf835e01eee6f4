"""What the rules page may say, and how the machine is asked whether it is so."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import rules_page
from gpulab.rules.bandwidth import parse_rate
from gpulab.rules.quota import parse_count, parse_grace, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from server import Server

    Check = Callable[[Server, dict[str, str]], None]

RULES = "/home/admin/GPU_SCHEDULE/README.md"
GPULAB = "/opt/gpulab/current/bin/gpulab"
CLAIMS: list[tuple[re.Pattern[str], Check]] = []
"""What the page may say, and how each is asked."""


def claim(text: str) -> Callable[[Check], Check]:
    """Register how a statement is checked: all its words, with `<name>` for what differs from lab to lab.

    The check gets the server and what stands in the places of the names.
    """
    cell = r"(?:(?! \| ).)+?"
    pattern = re.compile(re.sub(r"<(\w+)>", lambda name: f"(?P<{name[1]}>{cell})", re.escape(text)))

    def register(check: Check) -> Check:
        CLAIMS.append((pattern, check))
        return check

    return register


def understood(statement: str) -> tuple[Check, dict[str, str]] | None:
    """Find the check of a statement, and what stands in it; None when there is none."""
    for pattern, check in CLAIMS:
        found = pattern.fullmatch(statement)
        if found:
            return check, found.groupdict()
    return None


def rules(server: Server) -> rules_page.Page:
    """Read the English half of the page."""
    return rules_page.english(server.told(f"cat {RULES}"))


def same(what: str, said: object, found: object) -> None:
    """Compare what the page says with what the machine has."""
    assert said == found, f"{what} is {found}"


def same_settings(server: Server, section: str, words: dict[str, str], **keys: str) -> None:
    """Compare numbers with the settings that our commands go by: key of the section by name in the statement."""
    for name, key in keys.items():
        same(f"{section}.{key}", float(words[name]), float(server.settings[section][key]))


def slurm_has(server: Server, pattern: str, otherwise: str) -> None:
    """Look for a line in the configuration of the running controller."""
    configuration = server.told("scontrol show config")
    assert re.search(rf"^{pattern}", configuration, re.MULTILINE), otherwise


# --- The tiers -------------------------------------------------------------------------------------------------------


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
    for name, policy in _of_slices(server, "DevicePolicy", server.admins).items():
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


# --- Idle cards and golden hours -------------------------------------------------------------------------------------

_IDLE = (
    "A process that stays below <percent> % for <idle> minutes while it holds memory on a card: you get a mail and a "
    "line on your terminal. Still need it? `gpu-keep` (at most <keep> hours at a time). No answer within <answer> "
    "minutes: "
)


@claim(_IDLE + "the admin hears of it. The server ends nothing by itself.")
def _notify(server: Server, words: dict[str, str]) -> None:
    _reclaim(server, "notify", words)


@claim(
    _IDLE + "the process is asked to end (TERM) and ended <grace> seconds later, and the card is free again. Save your "
    "checkpoint on TERM."
)
def _enforce(server: Server, words: dict[str, str]) -> None:
    _reclaim(server, "enforce", words)
    same_settings(server, "reclaim", words, grace="grace_seconds")


def _reclaim(server: Server, mode: str, words: dict[str, str]) -> None:
    same("the mode", mode, server.settings["reclaim"]["mode"])
    keys = {"percent": "percent", "idle": "idle_minutes", "keep": "keep_max_hours", "answer": "answer_minutes"}
    same_settings(server, "reclaim", words, **keys)
    assert server.host.service("gpulab-sampler.service").is_running, "the sampler does not run"


@claim(
    "Where the driver cannot tell how busy a process is (MIG instances, some cards), it counts as unknown, never as "
    "idle."
)
def _unknown(server: Server, _: dict[str, str]) -> None:
    cards = server.document(f"{GPULAB} info --json")["cards"]
    split = {card["index"] for card in cards if card["mig_enabled"]}
    for holder in server.document(f"{GPULAB} reclaim --status --json")["holders"]:
        judged = holder["state"] in {"idle", "warn", "warned", "overdue"}
        assert not (judged and split.issuperset(holder["cards"])), f"process {holder['pid']} is {holder['state']}"


@claim("| <name> | <hours> | <days> | <kind> | <cards> | <longest> | <what> |")
@claim("| <name> | <hours> | <days> | <kind> | <cards> | <longest> | <weight> | <what> |")
def _window(server: Server, words: dict[str, str]) -> None:
    windows = {each["name"]: each for each in server.document(f"{GPULAB} windows --json")["windows"]}
    assert words["name"] in windows, "there is no such window"
    window = windows[words["name"]]
    longest = f"{window['max_hours']:g} h" if window["max_hours"] else "any"
    for key, found in {
        "hours": window["hours"],
        "kind": window["class"],
        "cards": str(window["max_cards"] or "any"),
        "longest": longest,
        "weight": f"{window['weight']:g}",
    }.items():
        same(f"its {key}", words.get(key, found), found)


_WINDOWS = "`gpulab windows` shows the table and which window it is now."
_JUDGED = (
    " A job is judged by the window it starts in, or, when it starts outside every window, by the first one it runs "
    "into. What began in its own window may run on through the next ones. Who asks for more cards or hours than the "
    "window allows "
)


@claim(_WINDOWS)
def _windows(server: Server, _: dict[str, str]) -> None:
    assert server.as_member("gpulab windows").rc == 0, "members cannot"
    assert server.host.service("gpulab-slurm-windows.timer").is_running, "nothing changes the classes on the hour"


@claim(_WINDOWS + _JUDGED + "gets a warning that says when the job fits.")
def _windows_warn(server: Server, _: dict[str, str]) -> None:
    same("what is done", "warn", server.settings["windows"]["on_break"])


@claim(_WINDOWS + _JUDGED + "is refused, and told when the job fits; admins are only warned.")
def _windows_refuse(server: Server, _: dict[str, str]) -> None:
    same("what is done", "refuse", server.settings["windows"]["on_break"])


@claim(
    "A job has a class: what you give with `--qos`, else `offline` for arrays, `short` when it is as small as the "
    "windows for short work allow, and `long` for the rest. The class of the window of now goes first, among waiting "
    "jobs too. What does not fit the window is queued, not turned away, and starts when the window has ended; running "
    "jobs go on. The weight of the window in which you submit stays with the job (`sprio`, column SITE)."
)
def _classes(server: Server, _: dict[str, str]) -> None:
    # --test-only: says when the job would start, and submits nothing (sbatch(1)).
    for name, options in {"short": "--time=1", "offline": "--time=1 --array=1-2", "": "--time=1 --qos=long"}.items():
        answer = server.as_member(f"sbatch --test-only --gres=gpu:1 {options} --wrap true")
        assert answer.rc == 0, f"a job with {options} is turned away: {answer.stderr.strip()[-200:]}"
        assert re.search(rf"(class|任务类别) {name}", answer.stderr) or not name, f"a job with {options} is not {name}"


# --- Limits ----------------------------------------------------------------------------------------------------------


def _of_slices(server: Server, key: str, names: tuple[str, ...]) -> dict[str, str]:
    """Return a property of the slices that hold people's sessions."""
    numbers = [server.told(f"id --user {name}") for name in names]
    units = (f"systemctl show --property={key} --value user-{number}.slice" for number in numbers)
    return dict(zip(names, server.told("; ".join(units)).split(), strict=True)) if names else {}


@claim("At most <number> processes and threads of one member at a time.")
def _tasks(server: Server, words: dict[str, str]) -> None:
    for name, value in _of_slices(server, "TasksMax", server.members).items():
        same(f"the limit of {name}", words["number"], value)


@claim("At most <size> of main memory for all processes of one member together.")
def _memory(server: Server, words: dict[str, str]) -> None:
    said = words["size"]
    if said.endswith("%"):
        total = 1024 * int(server.told("awk '/^MemTotal/ {print $2}' /proc/meminfo"))
        size = total * int(said[:-1]) // 100
    else:
        size = parse_size(said, "MemoryMax") if said[-1].isalpha() else int(said)
    for name, value in _of_slices(server, "MemoryMax", server.members).items():
        near = value != "infinity" and abs(int(value) - size) < 1 << 21  # systemd rounds to pages
        assert near, f"the limit of {name} is {value}"


_NOT_MEMBERS = {"everybody", "the folder"}


@claim("| <path> | <owner> | <soft> | <hard> | <files_soft> / <files_hard> | <grace> |")
def _disk(server: Server, words: dict[str, str]) -> None:
    path, owner = words["path"], words["owner"]
    seen = server.document(f"{GPULAB} quota show --json")
    if path in seen["off"]:
        waiting = [words for _, words in rules(server).statements if words.startswith("Limits begin when ")]
        assert any(path in words for words in waiting), "it is not in force"
        return
    page = [row.split(" | ")[1] for _, row in rules(server).statements if row.startswith(f"| {path} | ")]
    own = set(page) - _NOT_MEMBERS
    rows = [row for row in seen["projects" if owner == "the folder" else "members"] if row["path"] == path]
    rows = [row for row in rows if row["owner"] == owner or (owner in _NOT_MEMBERS and row["owner"] not in own)]
    assert rows, "the kernel knows nothing of it"
    for row in rows:
        kind, parse = ("files_", parse_count) if row["what"] == "files" else ("", parse_size)
        for which in ("soft", "hard"):
            said = words[kind + which]
            limit = 0 if said == "none" else parse(said, RULES)
            same(f"the {which} limit of {row['owner']} ({row['what']})", limit, row[which])
    if owner == "everybody":
        mount = server.told(f"findmnt --noheadings --output TARGET --target {path}").strip()
        told = server.told(f"repquota -u {mount} 2>&1 | head -n 2")
        grace = re.search(r"Block grace time: (?:(\d+)days?|(\d+):(\d+))", told)  # repquota(8)
        assert grace, f"repquota shows no grace time: {told.strip()}"
        seconds = int(grace[1]) * 86400 if grace[1] else int(grace[2]) * 3600 + int(grace[3]) * 60
        same("the grace time, seconds,", parse_grace(words["grace"], RULES), seconds)


_DISK = (
    'At the hard limit writing fails: "Disk quota exceeded". Above the soft limit it goes on for the grace time and '
    "then fails too. What counts is all that you own on the folder's file system, wherever it lies there. You are "
    "mailed when you near a limit; `gpu-quota` shows where you stand."
)


@claim(_DISK)
@claim(_DISK + " The limit of a shared folder counts all that is in it, whoever owns it.")
def _disk_words(server: Server, _: dict[str, str]) -> None:
    assert "gpulab quota check" in server.told("cat /etc/cron.d/gpulab-quota"), "nobody is mailed"
    assert server.as_member("gpu-quota").rc in {0, 1}, "gpu-quota does not work"  # 1: over a limit


@claim("Limits begin when the folder is mounted anew or the server starts again: <paths>.")
def _disk_waiting(server: Server, words: dict[str, str]) -> None:
    seen = server.document(f"{GPULAB} quota show --json")
    unknown = set(words["paths"].split(", ")) - {*seen["on"], *seen["off"]}  # on, when it has been mounted since
    assert not unknown, f"nothing is known of limits on {', '.join(unknown)}"


@claim(
    "The server sends at most <up> and receives at most <down>. Who is alone has all of it; when it is full, members "
    "are served in turn, however many connections each opens. What ssh, scp and rsync move counts for who logged in."
)
def _line(server: Server, words: dict[str, str]) -> None:
    line = server.settings["bandwidth"]
    for way in ("up", "down"):
        same(f"the rate {way}", parse_rate(words[way], RULES), parse_rate(line[way], RULES))
    same("what the kernel has", "unchanged", server.told(f"{GPULAB} net apply --check"))


@claim("One member has at most <cap> in each direction, also when the line is free.")
def _line_cap(server: Server, words: dict[str, str]) -> None:
    same("the cap", words["cap"], server.settings["bandwidth"]["member_cap"])


@claim("Not limited: <networks>.")
def _line_exempt(server: Server, words: dict[str, str]) -> None:
    same("what is not", words["networks"].split(", "), server.settings["bandwidth"]["exempt"])


# --- The rest --------------------------------------------------------------------------------------------------------

_DATASETS = (
    "`<path>` holds datasets that everybody reads and nobody writes. Use them from there: a copy at home costs your "
    "disk space, and the admin is told of it. `gpu-dataset list` shows what there is, from where and under which "
    "licence."
)


@claim(_DATASETS)
@claim(_DATASETS + " Something is missing? Ask a curator: <curators>.")
def _datasets(server: Server, words: dict[str, str]) -> None:
    path, settings = words["path"], server.settings["datasets"]
    same("the folder", path, settings["path"])
    same("who cares for them", words["curators"].split(", ") if "curators" in words else [], settings["curators"])
    assert server.as_member(f"ls {path}").rc == 0, "members cannot read it"
    assert server.as_member(f"touch {path}/.try").rc != 0, "a member could write there"
    assert server.as_member("gpu-dataset list").rc == 0, "gpu-dataset list does not work"


@claim("Curators: `gpu-dataset add NAME FOLDER --source ADDRESS --licence TEXT`, then `gpu-dataset publish NAME`.")
def _curators(server: Server, _: dict[str, str]) -> None:
    for name in server.settings["datasets"]["curators"]:
        assert "gpulab" in server.told(f"sudo -l -U {name}"), f"{name} may not"


@claim(
    "Mail from this server goes on to the address the lab has for you. Without an address it stays in your mailbox "
    "here: `less /var/mail/$USER`."
)
def _mail_goes_on(server: Server, _: dict[str, str]) -> None:
    aliases = server.told("cat /etc/aliases")
    assert re.search(r"^# BEGIN gpulab.*^# END gpulab", aliases, re.MULTILINE | re.DOTALL), "nobody's address is known"


@claim("Mail from this server stays on it, in your mailbox: `less /var/mail/$USER`.")
def _mail_stays(server: Server, _: dict[str, str]) -> None:
    aliases = server.host.run("cat /etc/aliases").stdout
    away = [name for name in server.members if re.search(rf"^{re.escape(name)}:.*@", aliases, re.MULTILINE)]
    assert not away, f"that of {', '.join(away)} goes elsewhere"


@claim("<who>, account `<name>`.")
@claim("<who>, account `<name>`, <mail>.")
def _whom_to_ask(server: Server, words: dict[str, str]) -> None:
    same("the admin", words["name"], server.settings["lab"]["admin"])
    assert server.host.user(words["name"]).exists, "there is no such account"


@claim(
    "Your processes and open bookings are ended, your account is locked, and your home folder is archived where only "
    "the admin reads it. Nothing is deleted: come back and it is all there again. Take what you need before."
)
def _leaving(server: Server, _: dict[str, str]) -> None:
    archive = server.host.file("/var/lib/gpulab/archive")
    assert not archive.exists or archive.mode == 0o700, "others can look into the archive"  # noqa: PLR2004 - octal
    for entry in server.document(f"{GPULAB} members --json"):
        if entry["state"] != "present":
            shadow = server.host.run(f"getent shadow {entry['name']}").stdout
            assert not shadow or shadow.split(":")[1].startswith("!"), f"{entry['name']} can log in"
