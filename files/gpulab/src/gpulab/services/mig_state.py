"""What gpulab remembers about MIG: the layout in force, for the next boot, and a change that is not finished."""

from __future__ import annotations

import contextlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters import files, state
from ..errors import UnsafeFileError
from ..rules.mig_cards import Compute, Goal, Instance
from ..rules.mig_layout import Layout, parse_layout, render_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.mig_layout import Target

LAYOUT_FILE = PurePosixPath("/etc/gpulab/mig.json")
"""The layout in force, a document of nvidia-mig-parted; gpulab-mig.service brings it back after a boot."""

LABEL = "gpulab"
STATE_DIR = names.STATE_DIR / "mig"
LOCK_SECONDS = 60.0
_LIMIT = 1 << 20
_MODE = 0o644
_BOOT_ID = "sys/kernel/random/boot_id"


def read_layout(path: Path, *, label: str = "", source: str = "") -> Layout:
    """Read a layout from a JSON file.

    Args:
        path: the file.
        label: which of its configurations is meant; may be empty when there is only one.
        source: what messages call it; the path when empty.

    Raises:
        FileNotFoundError: it is not there.
        InputError: it cannot be understood.
        UnsafeFileError: it is not an ordinary file.
    """
    text = files.read_regular(path, limit=_LIMIT).decode(errors="replace")
    return parse_layout(text, label=label, source=source or str(path))


def layout_path(root: Path) -> Path:
    """Return where the layout in force is noted down."""
    return Path(names.under(root, LAYOUT_FILE))


def write_layout(root: Path, targets: Mapping[int, Target], *, dry_run: bool) -> bool:
    """Note down the layout in force.

    Args:
        root: the folder that stands for `/`.
        targets: what each card has, by index.
        dry_run: only say whether the file would change.

    Returns:
        Whether it changed.

    Raises:
        OSError: it cannot be written.
    """
    path = layout_path(root)
    data = render_layout(targets, LABEL).encode()
    with contextlib.suppress(FileNotFoundError, UnsafeFileError):  # a link in its place is replaced
        if path.lstat().st_mode & 0o7777 == _MODE and files.read_regular(path, limit=_LIMIT) == data:
            return False
    if not dry_run:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        files.write_atomic(path, data, mode=_MODE)
    return True


class Journal:
    """The former layout of each card whose change has begun, until it has ended one way or the other.

    Should the process be killed in between, the next run still knows where to go back to. Instances do not outlive a
    boot, and neither does what stands here.

    Args:
        root: the folder that stands for `/`.
        proc_root: where proc is mounted.
    """

    def __init__(self, root: Path, proc_root: Path) -> None:
        """Read what an interrupted run left; a damaged file is put aside."""
        self._path = Path(names.under(root, STATE_DIR / "unfinished.json"))
        self._boot = (proc_root / _BOOT_ID).read_text(encoding="ascii").strip()
        self._cards: dict[str, Goal] = {}
        try:
            document = state.load(self._path)
            if document is not None and document["boot"] == self._boot:
                self._cards = {uuid: _parse_goal(plain) for uuid, plain in document["cards"].items()}
        except (state.CorruptStateError, AttributeError, KeyError, TypeError):
            state.set_aside(self._path)

    def former(self, uuid: str) -> Goal | None:
        """Return the layout a card had before a change that was interrupted."""
        return self._cards.get(uuid)

    def note(self, uuid: str, goal: Goal) -> None:
        """Note down what a card has, before the first step of a change.

        Raises:
            OSError: it cannot be written; then nothing may be changed either.
        """
        if uuid not in self._cards:
            self._cards[uuid] = goal
            self._save()

    def drop(self, uuid: str) -> None:
        """Forget a card: its change has ended."""
        if self._cards.pop(uuid, None) is not None:
            self._save()

    def _save(self) -> None:
        cards = {uuid: _plain_goal(goal) for uuid, goal in self._cards.items()}
        state.save(self._path, {"boot": self._boot, "cards": cards})


def _plain_goal(goal: Goal) -> dict[str, Any]:
    return {
        "enabled": goal.enabled,
        "instances": [
            {
                "profile": instance.profile,
                "name": instance.name,
                "slices": instance.slices,
                "start": instance.start,
                "size": instance.size,
                "computes": [[compute.width, compute.start] for compute in instance.computes],
            }
            for instance in goal.instances
        ],
    }


def _parse_goal(plain: dict[str, Any]) -> Goal:
    return Goal(
        enabled=plain["enabled"],
        instances=tuple(
            Instance(**{**fields, "computes": tuple(Compute(*compute) for compute in fields["computes"])})
            for fields in plain["instances"]
        ),
    )
