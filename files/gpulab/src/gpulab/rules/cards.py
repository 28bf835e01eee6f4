"""What the lab knows about its cards: plain data, as read from NVML or as made up by a test.

A value that could not be read is None, and the `reason` beside it says why: unknown is never "idle" or "free".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Process:
    """A process that holds memory on a card.

    Attributes:
        pid: process id, as the host sees it.
        start_ticks: start time in clock ticks since boot (proc(5), field 22 of /proc/PID/stat); with the pid it names
            the process for good. None when the process is gone already.
        uid: real user id of the process; None when it is gone.
        user: account name of uid, or the number as text when there is no such account; None when it is gone.
        command: the program's name (comm), cleaned of control characters; empty when the process is gone.
        memory: GPU memory it uses, bytes; None when the driver does not say.
        kind: `C` compute, `G` graphics, `C+G` both; `M+C` and `M+C+G` for a client of the Multi-Process Service.
        gpu_instance: MIG GPU instance id; None without MIG.
        compute_instance: MIG compute instance id; None without MIG.
    """

    pid: int
    start_ticks: int | None
    uid: int | None
    user: str | None
    command: str
    memory: int | None
    kind: str = "C"
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True)
class NvLink:
    """One NVLink of a card.

    Attributes:
        link: link number on this card.
        active: whether the link is up.
        remote_bus_id: PCI bus id at the other end; empty when unknown.
    """

    link: int
    active: bool
    remote_bus_id: str


@dataclass(frozen=True)
class MigDevice:
    """One MIG compute instance that programs can be given.

    Attributes:
        index: MIG device index on its card.
        uuid: `MIG-...`, the name for CUDA_VISIBLE_DEVICES.
        profile: such as `3g.40gb`; empty when unknown.
        gpu_instance: GPU instance id.
        compute_instance: compute instance id.
        memory_total: bytes, None when unknown.
        memory_used: bytes, None when unknown.
        memory_free: bytes that programs can still get, None when unknown.
    """

    index: int
    uuid: str
    profile: str
    gpu_instance: int
    compute_instance: int
    memory_total: int | None
    memory_used: int | None
    memory_free: int | None = None


@dataclass(frozen=True)
class Card:
    """One physical card.

    Attributes:
        index: NVML index, what `nvidia-smi` prints; not always the device minor.
        uuid: `GPU-...`; empty when the card is lost.
        name: model, such as `NVIDIA A100-SXM4-80GB`; empty when the card is lost.
        minor: N of /dev/nvidiaN; None when unknown.
        bus_id: PCI bus id, empty when unknown.
        memory_total: bytes; None when unknown.
        memory_used: bytes, without what the driver reserves for itself (NVML memory v2; drivers before R510 count
            that in); None when unknown.
        memory_free: bytes that programs can still get: the total less what is used and what the driver reserves; None
            when unknown.
        utilization: percent of time a kernel ran, 0-100; None when unknown (MIG, error).
        nvlinks: links the card has.
        mig_capable: whether the card can do MIG; None when unknown.
        mig_enabled: current MIG mode; None when the card cannot or it is unknown.
        mig_pending: MIG mode after the next reset; None likewise.
        mig_devices: instances in NVML order.
        processes: who holds memory, in order of pid; None when the card would not say, or not all of it.
        lost: the driver lists the card but cannot reach it any more ("fallen off the bus"); all above is unknown.
        reason: why something above is unknown, clauses joined by `; `; empty when all was read.
    """

    index: int
    uuid: str = ""
    name: str = ""
    minor: int | None = None
    bus_id: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    memory_free: int | None = None
    utilization: int | None = None
    nvlinks: tuple[NvLink, ...] = ()
    mig_capable: bool | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    processes: tuple[Process, ...] | None = None
    lost: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Cards:
    """Everything one look at the machine found.

    Attributes:
        cards: in order of index, lost cards included.
        driver_version: such as `550.163.01`; empty when there is no driver.
        nvml_version: such as `12.550.163.01`; empty likewise.
        cuda_version: the newest CUDA the driver serves, such as `12.4`; empty likewise.
        reason: why there is no card at all, one sentence; empty when there are cards.
    """

    cards: tuple[Card, ...] = ()
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: str = ""
    reason: str = ""


def to_dict(cards: Cards) -> dict[str, Any]:
    """Return everything as plain lists and dictionaries, ready for JSON: one key has one type, unknown is None."""
    document: dict[str, Any] = _plain(asdict(cards))
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
