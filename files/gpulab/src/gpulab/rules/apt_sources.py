"""Further components of archives that the server uses already: what to add, beside the admin's own sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HEADER = "# Written by gpulab: components that the files beside this one lack. Changes here are overwritten.\n"


@dataclass(frozen=True)
class Archive:
    """One component of an archive that apt is configured for.

    Attributes:
        origin: who publishes it, such as `Debian`.
        uri: where it is.
        suite: such as `trixie` or `trixie-security`.
        component: such as `main`.
        signed_by: the keyring that is named for it; empty when none is.
        file: the configuration file it stands in.
    """

    origin: str
    uri: str
    suite: str
    component: str
    signed_by: str
    file: str


def lacking(archives: Iterable[Archive], *, origin: str, components: Sequence[str], own_file: str) -> str:
    """Return what our own file in sources.list.d has to hold, in deb822 format (sources.list(5)).

    Each archive of the publisher gets the components it lacks, under the same address and keyring: apt refuses
    entries of one archive that disagree about the keyring.

    Args:
        archives: what apt is configured for.
        origin: the publisher.
        components: what shall be there.
        own_file: our file, whose own entries do not count.

    Returns:
        The text; empty when nothing is lacking.

    Raises:
        InputError: there is no archive of this publisher, or its key is written into the entry itself.
    """
    places: dict[tuple[str, str, str], set[str]] = {}
    for archive in archives:
        if archive.origin == origin and archive.file != own_file:
            places.setdefault((archive.uri, archive.suite, archive.signed_by), set()).add(archive.component)
    if not places:
        raise InputError(
            f"apt knows no archive of {origin}; run apt-get update, and look at /etc/apt/sources.list and "
            "/etc/apt/sources.list.d"
        )
    stanzas = []
    for (uri, suite, signed_by), present in places.items():
        wanted = [component for component in components if component not in present]
        if not wanted:
            continue
        if signed_by and not signed_by.startswith("/"):
            raise InputError(
                f"{uri} ({suite}) lacks {' '.join(wanted)} and its entry names no keyring file; add them to its "
                "Components in /etc/apt/sources.list.d yourself"
            )
        lines = ["Types: deb", f"URIs: {uri}", f"Suites: {suite}", f"Components: {' '.join(wanted)}"]
        lines += [f"Signed-By: {signed_by}"] if signed_by else []
        stanzas.append("".join(f"{line}\n" for line in lines))
    return "\n".join([_HEADER, *stanzas]) if stanzas else ""
