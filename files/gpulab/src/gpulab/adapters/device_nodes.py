"""Which device nodes a program needs for a card or a MIG instance.

`/dev/nvidiaN` carries the card's device minor, which is not its NVML index. A MIG instance needs the card's node and
the capability nodes of its GPU instance and compute instance (NVIDIA MIG user guide, "Device nodes and capabilities").
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GpulabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..rules.cards import Card, MigDevice

COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
"""What every CUDA program opens, whichever card it uses; they give no access to a card by themselves."""

_MINORS = Path("proc/driver/nvidia-caps/mig-minors")
_CAPABILITIES = "/proc/driver/nvidia/capabilities"
_PATIENCE = 20.0


def nodes_of(card: Card, instance: MigDevice | None = None, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the device nodes of a card or of one of its instances, those in COMMON left out.

    Args:
        card: the card.
        instance: one of its MIG instances; None for the whole card.
        root: the folder that stands for `/`.

    Raises:
        GpulabError: the driver does not say which they are.
    """
    if card.minor is None:
        raise GpulabError(f"card {card.index} has no device minor ({card.reason or 'NVML does not say'})")
    nodes = (f"/dev/nvidia{card.minor}",)
    if instance is None:
        return nodes
    minors = mig_minors(root)
    gpu = f"gpu{card.minor}/gi{instance.gpu_instance}"
    try:
        numbers = (minors[f"{gpu}/access"], minors[f"{gpu}/ci{instance.compute_instance}/access"])
    except KeyError as error:
        raise GpulabError(f"/{_MINORS} does not list {error.args[0]}; is the NVIDIA driver loaded?") from None
    return (*nodes, *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers))


def make_missing(
    card: Card,
    instance: MigDevice | None = None,
    root: Path = Path("/"),
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
) -> str:
    """Make the nodes that are not there yet, with NVIDIA's own program (nvidia-modprobe(1)).

    The kernel module does not make its nodes: programs have it done when they first need one, through that setuid
    program. Inside a lease that is refused, since making a node is more than opening it; so it is done before.

    Args:
        card: the card.
        instance: one of its MIG instances; None for the whole card.
        root: the folder that stands for `/`.
        run: runs a program; see subprocess.run.

    Returns:
        What could not be made and why, as a clause; empty when all is there.
    """
    for node, options in _recipes(card, instance, root):
        if os.path.lexists(root / node.lstrip("/")):
            continue
        try:
            done = run(["nvidia-modprobe", *options], capture_output=True, text=True, check=False, timeout=_PATIENCE)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = "did not answer in time" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
            return f"{node} is not there, and nvidia-modprobe cannot make it ({why})"
        if done.returncode:
            return f"{node} is not there, and nvidia-modprobe cannot make it ({done.stderr.strip() or done.returncode})"
    return ""


def _recipes(card: Card, instance: MigDevice | None, root: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each node and the options that make it."""
    yield "/dev/nvidia-uvm", ("-u", "-c", "0")
    first, *capabilities = nodes_of(card, instance, root)
    yield first, ("-c", str(card.minor))
    if instance is not None:
        place = f"{_CAPABILITIES}/gpu{card.minor}/mig/gi{instance.gpu_instance}"
        files = (f"{place}/access", f"{place}/ci{instance.compute_instance}/access")
        yield from ((node, ("-f", file)) for node, file in zip(capabilities, files, strict=True))


def mig_minors(root: Path = Path("/")) -> dict[str, int]:
    """Return the minor numbers of MIG's capability files, by name such as `gpu0/gi1/ci0/access`; empty without MIG."""
    try:
        lines = (root / _MINORS).read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    return {words[0]: int(words[1]) for words in map(str.split, lines) if len(words) == 2 and words[1].isdigit()}  # noqa: PLR2004 - name and number
