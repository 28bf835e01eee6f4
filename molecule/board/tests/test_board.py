"""The board in a browser: what a phone shows, that hostile names stay text, and that it goes without a trace."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from conftest import Play
    from testinfra.host import Host

PHONE = Path(__file__).resolve().parent.parent / "files/phone.py"
ADDRESS = "http://127.0.0.1:8080/"
SHEET = "/home/admin/gpu_schedule.csv"
HEADER = "task_name,user,gpu_id,start_time,end_time,est_hours,status"
HOSTILE = ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</li></ul><h1>mine", "x" * 64, "名" * 64)
"""What members call their work."""

PROGRAM = "<s>&lt;a"
"""What a member calls a program."""

FETCH = """import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[2], method=sys.argv[1])
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.headers.get("Server"), answer.read().decode())
"""


@pytest.fixture(scope="module", autouse=True)
def lab(host: Host) -> Generator[None]:
    """Have bob on card 0, and bookings of everybody with names that are none."""
    now = datetime.strptime(host.check_output("date +%Y-%m-%dT%H:%M"), "%Y-%m-%dT%H:%M")  # noqa: DTZ007 - server time
    rows = [HEADER]
    for number, name in enumerate(HOSTILE):
        start, end = (f"{now + timedelta(days=number, hours=hours):%Y-%m-%d %H:%M}" for hours in (-1, 3))
        rows.append(f"{name},{('alice', 'carol')[number % 2]},1,{start},{end},4,booked")
    host.run_expect([0], f"cat > {SHEET} <<'END'\n" + "\n".join(rows) + "\nEND")
    host.check_output(f"cp /usr/bin/sleep '/tmp/{PROGRAM}'")
    run = f"setsid -f gpusim run --gpu 0 --mem 20G -- '/tmp/{PROGRAM}' 3600 </dev/null >/dev/null 2>&1"
    host.run_expect([0], f'runuser -u bob -- sh -c "{run}"; sleep 1')
    for name, text in (("phone.py", PHONE.read_text()), ("fetch.py", FETCH)):
        host.run_expect([0], f"cat > /root/{name} <<'END'\n{text}\nEND")
    host.check_output("gpulab overview")
    yield
    host.check_output(f"pkill -u bob -f '^/tmp/{PROGRAM}'; rm {SHEET}; gpulab overview")


@pytest.fixture
def phone(host: Host) -> Callable[[int], dict[str, Any]]:
    """Return a function that looks at the board with a screen of some width."""

    def look(width: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            host.check_output(f"timeout 60 python3 /root/phone.py {ADDRESS} {width} 844 /root/board.png")
        )
        return found

    return look


@pytest.fixture
def fetch(host: Host) -> Callable[..., str]:
    """Return a function that asks the web server for something; status, name and content come back."""

    def ask(path: str = "", method: str = "GET") -> str:
        return host.check_output(f"python3 /root/fetch.py {method} '{ADDRESS}{path}'")

    return ask


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_sticks_out_of_any_screen(phone: Callable[[int], dict[str, Any]], width: int) -> None:
    found = phone(width)
    assert (found["window"], found["width"], found["sticking_out"]) == (width, width, 0)
    assert found["text"].startswith("Vision lab: who is on which card")
    assert "Cards: 2 of 4 free" in found["text"]
    assert "Bookings of the week" in found["text"]
    assert re.search(r"/home\s.* free", found["text"])


def test_what_members_wrote_is_text(phone: Callable[[int], dict[str, Any]]) -> None:
    found = phone(390)
    text = " ".join(found["text"].split())
    for name in HOSTILE[:3]:
        assert name in text
    assert f"bob ({PROGRAM}, PID " in text
    assert (found["strange"], found["dialogs"], found["complaints"]) == (0, 0, 0)
    assert found["refresh"] == "60"


def test_the_picture_is_one(host: Host, phone: Callable[[int], dict[str, Any]]) -> None:
    phone(390)
    size = "import struct; print(*struct.unpack('>8x4x4sII', open('/root/board.png', 'rb').read(24)))"
    assert host.check_output(f'python3 -c "{size}"') == "b'IHDR' 390 844"


def test_nginx_serves_this_page_and_nothing_else(host: Host, fetch: Callable[..., str]) -> None:
    assert fetch().startswith("200 nginx <!DOCTYPE html>"), "without a version"
    for path in ("index.html", "etc/passwd", "..%2f..%2fetc/passwd", "../login/en", "x/"):
        assert fetch(path).split()[0] in {"400", "404"}
    assert fetch(method="POST").split()[0] == "403"
    listens = host.check_output("ss -Hltn | awk '{print $4}'").split()
    assert "127.0.0.1:8080" in listens
    assert not [each for each in listens if each.endswith((":80", ":443"))], "Debian's own site is not served"


def test_who_does_not_write_it_shows_nothing_old(host: Host, fetch: Callable[..., str]) -> None:
    host.check_output("systemctl stop gpulab-overview")
    assert fetch().startswith("503 ")
    host.check_output("systemctl start gpulab-overview")
    assert fetch().startswith("200 ")


def test_members_are_told_how_to_see_it(host: Host) -> None:
    rules = host.check_output("runuser -u bob -- cat /home/admin/GPU_SCHEDULE/README.md")
    assert rules.count("`ssh -L 8080:127.0.0.1:8080 ") == 2, "in English and Chinese"


def test_members_cannot_change_it(host: Host) -> None:
    for what in ("echo x >> /run/gpulab/board/index.html", "rm /run/gpulab/board/index.html"):
        assert host.run(f"runuser -u bob -- sh -c '{what}'").rc != 0


def _traces(host: Host) -> str:
    places = "/etc/nginx/conf.d /etc/gpulab /run/gpulab/board"
    return host.run(f"find {places} -name '*board*' ! -path /run/gpulab/board -o -name index.html").stdout


def test_without_board_enabled_nothing_of_it_is_left(host: Host, play: Play) -> None:
    planned = play("--check", tasks="main", board_enabled=False)
    assert planned.returncode == 0, planned.stdout
    assert _traces(host), "a plan changes nothing"
    done = play(tasks="main", board_enabled=False)
    assert done.returncode == 0, done.stdout
    assert _traces(host) == ""
    assert not host.service("nginx").is_running
    assert not host.service("nginx").is_enabled
    assert "changed=0" in play(tasks="main", board_enabled=False).stdout
    host.check_output("gpulab overview")
    assert _traces(host) == ""


def test_an_nginx_that_serves_more_goes_on(host: Host, play: Play) -> None:
    again = play("--check", tasks="main")
    assert again.returncode == 0, again.stdout
    host.check_output(
        "echo 'server { listen 127.0.0.1:8081; return 200 other; }' > /etc/nginx/sites-enabled/other; "
        "systemctl enable --now --quiet nginx"
    )
    done = play(tasks="main")
    assert done.returncode == 0, done.stdout
    assert host.check_output(f"python3 /root/fetch.py GET {ADDRESS}").startswith("200 ")
    done = play(tasks="main", board_enabled=False)
    assert done.returncode == 0, done.stdout
    assert host.service("nginx").is_running
    assert host.service("nginx").is_enabled
    assert host.check_output("python3 /root/fetch.py GET http://127.0.0.1:8081/").startswith("200 ")
    listens = host.check_output("ss -Hltn | awk '{print $4}'").split()
    assert "127.0.0.1:8080" not in listens
