"""`gpulab sample`: look at the cards once, or for ever as gpulab-sampler.service."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters.nvml_light import Binding
from ..adapters.sample_store import SampleWriter
from ..adapters.sampler import Sampler
from ..errors import InputError, NotPermittedError
from ..services.lease_look import reader
from ..services.sampling import Watch, run
from ..settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_USAGE = """\
usage: gpulab sample [--forever]

Look at the cards and keep what runs on them in /var/lib/gpulab/samples. --forever is for gpulab-sampler.service: it
looks every minute (idle_reclaim_sample_seconds) until a new process shall take over."""

_RELEASE = "/opt/gpulab/current"
_ROOT = Path("/")
_SETTINGS = (
    Path(names.under(_ROOT, names.SETTINGS_FILE)),
    Path(names.under(_ROOT, names.SETTINGS_DIR)) / "reclaim.toml",
)


def main(argv: Sequence[str]) -> int:
    """Look once, or again and again.

    Raises:
        InputError: an unknown argument.
        NotPermittedError: we are not root.
    """
    if list(argv) in (["-h"], ["--help"]):
        print(_USAGE)
        return 0
    if list(argv) not in ([], ["--forever"]):  # no argparse: it is a tenth of what this process may take
        raise InputError("sample takes --forever or nothing; `gpulab sample --help`")
    if os.geteuid() != 0:
        raise NotPermittedError("only root may add samples; use sudo")
    rules = load(_ROOT).reclaim
    folder = Path(names.under(_ROOT, names.SAMPLES_FILE)).parent
    watch = Watch(
        _ROOT,
        Sampler(Binding(), Path("/proc"), os.sysconf("SC_CLK_TCK"), reader(_ROOT)),
        SampleWriter(Path(names.under(_ROOT, names.SAMPLES_FILE)), boot_id(), _group_of(folder)),
        sample_seconds=rules.sample_seconds,
        percent=rules.percent,
        idle_seconds=rules.idle_minutes * 60,
    )
    if argv:
        run(watch, rules.sample_seconds, _up_to_date(), _notify)
        return 0
    tick = watch.look()
    if tick.reason:
        print(f"no card was looked at: {tick.reason}")
    elif sys.stdout.isatty():
        print(f"cards: {len(tick.cards)}, processes: {len({use.runner.pid for use in tick.uses})}")
    return 0


def boot_id() -> str:
    """Return what names this boot (random(4))."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        return stream.read().strip()


def _group_of(folder: Path) -> int | None:
    try:
        return folder.stat().st_gid
    except OSError:
        return None


def _up_to_date() -> Callable[[], bool]:
    """Return a function that tells whether release and settings are still those we began with."""

    def what_counts() -> tuple[object, ...]:
        return (os.path.realpath(_RELEASE), *(_changed(path) for path in _SETTINGS))

    began = what_counts()
    return lambda: what_counts() == began


def _changed(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _notify(state: str) -> None:
    """Tell systemd (sd_notify(3)); nothing when it did not start us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    import socket  # noqa: PLC0415 - only where systemd asks for it

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        connection.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        connection.sendall(state.encode())
