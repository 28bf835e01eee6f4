"""Idle reclaim: asks the owners of idle holders, and tells the admin or ends them when no answer comes."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters.mail import MailError
from ..adapters.sample_store import StoreError, forget_before
from ..errors import GpulabError, NotPermittedError
from ..rules.idle import UNKNOWN, Measure, is_complete, judge
from ..rules.idle_cases import ENFORCE, OFF, OVERDUE, WARN, Standing, Terms, standings, still_open
from ..rules.idle_messages import Digest, Letter, Trouble, Writer
from . import reclaim_memory as memories
from .reclaim_end import Ending, confirm, end
from .reclaim_memory import Memory, Note
from .sampling import HEALTH_FILE, PENDING_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..adapters.processes import ProcessTable
    from ..rules.exemptions import Exemptions
    from ..rules.idle import Finding
    from ..rules.samples import Tick
    from ..settings import Settings

_DAY = 24 * 3600
_LATE = 2.5
"""Looks older than so many times the usual time between two are no present."""


@dataclass(frozen=True)
class World:
    """The outside world of a run.

    Attributes:
        root: the folder that stands for `/`.
        clock: seconds since 1970.
        read_looks: the looks since a time.
        look_again: takes a look now; None when the cards cannot be looked at.
        exemptions: who and what is left alone.
        members: account names of the present members: only they can answer.
        send: hands a mail to the MTA; raises MailError.
        tell: puts a line on the terminals of a uid.
        table: the processes of the machine.
        members_of: pids in the scope of a lease.
        host: the server's name.
    """

    root: Path
    clock: Callable[[], float]
    read_looks: Callable[[int], tuple[Tick, ...]]
    look_again: Callable[[int], Tick | None]
    exemptions: Exemptions
    members: frozenset[str]
    send: Callable[[Letter], None]
    tell: Callable[[int, str], int]
    table: ProcessTable
    members_of: Callable[[int], Sequence[int]]
    host: str


@dataclass
class Outcome:
    """What a run came to; in a dry run what it would come to.

    Attributes:
        at: when, seconds since 1970.
        last_look: time of the newest look; 0 when there is none.
        standings: where each holder stands.
        letters: mails, sent or not.
        ending: what became of holders that were to be ended.
        troubles: why something cannot be judged.
        errors: mails that were refused; they are tried again.
    """

    at: float
    last_look: int = 0
    standings: tuple[Standing, ...] = ()
    letters: list[Letter] = field(default_factory=list)
    ending: Ending = field(default_factory=Ending)
    troubles: tuple[Trouble, ...] = ()
    errors: list[str] = field(default_factory=list)


def run(world: World, settings: Settings, *, dry_run: bool = False) -> Outcome:
    """Judge once and do what is due.

    Args:
        world: the outside world.
        settings: the terms, who the admin is, the language.
        dry_run: send, end and write nothing, only say what would be done.

    Raises:
        NotPermittedError: the caller may not read or write what is remembered.
        GpulabError: another run takes too long, or what is remembered cannot be written; then nothing was done.
    """
    try:
        if dry_run:
            return _Run(world, settings, dry_run=True).all()
        with memories.only_one(world.root):
            return _Run(world, settings, dry_run=False).all()
    except PermissionError as error:
        raise NotPermittedError(f"{error.filename}: only root may run idle reclaim; try it with sudo") from error
    except OSError as error:
        raise GpulabError(f"{error.filename}: {error.strerror or error}; nothing was done") from error


class _Run:
    """One run, step by step."""

    def __init__(self, world: World, settings: Settings, *, dry_run: bool) -> None:
        self.world = world
        self.rules = settings.reclaim
        self.dry_run = dry_run
        self.terms = Terms(self.rules.mode, self.rules.idle_minutes, self.rules.answer_minutes)
        self.measure = Measure(self.rules.percent, self.rules.sample_seconds, world.exemptions.counts)
        self.now = world.clock()
        self.memory = memories.load(world.root)
        self.outcome = Outcome(self.now)
        self.writer = Writer(
            host=world.host,
            admin=settings.lab.admin,
            language=settings.lab.language,
            now=self.now,
            mode=self.rules.mode,
            answer_minutes=self.rules.answer_minutes,
            keep_hours=self.rules.keep_max_hours,
            grace_seconds=self.rules.grace_seconds,
        )

    def all(self) -> Outcome:
        if not self.dry_run:
            memories.save(self.world.root, self.memory)  # before any mail: what cannot be noted down is not done
        troubles = [*self.tidy(), *self.health()]
        looks, problem = self.looks()
        self.outcome.troubles = tuple({each.key: each for each in (*troubles, *problem)}.values())
        standing = self.judge(looks)
        self.outcome.standings = standing
        complete = bool(looks) and is_complete(looks[-1])
        told = {key: note.at for key, note in self.memory.warned.items()}
        going_on = still_open(told, standing, complete=complete)
        self.remember(warned={key: self.memory.warned[key] for key in going_on})
        if self.rules.mode != OFF:
            self.warn([each.finding for each in standing if each.state == WARN])
            overdue = [each.finding for each in standing if each.state == OVERDUE]
            if self.rules.mode == ENFORCE:
                overdue = self.end(overdue, looks)
            unknown = [
                each.finding
                for each in standing
                if each.state == UNKNOWN and each.finding.seconds >= self.terms.idle_seconds
            ]
            self.digest(overdue, unknown)
            self.tell_troubles()
        self.leave_word()
        return self.outcome

    def tidy(self) -> list[Trouble]:
        """Delete what is too old, once a day."""
        day = int(self.now) // _DAY
        if self.dry_run or self.memory.tidied == day:
            return []
        path = Path(names.under(self.world.root, names.SAMPLES_FILE))
        try:
            if path.exists():
                forget_before(path, int(self.now) - self.rules.retention_days * _DAY)
        except StoreError as error:
            return [Trouble("store", str(error))]
        self.memory = replace(self.memory, tidied=day)
        return []

    def health(self) -> list[Trouble]:
        """Return what the sampler complains about, and a damaged store that waits for the admin's eyes."""
        root = self.world.root
        troubles = []
        try:
            document = json.loads(Path(names.under(root, HEALTH_FILE)).read_text(encoding="utf-8"))
            troubles += [Trouble(kind, document[kind]) for kind in ("nvml", "store") if document[kind]]
            troubles += [Trouble("card", reason, card) for card, reason in document["cards"].items()]
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GpulabError(f"{names.under(root, HEALTH_FILE)} is damaged ({error}); delete it") from error
        aside = Path(names.under(root, names.SAMPLES_FILE)).with_name(f"{names.SAMPLES_FILE.name}.corrupt")
        if aside.exists():
            troubles.append(Trouble("damaged", f"{aside} ({int(aside.stat().st_mtime)})"))
        return troubles

    def looks(self) -> tuple[tuple[Tick, ...], list[Trouble]]:
        """Read the looks that decide: none when the newest is no present."""
        # Both times in full, and some looks more to see that they are full.
        span = 60 * (self.rules.idle_minutes + self.rules.answer_minutes) + 5 * self.rules.sample_seconds
        try:
            looks = self.world.read_looks(int(self.now - span))
        except FileNotFoundError:
            return (), []
        except StoreError as error:
            return (), [Trouble("store", str(error))]
        self.outcome.last_look = looks[-1].at if looks else 0
        if not looks or not 0 <= self.now - looks[-1].at <= _LATE * self.rules.sample_seconds:
            return (), []
        return looks, []

    def judge(self, looks: Sequence[Tick]) -> tuple[Standing, ...]:
        """Say where everybody stands now."""
        kept = memories.kept(self.world.root)
        findings = judge(looks, self.measure, {key: int(until) for key, until in kept.items()})
        warned = {key: note.at for key, note in self.memory.warned.items()}
        return standings(findings, warned, kept, self.terms, self.world.exemptions.reason)

    def warn(self, findings: Iterable[Finding]) -> None:
        """Ask the owners; who could not be asked counts as not asked, and is asked at the next look."""
        by_user: dict[str, list[Finding]] = defaultdict(list)
        for finding in findings:
            by_user[finding.runner.user].append(finding)
        for user, theirs in by_user.items():
            if not self.send(self.writer.warning(user, theirs)):
                continue
            self.remember(warned={**self.memory.warned, **{each.key: Note(each, self.now) for each in theirs}})
            for each in theirs if not self.dry_run else ():
                self.world.tell(each.runner.uid, self.writer.terminal(each))

    def end(self, overdue: Sequence[Finding], looks: Sequence[Tick]) -> list[Finding]:
        """End what is overdue and return what stays with the admin: of those who are no members and cannot answer."""
        targets = [each for each in overdue if each.runner.user in self.world.members]
        others = [each for each in overdue if each.runner.user not in self.world.members]
        if not targets:
            return others
        if self.dry_run:
            self.outcome.ending = Ending(ended=tuple(targets))
            return others
        fresh = self.world.look_again(looks[-1].at)
        sure = confirm(targets, looks, fresh, self.measure, self.terms, memories.kept(self.world.root))
        ending = end(sure, self.world.table, self.world.members_of, grace=self.rules.grace_seconds)
        self.outcome.ending = replace(ending, spared=tuple(each for each in targets if each not in sure))
        shown = [memories.with_since(each, self.memory) for each in ending.ended]
        gone = {each.key for each in ending.ended}
        self.remember(
            warned={key: note for key, note in self.memory.warned.items() if key not in gone},
            ended=(*self.memory.ended, *(Note(each, self.now) for each in shown)),
            stuck={each.key: Note(each, self.now) for each in ending.stuck},
        )
        by_user: dict[str, list[Finding]] = defaultdict(list)
        for each in shown:
            by_user[each.runner.user].append(each)
        for user, theirs in by_user.items():
            self.send(self.writer.ended(user, theirs))
        return others

    def digest(self, overdue: Sequence[Finding], unknown: Sequence[Finding]) -> None:
        """Tell the admin in one mail, when something is new and the last one is long enough ago."""
        told = {each.key: self.memory.warned[each.key].at for each in overdue if each.key in self.memory.warned}
        digest = Digest(
            overdue=[(memories.with_since(each, self.memory), told.get(each.key, self.now)) for each in overdue],
            ended=[(note.finding, note.at) for note in self.memory.ended],
            stuck=[(note.finding, note.at) for note in self.memory.stuck.values()],
            unknown=unknown,
        )
        keys = {f"overdue {each.key}" for each in overdue} | {f"unknown {each.key}" for each in unknown}
        keys |= {f"stuck {key}" for key in self.memory.stuck}
        news = bool(self.memory.ended) or bool(keys - self.memory.digest_told)
        due = self.now - self.memory.digest_at >= 60 * self.rules.digest_minutes
        if not news:
            # Forgotten when over, so that the same thing happening again is news.
            self.remember(digest_told=self.memory.digest_told & keys)
        elif due and self.send(self.writer.digest(digest)):
            self.remember(ended=(), stuck={}, digest_told=frozenset(keys), digest_at=self.now)

    def tell_troubles(self) -> None:
        """Tell the admin of each trouble once, for as long as it lasts."""
        keys = frozenset(each.key for each in self.outcome.troubles)
        news = [each for each in self.outcome.troubles if each.key not in self.memory.troubles]
        if not news or self.send(self.writer.troubles(news)):
            self.remember(troubles=keys)
        else:
            self.remember(troubles=self.memory.troubles & keys)

    def send(self, letter: Letter) -> bool:
        """Send one mail; False when the MTA did not take it."""
        self.outcome.letters.append(letter)
        if self.dry_run:
            return True
        try:
            self.world.send(letter)
        except MailError as error:
            self.outcome.errors.append(str(error))
            return False
        return True

    def remember(self, **changes: object) -> None:
        """Write what has changed at once: a run that is cut short must not ask or tell twice for long."""
        memory: Memory = replace(self.memory, **changes)  # type: ignore[arg-type]  # each caller names fields of it
        if memory != self.memory and not self.dry_run:
            memories.save(self.world.root, memory)
        self.memory = memory

    def leave_word(self) -> None:
        """Ask the sampler to wake us after every look, while there is something to wait for."""
        if self.dry_run:
            return
        waiting = self.memory.warned or self.memory.ended or self.memory.stuck or self.outcome.errors
        path = Path(names.under(self.world.root, PENDING_FILE))
        if waiting:
            path.touch()
        else:
            path.unlink(missing_ok=True)
