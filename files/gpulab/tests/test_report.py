"""`gpulab report`, from a store and made-up accounting to what people read."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import time
from datetime import datetime
from html.parser import HTMLParser

import pytest
import yaml
from gpulab.adapters.sacct import job_lines, kept_since, node_cards
from gpulab.adapters.sample_store import SampleWriter
from gpulab.commands import report as command
from gpulab.errors import GpulabError, InputError, NotPermittedError
from gpulab.rules.samples import OK, CardSample, Hold, Runner, Tick, Use
from gpulab.rules.usage import HOUR, MemberUse, Period, PlaceUse, Usage, Waits, WindowUse
from gpulab.rules.usage_advice import advise, new_weight
from gpulab.rules.usage_period import between, last, month
from gpulab.rules.windows import parse_windows
from gpulab.services.report import Sources, table

NOW = datetime(2026, 11, 20, 12, 0)  # noqa: DTZ001 - server time
HOSTILE = "<b>&=cmd"


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def root(tmp_path):
    """Two cards in the last ten hours: bob works on one, carol holds a lease on the other and sleeps."""
    (tmp_path / "var/lib/gpulab/samples").mkdir(parents=True)
    writer = SampleWriter(tmp_path / "var/lib/gpulab/samples/samples.db", "boot")
    began = int(NOW.timestamp()) - 10 * HOUR
    bob, carol = Runner(10, 1, 1001, "bob", "train"), Runner(11, 1, 1002, HOSTILE, "sleep", 5)
    for minute in range(1, 601):
        at = began + 60 * minute
        cards = tuple(CardSample(index, f"GPU-{index}", OK, 0, 0, 80 << 30) for index in (0, 1))
        uses = (Use(bob, 0, memory=1, sm=90),)
        holds = (Hold(5, carol, 1, asked=began - 600, given=began),)
        writer.write(Tick(at, cards, uses, holds))
    writer.close()
    return tmp_path


def run(root, capsys, *options, slurm=None, disk=None, since=None):
    sources = Sources(
        root,
        slurm=lambda: slurm is not None,
        job_lines=lambda *_: slurm,
        node_cards=lambda: {"n1": 4},
        kept_since=lambda: since,
        disk=lambda: disk or {},
    )
    assert command.main(options, root=root, now=lambda: NOW, sources=sources) == 0
    return capsys.readouterr().out


def test_members_cards_and_waits_on_one_screen(root, capsys):
    text = run(root, capsys, "--last", "10h", disk={"bob": 7 << 30})
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["bob"][1:4] == ["1", "10.0", "50"]
    assert rows["bob"][-2:] == ["7", "GiB"]
    assert "20.0 of 20.0 watched GPU-hours used (100 %)." in text
    assert rows[HOSTILE][1:] == [
        "1",
        "10.0",
        "50",
        "%",
        "10",
        "min",
        "10",
        "min",
        "0",
        "%",
        "100",
        "%",
        "10.0",
        "h",
        "-",
    ]
    assert rows["card"][2:] == ["1", "100", "%"]
    assert "suggestions need records of a week" in text


def test_both_sources_are_one_report(root, capsys):
    began = int(NOW.timestamp()) - 20 * HOUR
    lines = f"7|bob|{began - 60}|{began}|{began + 5 * HOUR}|gres/gpu=2|n1\n"
    document = json.loads(run(root, capsys, "--last", "20h", "--format", "json", slurm=lines))
    bob = next(each for each in document["members"] if each["user"] == "bob")
    assert (bob["gpu_hours"], bob["runs"], bob["measured"]) == (20, 2, 0.5)
    assert [each["place"] for each in document["places"]] == ["card 0", "card 1", "n1"]
    assert document["places"][2]["total"] == pytest.approx(10 / 40), "Slurm was away in the ten hours of samples"


def test_csv_is_safe_to_open_in_a_spreadsheet(root, capsys):
    rows = list(csv.DictReader(io.StringIO(run(root, capsys, "--last", "10h", "--format", "csv"))))
    assert [(row["user"], row["gpu_hours"], row["utilisation"]) for row in rows] == [
        (HOSTILE, "10", "0"),
        ("bob", "10", "90"),
    ]
    empty = dict.fromkeys(rows[0])
    assert "'=cmd" in table({"members": [{**empty, "user": "=cmd"}]})


class Reader(HTMLParser):
    """Collects what a browser would run or fetch, and which tags are open at the end."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.text = [], [], ""

    def handle_starttag(self, tag, attributes):
        if tag != "meta":
            self.open.append(tag)
        self.fetched += [tag] if tag in {"script", "link", "img", "iframe", "b"} else []
        self.fetched += [name for name, _ in attributes if name.startswith("on") or name in {"src", "href"}]

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_is_whole_in_itself_and_no_name_becomes_markup(root, capsys, language):
    page = run(root, capsys, "--last", "10h", "--format", "html", "--language", language)
    reader = Reader()
    reader.feed(page)
    assert (reader.open, reader.fetched) == ([], [])
    assert HOSTILE in reader.text
    squares = 2 * 10  # two cards were watched for ten hours of the week
    assert page.count("<rect") == squares + 2 * 2, "and two bars of two parts each"
    assert page.count("<path") == 2 * 168 - squares
    assert ("Members" if language == "en" else "成员") in reader.text


def test_a_member_sees_who_they_are_and_nobody_else(root, capsys):
    text = run(root, capsys, "--last", "10h", "--member", "bob")
    assert "bob" in text
    assert HOSTILE not in text
    assert "member 1 " in text
    assert "Suggestions" not in text


def test_without_records_it_says_so(tmp_path, capsys):
    assert "Nothing was recorded in this time." in run(tmp_path, capsys)


def test_admins_only(root, capsys, monkeypatch):
    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(command, "make", refuse)
    with pytest.raises(NotPermittedError, match="sudo"):
        run(root, capsys)


def test_mail_goes_to_the_admin_and_to_each_member_their_own(root, monkeypatch, capsys):
    sent = {}
    monkeypatch.setattr(command, "send", lambda user, subject, text, **_: sent.update({user: (subject, text)}))
    monkeypatch.setattr(command, "in_group", lambda user, _: user == "bob")
    run(root, capsys, "--last", "10h", "--mail", "--members")
    assert set(sent) == {"root", "bob"}
    assert HOSTILE in sent["root"][1]
    assert HOSTILE not in sent["bob"][1]
    page = root / "var/lib/gpulab/reports/2026-11-20.html"
    assert str(page) in sent["root"][1]
    assert "<svg" in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o640


def test_a_mail_that_fails_keeps_no_other_and_is_told(root, monkeypatch, capsys):
    sent = []

    def send(user, *_args, **_options):
        if user == "root":
            raise command.MailError("mail to root was not sent: no MTA")
        sent.append(user)

    monkeypatch.setattr(command, "send", send)
    monkeypatch.setattr(command, "in_group", lambda user, _: user == "bob")
    with pytest.raises(GpulabError, match="mail to root was not sent"):
        run(root, capsys, "--last", "10h", "--mail", "--members")
    assert sent == ["bob"]


def utc(*when):
    return datetime(*when)  # noqa: DTZ001 - server time


@pytest.mark.parametrize(
    ("period", "begin", "end"),
    [
        (last("14d", NOW), utc(2026, 11, 6, 12), NOW),
        (month("last", NOW), utc(2026, 10, 1), utc(2026, 11, 1)),
        (month("2026-02", NOW), utc(2026, 2, 1), utc(2026, 3, 1)),
        (month("2026-11", NOW), utc(2026, 11, 1), NOW),
        (month("last", utc(2026, 1, 31)), utc(2025, 12, 1), utc(2026, 1, 1)),
        (between("2026-11-01", "2026-11-02", NOW), utc(2026, 11, 1), utc(2026, 11, 3)),
        (between("2026-11-19", "", NOW), utc(2026, 11, 19), NOW),
    ],
)
def test_periods(period, begin, end):
    assert period == Period(int(begin.timestamp()), int(end.timestamp()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: last("14", NOW), "--last is '14'; give hours, days or weeks"),
        (lambda: month("2026-13", NOW), "--month is '2026-13'; write it as 2026-11"),
        (lambda: month("2026-12", NOW), "--month 2026-12: nothing of that time has passed yet"),
        (lambda: between("1.11.", "", NOW), "--from is '1.11.'; write a day as 2026-11-01"),
        (lambda: between("2026-11-03", "2026-11-01", NOW), "nothing of that time has passed yet"),
    ],
)
def test_times_that_make_no_sense(make, message):
    with pytest.raises(InputError, match=message):
        make()


# Suggestions

WINDOWS = parse_windows(
    [
        {"name": "day", "from": "08:00", "to": "12:00", "class": "long", "weight": 1.0},
        {"name": "peak", "from": "14:00", "to": "18:00", "class": "short", "weight": 0.5, "text": {"en": 'a "b"'}},
    ]
)


def usage(*members, windows=()):
    occupancy = tuple([0.5] * 168)
    held = sum(each.gpu_hours for each in members)
    return Usage(Period(0, 14 * 24 * HOUR), members, (PlaceUse("card 0", 4, occupancy, 0.5),), windows, held, 2 * held)


def member(user, gpu_hours, share, wait=None, idle=0.0):
    return MemberUse(user, 1, gpu_hours, share, Waits(1 if wait else 0, wait, wait), 50, 1.0, idle)


def advice(given, tier="allocator", mode="notify", seconds=14 * 24 * HOUR):
    found = advise(given, tier=tier, windows=WINDOWS, reclaim_mode=mode, watched_seconds=seconds)
    return {each.kind: yaml.safe_load("\n".join(each.inventory)) for each in found}


def test_idle_cards_suggest_reclaim_where_it_does_not_end_things_yet():
    given = usage(member("bob", 100, 0.5, idle=12), member("carol", 100, 0.5, idle=12))
    assert advice(given) == {"idle": {"idle_reclaim_mode": "enforce"}}
    assert advice(given, mode="enforce") == {}
    assert advice(given, tier="slurm") == {}
    assert advice(given, seconds=6 * 24 * HOUR) == {}, "a week at least"


def test_one_who_has_most_while_others_wait_suggests_a_limit():
    given = usage(member("bob", 90, 0.6), member("carol", 40, 0.3, wait=2 * HOUR), member("alice", 20, 0.1))
    assert advice(given) == {"limit": {"tier_allocator_max_cards": 2}}
    assert advice(given, tier="slurm") == {"limit": {"tier_slurm_limits": {"cards": 2}}}
    assert advice(given, tier="table") == {}
    short = usage(member("bob", 90, 0.6), member("carol", 40, 0.3, wait=60), member("alice", 20, 0.1))
    assert advice(short) == {}


def test_weights_follow_occupancy_and_the_rest_of_the_table_stays():
    windows = (WindowUse("day", Waits(), 0.25), WindowUse("peak", Waits(), 0.8), WindowUse("", Waits(), 0.5))
    given = usage(member("bob", 100, 0.5), member("carol", 100, 0.5), windows=windows)
    table = advice(given, tier="slurm")["weights"]["gpu_windows"]
    assert [each["weight"] for each in table] == [1.25, 0.4]
    again = parse_windows([{**each, "weight": one.weight} for each, one in zip(table, WINDOWS, strict=True)])
    assert again == WINDOWS
    assert advice(given) == {}, "other tiers have no weights"


@pytest.mark.parametrize(
    ("present", "week", "window", "expected"),
    [(1, 0.5, 0.5, 1), (1, 0.5, 0.0, 1.25), (0.25, 0.1, 1.0, 0.25), (4, 0.9, 0.1, 4), (1, 0.5, 0.55, 0.95)],
)
def test_a_new_weight_moves_a_quarter_at_most_and_within_bounds(present, week, window, expected):
    assert new_weight(present, week, window) == expected


# Slurm's programs


def test_an_idle_cluster_was_watched_since_it_keeps_accounts(tmp_path, capsys):
    document = json.loads(
        run(tmp_path, capsys, "--last", "10h", "--format", "json", slurm="", since=int(NOW.timestamp()) - 7200)
    )
    assert (document["gpu_hours"], document["watched_hours"]) == (0, 8.0)
    assert "Nothing was recorded" in run(tmp_path, capsys, "--last", "10h", slurm="")


def test_what_was_sampled_is_not_watched_by_slurm_as_well(root, capsys):
    before = json.loads(run(root, capsys, "--last", "30h", "--format", "json"))["watched_hours"]
    began = int(NOW.timestamp()) - 30 * HOUR
    both = json.loads(run(root, capsys, "--last", "30h", "--format", "json", slurm="", since=began))["watched_hours"]
    assert before == pytest.approx(20, abs=0.1), "two cards for ten hours"
    assert both - before == pytest.approx(4 * 20, abs=0.1), "four cards in the hours that nobody sampled"


def test_the_cluster_s_first_registration_counts():
    def answer(text):
        return lambda argv, **_: subprocess.CompletedProcess(argv, 0, text, "")

    assert kept_since(answer("1796243398\n1796240000\nUnknown\n")) == 1796240000
    assert kept_since(answer("")) is None


def test_sacct_and_sinfo_are_asked_so_that_times_are_numbers():
    asked = []

    def runner(argv, **options):
        asked.append((argv, options["env"]["SLURM_TIME_FORMAT"]))
        return subprocess.CompletedProcess(argv, 0, "n1|gpu:a100:4(S:0-1),gpu:1g.10gb:7\nn2|(null)\n", "")

    job_lines(3600, 7200, runner)
    ((argv, form),) = asked
    assert form == "%s"
    assert "--starttime=1970-01-01T00:00:00" in argv
    assert "--endtime=1970-01-01T03:00:00" in argv
    assert {"--allusers", "--duplicates", "--allocations"} <= set(argv)
    assert node_cards(runner) == {"n1": 11, "n2": 0}


def test_a_database_that_is_down_is_said_not_counted_as_nothing():
    def runner(argv, **_):
        return subprocess.CompletedProcess(argv, 1, "", "sacct: error: slurmdbd: Connection refused\n")

    with pytest.raises(GpulabError, match="Connection refused"):
        job_lines(0, 1, runner)
