"""How the controller sees a node, read from `scontrol show node --oneliner`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .slurm_gres import parse_gres

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELD = re.compile(r"(?:^| )([A-Z][A-Za-z]*)=(.*?)(?= [A-Z][A-Za-z]*=|$)")
_WHO = re.compile(r" \[[^\[\]]*@[^\[\]]*\]$")
"""Who gave a reason, and when; `scontrol` adds it at the end."""

_AWAY = {"DOWN", "UNKNOWN", "NOT_RESPONDING", "REBOOT", "POWERED_DOWN"}
_INVALID = {"INVAL", "INVALID_REG"}
_GONE_WRONG = ("Low ", "low ")
"""How slurmctld's own reasons begin when a node has less memory or fewer cores than its line says (node_mgr.c)."""

_CARDS_MISSING = "gres/gpu"
"""How its reason begins when a node has fewer cards; the state is also INVAL, until the node registers with all."""


@dataclass(frozen=True)
class NodeState:
    """A node in the controller's eyes.

    Attributes:
        name: its name.
        state: words such as IDLE+DRAIN.
        reason: why it is drained or down.
        cards: type to number.
    """

    name: str
    state: str
    reason: str = ""
    cards: Mapping[str, int] = field(default_factory=dict)

    @property
    def words(self) -> frozenset[str]:
        """The words of the state."""
        return frozenset(self.state.rstrip("*").split("+"))

    @property
    def answers(self) -> bool:
        """Whether its slurmd has registered and answers."""
        return not self.words & _AWAY and not self.state.endswith("*")

    @property
    def drained(self) -> bool:
        """Whether it takes no new jobs."""
        return "DRAIN" in self.words

    @property
    def complete_again(self) -> bool:
        """Whether it is drained for cards that were missing and are there now; Slurm itself leaves it so."""
        return self.drained and self.reason.startswith(_CARDS_MISSING) and not self.invalid

    @property
    def invalid(self) -> bool:
        """Whether it registered with less than its line in slurm.conf says."""
        return bool(self.words & _INVALID) or (self.drained and self.reason.startswith(_GONE_WRONG))


def parse_node(text: str) -> NodeState:
    """Read one line of `scontrol --oneliner show node`; fields that are not there stay empty."""
    fields = dict(_FIELD.findall(text.strip()))
    return NodeState(
        name=fields.get("NodeName", ""),
        state=fields.get("State", "UNKNOWN").split(" ")[0],
        reason=_WHO.sub("", fields.get("Reason", "").strip()),
        cards=parse_gres(fields.get("Gres", "")),
    )
