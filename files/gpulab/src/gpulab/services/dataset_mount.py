"""Show the published datasets at a folder that nothing can be written through: a bind mount, read-only, from fstab.

File permissions alone would do for members: all is root's. The mount makes sure that nothing running as root changes a
dataset by accident, that no program in one gains rights (nosuid), and that a device node in one is dead (nodev).
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters import state
from ..adapters.accounts import run_command
from ..adapters.files import read_regular, write_atomic
from ..adapters.trusted import trusted_folder
from ..errors import GpulabError, InputError, NotPermittedError
from ..rules.mounts import escape, mount_of, parse_mountinfo, with_line
from .dataset_store import MODES, PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..rules.mounts import Mount

_LIMIT = 16 << 20
_WANTED = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV
_OPTIONS = "bind,ro,nosuid,nodev"
# The boot goes on without datasets when their disk is missing; when it is there, they are there before anybody logs in.
_FSTAB_OPTIONS = (
    _OPTIONS + ",nofail,x-systemd.requires-mounts-for={store},x-systemd.before=systemd-user-sessions.service"
)


def shown(path: str, store: str) -> bool:
    """Tell whether a folder is the published datasets themselves."""
    try:
        return os.path.samestat(os.stat(path), os.stat(f"{store}/{PUBLISHED}"))
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class World:
    """The outside world.

    Attributes:
        root: the folder that stands for `/` where fstab and gpulab's state are; the datasets' folders are real ones.
        owner: who counts as root besides root.
        run: runs one of the system's tools.
        read_mounts: reads what is mounted.
        shown: tells whether a folder is what is published in a store.
        flags: reads the flags of the mount that a folder is on (statvfs(3)), which the kernel enforces.
    """

    root: Path = Path("/")
    owner: int = 0
    run: Callable[[Sequence[str]], None] = run_command
    read_mounts: Callable[[], Sequence[Mount]] = lambda: parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    shown: Callable[[str, str], bool] = shown
    flags: Callable[[Path], int] = lambda path: os.statvfs(path).f_flag


@dataclass
class Outcome:
    """What was done, or would be, in words; nothing when all was well."""

    steps: list[str] = field(default_factory=list)


def check(path: str, store: str, world: World) -> None:
    """Refuse folders that cannot be used; change nothing.

    Args:
        path: what everybody will read.
        store: where the datasets lie.
        world: the outside.

    Raises:
        InputError: a folder is missing, in the way, or others could exchange it.
    """
    for variable, folder in (("datasets_path", path), ("datasets_store", store)):
        parts = folder.split("/")
        if not folder.startswith("/") or {"", ".", ".."} & set(parts[1:]) or not folder.isprintable() or " " in folder:
            raise InputError(f"{variable} is {folder!r}; give an absolute path without blanks, such as /data/datasets")
        parent = Path(folder).parent
        try:
            trusted_folder(parent, world.owner)
        except FileNotFoundError as error:
            raise InputError(
                f"{variable} is {folder} and there is no folder {parent}; make it, or set datasets_enabled: false"
            ) from error
        except GpulabError as error:
            raise InputError(f"{variable} is {folder}: {error}") from error
    if Path(store) == Path(path) or Path(path) in Path(store).parents or Path(store) in Path(path).parents:
        raise InputError(f"datasets_store is {store} and datasets_path is {path}; put neither into the other")
    for folder in (path, store):
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {0, world.owner}:
                raise InputError(f"{folder} is there already and is no folder of root's; move it away")
    if not world.shown(path, store) and not _covered(path, world) and os.path.isdir(path) and os.listdir(path):
        raise InputError(
            f"{path} holds {len(os.listdir(path))} things already, which would be hidden; move them elsewhere, "
            "run this again, and add them with gpu-dataset"
        )


def reconcile(path: str, store: str, world: World, *, dry_run: bool) -> Outcome:
    """Make the store and show what is published in it at a folder, now and after every boot.

    Args:
        path: what everybody reads.
        store: root's folder.
        world: the outside.
        dry_run: only say what would be done.

    Raises:
        InputError: see check; nothing was changed.
        NotPermittedError: the caller is not root.
        GpulabError: mounting failed, or the kernel does not refuse writes.
    """
    with _explained():
        check(path, store, world)
        run = _Run(world, dry_run=dry_run)
        for old in [point for point in run.memory if point != path]:
            run.take_down(old)
        run.make_folders(path, store)
        line = f"{escape(f'{store}/{PUBLISHED}')} {escape(path)} none {_FSTAB_OPTIONS.format(store=store)} 0 0"
        run.remember([path])
        run.fstab(path, line)
        run.mount(path, store)
        return run.outcome


def remove(world: World, *, dry_run: bool) -> Outcome:
    """Show the datasets nowhere; they stay in the store.

    Raises:
        NotPermittedError: the caller is not root.
        GpulabError: somebody reads one now.
    """
    with _explained():
        run = _Run(world, dry_run=dry_run)
        for path in run.memory:
            run.take_down(path)
        if run.outcome.steps:
            run.remember([])
        return run.outcome


class _Run:
    def __init__(self, world: World, *, dry_run: bool) -> None:
        self.world, self.dry_run, self.outcome = world, dry_run, Outcome()
        self.path = Path(names.under(world.root, names.DATASETS_STATE_DIR / "mount.json"))
        self.memory: list[str] = state.load(self.path) or []

    def step(self, words: str, action: Callable[[], object]) -> None:
        self.outcome.steps.append(words)
        if not self.dry_run:
            action()

    def remember(self, points: list[str]) -> None:
        if self.memory != points and not self.dry_run:
            state.save(self.path, points)

    def make_folders(self, path: str, store: str) -> None:
        wanted = {store: 0o700, **{f"{store}/{name}": mode for name, mode in MODES.items()}}
        if not self.world.shown(path, store):
            wanted[path] = 0o755
        for folder, mode in wanted.items():
            try:
                current = stat.S_IMODE(os.lstat(folder).st_mode)
            except FileNotFoundError:
                self.step(f"make the folder {folder}", partial(_make, folder, mode))
                continue
            if current != mode:
                self.step(f"{folder}: mode {mode:04o} instead of {current:04o}", partial(os.chmod, folder, mode))

    def fstab(self, path: str, line: str | None) -> None:
        file = self.world.root / "etc/fstab"
        try:
            text = read_regular(file, limit=_LIMIT).decode()
        except FileNotFoundError:
            text = ""
        new = with_line(text, path, line)
        if new != text:
            self.step(f"fstab: {'a' if line else 'no'} line for {path}", partial(self.write_fstab, file, new))

    def write_fstab(self, file: Path, text: str) -> None:
        write_atomic(file, text.encode(), mode=0o644)
        self.world.run(["systemctl", "daemon-reload"])

    def mount(self, path: str, store: str) -> None:
        if self.world.shown(path, store):
            if self.world.flags(Path(path)) & _WANTED != _WANTED:
                self.step(f"mount {path} read-only again", self.runs("mount", "-o", f"remount,{_OPTIONS}", path))
        elif _covered(path, self.world):
            raise InputError(f"something else is mounted at {path}; unmount it, or choose another datasets_path")
        else:
            self.step(f"mount {store}/{PUBLISHED} at {path}, read-only", self.runs("mount", path))
        # What the kernel says, not what was asked for.
        if not self.dry_run and not (
            self.world.shown(path, store) and self.world.flags(Path(path)) & _WANTED == _WANTED
        ):
            raise GpulabError(f"{path} is not read-only although it was mounted so; see findmnt {path}")

    def take_down(self, path: str) -> None:
        if _covered(path, self.world):
            self.step(f"unmount {path}", partial(self.unmount, path))
        self.fstab(path, None)
        if os.path.isdir(path) and (self.dry_run or not os.listdir(path)):
            self.step(f"remove the folder {path}", partial(os.rmdir, path))

    def unmount(self, path: str) -> None:
        try:
            self.world.run(["umount", path])
        except GpulabError as error:
            raise GpulabError(f"{error}; who reads there now: fuser -vm {path}. Run this again then") from error

    def runs(self, *argv: str) -> Callable[[], None]:
        return lambda: self.world.run(argv)


def _make(folder: str, mode: int) -> None:
    os.mkdir(folder, mode)
    os.chmod(folder, mode)  # whatever the umask is


def _covered(path: str, world: World) -> bool:
    mount = mount_of(os.path.realpath(path), world.read_mounts())
    return mount is not None and mount.point == os.path.realpath(path)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except PermissionError as error:
        raise NotPermittedError(f"{error.filename}: only root may do that; use sudo") from error
    except OSError as error:
        raise GpulabError(f"datasets cannot be shown: {error.filename}: {error.strerror}") from error
