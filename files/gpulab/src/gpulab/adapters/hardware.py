"""The machine around the cards: processor (lscpu), memory (/proc/meminfo), file systems (statfs)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..rules.machine import ABSENT, Disk, Machine
from .programs import ProgramError, output_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_PATIENCE = 5.0
"""Seconds a helper program may take."""

_STAT = ("stat", "--file-system", "--format=%S %b %a", "--")
"""coreutils: block size, blocks, blocks free for ordinary users."""


def read_machine(
    places: Iterable[str], *, proc_root: Path = Path("/proc"), stat: Sequence[str] = _STAT, patience: float = _PATIENCE
) -> Machine:
    """Look at the machine once.

    Args:
        places: folders whose file systems are of interest.
        proc_root: where proc is mounted.
        stat: the program that prints a file system's numbers when given a path.
        patience: seconds that each helper program may take.
    """
    lscpu = _lscpu(patience)
    sockets, per_socket = _number(lscpu, "Socket(s)"), _number(lscpu, "Core(s) per socket")
    return Machine(
        hostname=os.uname().nodename,
        cpu=lscpu.get("Model name", ""),
        sockets=sockets,
        cores=sockets * per_socket if sockets and per_socket else None,
        threads=_number(lscpu, "CPU(s)"),
        memory=_memory(proc_root),
        disks=tuple(read_disk(place, stat=stat, patience=patience) for place in places),
    )


def read_disk(path: str, *, stat: Sequence[str] = _STAT, patience: float = _PATIENCE) -> Disk:
    """Ask how full a file system is, without ever being held up by it.

    statfs(2) on a network file system whose server is away blocks and cannot be interrupted: it is left to a child,
    which is given up when it does not answer in time.

    Args:
        path: any folder on the file system.
        stat: see `read_machine`.
        patience: seconds.
    """
    try:
        output = output_of([*stat, path], patience)
        size, blocks, free = map(int, output.split())
    except TimeoutError:
        return Disk(path, reason=f"the file system did not answer within {patience:g} s")
    except ProgramError as error:
        absent = error.reason == os.strerror(errno.ENOENT)
        return Disk(path, reason=ABSENT if absent else error.reason)
    except OSError as error:
        return Disk(path, reason=str(error))
    except ValueError:
        return Disk(path, reason=f"{stat[0]} printed something unexpected")
    return Disk(path, total=size * blocks, free=size * free)


def _lscpu(patience: float) -> dict[str, str]:
    """Return lscpu's fields without their colons; nothing when it cannot be had."""
    try:
        document = json.loads(output_of(["lscpu", "--json"], patience))
        return dict(_fields(document["lscpu"]))
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _fields(entries: Any) -> Iterator[tuple[str, str]]:
    # util-linux 2.37 and later nest: the model under the vendor, the cores under the model.
    for entry in entries:
        yield entry["field"].rstrip(":"), entry["data"] or ""
        yield from _fields(entry.get("children", ()))


def _number(fields: dict[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    return int(text) if text.isdecimal() else None


def _memory(proc_root: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (proc_root / "meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024  # in kB, which there means 1024 (proc(5))
    return None
