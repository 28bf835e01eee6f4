"""Which device nodes a program needs for a card or a MIG instance.

`/dev/nvidiaN` carries the card's device minor, which is not its NVML index. A MIG instance needs the card's node and
the capability nodes of its GPU instance and compute instance (NVIDIA MIG user guide, "Device nodes and capabilities").
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GpulabError

if TYPE_CHECKING:
    from ..rules.cards import Card, MigDevice

COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
"""What every CUDA program opens, whichever card it uses; they give no access to a card by themselves."""

_MINORS = Path("proc/driver/nvidia-caps/mig-minors")


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
    minors = _mig_minors(root)
    gpu = f"gpu{card.minor}/gi{instance.gpu_instance}"
    try:
        numbers = (minors[f"{gpu}/access"], minors[f"{gpu}/ci{instance.compute_instance}/access"])
    except KeyError as error:
        raise GpulabError(f"/{_MINORS} does not list {error.args[0]}; is the NVIDIA driver loaded?") from None
    return (*nodes, *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers))


def _mig_minors(root: Path) -> dict[str, int]:
    """Read `gpu0/gi1/ci0/access 13` and the like."""
    try:
        lines = (root / _MINORS).read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    return {words[0]: int(words[1]) for words in map(str.split, lines) if len(words) == 2 and words[1].isdigit()}  # noqa: PLR2004 - name and number
