"""The sampler: looks at the cards every minute, keeps what it saw, and wakes idle reclaim when there is work for it.

It runs all the time, because starting Python costs more than a look: see bench/README.md. It decides and ends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters.sample_store import DamagedStoreError, SampleWriter, StoreError, set_aside
from ..rules.samples import LISTED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import PurePosixPath

    from ..adapters.sampler import Sampler
    from ..rules.samples import Tick

HEALTH_FILE = names.RECLAIM_RUN_DIR / "health.json"
"""What the sampler cannot do and why; written when that changes."""

WAKE_FILE = names.RECLAIM_RUN_DIR / "wake"
"""Is there when idle reclaim shall run (gpulab-reclaim.path); its service removes it before it looks."""

PENDING_FILE = names.RECLAIM_RUN_DIR / "pending"
"""Idle reclaim leaves it while somebody has been asked or mail waits: it wants to run after every look."""

_HOUR = 3600
_LATE = 1.9


@dataclass(frozen=True)
class Health:
    """What works.

    Attributes:
        nvml: why no card can be looked at; empty when one can.
        store: why nothing is kept; empty when it is.
        cards: why a card cannot be read, by index.
    """

    nvml: str = ""
    store: str = ""
    cards: tuple[tuple[int, str], ...] = ()

    def render(self) -> str:
        """Return it as JSON."""
        return json.dumps({"nvml": self.nvml, "store": self.store, "cards": dict(self.cards)})


class Watch:
    """Takes looks one after the other.

    Args:
        root: the folder that stands for `/`.
        sampler: takes a look.
        writer: keeps it.
        sample_seconds: usual time between two.
        percent: below this much utilisation a process is idle.
        idle_seconds: when one has not been busy for so long, idle reclaim is woken.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        root: Path,
        sampler: Sampler,
        writer: SampleWriter,
        *,
        sample_seconds: float,
        percent: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take no look yet."""
        self._root = root
        self._sampler = sampler
        self._writer = writer
        self._sample_seconds = sample_seconds
        self._percent = percent
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._store = Path(names.under(root, names.SAMPLES_FILE))
        self._last = 0
        self._quiet: dict[str, int] = {}
        self._health = ""
        self._hour = -1

    def look(self) -> Tick:
        """Take one look, keep it, and wake idle reclaim when that has something to do."""
        at = int(self._clock())
        # After a pause nobody knows what was before; the look itself asks for the usual time.
        recent = 0 <= at - self._last <= _LATE * self._sample_seconds
        tick = self._sampler.look(at, self._last if recent else at - self._sample_seconds)
        self._last = at
        problem = self._keep(tick)
        changed = self._tell_health(tick, problem)
        if self._is_quiet(tick) or changed or at // _HOUR != self._hour or self._path(PENDING_FILE).exists():
            self._hour = at // _HOUR
            self._wake()
        return tick

    def _keep(self, tick: Tick) -> str:
        try:
            self._writer.write(tick)
        except DamagedStoreError as error:
            try:
                set_aside(self._store)
                self._writer.write(tick)
            except (OSError, StoreError):
                return str(error)
        except StoreError as error:
            return str(error)
        return ""

    def _tell_health(self, tick: Tick, problem: str) -> bool:
        cards = tuple((card.index, card.reason) for card in tick.cards if card.state not in LISTED)
        health = Health(tick.reason, problem, cards).render()
        if health == self._health:
            return False
        path = self._path(HEALTH_FILE)
        temporary = path.with_suffix(".new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.write_text(health, encoding="utf-8")
            os.replace(temporary, path)
        except OSError:
            return True  # tried again at the next look
        self._health = health
        return True

    def _is_quiet(self, tick: Tick) -> bool:
        """Tell whether somebody has not been busy for long enough to be looked at."""
        quiet: dict[str, int] = {}
        for use in tick.uses:
            key = use.runner.key
            busy = use.sm is not None and use.sm >= self._percent
            if busy or quiet.get(key) == 0:
                quiet[key] = 0
            else:
                quiet[key] = self._quiet.get(key, 0) or tick.at
        used = {(use.card, use.runner.uid) for use in tick.uses}
        for hold in tick.holds:
            if (hold.card, hold.holder.uid) not in used:
                key = f"lease:{hold.lease}"
                quiet[key] = self._quiet.get(key, 0) or tick.at
        self._quiet = quiet
        return any(since and tick.at - since >= self._idle_seconds for since in quiet.values())

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._path(WAKE_FILE).touch()

    def _path(self, path: PurePosixPath) -> Path:
        return Path(names.under(self._root, path))


def run(watch: Watch, sample_seconds: float, is_current: Callable[[], bool], notify: Callable[[str], None]) -> None:
    """Look at every full minute (or what the time between two looks is) until a new process shall take over.

    It ends after a look at which NVML would not start: the library on disk may have changed with the driver, and only a
    new process loads the new one. It ends too when the release or the settings have changed.

    Args:
        watch: takes the looks.
        sample_seconds: time between two.
        is_current: whether release and settings are still those this process began with.
        notify: tells the service manager that we live (sd_notify(3)).
    """
    notify("READY=1")
    while True:
        time.sleep(sample_seconds - time.time() % sample_seconds)
        tick = watch.look()
        notify("WATCHDOG=1")
        if tick.reason or not is_current():
            return
