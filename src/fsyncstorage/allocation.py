"""Allocates disk blocks behind the end of a file (Linux).

Python's `posix_fallocate` makes the file longer, with zeros behind the data.
The system call fallocate(2) can leave the size as it is.
"""

import contextlib
import ctypes
import errno
import os
import sys
from typing import Any

_KEEP_SIZE = 1
# File systems that write data to the blocks that were allocated for them: ext2
# to ext4, XFS, tmpfs.  Others promise nothing (ZFS), or write elsewhere
# (btrfs).
_IN_PLACE = 0xEF53, 0x58465342, 0x01021994
# A struct statfs begins with the type, and is shorter than this.
_LONGER_THAN_STATFS = 1024


def _found(*names: str) -> Any:
    """The first of these functions of the C library that exists.

    They take positions of 64 bits.
    """
    for name in names:
        with contextlib.suppress(AttributeError, OSError):
            return getattr(ctypes.CDLL(None, use_errno=True), name)


_fallocate = _found('fallocate64', *(
    ['fallocate'] if ctypes.sizeof(ctypes.c_long) == 8 else []))
_fstatfs = _found('fstatfs64', 'fstatfs')


def is_in_place(fd: int) -> bool:
    """Does a write to allocated blocks need no other blocks?"""
    if _fallocate is None or _fstatfs is None:
        return False
    status = ctypes.create_string_buffer(_LONGER_THAN_STATFS)
    if _fstatfs(ctypes.c_int(fd), status):
        return False
    return ctypes.c_long.from_buffer(status).value in _IN_PLACE


def free(fd: int) -> int:
    """How many bytes can be allocated on the file's file system."""
    status = os.fstatvfs(fd)
    if not status.f_blocks:  # tmpfs without a limit
        return sys.maxsize
    # The last free blocks may be reserved for root.
    blocks = status.f_bavail if os.geteuid() else status.f_bfree
    return blocks * status.f_frsize


def allocate(fd: int, position: int, length: int) -> None:
    """Allocate blocks for `length` bytes; the file keeps its size."""
    while _fallocate(ctypes.c_int(fd), ctypes.c_int(_KEEP_SIZE),
                     ctypes.c_int64(position), ctypes.c_int64(length)):
        error = ctypes.get_errno()
        if error != errno.EINTR:  # a signal came
            raise OSError(error, os.strerror(error))
