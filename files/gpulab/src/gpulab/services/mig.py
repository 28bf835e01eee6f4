"""MIG as one safe step: judge the whole wanted layout, then change each card that differs, all or nothing."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters import files
from ..adapters.mig import Mig, opened, words
from ..adapters.nvml import read_cards
from ..adapters.nvml_library import Code, NoBindingError, RefusedError
from ..errors import GpulabError, InputError, NotPermittedError, UnsafeFileError
from ..rules.mig_assign import Assignment, assign
from ..rules.mig_check import find_problem
from ..rules.mig_plan import choose, describe, foresee
from . import bindings
from .mig_change import Change
from .mig_state import LOCK_SECONDS, STATE_DIR, Journal, layout_path, read_layout, write_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..rules.cards import Cards, Process
    from ..rules.mig_bindings import Wishes
    from ..rules.mig_cards import MigCard
    from ..rules.mig_layout import Layout, Target

UNCHANGED = "unchanged"
CHANGED = "changed"
WAITING = "waiting"
REFUSED = "refused"
FAILED = "failed"

_POLL_SECONDS = 1.0
_MOST_NAMED = 4


class NoNvmlError(GpulabError):
    """NVML cannot be used: no driver, no nvidia-ml-py, or a driver that does not start."""


@dataclass(frozen=True)
class World:
    """The outside, as parameters.

    Attributes:
        root: the folder that stands for `/`.
        proc_root: where proc is mounted.
        binding: nvidia-ml-py's module or an object like it; None imports it.
    """

    root: Path = Path("/")
    proc_root: Path = Path("/proc")
    binding: Any = None

    def look(self) -> Cards:
        """Return the cards as everybody sees them."""
        return read_cards(self.binding, self.proc_root)


@dataclass(frozen=True)
class CardReport:
    """What was done with one card, or would be.

    Attributes:
        index: NVML index.
        uuid: `GPU-...`; empty when the card cannot be reached.
        name: model; empty likewise.
        result: UNCHANGED; CHANGED; WAITING for a reboot; REFUSED, because the card is in use; FAILED.
        changed: whether something about the card is, or would be, different from before.
        steps: what is done, in words.
        before: the layout it had, a line each.
        after: the layout it has now or would have.
        reason: why it has not got what it shall have, or a remark; may be empty.
    """

    index: int
    uuid: str
    name: str
    result: str
    changed: bool = False
    steps: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    reason: str = ""

    @property
    def title(self) -> str:
        """What messages call the card."""
        return f"card {self.index} ({self.name})" if self.name else f"card {self.index}"


@dataclass(frozen=True)
class Report:
    """What was done, or would be.

    Attributes:
        cards: those that something is asked for, in order of index.
        recorded: whether the note of the layout in force changed, or would.
        bound: who has which instance.
        remark: why nothing could be said about cards; empty when they were looked at.
    """

    cards: tuple[CardReport, ...] = ()
    recorded: bool = False
    bound: bindings.Bound = field(default_factory=bindings.Bound)
    remark: str = ""

    @property
    def changed(self) -> bool:
        """Whether anything is, or would be, different from before."""
        return self.recorded or self.bound.changed or any(card.changed for card in self.cards)

    @property
    def errors(self) -> tuple[str, ...]:
        """One line for each card that has not got what it shall have."""
        return tuple(f"{card.title}: {card.reason}" for card in self.cards if card.result in {REFUSED, FAILED})

    @property
    def failed(self) -> bool:
        """Whether some card failed; one that is only in use did not."""
        return any(card.result == FAILED for card in self.cards)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each remark that is no failure."""
        remarks = [card for card in self.cards if card.reason and card.result not in {REFUSED, FAILED}]
        return (*filter(None, [self.remark]), *(f"{card.title}: {card.reason}" for card in remarks))


def to_dict(report: Report) -> dict[str, Any]:
    """Return a report as plain lists and dictionaries, ready for JSON."""
    cards = [{key: list(v) if isinstance(v, tuple) else v for key, v in asdict(card).items()} for card in report.cards]
    bound = [
        {"user": user, "instance": str(place), "uuid": report.bound.uuids.get(user, "")}
        for user, place in report.bound.places.items()
    ]
    return {"changed": report.changed, "recorded": report.recorded, "cards": cards, "bindings": bound}


def plan(layout: Layout, world: World, *, record: bool = False, wishes: Wishes | None = None) -> Report:
    """Say what `apply` would do; change nothing.

    Args:
        layout: what is asked for.
        world: the outside.
        record: whether the layout is to be noted down as the one in force.
        wishes: who shall be bound to an instance; None leaves that as it is.

    Raises:
        InputError: the layout cannot be had on this machine, or somebody cannot be bound as asked.
        NoNvmlError: NVML cannot be used.
    """
    with _nvml(world) as mig:
        cards = mig.read_cards()
        targets = _suit(layout, cards).targets
        places = None if wishes is None else bindings.choose(world.root, wishes, targets, source=layout.source)
        reports = tuple(_foresee(mig, cards[index], target) for index, target in targets.items())
    bound = bindings.keep(world.root, places, world.look, dry_run=True)
    return Report(reports, record and _record(reports, targets, cards, world.root, dry_run=True), bound)


def preview(layout: Layout, world: World, *, wishes: Wishes | None = None) -> Report:
    """Say what `apply` with a record would do, also on a new server where driver or gpulab are not installed yet.

    Raises:
        InputError: the layout cannot be had on this machine.
        NoNvmlError: NVML cannot be used on a server that had a layout before.
    """
    try:
        return plan(layout, world, record=True, wishes=wishes)
    except NoNvmlError as error:
        if layout_path(world.root).exists():
            raise
        return Report(recorded=True, remark=f"{error}; what would change is only known after that")


def apply(
    layout: Layout, world: World, *, record: bool = False, lenient: bool = False, wishes: Wishes | None = None
) -> Report:
    """Give each card what is asked for, and write down whose instance is which.

    The whole layout is judged before anything changes. Then each card is a transaction of its own: one that is in use,
    or that fails, keeps what it has, is reported, and does not stop the others.

    Args:
        layout: what is asked for.
        world: the outside.
        record: note the layout down as the one in force, which the next boot brings back; a card that did not get
            its layout keeps its former entry.
        lenient: a card that is not there, or that cannot have its layout, is reported and does not stop the others
            either; for the boot, after which a card may be dead or another model.
        wishes: who shall be bound to an instance; None leaves that as it is.

    Raises:
        InputError: the layout cannot be had on this machine, or somebody cannot be bound as asked; nothing was changed.
        NotPermittedError: the caller is not root; nothing was changed.
        GpulabError: NVML cannot be used, or another command is changing MIG; nothing was changed.
    """
    with _lock(world.root), _nvml(world) as mig:
        cards = mig.read_cards()
        assignment = _suit(layout, cards, lenient=lenient)
        targets = assignment.targets
        places = None if wishes is None else bindings.choose(world.root, wishes, targets, source=layout.source)
        journal = Journal(world.root, world.proc_root)
        try:
            reports = [_give(mig, cards[index], target, journal, world) for index, target in targets.items()]
            recorded = record and _record(reports, targets, cards, world.root, dry_run=False)
        finally:  # also when it was stopped half way: the UUIDs may be others now
            bound = bindings.keep(world.root, places, world.look)
    for index, problem in assignment.problems.items():
        name = cards[index].name if index < len(cards) else ""
        reports.append(CardReport(index, "", name, FAILED, reason=problem))
    return Report(tuple(sorted(reports, key=lambda report: report.index)), recorded, bound)


def look(world: World) -> tuple[tuple[MigCard, ...], Assignment]:
    """Return every card, and what the layout in force says it shall have.

    Raises:
        GpulabError: NVML cannot be used, or the note of the layout in force cannot be understood.
    """
    with _nvml(world) as mig:
        cards = mig.read_cards()
    try:
        layout = read_layout(layout_path(world.root))
    except FileNotFoundError:
        return cards, Assignment()
    return cards, assign(layout, cards)


def wait_for_driver(
    world: World, *, seconds: float, sleep: Callable[[float], None], monotonic: Callable[[], float]
) -> None:
    """Wait until the driver answers, at most for some time; for the boot, where its module may still be loading.

    Args:
        world: the outside.
        seconds: how long at most.
        sleep: waits for some seconds.
        monotonic: seconds on a clock that never jumps.
    """
    deadline = monotonic() + seconds
    while True:
        try:
            with opened(world.binding, world.proc_root):
                return
        except NoBindingError:
            return
        except RefusedError as refusal:
            if refusal.code != Code.DRIVER_NOT_LOADED or monotonic() >= deadline:
                return  # what is wrong is said by whoever needs it next
        sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _nvml(world: World) -> Iterator[Mig]:
    """Start NVML; what goes wrong with it is one sentence."""
    try:
        with opened(world.binding, world.proc_root) as mig:
            yield mig
    except (NoBindingError, RefusedError) as error:
        raise NoNvmlError(f"MIG cannot be looked at: {error}") from error


def _lock(root: Path) -> contextlib.AbstractContextManager[None]:
    folder = Path(names.under(root, STATE_DIR))
    denied = NotPermittedError("only root may change MIG; use sudo")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except PermissionError as error:
        raise denied from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise denied
    return files.exclusive_lock(folder / "lock", timeout=LOCK_SECONDS)


def _suit(layout: Layout, cards: Sequence[MigCard], *, lenient: bool = False) -> Assignment:
    """Say what each card shall have, after checking that it can.

    Raises:
        InputError: some card cannot, and `lenient` is off: all that is wrong, equal problems told once.
    """
    assignment = assign(layout, cards)
    problems = dict(assignment.problems)
    for index, target in assignment.targets.items():
        profiles = cards[index].profiles
        problem = find_problem(profiles, target) if target.enabled and profiles else ""
        if problem:
            problems[index] = problem
    if problems and not lenient:
        raise InputError(f"{layout.source}: {'; '.join(_gather(problems, cards))}")
    targets = {index: target for index, target in assignment.targets.items() if index not in problems}
    return Assignment(targets, problems)


def _gather(problems: Mapping[int, str], cards: Sequence[MigCard]) -> Iterator[str]:
    same: dict[tuple[str, str], list[int]] = {}
    for index, problem in sorted(problems.items()):
        name = cards[index].name if index < len(cards) else ""
        same.setdefault((name, problem), []).append(index)
    for (name, problem), indexes in same.items():
        numbers = f"card{'s' if len(indexes) > 1 else ''} {', '.join(map(str, indexes))}"
        yield f"{numbers}{f' ({name})' if name else ''}: {problem}"


def _foresee(mig: Mig, card: MigCard, target: Target) -> CardReport:
    """Say what would be done with one card."""
    before = describe(card.goal)
    report = CardReport(card.index, card.uuid, card.name, UNCHANGED, before=before, after=before)
    if card.reason:
        return replace(report, result=FAILED, reason=card.reason, before=(), after=())
    steps = foresee(card, target)
    if not steps:
        return report
    if card.profiles or not target.enabled:
        after, remark = describe(choose(card, target)), ""
    else:
        after = ("MIG on", *target.names)
        remark = "what it can make is only known once MIG is on; should this not fit, it gets its present layout back"
    report = replace(report, changed=True, steps=tuple(step.text for step in steps), after=after, reason=remark)
    reason = _users(mig, card)
    return replace(report, result=REFUSED, reason=reason) if reason else replace(report, result=CHANGED)


def _users(mig: Mig, card: MigCard) -> str:
    """Say who is on a card; empty when nobody is."""
    try:
        found = mig.processes(card)
    except RefusedError as refusal:
        return f"whether it is in use cannot be told ({words(refusal)}), so it is left alone"
    if not found:
        return ""
    # A process in two instances is one process.
    people = list(dict.fromkeys(_name(process) for process in found))
    more = f" and {len(people) - _MOST_NAMED} more" if len(people) > _MOST_NAMED else ""
    return f"in use by {', '.join(people[:_MOST_NAMED])}{more}; run this again when that has ended"


def _name(process: Process) -> str:
    return f"{process.user or 'an unknown user'} ({process.command or 'unknown program'}, PID {process.pid})"


def _give(mig: Mig, card: MigCard, target: Target, journal: Journal, world: World) -> CardReport:
    """Give one card its layout, if it may be touched."""
    report = _foresee(mig, card, target)
    if report.result == UNCHANGED:
        journal.drop(card.uuid)
    if report.result != CHANGED:
        return replace(report, changed=False, steps=(), after=report.before)
    ending = Change(mig, card, world.proc_root).run(target, journal)
    if ending.goal is not None:
        return replace(report, after=describe(ending.goal), reason="")
    if ending.waiting:
        changed = card.pending != target.enabled or bool(card.instances and not target.enabled)
        return replace(report, result=WAITING, changed=changed, reason=ending.reason)
    return replace(report, result=FAILED, changed=False, after=report.before, reason=ending.reason)


def _record(
    reports: Sequence[CardReport],
    targets: Mapping[int, Target],
    cards: Sequence[MigCard],
    root: Path,
    *,
    dry_run: bool,
) -> bool:
    """Note down what each card has; return whether the note changed, or would."""
    try:
        former = assign(read_layout(layout_path(root)), cards).targets
    except (FileNotFoundError, InputError, UnsafeFileError):
        former = {}
    failed = {report.index for report in reports if report.result in {REFUSED, FAILED}}
    noted = {index: target for index, target in targets.items() if index not in failed}
    noted |= {index: target for index, target in former.items() if index in failed}
    return bool(noted) and write_layout(root, noted, dry_run=dry_run)
