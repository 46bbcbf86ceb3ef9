"""What of a file is in the page cache, without a wait, and without a change.

To read it without a wait (RWF_NOWAIT) would not tell: that asks the disk for
it, and a fast one may answer meanwhile.
"""

import ctypes
import mmap
import os


def cached(descriptor):
    """Of each page, whether it is there."""
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY) as content:
        pages = (ctypes.c_char * -(-len(content) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(content)
        ctypes.CDLL(None).mincore(
            ctypes.byref(start), ctypes.c_size_t(len(content)), pages)
        del start
    return [bool(page[0] & 1) for page in pages]


def is_cached(descriptor, length, position):
    first = position // mmap.PAGESIZE
    return all(cached(descriptor)[
        first:(position + length - 1) // mmap.PAGESIZE + 1])


def pread_cached(descriptor, length, position):
    if not is_cached(descriptor, length, position):
        raise BlockingIOError
    return os.pread(descriptor, length, position)
