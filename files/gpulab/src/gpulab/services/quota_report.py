"""What a run over the disk limits came to, ready to be printed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class FileSystem:
    """What was done on one file system, or would be.

    Attributes:
        title: mount point, type and device.
        point: mount point.
        enforced: whether the kernel refuses what is over the limits, as it says itself.
        steps: what was done, in words.
        waiting: what an admin has to do first; empty when nothing.
        before: changed limits as they were, one line for each owner.
        after: likewise as they are.
        over: who has more than the new hard limit already.
    """

    title: str
    point: str
    enforced: bool = False
    steps: list[str] = field(default_factory=list)
    waiting: str = ""
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether something differs from before, or would."""
        return bool(self.steps or self.after)


@dataclass
class Outcome:
    """What a run came to.

    Attributes:
        file_systems: in the order of the inventory, those that are left last.
        recorded: whether the note of the limits changed, or would.
    """

    file_systems: list[FileSystem] = field(default_factory=list)
    recorded: bool = False

    @property
    def changed(self) -> bool:
        """Whether something differs from before, or would."""
        return self.recorded or any(each.changed for each in self.file_systems)

    @property
    def warnings(self) -> list[str]:
        """What stops nothing and should be known."""
        return [f"{each.title}: {each.waiting}" for each in self.file_systems if each.waiting] + [
            line for each in self.file_systems for line in each.over
        ]


def to_dict(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data, ready for JSON."""
    return {
        "changed": outcome.changed,
        "recorded": outcome.recorded,
        "file_systems": [{**asdict(each), "changed": each.changed} for each in outcome.file_systems],
    }
