"""The package database: what is installed, and which packages are on hold (dpkg-query(1), dpkg(1))."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..errors import GpulabError
from ..rules.driver_packages import Package
from .programs import output_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Run = Callable[[Sequence[str], float, str], str]
    """Called like `output_of`."""

_PATIENCE = 60.0
_FORMAT = "${db:Status-Want}\t${db:Status-Status}\t${Package}\t${binary:Package}\t${Version}\t${source:Package}\\n"
_LOCKED = "is locked"
_TRIES = 30
_PAUSE = 2.0


def installed(run: Run = output_of) -> tuple[Package, ...]:
    """Return every installed package.

    Raises:
        OSError: dpkg-query is not there or failed.
    """
    found = []
    for line in run(["dpkg-query", "--show", f"--showformat={_FORMAT}"], _PATIENCE, "").splitlines():
        want, status, name, qualified, version, source = line.split("\t")
        if status == "installed":
            found.append(Package(name, qualified, version, source, held=want == "hold"))
    return tuple(found)


def select(
    names: Iterable[str], selection: str, run: Run = output_of, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Set what shall become of packages; waits a minute for another program that uses the database.

    Args:
        names: packages, as dpkg tells them apart.
        selection: `hold`, or `install` for no hold.
        run: see `output_of`.
        sleep: waits for some seconds.

    Raises:
        GpulabError: dpkg did not do it.
    """
    lines = "".join(f"{name} {selection}\n" for name in names)
    for left in reversed(range(_TRIES)):
        try:
            run(["dpkg", "--set-selections"], _PATIENCE, lines)
        except OSError as error:
            if left and _LOCKED in str(error):
                sleep(_PAUSE)
                continue
            raise GpulabError(f"dpkg could not put packages on hold: {error}; try again when apt is idle") from error
        return
