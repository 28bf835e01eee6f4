"""What a card offers and holds under MIG: plain data, as read from NVML or made up by a test.

Words are NVIDIA's (MIG user guide, "Concepts"): a *GPU instance* takes memory slices of the card at a fixed place, and
its *compute instances* are what programs run on. Almost always there is one, as wide as the GPU instance.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Profile:
    """A kind of GPU instance that a card can make (nvml.h, nvmlGpuInstanceProfileInfo_v2_t).

    Attributes:
        id: what NVML and `nvidia-smi mig -cgi` call it.
        name: such as `3g.40gb`.
        slices: compute slices.
        size: memory slices.
        starts: memory slices it may begin at, ascending.
        maximum: the most of this profile on one card.
    """

    id: int
    name: str
    slices: int
    size: int
    starts: tuple[int, ...]
    maximum: int

    @property
    def media(self) -> bool:
        """Whether it holds the media extensions (`+me`), which a card has once."""
        return "+me" in self.name


@dataclass(frozen=True)
class Compute:
    """A compute instance.

    Attributes:
        width: compute slices.
        start: compute slice of its GPU instance that it begins at.
        id: its number there; None while it is only planned. Not part of what a layout is.
    """

    width: int
    start: int
    id: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Instance:
    """A GPU instance.

    Attributes:
        profile: id of its profile.
        name: name of its profile.
        slices: compute slices of its profile.
        start: memory slice it begins at.
        size: memory slices it takes.
        computes: its compute instances in order of start.
        id: its number on the card; None while it is only planned. Not part of what a layout is.
    """

    profile: int
    name: str
    slices: int
    start: int
    size: int
    computes: tuple[Compute, ...]
    id: int | None = field(default=None, compare=False)

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of its compute instances, the widest first."""
        return tuple(sorted((compute.width for compute in self.computes), reverse=True))


@dataclass(frozen=True)
class Goal:
    """A layout of one card down to the last place: what it has, shall have, or had.

    Attributes:
        enabled: MIG mode.
        instances: its GPU instances in order of start.
    """

    enabled: bool
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True)
class MigCard:
    """One card as MIG sees it.

    Attributes:
        index: NVML index.
        uuid: `GPU-...`; empty when the card cannot be reached.
        name: model; empty likewise.
        device_id: PCI device id and, in its lower half, vendor id, such as 0x20B210DE.
        subsystem_id: PCI subsystem id likewise.
        minor: N of /dev/nvidiaN; None when unknown.
        capable: whether it can be split; None when the card cannot be reached.
        enabled: whether MIG is on.
        pending: whether MIG will be on after the next reset or reboot.
        profiles: what it can make; empty when neither the card nor the table of known cards says.
        measured: whether the profiles are the card's own words, not those of the table of known cards.
        instances: its GPU instances in order of start.
        reason: why it cannot be looked at; empty when it can.
    """

    index: int
    uuid: str = ""
    name: str = ""
    device_id: int = 0
    subsystem_id: int = 0
    minor: int | None = None
    capable: bool | None = None
    enabled: bool = False
    pending: bool = False
    profiles: tuple[Profile, ...] = ()
    measured: bool = False
    instances: tuple[Instance, ...] = ()
    reason: str = ""

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"card {self.index} ({self.name})" if self.name else f"card {self.index}"

    @property
    def goal(self) -> Goal:
        """The layout it has now."""
        return Goal(self.enabled, self.instances)
