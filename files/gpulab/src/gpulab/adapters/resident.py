"""What commands share that run for ever as a service: systemd hears that they live, and they end when they are old."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names

if TYPE_CHECKING:
    from collections.abc import Callable

_RELEASE = "/opt/gpulab/current"


def up_to_date(root: Path, *sections: str) -> Callable[[], bool]:
    """Return a function that tells whether release and settings are still those of now.

    Args:
        root: the folder that stands for `/`, for the settings.
        sections: those that matter, besides the main file.
    """
    folder = Path(names.under(root, names.SETTINGS_DIR))
    files = (
        Path(names.under(root, names.SETTINGS_FILE)),
        *(folder / f"{section}.toml" for section in sections),
    )

    def what_counts() -> tuple[object, ...]:
        return (os.path.realpath(_RELEASE), *(_changed(path) for path in files))

    began = what_counts()
    return lambda: what_counts() == began


def _changed(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def notify(state: str) -> None:
    """Tell systemd (sd_notify(3)); nothing when it did not start us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    import socket  # noqa: PLC0415 - only where systemd asks for it

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        connection.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        connection.sendall(state.encode())
