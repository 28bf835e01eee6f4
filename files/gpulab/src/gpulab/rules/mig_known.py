"""Profiles of cards that NVIDIA documents, for judging a layout while MIG is off and the card does not say.

Some drivers list a card's profiles only while MIG is on, and switching it on to ask would reset the card. So a layout
is first judged by this table; once MIG is on the card's own answer counts. A card that is not here, or whose places are
not published (Blackwell), is judged by its own answer only.

Sources: NVIDIA MIG user guide, "Supported MIG Profiles"; places as printed by `nvidia-smi mig -lgipp`; device ids of
the PCI ID database.
"""

from __future__ import annotations

from .mig_cards import Profile
from .mig_fit import Shape

NVIDIA_VENDOR = 0x10DE

_EVERY = tuple(range(7))
_SEVEN_SLICES = (
    # id, compute slices, memory slices, starts, most of it
    (19, 1, 1, _EVERY, 7),
    (20, 1, 1, _EVERY, 1),
    (15, 1, 2, (0, 2, 4, 6), 4),
    (14, 2, 2, (0, 2, 4), 3),
    (9, 3, 4, (0, 4), 2),
    (5, 4, 4, (0,), 1),
    (0, 7, 8, (0,), 1),
)
_FOUR_SLICES = (
    (14, 1, 1, (0, 1, 2, 3), 4),
    (21, 1, 1, (0, 1, 2, 3), 1),
    (5, 2, 2, (0, 2), 2),
    (6, 2, 2, (0, 2), 1),
    (0, 4, 4, (0,), 1),
)
_FAMILIES: tuple[tuple[tuple[int, ...], tuple[tuple[int, int, int, tuple[int, ...], int], ...], str], ...] = (
    # device ids; shape; names in the order of the shape
    (
        (0x20B0, 0x20B1, 0x20F1, 0x20F6),  # A100 40GB, A800 40GB
        _SEVEN_SLICES,
        "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
    ),
    (
        # A100 80GB, A800 80GB; H100 80GB, H800 80GB
        (0x20B2, 0x20B5, 0x20F3, 0x20F5, 0x2322, 0x2324, 0x2330, 0x2331),
        _SEVEN_SLICES,
        "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    ),
    (
        (0x2321, 0x233A),  # H100 NVL, H800 NVL
        _SEVEN_SLICES,
        "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
    ),
    (
        (0x2329, 0x233D, 0x2342),  # H20, H100 96GB, GH200 96GB
        _SEVEN_SLICES,
        "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
    ),
    (
        (0x2335, 0x233B),  # H200 SXM, H200 NVL
        _SEVEN_SLICES,
        "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
    ),
    ((0x20B7,), _FOUR_SLICES, "1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb"),  # A30
)

_COMPUTE_STARTS: dict[int, dict[int, tuple[int, ...]]] = {
    # compute slices of the GPU instance: width of the compute instance: starts (`nvidia-smi mig -lcipp`)
    2: {1: (0, 1)},
    3: {1: (0, 1, 2), 2: (0,)},
    4: {1: (0, 1, 2, 3), 2: (0, 2)},
    7: {1: _EVERY, 2: (0, 2, 4), 3: (0, 4), 4: (0,)},
}


def known_profiles(device_id: int) -> tuple[Profile, ...]:
    """Return the documented profiles of a card by its PCI device and vendor id; empty when there are none."""
    device, vendor = device_id >> 16, device_id & 0xFFFF
    for devices, shape, names in _FAMILIES:
        if vendor == NVIDIA_VENDOR and device in devices:
            return tuple(
                Profile(number, name, slices, size, starts, maximum)
                for (number, slices, size, starts, maximum), name in zip(shape, names.split(), strict=True)
            )
    return ()


def compute_shapes(slices: int) -> dict[int, Shape]:
    """Return where compute instances of each width may lie in a GPU instance.

    Args:
        slices: compute slices of the GPU instance.
    """
    narrower = {width: Shape(width, starts) for width, starts in _COMPUTE_STARTS.get(slices, {}).items()}
    return {**narrower, slices: Shape(slices, (0,))}
