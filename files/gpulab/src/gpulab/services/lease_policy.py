"""What besides free cards decides about a lease: the golden hours, whose MIG instance is whose, and a coming change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import names
from ..adapters.callers import in_group
from ..adapters.clock import server_now
from ..rules.windows import OK, REFUSE, verdict
from ..settings import Settings, Windows
from . import lease_drain
from .bindings import read_bindings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from ..rules.leases import Request


@dataclass(frozen=True)
class Policy:
    """The rules of the house at one moment.

    Attributes:
        bindings: account name to the UUID of the MIG instance that is theirs.
        windows: the golden hours.
        now: server time, naive.
        language: of sentences, `en` or `zh`.
        admin: tells whether an account is an admin's; those are only warned.
        closed: why nobody is given a card, whoever asks; empty when cards are given.
    """

    bindings: Mapping[str, str] = field(default_factory=dict)
    windows: Windows = field(default_factory=Windows)
    now: datetime = field(default_factory=server_now)
    language: str = "en"
    admin: Callable[[str], bool] = field(default=lambda user: in_group(user, names.ADMINS_GROUP))
    closed: str = ""

    def judge(self, request: Request, user: str) -> tuple[str, str]:
        """Hold a request against the rules, as if it were served now.

        Returns:
            Why it has to wait whatever is free, and what to tell whoever is served; each may be empty.
        """
        if self.closed:
            return self.closed, ""
        found = verdict(
            self.windows.table,
            cards=request.cards,
            start=self.now,
            hours=request.hours,
            strict=self.windows.strict and not self.admin(user),
        )
        if found.kind == OK:
            return "", ""
        rule = f"{found.rule(self.language)}; `gpulab windows` shows them all"
        return (rule, "") if found.kind == REFUSE else ("", rule)


def load_policy(root: Path, settings: Settings) -> Policy:
    """Read the rules that hold now.

    Args:
        root: the folder that stands for `/`.
        settings: of the server.
    """
    now, language = server_now(), settings.lab.language
    return Policy(
        read_bindings(root),
        settings.windows,
        now,
        language,
        closed=lease_drain.reason(now, language, root),
    )
