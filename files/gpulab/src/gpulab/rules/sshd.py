"""Whether sshd would read the lab's key files, and whether anybody would lose the ones that open their account now.

sshd keeps the first value it meets for each keyword (sshd_config(5)). The lab's drop-in stands in a Match block for the
members' group, so other accounts never notice it; but for a member it replaces what a later line says, and a line
before it would replace the drop-in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

DROP_IN = "/etc/ssh/sshd_config.d/50-gpulab.conf"
MAIN = "/etc/ssh/sshd_config"
OWN_KEY_FILES = (".ssh/authorized_keys", ".ssh/authorized_keys2")
"""Where sshd looks by default (sshd_config(5), AuthorizedKeysFile)."""

_WORDS = re.compile(r'"([^"]*)"|([^\s="]+)')


class _Line(NamedTuple):
    file: str
    number: int
    keyword: str
    values: list[str]


def check(files: Mapping[str, str], *, extra: Collection[str]) -> None:
    """Check sshd's settings against what the lab adds to them.

    Args:
        files: text of the main file and of the files beside the drop-in, by path; empty when sshd is not installed yet.
        extra: further key files that the lab's drop-in keeps for members (role variable members_extra_key_files).

    Raises:
        InputError: the drop-in would not be read, would come too late, or would hide somebody's keys.
    """
    main = files.get(MAIN)
    if main is None:
        return
    included = False
    for line in _global_lines(MAIN, main):
        if line.keyword == "include" and any(
            value.startswith(f"{DROP_IN.rpartition('/')[0]}/*") for value in line.values
        ):
            included = True
        elif line.keyword == "authorizedkeysfile":
            _judge(line, extra, before=not included)
    if not included:
        raise InputError(
            f"{MAIN} does not read the folder where the members' settings go; put as its first line: "
            f"Include {DROP_IN.rpartition('/')[0]}/*.conf"
        )
    for path in sorted(set(files) - {MAIN, DROP_IN}):
        for line in _global_lines(path, files[path]):
            if line.keyword == "authorizedkeysfile":
                _judge(line, extra, before=path < DROP_IN)


def _judge(line: _Line, extra: Collection[str], *, before: bool) -> None:
    lost = [value for value in line.values if value.removeprefix("%h/") not in {*OWN_KEY_FILES, *extra, "none"}]
    if lost:
        raise InputError(
            f"{line.file} line {line.number} lets sshd read keys from {lost[0]}, which members would lose; add that "
            "path to members_extra_key_files"
        )
    if before:
        raise InputError(
            f"{line.file} line {line.number} sets AuthorizedKeysFile before {DROP_IN} does, so the members' keys would "
            "not be read; remove the line (members_extra_key_files can name its paths)"
        )


def _global_lines(path: str, text: str) -> Iterator[_Line]:
    """Yield the settings that hold for everybody: those before the first Match line."""
    for number, raw in enumerate(text.splitlines(), start=1):
        words = [quoted or bare for quoted, bare in _WORDS.findall(raw.strip())]
        if not words or words[0].startswith("#"):
            continue
        if words[0].lower() == "match":
            return
        yield _Line(path, number, words[0].lower(), words[1:])
