"""Can a card be split like this? If not: which rule it breaks, and the nearest layouts that work."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .mig_fit import Shape, place
from .mig_known import compute_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .mig_cards import Profile
    from .mig_layout import Target

_SUGGESTIONS = 3


@dataclass(frozen=True)
class Group:
    """One GPU instance that is wanted.

    Attributes:
        profile: what to make.
        widths: compute slices of its compute instances, the widest first.
    """

    profile: Profile
    widths: tuple[int, ...]


@dataclass(frozen=True)
class _Wish:
    """A wanted MIG device, its name taken apart."""

    name: str
    stem: str
    width: int | None


def shape_of(profile: Profile) -> Shape:
    """Return where instances of a profile may lie."""
    return Shape(profile.size, profile.starts)


def find_problem(profiles: Sequence[Profile], target: Target) -> str:
    """Say why a card with these profiles cannot have a layout.

    Args:
        profiles: what the card can make.
        target: what it shall have.

    Returns:
        One clause with the reasons and the nearest layouts that work; empty when it can.
    """
    wishes = [_wish(name) for name in target.names]
    reasons = _bad_names(profiles, wishes)
    if not reasons:
        try:
            groups = group(profiles, target)
        except ValueError as error:
            reasons = [str(error)]
        else:
            reasons = _bad_counts(profiles, [each.profile for each in groups])
    else:
        # The names that were meant may not fit either; then that is worth knowing at once.
        meant = [_meant(profiles, wish) for wish in wishes]
        found = [profile for profile in meant if profile is not None]
        if len(found) == len(meant):
            reasons += [f"{_listing(found)} would not fit: {reason}" for reason in _bad_counts(profiles, found)]
    if not reasons:
        return ""
    wanted = [profile for profile in (_meant(profiles, wish) for wish in wishes) if profile is not None]
    if wanted:
        reasons.append(f"nearest that fit: {' | '.join(nearest(profiles, wanted))}")
    return "; ".join(reasons)


def fits(profiles: Sequence[Profile], wanted: Sequence[Profile]) -> bool:
    """Whether instances of the wanted profiles can be together on a card that can make `profiles`."""
    return not _bad_counts(profiles, wanted)


def group(profiles: Sequence[Profile], target: Target) -> tuple[Group, ...]:
    """Collect the wanted MIG devices into GPU instances.

    Devices as wide as their profile get a GPU instance each. Narrower ones (`1c.3g.40gb`) share, the widest first.

    Args:
        profiles: what the card can make, every wanted name among it.
        target: what it shall have.

    Raises:
        ValueError: a narrower device has a width that its profile does not come in.
    """
    named = {profile.name: profile for profile in profiles}
    widths: dict[Profile, list[int]] = defaultdict(list)
    for wish in map(_wish, target.names):
        profile = named[wish.stem]
        width = wish.width or profile.slices
        if width not in compute_shapes(profile.slices):
            possible = ", ".join(f"{each}c" for each in sorted(compute_shapes(profile.slices)))
            raise ValueError(f"{wish.name}: {profile.name} has compute instances of {possible}")
        widths[profile].append(width)
    return tuple(Group(profile, each) for profile, wanted in widths.items() for each in _share(profile, wanted))


def _share(profile: Profile, wanted: Sequence[int]) -> Iterator[tuple[int, ...]]:
    shapes = compute_shapes(profile.slices)
    bins: list[list[int]] = []
    for width in sorted(wanted, reverse=True):
        for each in bins:
            if place([shapes[other] for other in (*each, width)]) is not None:
                each.append(width)
                break
        else:
            bins.append([width])
    yield from map(tuple, bins)


def nearest(profiles: Sequence[Profile], wanted: Sequence[Profile], most: int = _SUGGESTIONS) -> tuple[str, ...]:
    """Return the layouts a card can have that are most like the wanted one, in the short form.

    The distance is what each instance would gain or lose in slices of compute and memory, the widest compared with
    the widest; of equally near ones those with more of the wanted instances come first, then those with more in all.
    """
    sizes = _sizes(wanted)
    names = Counter(profile.name for profile in wanted)

    def rank(layout: tuple[Profile, ...]) -> tuple[int, int, int, str]:
        other = _sizes(layout)
        length = max(len(sizes), len(other))
        pairs = zip(sizes + [0] * (length - len(sizes)), other + [0] * (length - len(other)), strict=True)
        distance = sum(abs(one - two) for one, two in pairs)
        common = sum((names & Counter(profile.name for profile in layout)).values())
        return distance, -common, -sum(other), _listing(layout)

    return tuple(_listing(layout) for layout in sorted(layouts(profiles), key=rank)[:most])


def layouts(profiles: Sequence[Profile]) -> Iterator[tuple[Profile, ...]]:
    """Yield every non-empty set of instances that a card can have."""

    def extend(chosen: tuple[Profile, ...], first: int) -> Iterator[tuple[Profile, ...]]:
        for position in range(first, len(profiles)):
            layout = (*chosen, profiles[position])
            if fits(profiles, layout):  # what does not fit fits no better with more
                yield layout
                yield from extend(layout, position)

    yield from extend((), 0)


def _sizes(wanted: Sequence[Profile]) -> list[int]:
    return sorted((profile.slices + profile.size for profile in wanted), reverse=True)


def _listing(wanted: Sequence[Profile]) -> str:
    ordered = sorted(wanted, key=lambda profile: (-profile.size, -profile.slices, profile.name))
    return ",".join(profile.name for profile in ordered)


def _wish(name: str) -> _Wish:
    width, dot, stem = name.partition(".")
    if dot and width[:-1].isdecimal() and width[-1] in "cC":
        return _Wish(name, stem, int(width[:-1]))
    return _Wish(name, name, None)


def _meant(profiles: Sequence[Profile], wish: _Wish) -> Profile | None:
    """Return the profile that a name stands for, or most likely was meant for."""
    by_name = {profile.name: profile for profile in profiles}
    exact = by_name.get(wish.stem) or by_name.get(wish.stem.lower())
    return exact or _of_slices(profiles, wish)


def _of_slices(profiles: Sequence[Profile], wish: _Wish) -> Profile | None:
    slices = wish.stem.lower().partition("g.")[0]
    media = "+me" in wish.stem.lower()
    found = [each for each in profiles if str(each.slices) == slices and each.media == media]
    return min(found, key=lambda profile: profile.size, default=None)


def _bad_names(profiles: Sequence[Profile], wishes: Sequence[_Wish]) -> list[str]:
    known = {profile.name for profile in profiles}
    reasons = []
    wrong = list(dict.fromkeys(wish for wish in wishes if wish.stem not in known or wish.name != _lower_width(wish)))
    case = [wish.name for wish in wrong if wish.stem.lower() in known]
    if case:
        reasons.append(f"{', '.join(case)}: profile names are lower case")
    for wish in wrong:
        if wish.stem.lower() in known:
            continue
        near = _of_slices(profiles, wish)
        hint = f", its {near.slices}g profile is {near.name}" if near else f", only {', '.join(sorted(known))}"
        reasons.append(f"{wish.name}: the card has no {wish.stem.lower()}{hint}")
    return reasons


def _lower_width(wish: _Wish) -> str:
    return f"{wish.width}c.{wish.stem}" if wish.width is not None else wish.stem


def _bad_counts(profiles: Sequence[Profile], wanted: Sequence[Profile]) -> list[str]:
    """Return the rules that these instances break together: most per profile, one `+me`, room."""
    reasons = [
        f"{number} times {profile.name}, at most {profile.maximum} on one card"
        for profile, number in Counter(wanted).items()
        if number > profile.maximum
    ]
    media = [profile.name for profile in wanted if profile.media]
    if len(media) > 1 and not reasons:
        reasons.append(f"{' and '.join(media)}: only one instance of a card can have the media extensions (+me)")
    if not reasons and place([shape_of(profile) for profile in wanted]) is None:
        reasons.append(_no_room(profiles, wanted))
    return reasons


def _no_room(profiles: Sequence[Profile], wanted: Sequence[Profile]) -> str:
    need = sum(profile.size for profile in wanted)
    room = max(start + profile.size for profile in profiles for start in profile.starts)
    if need > room:
        return f"it takes {need} memory slices of {room}"
    places = (f"{each.name} at {', '.join(map(str, each.starts))}" for each in dict.fromkeys(wanted))
    return f"their places overlap ({'; '.join(places)})"
