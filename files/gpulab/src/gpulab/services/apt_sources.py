"""Components of archives that apt lacks, added in a file of our own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.apt import archives
from ..adapters.files import write_atomic
from ..adapters.programs import output_of
from ..errors import GpulabError
from ..rules.apt_sources import lacking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..adapters.dpkg import Run


@dataclass(frozen=True)
class Sources:
    """Our file among apt's sources.

    Attributes:
        changed: whether it differs from before, or would.
        before: its content; empty when it is not there.
        after: the same afterwards.
    """

    changed: bool
    before: str
    after: str


def complete(
    path: Path,
    *,
    origin: str,
    components: Sequence[str],
    dry_run: bool,
    root: Path = Path("/"),
    run: Run = output_of,
) -> Sources:
    """See to it that every archive of a publisher has some components, in a file of our own.

    Args:
        path: our file in /etc/apt/sources.list.d, ending in `.sources`.
        origin: the publisher, such as `Debian`.
        components: what shall be there.
        dry_run: only say what would change.
        root: the folder that stands for `/`.
        run: asks a program.

    Raises:
        InputError: see `lacking`.
        GpulabError: apt cannot be asked.
    """
    try:
        known = archives(run)
    except OSError as error:
        raise GpulabError(f"apt-get cannot say which archives it knows: {error}") from error
    after = lacking(known, origin=origin, components=components, own_file=str(path))
    place = root / path.relative_to("/")
    before = place.read_text(encoding="utf-8") if place.exists() else ""
    if after != before and not dry_run:
        if after:
            write_atomic(place, after.encode(), mode=0o644)
        else:
            place.unlink()
    return Sources(after != before, before, after)
