"""What besides free cards decides about a lease: whose MIG instance is whose, and the golden hours."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters.callers import in_group
from ..adapters.clock import server_now
from ..errors import GpulabError
from ..rules.windows import REFUSE, verdict
from ..settings import Windows, load
from .bindings import read_bindings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ..rules.leases import Request


def _is_admin(user: str) -> bool:
    return in_group(user, names.ADMINS_GROUP)


@dataclass(frozen=True)
class Policy:
    """The rules of the house at one moment.

    Attributes:
        bindings: account name to the UUID of the MIG instance that is theirs.
        windows: the golden hours, and whether they are strict.
        language: of what they say, `en` or `zh`.
        problem: why the golden hours are not known; then they hold nobody up, and whoever is served is told.
        is_admin: tells whether an account belongs to an admin, who is only warned.
        now: server time, naive.
    """

    bindings: dict[str, str]
    windows: Windows = field(default_factory=Windows)
    language: str = "en"
    problem: str = ""
    is_admin: Callable[[str], bool] = _is_admin
    now: Callable[[], datetime] = server_now

    def judge(self, request: Request, user: str) -> tuple[str, str]:
        """Return why a request has to wait whatever is free, and what to tell whoever is served; both may be empty.

        Args:
            request: what is asked for; one that does not say how long it takes breaks no rule about length.
            user: account name of who asks.
        """
        if self.problem:
            return "", self.problem
        found = verdict(
            self.windows.table,
            cards=request.cards,
            start=self.now(),
            hours=request.hours,
            strict=self.windows.strict and not self.is_admin(user),
        )
        rule = found.rule(self.language)
        return (rule, "") if found.kind == REFUSE else ("", rule)


def load_policy(root: Path = Path("/")) -> Policy:
    """Read the rules that hold now.

    Args:
        root: the folder that stands for `/`.
    """
    bindings = read_bindings(root)
    try:
        settings = load(root)
    except GpulabError as error:
        return Policy(bindings, problem=str(error))
    return Policy(bindings, settings.windows, settings.lab.language)
