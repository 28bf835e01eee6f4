"""Laying things of fixed sizes on a row of slices: GPU instances on a card, compute instances in a GPU instance.

A row has eight slices at most and holds seven things at most, so every arrangement is tried where it matters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Shape:
    """How much room a thing takes and where it may begin.

    Attributes:
        size: slices.
        starts: slices it may begin at, ascending.
    """

    size: int
    starts: tuple[int, ...]

    def mask(self, start: int) -> int:
        """Return the slices it takes at a start, one bit each."""
        return ((1 << self.size) - 1) << start


@dataclass(frozen=True)
class Arrangement(Generic[_Key]):
    """Where everything lies.

    Attributes:
        kept: positions, in the list of what was there, of the things that stay.
        added: kind and start of each thing that is new, in order of start.
    """

    kept: tuple[int, ...]
    added: tuple[tuple[_Key, int], ...]


def place(shapes: Sequence[Shape], taken: int = 0) -> tuple[int, ...] | None:
    """Find a start for each shape so that nothing overlaps.

    Later starts are preferred: the widest profiles but one begin at 0 only, and so find their place free longest.

    Args:
        shapes: what to place.
        taken: slices that are not free, one bit each.

    Returns:
        The starts in the order of `shapes`; None when there is no arrangement at all.
    """
    # The pickiest first: it fails soonest. Equal shapes stand side by side, and only one order of them is tried.
    order = sorted(range(len(shapes)), key=lambda i: (len(shapes[i].starts), -shapes[i].size, shapes[i].starts))
    found = [0] * len(shapes)

    def search(depth: int, taken: int) -> bool:
        if depth == len(order):
            return True
        shape = shapes[order[depth]]
        again = depth > 0 and shapes[order[depth - 1]] == shape
        for start in reversed(shape.starts):
            if again and start > found[order[depth - 1]]:
                continue
            mask = shape.mask(start)
            if not taken & mask:
                found[order[depth]] = start
                if search(depth + 1, taken | mask):
                    return True
        return False

    return tuple(found) if search(0, taken) else None


def arrange(
    wanted: Iterable[_Key],
    shapes: Mapping[_Key, Shape],
    present: Sequence[tuple[_Key, int]],
    favourites: frozenset[int] = frozenset(),
) -> Arrangement[_Key] | None:
    """Find room for everything wanted while as much as possible of what is there stays where it is.

    Args:
        wanted: kinds of things, each as often as it is wanted.
        shapes: shape of each kind.
        present: kind and start of the things that are there.
        favourites: positions in `present` to keep rather than others of the same kind.

    Returns:
        None when there is no arrangement, even of an empty row.
    """
    counts = Counter(wanted)
    useful = [position for position, (kind, _) in enumerate(present) if counts[kind]]
    most = sum(min(counts[kind], number) for kind, number in Counter(present[i][0] for i in useful).items())
    for number in range(most, -1, -1):
        choices = combinations(useful, number)
        for kept in sorted(choices, key=lambda choice: -len(favourites.intersection(choice))):
            rest = counts - Counter(present[i][0] for i in kept)
            if sum(rest.values()) != sum(counts.values()) - number:
                continue  # more of one kind than is wanted
            taken = 0
            for kind, start in (present[i] for i in kept):
                taken |= shapes[kind].mask(start)
            kinds = list(rest.elements())
            starts = place([shapes[kind] for kind in kinds], taken)
            if starts is not None:
                added = sorted(zip(kinds, starts, strict=True), key=lambda item: item[1])
                return Arrangement(kept, tuple(added))
    return None
