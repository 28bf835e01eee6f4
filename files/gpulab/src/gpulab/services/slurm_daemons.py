"""Slurm's daemons: started when they are down, restarted when what they read at their start changed, proved alive.

What a daemon was last started with is remembered as a fingerprint of its files: no clock is compared, and a run that
was killed between a file and its restart is made good by the next one.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import state
from ..adapters.slurm import SlurmError, run
from ..adapters.systemd import Systemd, UnitError
from ..errors import GpulabError
from ..rules.slurm_node_state import NodeState, parse_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..adapters.slurm import Run

NOTES_DIR = names.SLURM_STATE_DIR

_OURS = "gpulab: "
"""How the reasons begin for which gpulab drains a node; one that is drained by hand stays so."""

DRAIN_REASON = f"{_OURS}its cards change"
"""Why a node takes no jobs between the controller's new files and its own."""

_POLL = 0.1
_PATIENCE = 60.0

STARTED = "started"
RESTARTED = "restarted"
ENABLED = "enabled"
DRAINED = "drained"
RESUMED = "resumed"
UNCHANGED = ""


@dataclass(frozen=True)
class World:
    """The outside, as parameters.

    Attributes:
        root: the folder that stands for `/`.
        systemd: the system manager.
        run: runs Slurm's commands.
        sleep: waits, seconds.
        monotonic: a clock, seconds.
    """

    root: Path = Path("/")
    systemd: Systemd = field(default_factory=Systemd)
    run: Run = run
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


def fingerprint(root: Path, files: Sequence[str]) -> str:
    """Return a digest of files and their names; a file that is not there counts as such."""
    digest = hashlib.sha256()
    for name in sorted(files):
        path = root / name.lstrip("/")
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b"(absent)"
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def note_path(root: Path, daemon: str) -> Path:
    """Return where it is noted down what a daemon has read."""
    return Path(names.under(root, NOTES_DIR)) / f"{daemon}.json"


def has_read(world: World, daemon: str, files: Sequence[str]) -> bool:
    """Tell whether the daemon was last started with the files as they are."""
    noted = state.load(note_path(world.root, daemon))
    return isinstance(noted, dict) and noted.get("files") == fingerprint(world.root, files)


def note(world: World, daemon: str, files: Sequence[str]) -> None:
    """Remember that the daemon has read the files as they are."""
    state.save(note_path(world.root, daemon), {"files": fingerprint(world.root, files)})


def keep(
    daemon: str, files: Sequence[str], world: World, *, rewritten: bool = False, drain: str = "", dry_run: bool = False
) -> str:
    """Have a daemon run with its files as they are.

    Args:
        daemon: munge, mariadb, slurmdbd, slurmctld or slurmd.
        files: what it reads only when it starts.
        world: the outside.
        rewritten: whether one of them was just written, whatever it had been before.
        drain: for slurmd, why its node takes no new jobs; empty when it does.
        dry_run: only say what would be done.

    Returns:
        STARTED, RESTARTED, DRAINED, RESUMED, ENABLED or UNCHANGED.

    Raises:
        GpulabError: it does not start, or does not answer afterwards.
    """
    name = f"{daemon}.service"
    unit = world.systemd.look(name)
    if not unit.there:
        if dry_run:
            return STARTED
        raise UnitError(f"{name} is not installed, or masked; run the whole role, or unmask it")
    verb = STARTED
    if unit.active:
        verb = RESTARTED if rewritten or not has_read(world, daemon, files) else UNCHANGED
    if dry_run:
        verb = verb or _foresee(daemon, drain, world)
        return verb or (UNCHANGED if unit.enabled else ENABLED)
    if unit.stale:
        world.systemd.act("daemon-reload")
    if not unit.enabled:
        world.systemd.act("enable", name)
    if verb:
        world.systemd.act("reset-failed", name)
        start(daemon, world, verb="restart" if verb == RESTARTED else "start")
        note(world, daemon, files)
    if daemon == "slurmd":
        verb = _open_or_close(world, drain, dry_run=False) or verb
    return verb or (UNCHANGED if unit.enabled else ENABLED)


def _foresee(daemon: str, drain: str, world: World) -> str:
    try:
        return _open_or_close(world, drain, dry_run=True) if daemon == "slurmd" else UNCHANGED
    except SlurmError:  # the controller is down; this run would start it first
        return UNCHANGED


def _open_or_close(world: World, drain: str, *, dry_run: bool) -> str:
    """Have this node take jobs or not, unless somebody drained it by hand.

    While its cards change, the controller may have put its own reason there: slurmd had registered with the old ones.
    """
    found = node_state(world)
    ours = found.drained and (found.complete_again or found.reason.startswith(_OURS))
    if drain and (not found.drained or (ours and found.reason != _OURS + drain)):
        change, verb = ["State=DRAIN", f"Reason={_OURS}{drain}"], DRAINED
    elif not drain and ours:
        change, verb = ["State=RESUME"], RESUMED
    else:
        return UNCHANGED
    if not dry_run:
        world.run(["scontrol", "update", f"NodeName={found.name}", *change])
    return verb


def start(daemon: str, world: World, *, verb: str) -> None:
    """Start or restart a daemon and wait until it answers.

    Raises:
        GpulabError: it does not; with the last lines of its journal.
    """
    name = f"{daemon}.service"
    try:
        world.systemd.act(verb, name)
        prove(daemon, world)
    except GpulabError as error:
        said = world.systemd.last_lines(name)
        raise GpulabError(
            f"{daemon} is not well: {error}" + (f"; its journal ends with: {said}" if said else "")
        ) from error


def prove(daemon: str, world: World, *, seconds: float = _PATIENCE) -> None:
    """Wait until a daemon answers as its users will ask it.

    Raises:
        GpulabError: it did not within that time; with what it said last.
    """
    deadline = world.monotonic() + seconds
    while True:
        try:
            _PROOFS[daemon](world)
        except GpulabError as error:  # noqa: PERF203 - it asks again until it answers
            if world.monotonic() >= deadline:
                raise
            if not world.systemd.look(f"{daemon}.service").active:
                raise SlurmError(f"{daemon} ended; {error}") from error
            world.sleep(_POLL)
        else:
            return


def _munge(world: World) -> None:
    credential = world.run(["munge", "--no-input"], seconds=5)
    world.run(["unmunge"], feed=credential, seconds=5)


def _mariadb(world: World) -> None:
    world.run(["mariadb-admin", "--connect-timeout=5", "ping"], seconds=10)


def _slurmdbd(world: World) -> None:
    # sacctmgr would need slurm.conf, which a machine with nothing but the database does not have.
    pid = world.systemd.look("slurmdbd.service").pid
    if f",pid={pid}," not in world.run(
        ["ss", "--listening", "--tcp", "--numeric", "--processes", "--no-header"], seconds=5
    ):
        raise SlurmError("slurmdbd does not listen yet")


def _slurmctld(world: World) -> None:
    if " is UP" not in world.run(["scontrol", "ping"], seconds=10):
        raise SlurmError("slurmctld does not answer yet")


def _slurmd(world: World) -> None:
    found = node_state(world)
    if not found.answers:
        raise SlurmError(
            f"node {found.name} has not registered yet ({found.state}{': ' * bool(found.reason)}{found.reason})"
        )
    if found.invalid:
        raise SlurmError(f"node {found.name} registered with something missing: {found.reason}")


def node_state(world: World, name: str = "") -> NodeState:
    """Return how the controller sees a node, this machine when no name is given.

    Raises:
        SlurmError: the controller does not answer or does not know the node.
    """
    name = name or world.run(["hostname", "--short"], seconds=5).strip()
    return parse_node(world.run(["scontrol", "--oneliner", "show", "node", name], seconds=10))


_PROOFS: Mapping[str, Callable[[World], None]] = {
    "mariadb": _mariadb,
    "munge": _munge,
    "slurmctld": _slurmctld,
    "slurmd": _slurmd,
    "slurmdbd": _slurmdbd,
}
