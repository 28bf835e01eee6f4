"""A file system that hangs, as one of a dead file server does; `python3 dead_disk.py FOLDER`.

It is mounted (FUSE, <linux/fuse.h>), answers the kernel's greeting and then nothing any more: whoever asks it for
anything sleeps in the kernel and cannot be killed, until this program ends.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_IN = struct.Struct("=IIQQIIIHH")
_OUT = struct.Struct("=IiQ")
_INIT_OUT = struct.Struct("=4I2H2I2HI7I")
_INIT = 26
_MAJOR, _MINOR = 7, 31
_PIECE = 1 << 17


def main(folder: str) -> None:
    """Mount it and hang, until killed."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"dead", folder.encode(), b"fuse", 0, options) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
    while True:
        request = os.read(device, _PIECE)
        _, what, number, *_ = _IN.unpack_from(request)
        if what == _INIT:
            answer = _INIT_OUT.pack(_MAJOR, _MINOR, 0, 0, 12, 9, _PIECE // 2, 1, 0, 0, 0, *(0,) * 7)
            os.write(device, _OUT.pack(_OUT.size + len(answer), 0, number) + answer)


if __name__ == "__main__":
    main(sys.argv[1])
