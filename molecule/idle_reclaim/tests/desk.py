"""What people do on one machine of the scenario: work, idle, read mail; and how the machine is made clean again."""

from __future__ import annotations

import email
import json
import shlex
import time
from email import policy
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from testinfra.host import Host

STORE = "/var/lib/gpulab/samples/samples.db"
SETTINGS = "/etc/gpulab/conf.d/reclaim.toml"
STATE = "/run/gpulab/reclaim"

IDLE, ANSWER = 9, 12
"""Seconds, as in molecule.yml."""

LONG = IDLE + ANSWER + 9
"""Seconds in which an idle process would have been asked about and ended, if anything went wrong."""

_PATIENCE = 150.0
"""Seconds to wait for what must come: on a slow machine looks come late, and a late look begins the time anew."""

RESET = f"""exec >/dev/null 2>&1
systemctl stop gpulab-reclaim.path gpulab-sampler.service gpulab-reclaim.service
pkill -KILL -x sleep; pkill -KILL -x work.sh
umount /var/lib/gpulab/samples
gpusim fail --clear; gpusim reboot
[ -e {SETTINGS}.kept ] || cp -p {SETTINGS} {SETTINGS}.kept
cp -p {SETTINGS}.kept {SETTINGS}
rm -rf {STATE}/* {STORE}* /tmp/work
for box in /var/mail/*; do : > $box; done
install -d -m 1777 /tmp/work
systemctl start gpulab-reclaim.path gpulab-sampler.service
"""

READ_MAIL = """
import glob, json, os, time
for _ in range(200):
    if not glob.glob("/var/spool/dma/M*"):
        break
    time.sleep(0.1)
else:
    raise SystemExit("mail is stuck in /var/spool/dma")
boxes = glob.glob("/var/mail/*")
print(json.dumps({os.path.basename(box): open(box, encoding="utf-8").read() for box in boxes}))
"""


class Desk:
    """One machine, clean: nobody works, nothing is remembered, all mailboxes are empty."""

    def __init__(self, host: Host) -> None:
        self.host = host
        host.run(RESET)

    def configure(self, **values: Any) -> None:
        """Change the settings as another run of the playbook would; the sampler notices by itself."""
        for key, value in values.items():
            line = f"{key} = {json.dumps(value)}"
            self.host.run_expect([0], f"sed -i {shlex.quote(f's/^{key} = .*/{line}/')} {SETTINGS}")

    def work(self, user: str, options: str, command: str = "sleep 900") -> int:
        """Start a program of somebody that uses a card; return its pid."""
        job = f"echo $$ > /tmp/work/{user}; exec gpusim run {options} -- {command}"
        start = f"setsid sh -c {shlex.quote(job)} >/dev/null 2>&1 </dev/null &"
        self.host.run_expect([0], f"rm -f /tmp/work/{user}; runuser -u {user} -- sh -c {shlex.quote(start)}")
        pid = int(self.wait_for(lambda: self.host.run(f"cat /tmp/work/{user}").stdout, "a pid"))
        self.wait_for(lambda: self.host.run(f"ls /run/gpusim/procs.d/{pid}.*").rc == 0, "its place on the card")
        return pid

    def terminal(self, user: str) -> None:
        """Open a terminal for somebody; what appears on it goes to /tmp/work/tty."""
        session = "script -qfc 'sleep 300' /dev/null >/tmp/work/tty 2>&1 </dev/null &"
        self.host.run_expect([0], f"runuser -u {user} -- sh -c {shlex.quote(session)}")

    def on_terminal(self) -> str:
        """Return what appeared on the terminal."""
        return self.host.run("cat /tmp/work/tty").stdout.strip()

    def alive(self, pid: int) -> bool:
        """Tell whether a process lives."""
        return self.host.run(f"grep -q '^State:.[^ZX]' /proc/{pid}/status").rc == 0

    def state(self, pid: int) -> str:
        """Return where a process stands, as `gpulab reclaim --status` has it; empty when it is on no card."""
        holders = json.loads(self.host.check_output("gpulab reclaim --json"))["holders"]
        return next((holder["state"] for holder in holders if holder["pid"] == pid), "")

    def mails(self) -> dict[str, list[tuple[str, str]]]:
        """Return title and text of everything in the mailboxes, once the MTA has put all of it there."""
        boxes = json.loads(self.host.check_output(f"python3 -c {shlex.quote(READ_MAIL)}"))
        return {user: [_parsed(mail) for mail in _split(box)] for user, box in boxes.items() if box}

    def titles(self, user: str) -> list[str]:
        """Return the titles of somebody's mails."""
        return [title for title, _ in self.mails().get(user, [])]

    def wait_for(self, found: Callable[[], Any], what: str, seconds: float = _PATIENCE) -> Any:
        """Ask until there is something; fail when there is nothing in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := found():
                return value
            time.sleep(0.5)
        return pytest.fail(f"{what} did not come within {seconds} s")

    def wait_for_mail(self, user: str, title: str) -> str:
        """Wait for a mail whose title begins so; return its text."""
        return self.wait_for(
            lambda: next((text for found, text in self.mails().get(user, []) if found.startswith(title)), ""),
            f"mail to {user}: {title}",
        )

    def looks(self) -> int:
        """Return how many looks the store has."""
        query = f"import sqlite3; print(sqlite3.connect('{STORE}').execute('SELECT count(*) FROM ticks').fetchone()[0])"
        answer = self.host.run(f"python3 -c {shlex.quote(query)}")
        return int(answer.stdout) if answer.rc == 0 else 0


def _split(box: str) -> list[str]:
    """Split a mailbox into mails; all of ours are from root."""
    return [part.split("\n", 1)[1] for part in ("\n" + box).split("\nFrom root@") if part.strip()]


def _parsed(mail: str) -> tuple[str, str]:
    message = email.message_from_bytes(mail.encode(), policy=policy.default)
    return str(message["Subject"]).split("] ", 1)[1], message.get_content()
