"""The controller's configuration as one safe step: proved, written, in force; or as it was before.

Which file changed says what is needed: `slurm.conf` and `cgroup.conf` are read at the start only, the files that it
includes also by `scontrol reconfigure`, and job_submit.lua by itself. Running jobs go on in each case. A changed number
of cards is the exception, as is a node that leaves: slurmctld kills its jobs, so it must be empty first.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import state
from ..adapters.files import read_regular, write_atomic
from ..errors import GpulabError
from ..rules.slurm_gres import parse_gres
from . import slurm_daemons
from .slurm_proof import Proof, prove

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .slurm_daemons import World

FOLDER = "/etc/slurm"
_MAIN = "slurm.conf"
_CONTROLLER = "slurmctld"
_UNIT = "slurmctld.service"
_LIMIT = 4 << 20
_MODE = 0o644
_SELF_READ = {"job_submit.lua"}
"""slurmctld reads the plugin again when it is newer (job_submit/lua)."""

_NODE = re.compile(r"^NodeName=(\S+)\s.*?(?:Gres=(\S+))?\s*$", re.MULTILINE)
_RECONFIGURE_SECONDS = 40.0
_POLL = 2.0


@dataclass(frozen=True)
class Request:
    """What shall be in force.

    Attributes:
        files: name in /etc/slurm to content.
        restart: names of those that only a restart makes known.
        cluster: the cluster's name, registered with slurmdbd before the first start.
        user: SlurmUser.
        drain_seconds: how long to wait for the jobs of a node whose cards change; 0 refuses at once.
    """

    files: Mapping[str, str]
    restart: frozenset[str]
    cluster: str = "lab"
    user: str = "slurm"
    drain_seconds: float = 0.0


@dataclass
class Outcome:
    """What was done, or would be.

    Attributes:
        changed: files that differ from before.
        action: `started`, `restarted`, `reconfigured`, `enabled` or nothing.
        drained: nodes that take no jobs until their slurmd has the new cards.
        differences: name, before, after.
        warnings: what somebody should know.
    """

    changed: list[str] = field(default_factory=list)
    action: str = ""
    drained: list[str] = field(default_factory=list)
    differences: list[tuple[str, str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def apply(request: Request, world: World, *, dry_run: bool) -> Outcome:
    """Prove the files, write those that differ, and have slurmctld run with them.

    Raises:
        UnprovenError: no controller would start with them; nothing was changed.
        GpulabError: they are proved but could not be put in force; the former ones are back.
    """
    request = replace(request, files=_numbered(request.files, world.root))
    before = {name: _read(world.root, name) for name in request.files}
    outcome = Outcome(changed=[name for name, content in request.files.items() if before[name] != content])
    outcome.differences = [(f"{FOLDER}/{name}", before[name] or "", request.files[name]) for name in outcome.changed]
    unit = world.systemd.look(_UNIT)
    noted = _noted(world)
    stale = [name for name, content in request.files.items() if noted.get(name) != _digest(content)]
    if not outcome.changed and not stale and unit.active:
        if not unit.enabled:
            outcome.action = slurm_daemons.ENABLED
            if not dry_run:
                world.systemd.act("enable", _UNIT)
        return outcome
    if unit.there:
        outcome.warnings += _prove(request).notes
    elif not dry_run:
        raise GpulabError(f"{_UNIT} is not installed, or masked; run the whole role, or unmask it")
    closing = _closing(before.get("nodes.conf") or "", request.files.get("nodes.conf", ""))
    if dry_run:
        outcome.action = _verb(request, stale, active=unit.active, closing=bool(closing))
        outcome.warnings += _busy(closing, world) if unit.active else []
        return outcome
    if unit.active and closing:
        outcome.drained = _empty(closing, request, world)
    _write(request, before, world, outcome, stale, closing=bool(closing))
    return outcome


def _numbered(files: Mapping[str, str], root: Path) -> dict[str, str]:
    """Let job numbers go on where those of the accounts end, which came from a controller that is no more.

    slurmctld counts from FirstJobId when it has no state of its own, and never goes back (slurm.conf(5)).
    """
    found = dict(files)
    note = Path(names.under(root, names.SLURM_STATE_DIR)) / "first_job"
    if _MAIN in found and note.exists():
        number = read_regular(note, limit=_LIMIT).decode().strip()
        if not number.isdecimal():
            raise GpulabError(f"{note} does not hold a number; remove it, and jobs are counted from 1")
        found[_MAIN] += f"FirstJobId={number}\n"
    return found


def _write(
    request: Request,
    before: Mapping[str, str | None],
    world: World,
    outcome: Outcome,
    stale: Sequence[str],
    *,
    closing: bool,
) -> None:
    active = world.systemd.look(_UNIT).active
    for name in outcome.changed:
        write_atomic(_path(world.root, name), request.files[name].encode(), mode=_MODE, uid=0, gid=0)
    outcome.action = _verb(request, stale, active=active, closing=closing)
    try:
        _put_in_force(outcome.action, request, world)
    except GpulabError as error:
        _go_back(before, world, active=active)
        _resume(outcome.drained, world)
        raise GpulabError(f"the new configuration was taken back: {error}") from error
    _note(request, world)


def _verb(request: Request, stale: Sequence[str], *, active: bool, closing: bool) -> str:
    if not active:
        return slurm_daemons.STARTED
    if closing or request.restart & set(stale):
        return slurm_daemons.RESTARTED
    return "reconfigured" if set(stale) - _SELF_READ else ""


def _put_in_force(action: str, request: Request, world: World) -> None:
    if action in {slurm_daemons.STARTED, slurm_daemons.RESTARTED}:
        unit = world.systemd.look(_UNIT)
        if unit.stale:
            world.systemd.act("daemon-reload")
        if not unit.enabled:
            world.systemd.act("enable", _UNIT)
        _register(request.cluster, world)
        world.systemd.act("reset-failed", _UNIT)
        slurm_daemons.start(_CONTROLLER, world, verb="restart" if action == slurm_daemons.RESTARTED else "start")
    elif action:
        world.run(["scontrol", "reconfigure"], seconds=_RECONFIGURE_SECONDS)
        slurm_daemons.prove(_CONTROLLER, world)


def _go_back(before: Mapping[str, str | None], world: World, *, active: bool) -> None:
    """Bring the former files back, and the controller with them: one that failed to reconfigure may be deaf."""
    for name, content in before.items():
        if content is None:
            _path(world.root, name).unlink(missing_ok=True)
        else:
            write_atomic(_path(world.root, name), content.encode(), mode=_MODE, uid=0, gid=0)
    if active:
        world.systemd.act("kill", "--signal=KILL", _UNIT)
        world.systemd.act("reset-failed", _UNIT)
        slurm_daemons.start(_CONTROLLER, world, verb="restart")


def _register(cluster: str, world: World) -> None:
    """Make the cluster known to slurmdbd, without which slurmctld has no resources to count."""
    known = world.run(["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=Cluster"]).split()
    if cluster not in known:
        world.run(["sacctmgr", "--immediate", "--quiet", "add", "cluster", cluster])


def _prove(request: Request) -> Proof:
    return prove(request.files, user=request.user)


def _closing(before: str, after: str) -> dict[str, str]:
    """Return nodes whose jobs this change would kill, and why: cards of another type or number, or none at all."""
    old, new = ({node: parse_gres(gres or "") for node, gres in _NODE.findall(text)} for text in (before, after))
    return {
        node: f"the cards of {node} change" if node in new else f"{node} leaves the cluster"
        for node in old
        if old[node] != new.get(node)
    }


def _empty(closing: Mapping[str, str], request: Request, world: World) -> list[str]:
    """Drain nodes and wait until nothing runs there.

    Returns:
        The nodes that took jobs before, and are drained now.

    Raises:
        GpulabError: something still runs; those nodes take jobs again.
    """
    nodes = [node for node in closing if not slurm_daemons.node_state(world, node).drained]
    for node in nodes:
        world.run(["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={slurm_daemons.DRAIN_REASON}"])
    deadline = world.monotonic() + request.drain_seconds
    while True:
        busy = _busy(closing, world)
        if not busy:
            return nodes
        if world.monotonic() >= deadline:
            _resume(nodes, world)
            raise GpulabError("; ".join(busy))
        world.sleep(_POLL)


def _resume(nodes: Sequence[str], world: World) -> None:
    for node in nodes:
        world.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"])


def _jobs(node: str, world: World) -> list[str]:
    """Return the jobs that run on a node, as `12 (alice)`."""
    answer = world.run(["squeue", "--noheader", "--all", f"--nodelist={node}", "--states=R,CG,S,ST", "--format=%A|%u"])
    return [f"{job} ({user})" for job, _, user in (line.partition("|") for line in answer.split())]


def _busy(closing: Mapping[str, str], world: World) -> list[str]:
    """Return a line for each node that still has jobs."""
    return [
        f"{why}, which would kill its jobs: {', '.join(jobs)}; wait for their end, set tier_slurm_drain_minutes to "
        "have this run wait, or cancel them"
        for node, why in closing.items()
        if (jobs := _jobs(node, world))
    ]


def _path(root: Path, name: str) -> Path:
    return root / FOLDER.lstrip("/") / name


def _read(root: Path, name: str) -> str | None:
    try:
        return read_regular(_path(root, name), limit=_LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return None


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _noted(world: World) -> dict[str, str]:
    noted = state.load(slurm_daemons.note_path(world.root, _CONTROLLER))
    return noted if isinstance(noted, dict) else {}


def _note(request: Request, world: World) -> None:
    digests = {name: _digest(content) for name, content in request.files.items()}
    state.save(slurm_daemons.note_path(world.root, _CONTROLLER), digests)
