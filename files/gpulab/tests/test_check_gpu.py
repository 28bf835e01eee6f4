"""check_gpu from look to mail: each event once, whatever fails in between, and nothing ever killed or lost."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from gpulab.adapters.mail import MailError
from gpulab.errors import GpulabError, NotPermittedError
from gpulab.rules.cards import Cards
from gpulab.rules.sheet import append, parse, render
from gpulab.services import check
from gpulab.services.check import World, read_calm_sheet, run
from gpulab.settings import Checks, Lab, Settings
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from test_checks import BOBS, CAROLS, MEMBERS, at, book, boot, card, lost, proc, sheet_of, unknown

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = Settings(lab=Lab(admin="alice"), checks=Checks(soon_minutes=60))


@dataclass
class Lab4:
    """A lab whose bookings, cards, clock and MTA a test sets; it keeps the mails."""

    root: Path
    now: datetime = field(default_factory=lambda: at("12:30"))
    bookings: tuple = (BOBS,)
    cards: tuple = (card(0, proc(1)),)
    sheet_error: Exception | None = None
    refuses: frozenset[str] = frozenset()
    inbox: list = field(default_factory=list)
    bindings: dict = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.root / "var/lib/gpulab/checks/events.json"

    def _sheet(self):
        if self.sheet_error:
            raise self.sheet_error
        return sheet_of(*self.bookings)

    def _send(self, mail):
        if mail.recipient in self.refuses:
            raise MailError(f"mail to {mail.recipient} was not sent: refused")
        self.inbox.append(mail)

    def world(self) -> World:
        return World(
            root=self.root,
            now=lambda: self.now,
            read_cards=lambda: Cards(cards=self.cards),
            read_sheet=self._sheet,
            read_boot=boot,
            read_members=lambda: MEMBERS,
            read_bindings=lambda: self.bindings,
            send=self._send,
            host="gpu1",
        )

    def run(self, settings=SETTINGS, **options):
        """Run once; return who got mail about what."""
        self.inbox.clear()
        self.outcome = run(self.world(), settings, **options)
        return {(mail.recipient, event.kind) for mail in self.inbox for event in mail.events}


@pytest.fixture
def lab(tmp_path):
    return Lab4(tmp_path)


def test_two_runs_one_mail(lab):
    assert lab.run() == {("bob", "overrun")}
    lab.now += timedelta(hours=1)
    assert lab.run() == set()


def test_a_run_without_news_writes_nothing(lab):
    lab.run()
    before = (lab.state.stat().st_ino, lab.state.stat().st_mtime_ns)
    lab.run()
    assert (lab.state.stat().st_ino, lab.state.stat().st_mtime_ns) == before


def test_the_state_is_roots_alone(lab):
    lab.run()
    assert lab.state.stat().st_mode & 0o777 == 0o600
    assert lab.state.parent.stat().st_mode & 0o777 == 0o700


def test_what_is_over_is_forgotten_and_news_when_it_comes_back(lab):
    lab.run()
    lab.cards = (card(0),)
    assert lab.run() == set()
    assert json.loads(lab.state.read_text())["told"] == []
    lab.cards = (card(0, proc(2)),)
    assert lab.run() == {("bob", "overrun")}


def test_one_person_gets_one_mail_a_run(lab):
    lab.bookings = (BOBS, book("13:00", "14:00", gpu=1), CAROLS)
    lab.cards = (card(0, proc(1)), lost(1))
    lab.run()
    assert sorted((mail.recipient, len(mail.events)) for mail in lab.inbox) == [("alice", 1), ("bob", 2), ("carol", 2)]


def test_a_refused_mail_is_told_in_the_next_run_and_only_that_one(lab):
    lab.bookings = (BOBS, CAROLS)
    lab.refuses = frozenset({"bob"})
    assert lab.run() == {("carol", "running"), ("carol", "occupied")}
    assert list(lab.outcome.errors) == ["bob"]
    lab.refuses = frozenset()
    assert lab.run() == {("bob", "overrun")}
    assert lab.run() == set()


def test_an_event_that_ends_before_its_mail_could_be_sent_is_never_told(lab):
    lab.refuses = frozenset({"bob"})
    lab.run()
    lab.refuses, lab.cards = frozenset(), (card(0),)
    assert lab.run() == set()


def test_a_state_that_cannot_be_written_sends_no_mail(lab, monkeypatch):
    def full(path, document):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(check.state, "save", full)
    with pytest.raises(GpulabError, match=r"events\.json: No space left on device"):
        lab.run()
    assert lab.inbox == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b'{"version": 2, "told": []}',
        b'{"version": 1, "told": 5}',
        b'{"version": 1, "told": [7]}',
        b'{"version": 1, "told": [{"key": ["a"], "at": "x"}]}',
        b'{"version": 1, "told": [{"key": [1, 2, 3], "at": "x"}]}',
    ],
)
def test_a_damaged_state_is_kept_told_to_the_admin_once_and_begun_anew(lab, content):
    lab.run()
    lab.state.write_bytes(content)
    assert lab.run() == {("alice", "state"), ("bob", "overrun")}
    aside = lab.state.with_name("events.json.corrupt")
    assert aside.read_bytes() == content
    assert str(aside) in next(mail.body for mail in lab.inbox if mail.recipient == "alice")
    assert lab.run() == set()
    aside.unlink()
    assert lab.run() == set()
    lab.state.write_bytes(content)
    assert ("alice", "state") in lab.run()


def test_the_admin_hears_of_the_damage_even_if_that_mail_fails_first(lab):
    lab.run()
    lab.state.write_bytes(b"{")
    lab.refuses = frozenset({"alice"})
    assert lab.run() == {("bob", "overrun")}
    lab.refuses = frozenset()
    assert lab.run() == {("alice", "state")}


def test_a_dry_run_shows_the_mail_and_changes_nothing(lab):
    lab.state.parent.mkdir(parents=True)
    lab.state.write_bytes(b"{")
    assert lab.run(dry_run=True) == set()
    assert {mail.recipient for mail in lab.outcome.mails} == {"alice", "bob"}
    assert os.listdir(lab.state.parent) == ["events.json"]
    assert lab.state.read_bytes() == b"{"


def test_without_the_sheet_the_admin_is_told_and_nobody_is_accused(lab):
    lab.run()
    lab.sheet_error = PermissionError(13, "Permission denied")
    assert lab.run() == {("alice", "sheet")}
    lab.sheet_error = GpulabError("it is a FIFO")
    assert lab.run() == set()
    lab.sheet_error = None
    assert lab.run() == set()


@pytest.mark.parametrize("tier", ["allocator", "slurm"])
def test_other_tiers_book_nothing(lab, tier):
    lab.sheet_error = GpulabError("there is no sheet in this tier")
    lab.cards = (card(0, proc(1)), lost(1))
    assert lab.run(Settings(lab=Lab(admin="alice", tier=tier))) == {("alice", "card")}


def test_runs_at_the_same_time_take_turns(lab):
    inside, most, guard = 0, 0, threading.Lock()

    def send(mail):
        nonlocal inside, most
        with guard:
            inside += 1
            most = max(most, inside)
        threading.Event().wait(0.02)
        with guard:
            inside -= 1
        lab.inbox.append(mail)

    world = replace(lab.world(), send=send)
    threads = [threading.Thread(target=run, args=(world, SETTINGS)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert [mail.recipient for mail in lab.inbox] == ["bob"]


def test_somebody_without_rights_gets_one_line(lab, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(check.state, "load", denied)
    with pytest.raises(NotPermittedError, match="only root may use check_gpu; try it with sudo"):
        lab.run(dry_run=True)


# The sheet must be calm: editors save in place


def test_a_sheet_that_is_being_saved_is_waited_for(tmp_path):
    path = tmp_path / "home/admin/gpu_schedule.csv"
    path.parent.mkdir(parents=True)
    whole = render(append(parse(b""), [BOBS, CAROLS]))
    path.write_bytes(whole[:80])
    saved = path.stat().st_mtime
    moments = iter([0.2, 0.5, 0.9, 1.4])
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        path.write_bytes(whole)
        os.utime(path, (saved, saved))

    sheet = read_calm_sheet(tmp_path, clock=lambda: saved + next(moments), sleep=sleep)
    assert sheet.bookings == (BOBS, CAROLS)
    assert len(naps) == 3


def test_a_sheet_that_is_never_calm_is_an_error_and_not_half_read(tmp_path):
    path = tmp_path / "home/admin/gpu_schedule.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"task_name,user")
    with pytest.raises(GpulabError, match="without a pause"):
        read_calm_sheet(tmp_path, clock=lambda: path.stat().st_mtime, sleep=lambda _: None)


def test_a_sheet_from_the_future_does_not_hold_anybody_up(tmp_path):
    path = tmp_path / "home/admin/gpu_schedule.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(render(append(parse(b""), [BOBS])))
    sheet = read_calm_sheet(tmp_path, clock=lambda: path.stat().st_mtime - 3600, sleep=lambda _: pytest.fail("waited"))
    assert sheet.bookings == (BOBS,)


# The property: in any sequence of looks and failures, an event is mailed exactly once an episode

ROWS = [BOBS, CAROLS, book("12:30", "14:00", task="more"), book("10:00", "11:00", user="carol", gpu=1, task="early")]
CROWD = card(0, proc(2, "carol"), proc(3, "mallory"))
CARDS_0 = [card(0), card(0, proc(1)), CROWD, unknown(0), lost(0), card(0, proc(4, None))]
CARDS_1 = [card(1), card(1, proc(5)), card(1, proc(6, "carol")), lost(1)]

looks = st.fixed_dictionaries(
    {
        "minutes": st.integers(0, 90),
        "bookings": st.lists(st.sampled_from(ROWS), unique=True, max_size=4).map(tuple),
        "cards": st.tuples(st.sampled_from(CARDS_0), st.sampled_from(CARDS_1)) | st.just(()),
        "sheet_error": st.sampled_from([None, None, None, GpulabError("unreadable")]),
        "refuses": st.frozensets(st.sampled_from(["alice", "bob", "carol"]), max_size=2),
    }
)


@given(sequence=st.lists(looks, min_size=1, max_size=12))
@hypothesis_settings(max_examples=60, deadline=None)
def test_each_event_is_mailed_exactly_once_an_episode(tmp_path_factory, sequence):
    lab = Lab4(tmp_path_factory.mktemp("lab"), now=at("08:30"))
    told: dict = {}  # what the model says must be remembered: key of the event
    for look in sequence:
        lab.now += timedelta(minutes=look["minutes"])
        for name in ("bookings", "cards", "sheet_error", "refuses"):
            setattr(lab, name, look[name])
        lab.run()
        mailed = [event.key for mail in lab.inbox for event in mail.events]
        holds = {event.key: event.recipient for event in lab.outcome.findings.events}
        assert len(mailed) == len(set(mailed)), "the same event twice in one run"
        assert len(lab.inbox) == len({mail.recipient for mail in lab.inbox}), "two mails for one person"
        expected = {key for key, whom in holds.items() if key not in told and whom not in lab.refuses}
        assert set(mailed) == expected
        told = {key: True for key in told if key in holds or model_blind(key, lab)} | dict.fromkeys(mailed, True)
        stored = {tuple(entry["key"]) for entry in stored_events(lab)}
        assert stored == set(told)


def model_blind(key, lab) -> bool:
    """Whether this look could not tell: said anew, from the test's own knowledge of its scenes."""
    kind, _, number = key[:3]
    seen = {str(each.index): each for each in lab.cards}
    if kind in {"soon", "running", "overlap", "no-member", "bad-row", "no-such-card"}:
        return lab.sheet_error is not None or (kind == "no-such-card" and all(c.uuid == "" for c in lab.cards))
    if kind in {"uncovered", "occupied", "unused", "stranger"}:
        blind = number not in seen or seen[number] in {CARDS_0[3], CARDS_0[4], CARDS_0[5], CARDS_1[3]}
        return blind or (kind != "stranger" and lab.sheet_error is not None)
    if kind == "card":
        return number not in seen or seen[number] in {CARDS_0[3], CARDS_0[4], CARDS_1[3]}
    return False


def stored_events(lab) -> list:
    return json.loads(lab.state.read_text())["told"] if lab.state.exists() else []
