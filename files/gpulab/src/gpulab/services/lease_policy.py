"""What besides free cards decides about a lease: the golden hours, and whose MIG instance is whose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import names
from ..adapters.callers import in_group
from ..adapters.clock import server_now
from ..rules.windows import OK, REFUSE, verdict
from ..settings import Settings, Windows
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
    """

    bindings: Mapping[str, str] = field(default_factory=dict)
    windows: Windows = field(default_factory=Windows)
    now: datetime = field(default_factory=server_now)
    language: str = "en"
    admin: Callable[[str], bool] = field(default=lambda user: in_group(user, names.ADMINS_GROUP))

    def judge(self, request: Request, user: str) -> tuple[str, str]:
        """Hold a request against the golden hours, as if it were served now.

        Returns:
            Why it has to wait whatever is free, and what to tell whoever is served; each may be empty.
        """
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
    return Policy(read_bindings(root), settings.windows, language=settings.lab.language)
