"""Whether a set of configuration files would carry a controller, tried with a throw-away one.

Slurm has no test mode (`slurmctld -t` is refused by 22.05 and 24.11). A reconfiguration that fails kills the controller
of 22.05, and leaves that of 24.11 alive and deaf (8 of 8 trials). So a second slurmctld is started with the
candidate, under its own user, in a network namespace and a state folder of its own. It gets no accounting: it must not
speak for the cluster, and slurmdbd's answer is not what is in question.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GpulabError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DROPPED = re.compile(
    r"(AccountingStorage\w*|PriorityWeightTRES|StateSaveLocation|SlurmctldLogFile|SlurmctldPidFile|SlurmctldParameters"
    r"|AuthAltTypes|AuthAltParameters)\s*=.*",
    re.IGNORECASE,
)
_NEEDS_DATABASE = re.compile(r'\s(TRESBillingWeights|QOS)=("[^"]*"|\S*)', re.IGNORECASE)
_UP = "Running as primary controller"
_STAMP = re.compile(r"^(\[[^]]*\] ?|slurmctld: ?)+")
_HARMLESS = re.compile(
    r"Could not open|backup state|MailProg|may be lost|fed_mgr|No job state|slurm_set_addr|Communication connection"
    r"|gather_job|No Assoc|slurm_receive|Assoc|accounting|can only be used with SlurmDBD|High latency|mpi/pmix"
)
"""What a controller that stands alone says in any case."""

_SECONDS = 15.0
_POLL = 0.05
_ADDRESS = "192.0.2.1/32"
"""For documentation (RFC 5737): every daemon of Slurm dies on a machine that has no address but the loopback's."""


class UnprovenError(GpulabError):
    """A controller would not start with these files; the message is its own."""


@dataclass(frozen=True)
class Proof:
    """What the throw-away controller thought of the files.

    Attributes:
        notes: errors it could live with, one line each.
    """

    notes: tuple[str, ...]


def prove(files: Mapping[str, str], *, user: str, seconds: float = _SECONDS) -> Proof:
    """Start a controller with the files, and stop it as soon as it is up.

    Args:
        files: name in /etc/slurm to content.
        user: SlurmUser.
        seconds: how long it may take.

    Raises:
        UnprovenError: it does not come up.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpulab-slurm-proof-"))
    try:
        _lay_out(folder, files, user)
        return _try(folder, user, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lay_out(folder: Path, files: Mapping[str, str], user: str) -> None:
    (folder / "state").mkdir()
    for name, content in files.items():
        text = "".join(f"{line}\n" for line in _adapted(content)) if name.endswith(".conf") else content
        if name == "slurm.conf":
            text += (
                f"StateSaveLocation={folder}/state\n"
                f"SlurmctldPidFile={folder}/slurmctld.pid\n"
                f"SlurmctldLogFile={folder}/slurmctld.log\n"
            )
        (folder / name).write_text(text, encoding="utf-8")
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, user)
    folder.chmod(0o755)


def _adapted(content: str) -> Iterator[str]:
    for line in content.splitlines():
        if not _DROPPED.match(line.strip()):
            yield _NEEDS_DATABASE.sub("", line) if line.startswith("PartitionName") else line


def _try(folder: Path, user: str, seconds: float) -> Proof:
    script = (
        f'ip link set lo up && ip addr add {_ADDRESS} dev lo && exec runuser -u "$1" -- '
        'env SLURM_CONF="$2/slurm.conf" slurmctld -D -f "$2/slurm.conf"'
    )
    log = folder / "slurmctld.log"
    with (folder / "said").open("wb") as said:
        child = subprocess.Popen(
            ["unshare", "--net", "--", "sh", "-c", script, "proof", user, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            up = _wait(child, log, seconds)
        finally:
            _stop(child)
    lines = [*_lines(folder / "said"), *_lines(log)]
    fatal = [line for line in lines if "fatal:" in line]
    if fatal or not up:
        errors = [line for line in lines if line.startswith("error:") and not _HARMLESS.search(line)]
        reasons = dict.fromkeys([*errors, *fatal] or lines[-2:] or ["it said nothing"])
        raise UnprovenError(f"slurmctld would not start: {'; '.join(reasons)}")
    notes = (line.removeprefix("error: ") for line in lines if line.startswith("error:") and not _HARMLESS.search(line))
    return Proof(tuple(dict.fromkeys(notes)))


def _wait(child: subprocess.Popen[bytes], log: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and child.poll() is None:
        if any(_UP in line for line in _lines(log)):
            return True
        time.sleep(_POLL)
    return any(_UP in line for line in _lines(log))


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the throw-away controller; it is the leader of a session of its own."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return [_STAMP.sub("", line).strip() for line in text.splitlines() if line.strip()]
