"""Many small files, folders and links in one step: compared first, proved next, and only then written.

Ansible's own template, copy and file handle one path in two or three calls of a module, each about half a second over a
connection. A server has some fifty of such paths, and on most runs none of them differs.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import shutil
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..adapters.files import replacing
from ..adapters.programs import output_of
from ..errors import GpulabError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FILE, FOLDER, LINK, ABSENT = "file", "directory", "link", "absent"
_MODES = {FILE: 0o644, FOLDER: 0o755}
_VALIDATE_SECONDS = 60.0
_PERMISSIONS = 0o7777


@dataclass(frozen=True)
class Wanted:
    """How one path shall be.

    Attributes:
        path: absolute.
        state: FILE, FOLDER, LINK or ABSENT; whatever is there, also a whole folder, goes for ABSENT.
        content: of a file.
        src: where a link points.
        mode: permission bits of a file or folder.
        owner: user name of a file or folder.
        group: group name of a file or folder.
        validate: command that proves a new file, with `%s` for a copy of it; empty for none.
    """

    path: str
    state: str = FILE
    content: str = ""
    src: str = ""
    mode: int = 0o644
    owner: str = "root"
    group: str = "root"
    validate: str = ""


@dataclass
class Outcome:
    """What was done, or would be.

    Attributes:
        changed: paths that differ from before.
        differences: path, text before, text after.
    """

    changed: list[str] = field(default_factory=list)
    differences: list[tuple[str, str, str]] = field(default_factory=list)


def parse(entries: Iterable[Mapping[str, Any]], absent: Iterable[str] = ()) -> list[Wanted]:
    """Read the module's lists.

    Args:
        entries: paths that shall be there.
        absent: paths that shall not.

    Raises:
        InputError: an entry makes no sense; with its path.
    """
    found = []
    for entry in entries:
        given = {key: value for key, value in entry.items() if value is not None}
        path, state = _path(str(given["path"])), given.get("state", FILE)
        if (state == FILE) != ("content" in given) or (state == LINK) != ("src" in given):
            raise InputError(f"{path}: a file needs content, a link needs src, and nothing else takes them")
        mode = str(given.get("mode", f"{_MODES.get(state, 0o777):04o}"))
        if not mode.isdecimal() or not set(mode) <= set("01234567") or int(mode, 8) > _PERMISSIONS:
            raise InputError(f'{path}: mode is {mode!r}; give octal digits in quotes, such as "0644"')
        if "validate" in given and "%s" not in given["validate"]:
            raise InputError(f"{path}: validate has no %s in it, which stands for the file")
        content = str(given.get("content", "")).rstrip("\n") + "\n" if state == FILE else ""
        names = {key: given[key] for key in ("owner", "group", "src", "validate") if key in given}
        found.append(Wanted(path, state, content, mode=int(mode, 8), **names))
    return found + [Wanted(_path(path), ABSENT) for path in absent]


def _path(path: str) -> str:
    plain = os.path.normpath(path)
    if not path.startswith("/") or plain != path.rstrip("/"):
        raise InputError(f"path is {path!r}; give an absolute path below /, without `.` and `..`")
    return plain


def apply(wanted: Sequence[Wanted], *, dry_run: bool, scratch: str = "/tmp") -> Outcome:  # noqa: S108 - private below it
    """Bring paths into the wanted state, in their order; those that are so already are not touched.

    Args:
        wanted: as `parse` returns it.
        dry_run: only say what would be done; new files are not proved, as what proves them may not be there yet.
        scratch: folder for copies to be proved.

    Raises:
        InputError: a new file was not proved, or something else is in the place; nothing was changed.
        GpulabError: an account is unknown, or something cannot be written.
    """
    outcome = Outcome()
    due = []
    for each in wanted:
        before = _differs(each, dry_run=dry_run)
        if before is not None:
            due.append(each)
            outcome.changed.append(each.path)
            outcome.differences.append((each.path, before, _text(each)))
    if not dry_run:
        _prove([each for each in due if each.state == FILE], scratch)
        for each in due:
            _make(each)
    return outcome


def _ids(each: Wanted) -> tuple[int, int]:
    try:
        return pwd.getpwnam(each.owner).pw_uid, grp.getgrnam(each.group).gr_gid
    except KeyError as error:
        raise GpulabError(f"{each.path}: {error.args[0]}") from None


def _differs(each: Wanted, *, dry_run: bool) -> str | None:
    """Return what there is now, in words, when that is not what is wanted."""
    try:
        ids = _ids(each)
    except GpulabError:
        if not dry_run:
            raise
        ids = None  # before the first run an account may not be there
    try:
        found = os.stat(each.path) if each.state == FOLDER else os.lstat(each.path)
    except (FileNotFoundError, NotADirectoryError):
        return None if each.state == ABSENT else ""
    kind = _kind(found)
    if each.state == ABSENT:
        return _describe(kind, found)
    if each.state == LINK:
        if kind != LINK:
            raise InputError(f"{each.path} is there and no link; move it away")
        now = os.readlink(each.path)
        return None if now == each.src else f"link to {now}\n"
    if (kind == FOLDER) != (each.state == FOLDER):
        raise InputError(f"{each.path} is {'a folder' if kind == FOLDER else 'no folder'}; move it away")
    content = Path(each.path).read_bytes() if kind == FILE else b""
    same = kind == each.state and content == each.content.encode()
    same = same and stat.S_IMODE(found.st_mode) == each.mode and ids in {None, (found.st_uid, found.st_gid)}
    return None if same else _describe(kind, found) + content.decode(errors="replace")


def _kind(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return LINK
    return FOLDER if stat.S_ISDIR(found.st_mode) else FILE if stat.S_ISREG(found.st_mode) else "special file"


def _describe(state: str, found: os.stat_result) -> str:
    return f"# {state}, mode {stat.S_IMODE(found.st_mode):04o}, owner {found.st_uid}:{found.st_gid}\n"


def _text(each: Wanted) -> str:
    """Return what will be there, in words."""
    if each.state == ABSENT:
        return ""
    if each.state == LINK:
        return f"link to {each.src}\n"
    return f"# {each.state}, mode {each.mode:04o}, owner {each.owner}:{each.group}\n{each.content}"


def _prove(files: Sequence[Wanted], scratch: str) -> None:
    """Prove new files where they lie beside each other under their names: a unit may want one that is new too."""
    if not any(each.validate for each in files):
        return
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        copies = [(each, Path(folder + each.path)) for each in files]
        for each, copy in copies:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(each.content.encode())
        for each, copy in copies:
            if each.validate:
                _run_proof(each, copy, folder)


def _run_proof(each: Wanted, copy: Path, folder: str) -> None:
    command = [word.replace("%s", str(copy)) for word in shlex.split(each.validate)]
    try:
        output_of(command, _VALIDATE_SECONDS)
    except TimeoutError:
        raise InputError(f"{each.path}: `{each.validate}` did not end in {_VALIDATE_SECONDS:g} s") from None
    except OSError as error:
        why = str(error).replace(folder, "")
        raise InputError(f"{each.path}: `{each.validate}` refuses the new file: {why}") from None


def _make(each: Wanted) -> None:
    try:
        _write(each, Path(each.path))
    except OSError as error:
        raise GpulabError(f"{error.filename or each.path} cannot be written: {error.strerror}") from error


def _write(each: Wanted, path: Path) -> None:
    if each.state == ABSENT:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    elif each.state == LINK:
        _have_folder(path.parent, _MODES[FOLDER], 0, 0)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            fresh = Path(folder) / "link"
            fresh.symlink_to(each.src)
            fresh.rename(path)
    else:
        uid, gid = _ids(each)
        if each.state == FOLDER:
            _have_folder(path, each.mode, uid, gid)
            os.chown(path, uid, gid)
            path.chmod(each.mode)
        else:
            with replacing(path, mode=each.mode, uid=uid, gid=gid) as stream:
                stream.write(each.content.encode())


def _have_folder(path: Path, mode: int, uid: int, gid: int) -> None:
    """Make a folder and the parents it lacks, all with this mode whatever the umask is."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        os.chown(each, uid, gid)
        each.chmod(mode)
