"""Limits of processes, memory, disk and network, and the rest of the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpulab.rules.bandwidth import parse_rate
from gpulab.rules.quota import parse_count, parse_grace, parse_size

from .asking import GPULAB, RULES, claim, of_slices, rules, same

if TYPE_CHECKING:
    from server import Server


@claim("At most <number> processes and threads of one member at a time.")
def _tasks(server: Server, words: dict[str, str]) -> None:
    for name, value in of_slices(server, "TasksMax", server.members).items():
        same(f"the limit of {name}", words["number"], value)


@claim("At most <size> of main memory for all processes of one member together.")
def _memory(server: Server, words: dict[str, str]) -> None:
    said = words["size"]
    if said.endswith("%"):
        total = 1024 * int(server.told("awk '/^MemTotal/ {print $2}' /proc/meminfo"))
        size = total * int(said[:-1]) // 100
    else:
        size = parse_size(said, "MemoryMax") if said[-1].isalpha() else int(said)
    for name, value in of_slices(server, "MemoryMax", server.members).items():
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
