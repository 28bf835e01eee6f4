"""Role tier_table: members book cards, nobody takes what is somebody else's, and nothing a member does harms root."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Play
    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

    AsMember = Callable[[str, str], CommandResult]

SHEET = "/home/admin/gpu_schedule.csv"
CARDS = "/home/admin/GPU_SCHEDULE/gpu_inventory.csv"
AUDIT = "/var/lib/gpulab/booking/audit.jsonl"
HEAD = "task_name,user,gpu_id,start_time,end_time,est_hours,status\n"
WRITER = "/opt/gpulab/current/bin/gpulab schedule-write"
TOMORROW = "$(date -d tomorrow +%F)"


@pytest.fixture(autouse=True)
def empty_sheet(host: Host) -> None:
    """Begin each test with an empty sheet, nothing recorded, and four cards."""
    cards = "index, name, memory.total [MiB], memory.used [MiB]\n"
    cards += "".join(f"{card}, NVIDIA A100-SXM4-80GB, 81920 MiB, 4 MiB\n" for card in range(4))
    host.run_test(
        f"rm -rf {SHEET} /var/lib/gpulab/booking/*.csv {AUDIT} /tmp/pwned; mkdir -p {CARDS.rpartition('/')[0]} && "
        f"printf %s {shlex.quote(cards)} >{CARDS}"
    )
    put(host, HEAD.encode())


def put(host: Host, data: bytes) -> None:
    """Write the sheet as an admin's editor does: in place, some time ago."""
    octal = "".join(f"\\0{byte:03o}" for byte in data)
    host.run_test(
        f"printf %b {shlex.quote(octal)} >{SHEET} && chown root:gpu-admins {SHEET} && chmod 664 {SHEET} && "
        f"touch -d yesterday {SHEET}"
    )


def content(host: Host) -> bytes:
    text = host.check_output(f"base64 {SHEET}")
    return bytes(subprocess.run(["base64", "-d"], input=text.encode(), capture_output=True, check=True).stdout)


def rows(host: Host) -> list[list[str]]:
    return [line.split(",") for line in content(host).decode("utf-8-sig").splitlines()[1:]]


def audit(host: Host) -> list[dict[str, object]]:
    return [json.loads(line) for line in host.check_output(f"cat {AUDIT}").splitlines()]


def add(task: str, gpu: str = "0", start: str = f"{TOMORROW} 09:00", hours: str = "2", more: str = "") -> str:
    return f'gpu-schedule add {task} --gpu {gpu} --start "{start}" --hours {hours} {more}'


def one_line(result: CommandResult) -> str:
    """Return the only line of an error."""
    assert result.rc != 0
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.stderr
    return str(result.stderr)


def test_a_member_books_and_everybody_sees_it(host: Host, as_member: AsMember) -> None:
    booked = as_member("bob", add("train", gpu="0,2"))
    assert booked.rc == 0, booked.stderr
    assert [line.split(",")[0] for line in booked.stdout.splitlines()] == ["booked: card 0", "booked: card 2"]
    day = host.check_output("date -d tomorrow +%F")
    assert rows(host) == [["train", "bob", card, f"{day} 09:00", f"{day} 11:00", "2", "booked"] for card in "02"]
    listing = as_member("carol", "gpu-schedule list").stdout.splitlines()
    assert [line.split() for line in listing[1:]] == [
        [card, day, "09:00", day, "11:00", "bob", "booked", "train"] for card in "02"
    ]
    assert json.loads(as_member("carol", "gpu-schedule list --json --mine").stdout)["bookings"] == []
    sheet = host.file(SHEET)
    assert (sheet.user, sheet.group, sheet.mode) == ("root", "gpu-admins", 0o664)


def test_the_calendar_fits_a_plain_terminal(host: Host, as_member: AsMember) -> None:
    assert as_member("bob", add("训练大模型", hours="9")).rc == 0
    plain = as_member("bob", "LC_ALL=C COLUMNS=80 gpu-schedule week").stdout
    fancy = as_member("bob", "LC_ALL=C.UTF-8 COLUMNS=80 gpu-schedule week").stdout
    assert "  card 0       " + "." * 18 + "[bob 训练大模型==]" + "." * 12 in plain.splitlines()
    assert "  card 0       " + "·" * 18 + "[bob 训练大模型━━]" + "·" * 12 in fancy.splitlines()
    assert "\x1b" not in plain + fancy
    assert "  card 1-3     free all day" in plain


def test_an_overlap_is_refused_and_the_next_free_time_said(host: Host, as_member: AsMember) -> None:
    assert as_member("bob", add("train")).rc == 0
    before = content(host)
    refused = as_member("carol", add("mine", gpu="1,0", start=f"{TOMORROW} 10:00"))
    assert refused.rc == 4
    assert "card 0 is booked by bob for 'train'" in one_line(refused)
    day = host.check_output("date -d tomorrow +%F")
    assert f"cards 1,0 are all free for 2 h from {day} 11:00" in refused.stderr
    assert content(host) == before
    assert f"0  {day} 11:00" in as_member("carol", "gpu-schedule free --hours 40").stdout


def test_members_change_only_their_own_rows_and_admins_all(host: Host, as_member: AsMember) -> None:
    assert as_member("alice", add("hers")).rc == 0
    assert as_member("bob", add("his", gpu="1")).rc == 0
    refused = as_member("bob", "gpu-schedule cancel hers")
    assert refused.rc == 3
    assert "'hers' is a booking of alice; only its owner or an admin can cancel it" in one_line(refused)
    assert as_member("bob", "gpu-schedule cancel hers --user alice").rc == 3
    assert as_member("bob", add("x", gpu="2", more="--user carol")).rc == 3
    assert as_member("alice", "gpu-schedule cancel his").rc == 0
    assert as_member("alice", add("for-carol", gpu="2", more="--user carol")).rc == 0
    assert host.run(add("for-bob", gpu="3", more="--user bob")).rc == 0
    assert [(row[0], row[1], row[6]) for row in rows(host)] == [
        ("hers", "alice", "booked"),
        ("his", "bob", "cancelled"),
        ("for-carol", "carol", "booked"),
        ("for-bob", "bob", "booked"),
    ]
    assert [(entry["by"], entry["action"]) for entry in audit(host)] == [
        ("alice", "add"),
        ("bob", "add"),
        ("alice", "cancel"),
        ("alice", "add"),
        ("root", "add"),
    ]
    assert as_member("bob", f"cat {AUDIT}").rc != 0


def test_done_frees_the_card_at_once(host: Host, as_member: AsMember) -> None:
    assert as_member("bob", add("train", start="now")).rc == 0
    assert as_member("carol", add("mine", start="now")).rc == 4
    assert "running" in as_member("carol", "gpu-schedule list").stdout
    assert as_member("bob", "gpu-schedule done train").rc == 0
    assert as_member("carol", add("mine", start="now")).rc == 0
    assert [row[5:] for row in rows(host)] == [["2", "done"], ["2", "booked"]]


BAD_INPUT = {
    add("x", start="2020-01-01 09:00"): "is in the past",
    add("x", start="$(date -d '+61 days' '+%F %H:%M')"): "bookings open 60 days ahead",
    add("x", hours="169"): "at most 168 hours",
    add("x", gpu="4"): "there is no card 4; this server has: 0, 1, 2, 3",
    add("'=cmd()'"): "begins with =",
    add("$'a\\nb'"): "line break",
    add("$(head -c 10000 /dev/zero | tr '\\0' x)"): "10000 characters",
    "gpu-schedule cancel nothing": "bob has no open booking 'nothing'",
}


def test_bad_input_gets_one_line_and_changes_nothing(host: Host, as_member: AsMember) -> None:
    before = host.check_output(f"stat -c '%i %Y' {SHEET}")
    for command, message in BAD_INPUT.items():
        assert message in one_line(as_member("bob", command))
    assert host.check_output(f"stat -c '%i %Y' {SHEET}") == before


def test_a_name_is_only_text(host: Host, as_member: AsMember) -> None:
    name = "$(touch /tmp/pwned)"
    assert as_member("bob", add(shlex.quote(name))).rc == 0
    assert rows(host)[0][0] == name
    assert as_member("bob", f"gpu-schedule cancel {shlex.quote(name)}").rc == 0
    assert not host.file("/tmp/pwned").exists


def test_a_sheet_saved_by_a_spreadsheet_program_reads_the_same(host: Host, as_member: AsMember) -> None:
    day = host.check_output("date -d tomorrow +%Y/%-m/%-d")
    by_hand = f"训练,bob,0,{day} 9:00,{day} 12:00,3,booked\r\nbroken,bob,1,{day},,,\r\n,,,,,,\r\n"
    put(host, (HEAD.replace("\n", "\r\n") + by_hand).encode("gbk"))
    listed = as_member("carol", "gpu-schedule list")
    assert listed.stdout.splitlines()[1].split()[-3:] == ["bob", "booked", "训练"]
    assert "1 of 4 lines cannot be used" in listed.stderr
    checked = as_member("carol", "gpu-schedule check")
    assert checked.rc == 1
    assert checked.stdout.startswith(f"line 3: start_time '{day}' is not a time; write it as")
    assert as_member("carol", add("mine", start=f"{TOMORROW} 11:00")).rc == 4
    assert as_member("carol", add("mine", gpu="1")).rc == 0
    written = content(host)
    assert written.startswith(b"\xef\xbb\xbf")
    assert written.decode("utf-8-sig").startswith(HEAD.replace("\n", "\r\n") + by_hand.removesuffix(",,,,,,\r\n"))


def test_an_admin_edits_the_sheet_by_hand_and_that_is_recorded(host: Host, as_member: AsMember) -> None:
    assert as_member("bob", add("train")).rc == 0
    assert as_member("alice", f"sed 's/,0,/,1,/' {SHEET} >~/new && cat ~/new >{SHEET}").rc == 0
    assert as_member("carol", add("mine", hours="1")).rc == 0
    entry = audit(host)[1]
    assert entry["action"] == "hand edit"
    assert [str(line).split(",")[2] for line in [*entry["removed"], *entry["added"]]] == ["0", "1"]  # type: ignore[misc] # JSON


def test_control_sequences_in_a_hand_edited_row_stay_off_the_terminal(host: Host, as_member: AsMember) -> None:
    put(host, HEAD.encode() + b"\x1b[2Jx,bob,0,2026-12-01 09:00,2026-12-01 10:00,1,booked\n\x1b]0;title\x07\n")
    for action in ("check", "list --all", "week", "free --hours 1"):
        said = as_member("bob", f"gpu-schedule {action}")
        assert "\x1b" not in said.stdout + said.stderr


@pytest.mark.parametrize("make", [f"ln -s /etc/shadow {SHEET}", f"mkfifo {SHEET}", f"mkdir {SHEET}"])
def test_what_is_not_a_sheet_is_refused_at_once(host: Host, as_member: AsMember, make: str) -> None:
    shadow = host.check_output("sha256sum /etc/shadow; stat -c '%a %U %G %Y' /etc/shadow")
    host.run_test(f"rm {SHEET} && {make}")
    kind = host.check_output(f"stat -c %F {SHEET}")
    for user, action in (("bob", "list"), ("bob", add("x")), ("alice", "cancel x"), ("root", add("x"))):
        command = action if action.startswith("gpu-schedule") else f"gpu-schedule {action}"
        refused = as_member(user, f"timeout 5 {command}")
        assert refused.rc == 1
        assert "is not an ordinary file; move it away" in one_line(refused)
    assert host.check_output(f"stat -c %F {SHEET}") == kind
    assert host.check_output("sha256sum /etc/shadow; stat -c '%a %U %G %Y' /etc/shadow") == shadow


WAYS_ROUND = (
    f"echo x >>{SHEET}",
    f"rm -f {SHEET}",
    f"mv {SHEET} /tmp/",
    f"ln -sf /etc/shadow {SHEET}",
    "touch /home/admin/x",
    "touch /var/lib/gpulab/booking/x",
    f"sudo -n {WRITER} --help",
    f"sudo -n {WRITER} --root /tmp",
    "sudo -n /opt/gpulab/current/bin/gpulab --version",
    "sudo -n /opt/gpulab/current/bin/python -c 0",
    f"sudo -n -E {WRITER}",
    f"sudo -n PYTHONPATH=/tmp {WRITER}",
    f"sudo -n TZ=UTC {WRITER}",
    f"sudo -n -D /tmp {WRITER}",
    f"sudo -n -R /tmp {WRITER}",
    f"sudo -n -u alice {WRITER}",
    f"sudo -n -g gpu-admins {WRITER}",
    "sudo -n true",
    WRITER,
)


def test_there_is_no_way_round(host: Host, as_member: AsMember) -> None:
    request = {"action": "add", "task_name": "x", "user": None, "gpu_ids": [0], "start": "now", "hours": 1}
    before = content(host)
    tries = (f"{way} <<<{shlex.quote(json.dumps(request))} >/dev/null 2>&1; echo $?" for way in WAYS_ROUND)
    statuses = as_member("bob", "; ".join(tries)).stdout.split()
    assert len(statuses) == len(WAYS_ROUND)
    assert [way for way, status in zip(WAYS_ROUND, statuses, strict=True) if status == "0"] == []
    assert content(host) == before


def test_who_asks_is_what_sudo_says(host: Host, as_member: AsMember) -> None:
    assert as_member("alice", add("hers")).rc == 0
    for extra in ({"user": "alice"}, {"user": None, "caller": "root"}):
        request = json.dumps({"action": "cancel", "task_name": "hers", **extra})
        refused = as_member("bob", f"SUDO_UID=0 SUDO_USER=root sudo -n {WRITER} <<<{shlex.quote(request)}")
        assert refused.rc != 0
        assert "error" in json.loads(refused.stdout)
    assert rows(host)[0][6] == "booked"


def test_nothing_of_a_members_environment_reaches_root(host: Host, as_member: AsMember) -> None:
    """Modules of the member's own lie everywhere Python might look; they may run as the member, never as root."""
    spy = "import os; os.geteuid() == 0 and open('/tmp/pwned', 'w')"
    script = (
        "mkdir -p ~/evil/gpulab && cd ~/evil && for m in gpulab/__init__ json csv select signal sitecustomize "
        f"usercustomize; do echo {shlex.quote(spy)} >$m.py; done; "
        "mkdir -p ~/.local/lib/python3.11/site-packages ~/.local/lib/python3.13/site-packages; "
        "for d in ~/.local/lib/python3.*/site-packages; do cp *.py $d/; done; "
        "export PYTHONPATH=$PWD PYTHONSTARTUP=$PWD/json.py PYTHONHOME=$PWD BASH_ENV=$PWD/x TZ=Pacific/Kiritimati; "
        f"sudo -n {WRITER} <<<"
        + shlex.quote('{"action":"add","task_name":"x","user":null,"gpu_ids":[0],"start":"now","hours":1}')
    )
    before = host.check_output("date '+%F %H:%M'")
    answer = as_member("bob", script)
    after = host.check_output("date '+%F %H:%M'")
    assert answer.rc == 0, answer.stderr
    assert not host.file("/tmp/pwned").exists
    assert before <= rows(host)[0][3] <= after


def test_a_members_limits_cannot_leave_a_half(host: Host, as_member: AsMember) -> None:
    """A limit on file size survives sudo; the record must not fail after the sheet was written."""
    assert as_member("bob", add("train")).rc == 0
    before = content(host)
    refused = as_member("bob", f"ulimit -f 0; {add('big', gpu='1')}")
    assert "File too large; the booking sheet was not changed" in one_line(refused)
    assert content(host) == before
    assert as_member("bob", add("next", gpu="2")).rc == 0
    assert [entry["action"] for entry in audit(host)] == ["add", "add"]


NO_PTY = "/etc/sudoers.d/zz-no-pty"
TYPIST = """
import os, pty, subprocess, time
def waits():
    look = ["pgrep", "-u", "root", "-f", "python.*schedule-write"]
    return subprocess.run(look, stdout=subprocess.DEVNULL).returncode == 0
child, terminal = pty.fork()
if child == 0:
    os.execvp("bash", ["bash", "-ic", "gpu-schedule add train --gpu 0 --start now --hours 1; true"])
while not waits():
    time.sleep(0.1)
time.sleep(2)
assert waits(), "root's part did not wait for the lock"
os.write(terminal, b"\\x1a")
time.sleep(0.5)
open("/tmp/typed", "w").close()
time.sleep(3)
"""


def test_a_terminal_cannot_stop_root_while_others_wait(host: Host, as_member: AsMember) -> None:
    """Bob types Ctrl-Z when root's part has his request and is about to get the lock; it goes on all the same.

    Debian's sudo has a terminal of its own for root's part (use_pty); not every server's has.
    """
    host.run_test(f"echo 'Defaults !use_pty' >{NO_PTY}")
    host.run_test(f"rm -f /tmp/typed && printf %s {shlex.quote(TYPIST)} >/tmp/typist.py")
    holder = "while [ ! -e /tmp/typed ]; do sleep 0.1; done"
    host.run_test(f"systemd-run --quiet flock /var/lib/gpulab/booking/lock sh -c {shlex.quote(holder)}")
    typed = as_member("bob", "timeout 60 python3 /tmp/typist.py")
    host.run_test(f"rm {NO_PTY}")
    assert typed.rc == 0, typed.stderr
    assert [row[0] for row in rows(host)] == ["train"]
    assert as_member("carol", f"timeout 20 {add('mine', gpu='1')}").rc == 0


def test_a_hundred_at_once_lose_nothing_and_overlap_nowhere(host: Host, as_member: AsMember) -> None:
    """Bob and carol each want the same fifty slots."""
    one = f'gpu-schedule add t$n --gpu $((n % 4)) --start "{TOMORROW} $((n / 4)):00" --hours 1'
    script = f"n=0; while [ $n -lt 50 ]; do ( {one} >/dev/null 2>&1; echo $? ) & n=$((n + 1)); done; wait"
    people = (f"runuser -l {user} -c {shlex.quote(script)} >/tmp/{user} & " for user in ("bob", "carol"))
    host.run_test("".join(people) + "wait")
    statuses = host.check_output("cat /tmp/bob /tmp/carol").split()
    assert sorted(statuses) == ["0"] * 50 + ["4"] * 50
    found = rows(host)
    assert sorted({row[0] for row in found}) == sorted(f"t{n}" for n in range(50))
    assert len(found) == 50
    assert as_member("bob", "gpu-schedule check").rc == 0
    assert len(audit(host)) == 50


def test_bash_completes_actions(host: Host, as_member: AsMember) -> None:
    complete = (
        ". /usr/local/share/bash-completion/completions/gpu-schedule; "
        "COMP_WORDS=(gpu-schedule c) COMP_CWORD=1; _gpu_schedule; echo ${COMPREPLY[*]}"
    )
    assert as_member("bob", complete).stdout.split() == ["cancel", "check"]


def test_the_way_out_is_complete_and_leaves_the_bookings(host: Host, as_member: AsMember, play: Play) -> None:
    assert as_member("bob", add("train")).rc == 0
    before = content(host), audit(host)
    first, second = play(tasks="absent.yml"), play(tasks="absent.yml")
    assert (first.returncode, " changed=0 " in first.said) == (0, False), first.stdout
    assert (second.returncode, " changed=0 " in second.said) == (0, True), second.stdout
    assert as_member("bob", "command -v gpu-schedule").rc != 0
    assert as_member("bob", f"sudo -n {WRITER} </dev/null").stderr.startswith("sudo: ")
    assert not host.file("/etc/gpulab/conf.d/booking.toml").exists
    assert (content(host), audit(host)) == before
    assert play(tasks="main.yml").returncode == 0
    assert as_member("bob", "gpu-schedule cancel train").rc == 0
