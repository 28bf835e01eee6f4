"""Which archives apt is configured for (apt-get(8), indextargets)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..rules.apt_sources import Archive
from .programs import output_of

if TYPE_CHECKING:
    from .dpkg import Run

_PATIENCE = 60.0


def archives(run: Run = output_of) -> tuple[Archive, ...]:
    """Return each component of each archive once, in the order of the configuration.

    Archives whose lists were never downloaded are missing: who publishes them stands in the lists.

    Raises:
        OSError: apt-get is not there or failed.
    """
    found: dict[Archive, None] = {}
    for paragraph in run(["apt-get", "indextargets", "Created-By: Packages"], _PATIENCE, "").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        if "Component" in fields:
            archive = Archive(
                origin=fields.get("Origin", ""),
                uri=fields["Repo-URI"],
                suite=fields["Release"],
                component=fields["Component"],
                signed_by=fields.get("Signed-By", ""),
                file=fields["Sourcesentry"].rpartition(":")[0],
            )
            found[archive] = None
    return tuple(found)
