"""Idle reclaim from looks to mail and end: asked before ended, told once, and whatever fails ends nobody."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from gpulab.adapters.mail import MailError
from gpulab.adapters.processes import Process, ProcessTable
from gpulab.adapters.procfs import Identity
from gpulab.adapters.sample_store import StoreError
from gpulab.errors import GpulabError, NotPermittedError
from gpulab.rules.exemptions import exemptions
from gpulab.rules.idle_cases import OVERDUE, WARN, WARNED
from gpulab.rules.samples import LOST, Runner
from gpulab.services import reclaim_memory as memories
from gpulab.services.reclaim import World, run
from gpulab.services.sampling import HEALTH_FILE, PENDING_FILE, Health
from gpulab.settings import Lab, Reclaim, Settings
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from idle_lab import MINUTE, T0, card, hold, look, looks, runner, use

SETTINGS = Settings(lab=Lab(admin="alice"), reclaim=Reclaim())
ENFORCE = replace(SETTINGS, reclaim=Reclaim(mode="enforce", grace_seconds=2))


@dataclass
class Place:
    """A server whose looks, clock, MTA and processes a test sets; it keeps mails, terminal lines and signals."""

    root: Path
    seen: tuple = ()
    now: float = T0
    refuses: frozenset[str] = frozenset()
    store_error: Exception | None = None
    fresh: object = "idle"
    members: frozenset[str] = frozenset({"alice", "bob", "carol"})
    inbox: list = field(default_factory=list)
    lines: list = field(default_factory=list)
    ended: list = field(default_factory=list)
    scope: tuple = ()

    def at(self, minute, *seen):
        """Let it be so many minutes after T0 with these looks."""
        self.now = T0 + minute * MINUTE + 1
        self.seen = seen
        return self

    def _read(self, since):
        if self.store_error:
            raise self.store_error
        return tuple(tick for tick in self.seen if tick.at >= since)

    def _send(self, letter):
        if letter.recipient in self.refuses:
            raise MailError(f"mail to {letter.recipient} was not sent: refused")
        self.inbox.append(letter)

    def _again(self, since):
        if self.fresh == "idle":
            return replace(self.seen[-1], at=since + 1)
        return self.fresh

    def world(self):
        table = _Table(self.ended) if isinstance(self.ended, list) else ProcessTable()
        return World(
            root=self.root,
            clock=lambda: self.now,
            read_looks=self._read,
            look_again=self._again,
            exemptions=exemptions(users=["dave"], commands=[], cards=[], times=[], admins=["alice"]),
            members=self.members,
            send=self._send,
            tell=lambda uid, line: self.lines.append((uid, line)) or 1,
            table=table,
            members_of=lambda _: list(self.scope),
            host="gpu1",
        )

    def run(self, rules=SETTINGS, **options):
        return run(self.world(), rules, **options)

    def titles(self, user):
        return [each.subject.split("] ")[1] for each in self.inbox if each.recipient == user]


class _Table:
    """Processes that end at the first signal; keeps what was sent."""

    def __init__(self, ended):
        self.ended = ended

    def send(self, process, number):
        self.ended.append((process.pid, number))
        return True

    def is_there(self, _):
        return False

    def find(self, pid):
        return Process(pid, Identity(1, 1001, "bob", "child"))

    def monotonic(self):
        return 0.0

    def sleep(self, _):
        pytest.fail("nobody waits for what has ended")


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def idle(minutes, who=None):
    return looks(*[0] * (minutes + 1), who=who)


def states(outcome):
    return [each.state for each in outcome.standings]


def test_the_owner_is_asked_once_by_mail_and_on_the_terminal(place):
    assert states(place.at(15, *idle(15)).run()) == [WARN]
    assert states(place.at(16, *idle(16)).run()) == [WARNED]
    assert place.titles("bob") == ["card 0: do you still need it? python is idle"]
    assert "    gpu-keep\n" in place.inbox[0].body
    assert "    kill 100\n" in place.inbox[0].body
    ((uid, line),) = place.lines
    assert uid == 1001
    assert "PID 100" in line


def test_several_of_one_person_are_one_mail(place):
    both = tuple(look(minute, use(0), use(0, runner(101), index=1)) for minute in range(16))
    place.at(15, *both).run()
    assert place.titles("bob") == ["card 0: do you still need it? python is idle ... and 1 more"]


def test_notify_tells_the_admin_and_ends_nobody(place):
    place.at(15, *idle(15)).run()
    assert states(place.at(46, *idle(46)).run()) == [OVERDUE]
    assert place.titles("alice") == ["idle cards: 1 to look at"]
    assert "PID 100  bob  python  card 0  1.0 GiB  idle since" in place.inbox[-1].body
    for minute in range(47, 300):
        place.at(minute, *idle(minute)).run()
    assert place.titles("alice") == ["idle cards: 1 to look at"]
    assert place.ended == []


def test_the_next_digest_waits_its_hour_and_has_all_in_it(place):
    place.at(15, *idle(15)).run()
    place.at(46, *idle(46)).run()
    two = tuple(look(minute, use(0), use(None, runner(101, user="carol"), index=1)) for minute in range(80))
    for minute in range(47, 80):
        place.at(minute, *two[: minute + 1]).run()
    assert len(place.titles("alice")) == 1
    two = tuple(look(minute, use(0), use(None, runner(101, user="carol"), index=1)) for minute in range(107))
    place.at(106, *two).run()
    assert place.titles("alice")[1:] == ["idle cards: 2 to look at"]
    assert "PID 101  carol  python  card 1" in place.inbox[-1].body


def test_enforce_ends_it_and_says_so_to_owner_and_admin(place):
    place.at(15, *idle(15)).run(ENFORCE)
    outcome = place.at(46, *idle(46)).run(ENFORCE)
    assert place.ended == [(100, signal.SIGTERM)]
    assert [each.runner.pid for each in outcome.ending.ended] == [100]
    assert place.titles("bob")[1:] == ["card 0: python was idle and has been ended"]
    assert "Ended because they were idle" in place.inbox[-1].body
    place.at(47, look(46), look(47)).run(ENFORCE)
    assert len(place.inbox) == 3


@pytest.mark.parametrize(
    "fresh",
    [
        None,
        look(47),
        look(47, use(50)),
        look(47, use(None)),
        look(47, use(0, runner(start=1))),
        look(46, use(0)),
    ],
    ids=["no look", "gone", "busy", "unknown", "another process with that pid", "not later"],
)
def test_a_last_look_that_does_not_confirm_it_spares_it(place, fresh):
    place.at(15, *idle(15)).run(ENFORCE)
    place.fresh = fresh
    outcome = place.at(46, *idle(46)).run(ENFORCE)
    assert place.ended == []
    assert [each.runner.pid for each in outcome.ending.spared] == [100]


def test_an_answer_in_the_last_moment_spares_it(place):
    place.at(15, *idle(15)).run(ENFORCE)

    class Late(Place):
        def _again(self, since):
            with memories.change_kept(self.root) as answers:
                answers[runner().key] = T0 + 999 * MINUTE
            return super()._again(since)

    late = Late(place.root)
    late.at(46, *idle(46)).run(ENFORCE)
    assert late.ended == []


def test_who_was_not_asked_is_not_ended(place):
    place.refuses = frozenset({"bob"})
    for minute in (15, 46, 60, 90):
        outcome = place.at(minute, *idle(minute)).run(ENFORCE)
        assert outcome.errors
    assert place.ended == []
    assert place.lines == [], "the terminal follows the mail"
    place.refuses = frozenset()
    place.at(91, *idle(91)).run(ENFORCE)
    assert place.ended == []
    place.at(122, *idle(122)).run(ENFORCE)
    assert place.ended == [(100, signal.SIGTERM)]


def test_who_is_no_member_cannot_answer_and_is_the_admins_business(place):
    place.members = frozenset({"alice"})
    place.at(15, *idle(15)).run(ENFORCE)
    place.at(46, *idle(46)).run(ENFORCE)
    assert place.ended == []
    assert place.titles("alice") == ["idle cards: 1 to look at"]


@pytest.mark.parametrize("who", [runner(uid=0, user="root"), runner(user="alice"), runner(user="dave")])
def test_system_admins_and_exempt_people_hear_nothing(place, who):
    for minute in (15, 46, 90):
        place.at(minute, *idle(minute, who)).run(ENFORCE)
    assert (place.inbox, place.ended) == ([], [])


def test_off_does_nothing(place):
    for minute in (15, 46):
        place.at(minute, *idle(minute)).run(replace(SETTINGS, reclaim=Reclaim(mode="off")))
    assert place.inbox == []


def test_an_unused_lease_ends_with_all_of_its_processes(place):
    held = tuple(look(minute, holds=(hold(7),)) for minute in range(47))
    place.scope = (900, 901)
    place.at(15, *held[:16]).run(ENFORCE)
    assert "lease 7" in place.inbox[0].body
    place.at(46, *held).run(ENFORCE)
    assert place.ended == [(900, signal.SIGTERM), (901, signal.SIGTERM)]


@pytest.mark.parametrize(
    "broken",
    [
        ("store", StoreError("samples.db: database or disk is full")),
        ("nvml", look(40, reason="the kernel module is not loaded")),
        ("card", look(40, cards=(LOST,))),
        ("stale", None),
    ],
    ids=lambda broken: broken[0],
)
def test_whatever_cannot_be_seen_ends_nobody(place, broken):
    what, how = broken
    place.at(15, *idle(15)).run(ENFORCE)
    for minute in range(41, 60):
        if what == "store":
            place.store_error = how
            place.at(minute, *idle(minute))
        elif what == "stale":
            place.at(minute, *idle(30))
        else:
            place.at(minute, *idle(39), *(replace(how, at=T0 + later * MINUTE) for later in range(40, minute + 1)))
        place.run(ENFORCE)
    assert place.ended == []
    assert memories.load(place.root).warned, "it is still asked about: nobody saw it work or end"


def test_each_trouble_is_told_once_for_as_long_as_it_lasts(place):
    health = place.root / str(HEALTH_FILE).lstrip("/")
    health.parent.mkdir(parents=True)
    for nvml, expected in (
        ("the kernel module is not loaded", 1),
        ("the kernel module is not loaded", 1),
        ("", 1),
        ("x", 2),
    ):
        health.write_text(Health(nvml).render())
        place.at(0, look(0)).run()
        assert len(place.titles("alice")) == expected
    health.write_text(Health("", "disk is full", ((2, "fallen off the bus"),)).render())
    place.run()
    assert "Card 2 cannot be read: fallen off the bus." in place.inbox[-1].body
    assert "The samples cannot be kept: disk is full." in place.inbox[-1].body


def test_the_sampler_is_asked_to_wake_it_while_it_waits_for_something(place):
    pending = place.root / str(PENDING_FILE).lstrip("/")
    place.at(15, *idle(15)).run()
    assert pending.exists()
    place.at(16, *looks(0, 80)).run()
    place.at(17, look(16, use(80)), look(17, use(80))).run()
    assert not pending.exists()


def test_a_dry_run_writes_and_sends_nothing(place):
    outcome = place.at(15, *idle(15)).run(ENFORCE, dry_run=True)
    assert [each.recipient for each in outcome.letters] == ["bob"]
    place.at(15, *idle(15)).run(ENFORCE)
    before = {path: path.read_bytes() for path in place.root.rglob("*") if path.is_file()}
    outcome = place.at(46, *idle(46)).run(ENFORCE, dry_run=True)
    assert [each.runner.pid for each in outcome.ending.ended] == [100]
    assert len(place.inbox) == 1
    assert place.ended == []
    assert {path: path.read_bytes() for path in place.root.rglob("*") if path.is_file()} == before


def test_what_cannot_be_noted_down_is_not_done(place, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device", "state.json")

    monkeypatch.setattr(memories, "save", refuse)
    with pytest.raises(GpulabError, match=r"state\.json: No space left on device; nothing was done"):
        place.at(15, *idle(15)).run()
    assert place.inbox == []
    monkeypatch.setattr(memories, "load", lambda _: (_ for _ in ()).throw(PermissionError(13, "x", "state.json")))
    with pytest.raises(NotPermittedError, match="only root"):
        place.run()


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 1}', '{"version": 2}', "null"])
def test_a_damaged_memory_asks_once_more_and_ends_nobody(place, content):
    place.at(15, *idle(15)).run(ENFORCE)
    (memories.folder(place.root) / "state.json").write_text(content)
    place.at(46, *idle(46)).run(ENFORCE)
    assert place.ended == []
    assert len(place.titles("bob")) == 2


def test_real_processes_end_and_the_one_that_will_not_is_killed(tmp_path):
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    children = [
        subprocess.Popen(["sleep", "60"]),
        subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE),
    ]
    children[1].stdout.read(1)
    table = ProcessTable()
    people = []
    for child in children:
        who = table.find(child.pid).identity
        people.append(Runner(child.pid, who.start_ticks, 1001, "bob", who.command))
    place = Place(tmp_path)
    world = replace(place.world(), table=_Whose(table))
    seen = tuple(look(minute, *(use(0, who) for who in people)) for minute in range(47))
    place.at(15, *seen[:16])
    run(world, ENFORCE)
    place.at(46, *seen)
    began = time.monotonic()
    outcome = run(world, ENFORCE)
    assert [child.wait(10) for child in children] == [-signal.SIGTERM, -signal.SIGKILL]
    assert 2 <= time.monotonic() - began < 7
    assert len(outcome.ending.ended) == 2
    children[1].stdout.close()


class _Whose(ProcessTable):
    """The real processes, whose owner is whoever runs this test."""

    def __init__(self, table):
        super().__init__(table.proc_root)

    def send(self, process, number):
        now = self.find(process.pid)
        return now is not None and super().send(
            replace(process, identity=replace(process.identity, uid=now.identity.uid)), number
        )


SEGMENT = st.tuples(st.sampled_from([0, 2, 0, 2, 5, 90, None, "-", "down", "lost", "kept"]), st.integers(1, 40))


@hypothesis_settings(max_examples=40, deadline=None)
@given(st.lists(SEGMENT, min_size=1, max_size=5))
@example([(0, 50)])
@example([(0, 30), (5, 1), (0, 50)])
@example([(0, 30), ("-", 1), (0, 50)])
def test_nobody_is_ended_who_was_not_asked_and_idle_all_the_time(segments):
    # The whole chain, minute by minute, with everything that can go wrong in between.
    loads = [load for load, minutes in segments for _ in range(minutes)]
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        seen, asked = [], None
        for minute, load in enumerate(loads):
            if load == "kept":
                with memories.change_kept(place.root) as answers:
                    answers[runner().key] = T0 + (minute + 5) * MINUTE
            if load == "down":
                seen.append(look(minute, reason="down"))
            elif load == "lost":
                seen.append(replace(look(minute), cards=(card(0, LOST),)))
            elif load != "-":
                seen.append(look(minute, use(0 if load == "kept" else load)))
            before = len(place.titles("bob"))
            place.at(minute, *seen).run(ENFORCE)
            if place.ended:
                assert all(each in (0, 2) for each in loads[minute - 30 : minute + 1])
                assert asked is not None
                assert asked <= minute - 30
                return
            if len(place.titles("bob")) > before:
                asked = minute
        assert segments != [(0, 50)], "this one must be ended"
