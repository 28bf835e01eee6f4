"""Users and accounts as slurmdbd has them: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .slurm_inputs import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Association:
    """One row of the association tree; `user` is empty for the account itself."""

    account: str
    user: str = ""
    limits: Limits = field(default_factory=Limits)
    qos: frozenset[str] = frozenset()
    default_qos: str = ""


@dataclass(frozen=True)
class Tree:
    """What slurmdbd has.

    Attributes:
        associations: of the cluster.
        default_accounts: user to account.
        administrators: users who may change everything.
        owners: account to its organization.
        qos: name to priority.
        active: user and account of every job that waits or runs.
    """

    associations: tuple[Association, ...] = ()
    default_accounts: Mapping[str, str] = field(default_factory=dict)
    administrators: frozenset[str] = frozenset()
    owners: Mapping[str, str] = field(default_factory=dict)
    qos: Mapping[str, int] = field(default_factory=dict)
    active: frozenset[tuple[str, str]] = frozenset()
