"""Disk quota as the kernel keeps it: quotactl_fd(2), which needs no device node and no tool's output to be parsed.

One call for each owner and file system takes some microseconds, so a whole lab is read and written at once. Numbers
and structures: <linux/quota.h>, <linux/dqblk_xfs.h>. Mount options are never asked: ext4 that got `usrquota` from a
remount shows it and enforces nothing, and XFS says `noquota` after a remount that succeeded.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct
from typing import TYPE_CHECKING

from ..rules.quota import KIB, Grace, Limits, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

USER, PROJECT = 0, 2
"""Kinds of owners (USRQUOTA, PRJQUOTA)."""

_SYSCALL = 443  # quotactl_fd, Linux 5.14, the same number on every architecture
_GETINFO, _SETINFO, _GETQUOTA, _SETQUOTA = 0x800005, 0x800006, 0x800007, 0x800008
_XQUOTAON, _XQUOTAOFF, _XGETQSTAT = 0x5801, 0x5802, 0x5805
_BLIMITS, _ILIMITS = 1, 4
_BGRACE, _IGRACE = 1, 2
_DQBLK = struct.Struct("=8QI4x")
_DQINFO = struct.Struct("=2Q2I")
_QSTAT_SIZE = 256
_ACCOUNTED = {USER: 1, PROJECT: 16}
_ENFORCED = {USER: 2, PROJECT: 32}
_FSGETXATTR, _FSSETXATTR = 0x801C581F, 0x401C5820
_FSXATTR = struct.Struct("=5I8s")
_INHERIT = 0x200
_NOT_THERE = {errno.ENOENT, errno.ESRCH}


class Kernel:
    """The kernel's quota of mounted file systems; each is named by any folder on it."""

    def __init__(self) -> None:
        """Find the C library; nothing is asked yet."""
        self._libc = ctypes.CDLL(None, use_errno=True)

    def _call(self, descriptor: int, command: int, kind: int, owner: int, data: ctypes.Array[ctypes.c_char]) -> None:
        request = ctypes.c_uint(command << 8 | kind)
        number = ctypes.c_long(_SYSCALL)
        if self._libc.syscall(number, ctypes.c_uint(descriptor), request, ctypes.c_uint(owner), data) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def flags(self, path: str, kind: int) -> tuple[bool, bool]:
        """Tell whether use is counted, and whether limits are enforced.

        Raises:
            OSError: the kernel would not say.
        """
        data = ctypes.create_string_buffer(_QSTAT_SIZE)
        with _folder(path) as descriptor:
            try:
                self._call(descriptor, _XGETQSTAT, kind, 0, data)
            except OSError as error:
                # What the kernel says of a file system on which nothing is counted, or nothing can be.
                if error.errno in {errno.ENOSYS, errno.ESRCH, errno.EINVAL, errno.EOPNOTSUPP}:
                    return False, False
                raise
        (found,) = struct.unpack_from("=H", data, 2)
        return bool(found & _ACCOUNTED[kind]), bool(found & _ENFORCED[kind])

    def enforce(self, path: str, kind: int, *, on: bool) -> None:
        """Begin or end to enforce the limits of what is counted already.

        Raises:
            OSError: it cannot be changed now.
        """
        data = ctypes.create_string_buffer(struct.pack("=I", _ENFORCED[kind]), 4)
        with _folder(path) as descriptor:
            self._call(descriptor, _XQUOTAON if on else _XQUOTAOFF, kind, 0, data)

    def grace(self, path: str, kind: int) -> Grace:
        """Return the grace times; errors as with `flags`."""
        data = ctypes.create_string_buffer(_DQINFO.size)
        with _folder(path) as descriptor:
            self._call(descriptor, _GETINFO, kind, 0, data)
        space, files, _, _ = _DQINFO.unpack(data.raw)
        return Grace(space, files)

    def set_grace(self, path: str, kind: int, grace: Grace) -> None:
        """Change the grace times; errors as with `enforce`."""
        data = ctypes.create_string_buffer(_DQINFO.pack(grace.space, grace.files, 0, _BGRACE | _IGRACE), _DQINFO.size)
        with _folder(path) as descriptor:
            self._call(descriptor, _SETINFO, kind, 0, data)

    def usages(self, path: str, kind: int, owners: list[int]) -> dict[int, Usage]:
        """Return limits and use of some owners.

        Raises:
            OSError: the caller may not ask for them: everybody may ask for their own, root for all.
        """
        found: dict[int, Usage] = {}
        known: dict[tuple[int, int, int, int], Limits] = {}
        with _folder(path) as descriptor:
            data = ctypes.create_string_buffer(_DQBLK.size)
            for owner in owners:
                ctypes.memset(data, 0, _DQBLK.size)
                try:
                    self._call(descriptor, _GETQUOTA, kind, owner, data)
                except OSError as error:
                    if error.errno not in _NOT_THERE:  # XFS has no record of who never had a file or a limit
                        raise
                hard, soft, used, files_hard, files_soft, files, _, _, _ = _DQBLK.unpack(data.raw)
                numbers = (soft * KIB, hard * KIB, files_soft, files_hard)
                # Most have the same limits; one object for all of them saves a third of the time.
                limits = known.get(numbers) or known.setdefault(numbers, Limits(*numbers))
                found[owner] = Usage(limits, used, files)
        return found

    def set_limits(self, path: str, kind: int, wanted: dict[int, Limits]) -> None:
        """Write limits; errors as with `enforce`."""
        with _folder(path) as descriptor:
            for owner, limits in wanted.items():
                blocks = (limits.hard // KIB, limits.soft // KIB, 0)
                record = _DQBLK.pack(*blocks, limits.files_hard, limits.files_soft, 0, 0, 0, _BLIMITS | _ILIMITS)
                self._call(descriptor, _SETQUOTA, kind, owner, ctypes.create_string_buffer(record, _DQBLK.size))


@contextlib.contextmanager
def _folder(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def project_of(path: str) -> int:
    """Return the project that a folder and what is made in it belong to; 0 is none (ioctl_fsgetxattr, xfs(5)).

    Raises:
        OSError: the file system knows no projects.
    """
    with _folder(path) as descriptor:
        flags, _, _, number, _, _ = _attributes(descriptor)
    return number if flags & _INHERIT else 0


def put_in_project(path: str, number: int) -> int:
    """Put a folder and all that is below it into a project; links are not followed, other file systems not entered.

    Args:
        path: the folder.
        number: the project; 0 takes everything out.

    Returns:
        How many files and folders there were.

    Raises:
        OSError: the file system knows no projects, or cannot be written.
    """
    count = 0
    top = os.lstat(path).st_dev
    for _, folders, files, parent in os.fwalk(path, follow_symlinks=False):
        if os.fstat(parent).st_dev != top:
            folders.clear()
            continue
        # The folder first: what is made meanwhile inherits.
        _assign(parent, number, inherit=number != 0)
        count += 1
        for name in files:
            with contextlib.suppress(FileNotFoundError), _regular(parent, name) as descriptor:
                if descriptor >= 0:
                    _assign(descriptor, number, inherit=False)
                    count += 1
    return count


@contextlib.contextmanager
def _regular(parent: int, name: str) -> Iterator[int]:
    """Open an ordinary file; yield -1 for links, pipes and devices, which take no space."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO}:
            raise
        yield -1
        return
    try:
        ordinary = stat.S_ISREG(os.fstat(descriptor).st_mode)
        yield descriptor if ordinary else -1
    finally:
        os.close(descriptor)


def _attributes(descriptor: int) -> tuple[int, int, int, int, int, bytes]:
    raw = fcntl.ioctl(descriptor, _FSGETXATTR, bytes(_FSXATTR.size))
    return _FSXATTR.unpack(raw)


def _assign(descriptor: int, number: int, *, inherit: bool) -> None:
    flags, extent, count, before, cow, rest = _attributes(descriptor)
    wanted = flags | _INHERIT if inherit else flags & ~_INHERIT
    if (flags, before) != (wanted, number):
        fcntl.ioctl(descriptor, _FSSETXATTR, _FSXATTR.pack(wanted, extent, count, number, cow, rest))
