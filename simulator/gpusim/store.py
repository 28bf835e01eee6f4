"""Where the state lives and how it is changed: under a lock, replaced in one step.

The folder is /run/gpusim, or what GPUSIM_STATE names. Whoever owns the folder is root of the simulated machine.
Readers take no lock, they see the old file or the new one. The lock file may be opened by everybody for reading, which
is enough for flock(2).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import GpusimError
from .records import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_FOLDER = "/run/gpusim"
PROCESSES = "procs.d"


def folder() -> Path:
    """Return the folder of the state."""
    return Path(os.environ.get("GPUSIM_STATE") or DEFAULT_FOLDER)


def read() -> Machine:
    """Read the machine as it stands.

    Raises:
        GpusimError: no machine was made yet.
    """
    try:
        return Machine.parse((folder() / "state").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GpusimError(
            f"there is no simulated machine in {folder()}; make one: gpusim init --cards a100-sxm4-80gb:4"
        ) from None


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Hold the lock of the state, shared with the library's own writes (nvml/store.c).

    Raises:
        GpusimError: no machine was made yet.
    """
    try:
        descriptor = os.open(folder() / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise GpusimError(
            f"there is no simulated machine in {folder()}; make one: gpusim init --cards a100-sxm4-80gb:4"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def changing() -> Iterator[Machine]:
    """Read the machine under the lock, let the caller change it, and write it back unless that failed.

    Raises:
        GpusimError: no machine yet, or the caller may not write.
    """
    with locked():
        machine = read()
        yield machine
        write(machine)


def create(machine: Machine) -> None:
    """Make the folder, the lock and the folder of processes, and put a machine there; a former one is forgotten."""
    place = folder()
    try:
        place.mkdir(mode=0o755, parents=True, exist_ok=True)
        (place / "lock").touch(mode=0o644, exist_ok=True)
        processes = place / PROCESSES
        processes.mkdir(exist_ok=True)
        processes.chmod(0o1777)
    except PermissionError as error:
        raise GpusimError(f"{place} cannot be written by this user; run it as root or set GPUSIM_STATE") from error
    with locked():
        write(machine)


def write(machine: Machine) -> None:
    """Replace the state file in one step. The lock must be held.

    Raises:
        GpusimError: the folder belongs to somebody else.
    """
    replace(folder() / "state", machine.render())


def replace(path: Path, text: str) -> None:
    """Write a world-readable file in one step.

    Raises:
        GpusimError: the folder cannot be written by this user.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except PermissionError as error:
        raise GpusimError(f"{path.parent} cannot be written by this user; only root changes the machine") from error
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            os.fchmod(descriptor, 0o644)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
