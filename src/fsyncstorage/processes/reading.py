"""Reads a large file, and leaves the page cache to those who need it.

What is already in the page cache stays there.  What is read from the disk only
for us is dropped again, page by page.  (The file is read without read-ahead,
which would bring more pages into the cache.)
"""

import ctypes
import mmap
import os
import re
import sys

# Pages that are not in the cache.
_MISSING = re.compile(rb'\0+')
_libc = ctypes.CDLL(None, use_errno=True)


class Reader:
    """Called like os.pread.  No other reader may share this open file."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._can_tell = (
            sys.platform == 'linux' and hasattr(os, 'posix_fadvise'))
        if self._can_tell:
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_RANDOM)

    def __call__(self, length: int, position: int) -> bytes:
        if not self._can_tell or not length:
            return os.pread(self._number, length, position)
        begin = position - position % mmap.PAGESIZE
        try:
            cached = pages_cached(
                self._number, begin, position + length - begin)
        except (OSError, ValueError):  # behind the end; or not supported
            return os.pread(self._number, length, position)
        data = os.pread(self._number, length, position)
        for missing in _MISSING.finditer(cached):
            first, end = missing.span()
            os.posix_fadvise(
                self._number, begin + first * mmap.PAGESIZE,
                (end - first) * mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)
        return data


def pages_cached(number: int, begin: int, length: int) -> bytes:
    """A byte for each page from `begin` on: 1 if it is in the page cache.

    (To find out by a read would bring the page into the cache, even if the
    read must not wait.)  The mapped memory itself is never read: if the disk
    failed, that would end the process.
    """
    pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
    # A private mapping can be written to, which ctypes needs for its address.
    with mmap.mmap(number, length, mmap.MAP_PRIVATE, offset=begin) as memory:
        first = ctypes.c_char.from_buffer(memory)
        failed = _libc.mincore(ctypes.c_void_p(ctypes.addressof(first)),
                               ctypes.c_size_t(length), pages)
        del first  # otherwise the mapping could not be closed
    if failed:
        raise OSError(ctypes.get_errno(), 'mincore')
    return bytes(pages)
