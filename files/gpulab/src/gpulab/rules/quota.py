"""What each member may store where: the inventory's limits, understood; what the kernel has; what must change.

A limit of 0 is no limit. Below the soft limit all is well; above it writes go on for the grace time; at the hard limit
they fail at once (quotactl(2)).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KIB = 1024
_UNITS = {unit: KIB**power for power, unit in enumerate(("K", "M", "G", "T", "P"), start=1)}
_NAMES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGTP])(?:i?B)?", re.IGNORECASE)
_LARGEST = 1 << 60
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(\d+) ?([mhdw])")
_LONGEST_GRACE = 365 * 86400
VARIABLES = (
    "disk_quota_check_cron",
    "disk_quota_enabled",
    "disk_quota_folders",
    "disk_quota_overrides",
    "disk_quota_projects",
)
"""The variables of role disk_quota that preflight judges."""

LIMIT_KEYS = ("soft", "hard", "files_soft", "files_hard")


@dataclass(frozen=True)
class Limits:
    """What one owner may have on one file system; 0 is no limit.

    Attributes:
        soft: bytes, a multiple of 1024.
        hard: bytes, likewise.
        files_soft: files and folders.
        files_hard: likewise.
    """

    soft: int = 0
    hard: int = 0
    files_soft: int = 0
    files_hard: int = 0


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Usage:
    """What the kernel knows of one owner on one file system.

    Attributes:
        limits: in force.
        used: bytes.
        files: files and folders.
    """

    limits: Limits = NO_LIMITS
    used: int = 0
    files: int = 0


@dataclass(frozen=True)
class Grace:
    """How long the soft limits may be exceeded, seconds."""

    space: int = 7 * 86400
    files: int = 7 * 86400


@dataclass(frozen=True)
class Folder:
    """The limits that hold for every member below a folder, which means: on its whole file system.

    Attributes:
        path: absolute.
        limits: of each member without others of their own.
        grace: of the file system.
    """

    path: str
    limits: Limits
    grace: Grace = Grace()


@dataclass(frozen=True)
class Project:
    """A shared folder with a limit of its own, whoever owns the files in it."""

    path: str
    limits: Limits


@dataclass(frozen=True)
class Policy:
    """What the inventory asks for.

    Attributes:
        folders: no path twice.
        own: limits of single members, by member and path.
        projects: no path twice.
    """

    folders: tuple[Folder, ...] = ()
    own: Mapping[tuple[str, str], Limits] | None = None
    projects: tuple[Project, ...] = ()

    def limits(self, member: str, path: str) -> Limits:
        """Return what a member may have at a folder."""
        (folder,) = (folder for folder in self.folders if folder.path == path)
        return (self.own or {}).get((member, path), folder.limits)


def parse_policy(raw: Mapping[str, Any], members: Iterable[str]) -> Policy:
    """Read the limits as the inventory or the note on the server has them.

    Args:
        raw: `folders`, `overrides` and `projects`, lists of dictionaries; a key whose value is None was not given.
        members: accounts that limits may be given to.

    Raises:
        InputError: naming entry, key, value and remedy.
    """
    folders: dict[str, Folder] = {}
    for entry in _entries(raw, "folders", ("path", *LIMIT_KEYS, "grace"), "path"):
        path = _path(entry, "disk_quota_folders")
        where = f"disk_quota_folders: {path}"
        if path in folders:
            raise InputError(f"{where} stands there twice; keep one")
        grace = parse_grace(entry.get("grace", "7d"), f"{where}: grace")
        folders[path] = Folder(path, _limits(entry, NO_LIMITS, where), Grace(grace, grace))
    known = set(members)
    own: dict[tuple[str, str], Limits] = {}
    for entry in _entries(raw, "overrides", ("member", "path", *LIMIT_KEYS), "member"):
        member, path = str(entry["member"]), _path(entry, "disk_quota_overrides")
        where = f"disk_quota_overrides: {member}, {path}"
        if member not in known:
            raise InputError(f"{where}: there is no present member {member}; correct the name or take the entry out")
        if path not in folders:
            raise InputError(f"{where}: the path is none of disk_quota_folders ({', '.join(folders) or 'it is empty'})")
        if (member, path) in own:
            raise InputError(f"{where} stands there twice; keep one")
        own[member, path] = _limits(entry, folders[path].limits, where)
    projects: dict[str, Project] = {}
    for entry in _entries(raw, "projects", ("path", *LIMIT_KEYS), "path"):
        path = _path(entry, "disk_quota_projects")
        if path in projects:
            raise InputError(f"disk_quota_projects: {path} stands there twice; keep one")
        projects[path] = Project(path, _limits(entry, NO_LIMITS, f"disk_quota_projects: {path}"))
    return Policy(tuple(folders.values()), own, tuple(projects.values()))


def to_raw(policy: Policy) -> dict[str, list[dict[str, Any]]]:
    """Write a policy as parse_policy reads it: sizes in KiB, grace times in minutes."""

    def limits(each: Limits) -> dict[str, str]:
        sizes = {key: f"{getattr(each, key) // KIB}K" for key in ("soft", "hard")}
        return {**sizes, **{key: str(getattr(each, key)) for key in ("files_soft", "files_hard")}}

    return {
        "folders": [
            {"path": each.path, **limits(each.limits), "grace": f"{each.grace.space // 60}m"} for each in policy.folders
        ],
        "overrides": [
            {"member": member, "path": path, **limits(each)} for (member, path), each in (policy.own or {}).items()
        ],
        "projects": [{"path": each.path, **limits(each.limits)} for each in policy.projects],
    }


def _entries(raw: Mapping[str, Any], name: str, keys: tuple[str, ...], needed: str) -> Iterable[dict[str, Any]]:
    for number, entry in enumerate(raw.get(name) or (), start=1):
        where = f"disk_quota_{name}: entry {number}"
        if not isinstance(entry, dict):
            raise InputError(f"{where} is {entry!r}; give keys and values, such as {{path: /home, hard: 220G}}")
        given = {key: value for key, value in entry.items() if value is not None}
        for key in given:
            if key not in keys:
                raise InputError(f"{where}: key {key!r} is unknown; expected {', '.join(keys)}")
        if needed not in given:
            raise InputError(f"{where} has no {needed}; give one")
        yield given


def _path(entry: Mapping[str, Any], name: str) -> str:
    path = str(entry.get("path", ""))
    if not path.startswith("/") or "//" in path or set(path.split("/")) & {".", ".."} or not path.isprintable():
        raise InputError(f"{name}: path is {path!r}; give an absolute path, such as /home")
    return path.rstrip("/") or "/"


def _limits(entry: Mapping[str, Any], base: Limits, where: str) -> Limits:
    given: dict[str, int] = {}
    for key in LIMIT_KEYS:
        if key in entry:
            parse = parse_count if key.startswith("files") else parse_size
            given[key] = parse(entry[key], f"{where}: {key}")
    limits = replace(base, **given)
    for soft, hard in (("soft", "hard"), ("files_soft", "files_hard")):
        low, high = getattr(limits, soft), getattr(limits, hard)
        if high and low > high:
            shown = (size(low), size(high)) if soft == "soft" else (str(low), str(high))
            raise InputError(
                f"{where}: {soft} is {shown[0]}, above {hard}, which is {shown[1]}; lower {soft} or raise {hard}"
            )
    return limits


def parse_size(value: object, where: str) -> int:
    """Read a size such as `200G`; units are binary, as with df -h and setquota(8).

    Raises:
        InputError: it has no unit, is negative or enormous.
    """
    text = str(value).strip()
    if text == "0":
        return 0
    found = _SIZE.fullmatch(text)
    number = round(float(found[1]) * _UNITS[found[2].upper()]) if found else -1
    if not 0 <= number <= _LARGEST:
        raise InputError(f'{where} is "{text}"; give a number with a unit, such as 200G, or 0 for no limit')
    return number // KIB * KIB


def parse_count(value: object, where: str) -> int:
    """Read a number of files; errors as with parse_size."""
    text = str(value).strip()
    if not (text.isascii() and text.isdigit()) or int(text) > _LARGEST:
        raise InputError(f'{where} is "{text}"; give a whole number of files, such as 1000000, or 0 for no limit')
    return int(text)


def parse_grace(value: object, where: str) -> int:
    """Read a time such as `7d`, in seconds; errors as with parse_size."""
    found = _DURATION.fullmatch(str(value).strip())
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_GRACE:
        raise InputError(f'{where} is "{value}"; give a time with a unit, such as 7d, at most 365d')
    return seconds


def size(count: int) -> str:
    """Write bytes in the largest unit that fits, such as `200 GiB` or `1.5 TiB`."""
    number, power = float(count), 0
    while number >= KIB and power < len(_NAMES) - 1:
        number, power = number / KIB, power + 1
    return f"{number:.1f}".removesuffix(".0") + f" {_NAMES[power]}"


def describe(limits: Limits) -> str:
    """Say limits in one line."""
    if limits == NO_LIMITS:
        return "no limit"

    def pair(soft: int, hard: int, write: Any) -> str:
        return "/".join(write(each) if each else "-" for each in (soft, hard))

    parts = []
    if limits.soft or limits.hard:
        parts.append(f"soft/hard {pair(limits.soft, limits.hard, size)}")
    if limits.files_soft or limits.files_hard:
        parts.append(f"files {pair(limits.files_soft, limits.files_hard, str)}")
    return ", ".join(parts)


def changes(wanted: Mapping[int, Limits], current: Mapping[int, Usage]) -> dict[int, Limits]:
    """Return the limits that must be written, by owner's number."""
    return {owner: limits for owner, limits in wanted.items() if current.get(owner, Usage()).limits != limits}


def over(limits: Limits, usage: Usage) -> str:
    """Say that somebody has more than the hard limit already; empty when not."""
    if limits.hard and usage.used > limits.hard:
        return f"{size(usage.used)} used, over the hard limit of {size(limits.hard)}"
    if limits.files_hard and usage.files > limits.files_hard:
        return f"{usage.files} files, over the hard limit of {limits.files_hard}"
    return ""
