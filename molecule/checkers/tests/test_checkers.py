"""Role checkers: who should know gets one mail that says what to do, nobody's work is ended, cron runs it."""

from __future__ import annotations

import email
import json
import shlex
import time
from contextlib import contextmanager
from datetime import datetime, timedelta
from email import policy
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Play
    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

pytestmark = pytest.mark.usefixtures("still_cron")

HEADER = "task_name,user,gpu_id,start_time,end_time,est_hours,status"
SHEET = "/home/admin/gpu_schedule.csv"
STATE = "/var/lib/gpulab/checks/events.json"
CHECK = "/usr/local/sbin/check_gpu.sh"
AS_CRON = "env -i HOME=/root LOGNAME=root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

RESET = f"""exec 3>&1 >/dev/null 2>&1
for user in mallory monitor; do id $user || useradd --create-home $user; done
for user in bob carol mallory monitor; do pkill -u $user -x sleep; done
gpusim fail --clear
echo {HEADER} > {SHEET}
rm -f {STATE} {STATE}.corrupt
for box in /var/mail/*; do : > $box; done
exec >&3; date '+%Y-%m-%d %H:%M'
"""

READ_MAIL = """
import glob, json, os, time
for _ in range(100):
    if not glob.glob("/var/spool/dma/M*"):
        break
    time.sleep(0.1)
else:
    raise SystemExit("mail is stuck in /var/spool/dma")
boxes = glob.glob("/var/mail/*")
print(json.dumps({os.path.basename(box): open(box, encoding="utf-8").read() for box in boxes}))
"""


class Desk:
    """What the people of a test do on one machine, and the mail they get."""

    def __init__(self, host: Host) -> None:
        self.host = host
        # The server's wall clock, as in the sheet.
        self.now = datetime.strptime(host.check_output(RESET), "%Y-%m-%d %H:%M")  # noqa: DTZ007

    def row(self, task: str, user: str, gpu: int | str, minutes: tuple[int, int], status: str = "booked") -> str:
        """Write a row of the sheet whose times are minutes from now."""
        start, end = (f"{self.now + timedelta(minutes=offset):%Y-%m-%d %H:%M}" for offset in minutes)
        return f"{task},{user},{gpu},{start},{end},{(minutes[1] - minutes[0]) / 60:g},{status}"

    def edit(self, *rows: str) -> None:
        """Save the sheet as the admin does, by hand and in place, some seconds ago."""
        text = "".join(f"{row}\n" for row in (HEADER, *rows))
        save = shlex.quote(f"printf %s {shlex.quote(text)} > {SHEET}")
        self.host.run_expect([0], f"runuser -u alice -- sh -c {save} && touch -d '5 seconds ago' {SHEET}")

    def work(self, user: str, gpu: int) -> int:
        """Start a program of somebody on a card; return its pid."""
        job = f"setsid gpusim run --gpu {gpu} --mem 20G -- sleep 900 >/dev/null 2>&1 &"
        self.host.run_expect([0], f"runuser -u {user} -- sh -c {shlex.quote(job)}")
        for _ in range(50):
            found = self.host.run(f"pgrep -n -u {user} -x sleep")
            if found.rc == 0 and int(found.stdout) in self.seen(gpu):
                return int(found.stdout)
            time.sleep(0.1)
        return pytest.fail(f"no process of {user} shows up on card {gpu}")

    def seen(self, gpu: int) -> set[int]:
        """Return the pids that NVML shows on a card."""
        cards = json.loads(self.host.check_output("gpulab info --json"))["cards"]
        return {process["pid"] for process in cards[gpu]["processes"] or []}

    def check(self, options: str = "") -> CommandResult:
        """Run the check as cron does: as root, with little in the environment and no terminal."""
        return self.host.run(f"{AS_CRON} {CHECK} {options}")

    def mails(self) -> dict[str, list[tuple[str, str]]]:
        """Return subject and text of everything in the mailboxes, once the MTA has put all of it there."""
        boxes = json.loads(self.host.check_output(f"python3 -c {shlex.quote(READ_MAIL)}"))
        return {user: [parsed(mail) for mail in split(box)] for user, box in boxes.items() if box}

    def body(self, user: str) -> str:
        """Return the text of the only mail that somebody has."""
        ((_, text),) = self.mails()[user]
        return text

    def check_twice(self) -> dict[str, list[str]]:
        """Check two times; return the subjects of all mail without their `[gpulab HOST] `."""
        once = f"{AS_CRON} {CHECK}"
        ran = self.host.run(f"{once} && {once}")
        assert (ran.rc, ran.stdout, ran.stderr) == (0, "", "")
        return {user: [subject.split("] ", 1)[1] for subject, _ in mails] for user, mails in self.mails().items()}


def split(box: str) -> list[str]:
    """Split a mailbox into mails; all of ours are from root."""
    return [part.split("\n", 1)[1] for part in ("\n" + box).split("\nFrom root@") if part.strip()]


def parsed(mail: str) -> tuple[str, str]:
    message = email.message_from_bytes(mail.encode(), policy=policy.default)
    return str(message["Subject"]), message.get_content()


@pytest.fixture
def desk(host: Host) -> Desk:
    """Return the desk on a machine without bookings, work and mail."""
    return Desk(host)


def test_a_booking_that_begins_soon_is_reminded_of_once(desk: Desk) -> None:
    desk.edit(desk.row("train", "bob", 1, (30, 90)), desk.row("far", "carol", 2, (180, 240)))
    assert desk.check_twice() == {
        "bob": [f"card 1: your booking 'train' begins {desk.now + timedelta(minutes=30):%Y-%m-%d %H:%M}"]
    }
    assert "gpu-schedule cancel train\n" in desk.body("bob")


def test_a_booking_that_has_begun_is_told_once(desk: Desk) -> None:
    desk.work("bob", 1)
    desk.edit(desk.row("train", "bob", 1, (-45, 90)))
    assert desk.check_twice() == {"bob": ["card 1: your booking 'train' has begun"]}


def test_overrun_is_told_with_the_pid_to_its_owner_and_the_next_in_line_and_nothing_is_killed(desk: Desk) -> None:
    pid = desk.work("bob", 0)
    desk.edit(desk.row("train", "bob", 0, (-180, -60)), desk.row("eval", "carol", 0, (-60, 120)))
    assert desk.check_twice() == {
        "bob": ["card 0: your booking 'train' is over, but your processes run on"],
        "carol": ["card 0: bob is on the card you have booked"],
    }
    bobs, carols = desk.body("bob"), desk.body("carol")
    assert f"    PID {pid}  sleep" in bobs
    assert f"    kill {pid}\n" in bobs
    assert "carol has booked the card now: 'eval'" in bobs
    assert f"    PID {pid}  sleep" in carols
    assert desk.host.run(f"kill -0 {pid}").rc == 0


def test_an_overrun_that_ends_and_happens_again_is_told_again(desk: Desk) -> None:
    desk.edit(desk.row("train", "bob", 0, (-180, -60)))
    for expected in (1, 2):
        pid = desk.work("bob", 0)
        desk.check_twice()
        assert len(desk.mails()["bob"]) == expected
        desk.host.run_expect([0], f"kill {pid}")
        desk.check_twice()


def test_use_without_booking_is_told_with_whose_card_it_is(desk: Desk) -> None:
    pid = desk.work("bob", 2)
    desk.edit(desk.row("later", "carol", 2, (200, 300)))
    assert desk.check_twice() == {"bob": ["card 2: you use it without a booking"]}
    body = desk.body("bob")
    assert f"PID {pid}  sleep" in body
    assert "carol has booked the card next: 'later'" in body
    assert "gpu-schedule add TASK --gpu 2 --start now --hours 2\n" in body


def test_the_command_in_the_mail_puts_things_right(desk: Desk, as_member: Callable[[str, str], CommandResult]) -> None:
    desk.work("bob", 2)
    desk.check_twice()
    command = next(line.strip() for line in desk.body("bob").splitlines() if "gpu-schedule add" in line)
    booked = as_member("bob", command)
    assert booked.rc == 0, booked.stderr
    time.sleep(1)
    assert json.loads(desk.check("--json").stdout)["ended"] == 1


def test_a_booking_that_nobody_uses_is_told_once(desk: Desk) -> None:
    desk.edit(desk.row("idle", "bob", 3, (-45, 90)))
    assert desk.check_twice() == {"bob": ["card 3: your booking 'idle' is not used"]}
    assert "gpu-schedule done idle\n" in desk.body("bob")


def test_several_things_for_one_person_are_one_mail(desk: Desk) -> None:
    desk.work("bob", 0)
    desk.edit(
        desk.row("train", "bob", 0, (-180, -60)),
        desk.row("idle", "bob", 3, (-45, 90)),
        desk.row("soon", "bob", 1, (30, 90)),
    )
    assert desk.check_twice() == {
        "bob": ["card 0: your booking 'train' is over, but your processes run on (and 2 more)"]
    }


def test_a_card_that_nvml_cannot_read_is_told_to_the_admin_and_ends_nothing(desk: Desk) -> None:
    desk.work("bob", 3)
    desk.check_twice()
    desk.host.run_expect([0], "gpusim fail --gpu 3 --lost")
    desk.check_twice()
    desk.host.run_expect([0], "gpusim fail --clear")
    assert desk.check_twice() == {
        "bob": ["card 3: you use it without a booking"],
        "alice": ["card 3: NVML cannot read it"],
    }


def test_a_server_without_driver_is_told_to_the_admin(desk: Desk) -> None:
    desk.host.run_expect([0], "gpusim fail --unloaded")
    desk.edit(desk.row("train", "bob", 1, (-45, 90)))
    assert desk.check_twice() == {"bob": ["card 1: your booking 'train' has begun"], "alice": ["NVML shows no card"]}


def test_strangers_are_the_admins_business_and_ignored_accounts_nobodys(desk: Desk) -> None:
    pid = desk.work("mallory", 1)
    desk.work("monitor", 2)
    assert desk.check_twice() == {"alice": ["card 1: mallory, who is no member, uses it"]}
    assert f"PID {pid}  sleep" in desk.body("alice")


def test_rows_that_cannot_be_meant_so_are_named_by_line_and_hide_no_good_one(desk: Desk) -> None:
    desk.edit(desk.row("oops", "carol", "nine", (30, 90)), desk.row("train", "bob", 1, (30, 90)))
    told = desk.check_twice()
    assert sorted(told) == ["alice", "bob", "carol"]
    assert told["carol"] == told["alice"] == ["line 2 of the booking sheet does not count"]
    assert "line 2: gpu_id 'nine'" in desk.body("alice")


@pytest.mark.parametrize("task", ["$(touch /run/pwned)", "`touch /run/pwned`;x", "-rf", "=cmd()", "训练" * 60])
def test_what_members_write_is_only_text(desk: Desk, task: str) -> None:
    desk.edit(desk.row(f'"{task}"', "bob", 1, (30, 90)))
    assert list(desk.check_twice()) == ["bob"]
    ((subject, body),) = desk.mails()["bob"]
    assert task[:20] in subject
    assert f"gpu-schedule cancel {'-- ' if task.startswith('-') else ''}{shlex.quote(task)}\n" in body
    assert not desk.host.file("/run/pwned").exists


def test_a_sheet_that_is_a_trap_is_told_to_the_admin(desk: Desk) -> None:
    desk.work("bob", 1)
    desk.host.run_expect([0], f"mv {SHEET} {SHEET}.kept; ln -s /etc/shadow {SHEET}")
    try:
        assert desk.check_twice() == {"alice": ["the booking sheet cannot be read"]}
        assert "root:" not in desk.body("alice")
    finally:
        desk.host.run(f"rm {SHEET}; mv {SHEET}.kept {SHEET}")


@contextmanager
def no_sendmail(host: Host) -> Iterator[None]:
    host.run_expect([0], "mv /usr/sbin/sendmail /usr/sbin/sendmail.away")
    try:
        yield
    finally:
        host.run_expect([0], "mv /usr/sbin/sendmail.away /usr/sbin/sendmail")


def test_when_mail_fails_the_run_says_so_and_the_next_one_tells(desk: Desk) -> None:
    desk.edit(desk.row("train", "bob", 1, (30, 90)))
    with no_sendmail(desk.host):
        failed = desk.check()
    assert failed.rc == 1
    assert failed.stderr == (
        "gpulab: mail to bob was not sent: /usr/sbin/sendmail: No such file or directory; "
        "it is tried again in the next run\n"
    )
    assert list(desk.check_twice()) == ["bob"]
    assert len(desk.mails()["bob"]) == 1


def test_a_damaged_memory_is_told_to_the_admin_once(desk: Desk) -> None:
    desk.host.run_expect([0], f"printf '{{\"vers' > {STATE}")
    assert desk.check_twice() == {"alice": ["check_gpu had to forget what it had told"]}
    assert desk.host.file(f"{STATE}.corrupt").content_string == '{"vers'


def test_a_dry_run_shows_the_mail_and_sends_nothing(desk: Desk) -> None:
    desk.edit(desk.row("train", "bob", 1, (30, 90)))
    shown = desk.check("--dry-run").stdout
    assert "To: bob\nSubject: [gpulab " in shown
    assert not desk.host.file(STATE).exists
    assert desk.mails() == {}


def test_a_terminal_gets_a_summary(desk: Desk) -> None:
    desk.edit(desk.row("train", "bob", 1, (30, 90)))
    summary = desk.host.check_output(f"script -qec {CHECK} /dev/null")
    assert "cards: 4, bookings: 1, events: 1" in summary
    assert "mailed now" in summary


def test_members_cannot_run_it_or_read_what_it_remembers(
    desk: Desk, as_member: Callable[[str, str], CommandResult]
) -> None:
    desk.check_twice()
    refused = as_member("bob", CHECK)
    assert refused.rc == 3
    assert refused.stderr.endswith("only root may use check_gpu; try it with sudo\n")
    assert as_member("bob", "ls /var/lib/gpulab/checks").rc != 0


def test_cron_takes_the_file_and_its_run_reaches_the_mailbox(desk: Desk) -> None:
    desk.edit(desk.row("train", "bob", 1, (30, 90)))
    desk.host.run_expect([0], "rm -f /home/admin/GPU_INFO.md")
    now = "/etc/cron.d/gpulab-now"
    desk.host.run_expect([0], "systemctl kill --signal=CONT cron.service")
    desk.host.run_expect([0], rf"sed -E 's/^[0-9].* root /* * * * * root /' /etc/cron.d/gpulab > {now}")
    try:
        assert desk.host.check_output(f"grep -c '^[*] [*] [*] [*] [*] root /' {now}") == "4"
        for _ in range(80):
            if "bob" in desk.mails() and desk.host.file("/home/admin/GPU_INFO.md").exists:
                break
            time.sleep(1)
    finally:
        desk.host.run(f"rm {now}; systemctl kill --signal=STOP cron.service")
    assert len(desk.mails()["bob"]) == 1
    assert desk.host.file("/home/admin/GPU_INFO.md").exists
    assert "root" not in desk.mails(), "cron complained by mail"
    assert "ERROR" not in desk.host.check_output("journalctl --no-pager --identifier=cron")


def test_a_time_that_cron_would_not_take_is_refused_before_anything_changes(play: Play) -> None:
    ran = play(tasks="main.yml", checkers_check_gpu_cron=["61 * * * *"])
    assert ran.returncode != 0
    assert 'checkers_check_gpu_cron has "61 * * * *"; write five fields' in ran.said
    assert "changed=0" in ran.said


def test_the_way_out_is_complete(host: Host, play: Play) -> None:
    for expected in ("changed=1 ", "changed=0 "):
        ran = play(tasks="absent.yml")
        assert ran.returncode == 0, ran.stdout
        assert expected in ran.said
    left = "ls -d /etc/cron.d/gpulab /usr/local/sbin/check_gpu.sh /etc/gpulab/conf.d/checks.toml /var/lib/gpulab/checks"
    assert host.run(left).stdout == ""
    assert host.file(SHEET).exists
