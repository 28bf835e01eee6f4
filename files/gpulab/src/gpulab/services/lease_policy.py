"""What besides free cards decides about a lease: whose MIG instance is whose, and later the golden hours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from .. import names
from ..adapters.files import read_regular
from ..errors import UnsafeFileError

if TYPE_CHECKING:
    from ..rules.leases import Request

_BINDINGS = PurePosixPath("/run/gpulab/bindings")
_LIMIT = 1 << 20


@dataclass(frozen=True)
class Policy:
    """The rules of the house at one moment.

    Attributes:
        bindings: account name to the UUID of the MIG instance that is theirs.
    """

    bindings: dict[str, str]

    def judge(self, request: Request) -> tuple[str, str]:  # noqa: ARG002 - the golden hours come in here
        """Return why a request has to wait whatever is free, and what to tell whoever is served; both may be empty."""
        return "", ""


def load_policy(root: Path = Path("/")) -> Policy:
    """Read the rules that hold now.

    Args:
        root: the folder that stands for `/`.
    """
    try:
        text = read_regular(Path(names.under(root, _BINDINGS)), limit=_LIMIT).decode(errors="replace")
    except (FileNotFoundError, UnsafeFileError):
        text = ""
    return Policy({words[0]: words[1] for words in map(str.split, text.splitlines()) if len(words) == 2})  # noqa: PLR2004
