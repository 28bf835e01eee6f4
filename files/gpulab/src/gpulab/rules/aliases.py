"""Mail aliases (aliases(5)): one marked block of ours in a file that belongs to the admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGIN = "# BEGIN gpulab: written from lab_members, edits in this block are lost"
END = "# END gpulab"


class Merged(NamedTuple):
    """An alias file with our block in it.

    Attributes:
        text: the whole file.
        block: the lines of the block, markers not included.
        left_out: aliases that the admin's own lines already define otherwise, with that line's number.
    """

    text: str
    block: tuple[str, ...]
    left_out: Mapping[str, int]


def merge(text: str | None, wanted: Mapping[str, str]) -> Merged:
    """Put the wanted aliases into the block; every other line stays as it is.

    Args:
        text: the file as it is; None when there is none.
        wanted: alias name to where its mail goes.

    Raises:
        InputError: the block begins and does not end, or there are two.
    """
    lines = (text or "").splitlines(keepends=True)
    begin, end = _find_block(lines)
    before, after = lines[:begin], lines[end:]
    own: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines, start=1):
        name, colon, target = line.partition(":")
        # A line that begins with a blank goes on with the one before.
        if begin < number <= end or not colon or line[:1] in {"#", " ", "\t"}:
            continue
        own.setdefault(name.strip().strip('"').lower(), (number, target.strip()))
    block = tuple(f"{name}: {target}" for name, target in wanted.items() if name not in own)
    left_out = {name: own[name][0] for name, target in wanted.items() if name in own and own[name][1] != target}
    if before and not before[-1].endswith("\n"):
        before[-1] += "\n"
    ours = [f"{line}\n" for line in (BEGIN, *block, END)] if block else []
    return Merged("".join([*before, *ours, *after]), block, left_out)


def block_of(text: str | None) -> tuple[str, ...]:
    """Return the lines of our block, markers not included; empty when there is none."""
    lines = (text or "").splitlines(keepends=True)
    begin, end = _find_block(lines)
    return tuple(line.rstrip("\r\n") for line in lines[begin + 1 : end - 1])


def _find_block(lines: list[str]) -> tuple[int, int]:
    """Return the first line of the block and the one after its last; both the file's end when there is none."""
    begins = [number for number, line in enumerate(lines) if line.startswith("# BEGIN gpulab")]
    ends = [number for number, line in enumerate(lines) if line.startswith(END)]
    if not begins and not ends:
        return len(lines), len(lines)
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        raise InputError(
            f"the alias file must hold `{BEGIN[:14]}` and `{END}` once each and in this order; remove those lines and "
            "what stands between them"
        )
    return begins[0], ends[0] + 1
