"""What of a file is in the page cache, without a wait, and without a change.

To read it without a wait (RWF_NOWAIT) would not tell: that asks the disk for
it, and a fast one may answer meanwhile.
"""

import ctypes
import mmap
import os

_PAGE = mmap.PAGESIZE


def is_cached(descriptor, length, position):
    """Would a read of this part, as far as the file has it, not wait?"""
    return all(pages(descriptor, position, position + length))


def pages(descriptor, position=0, end=None):
    """Of each page of this part of a file, whether it is there."""
    size = os.fstat(descriptor).st_size
    end = size if end is None else min(end, size)
    if position >= end:
        return []
    first = position - position % mmap.ALLOCATIONGRANULARITY
    with mmap.mmap(descriptor, end - first, offset=first,
                   access=mmap.ACCESS_COPY) as content:
        found = (ctypes.c_char * -(-len(content) // _PAGE))()
        start = ctypes.c_char.from_buffer(content)
        ctypes.CDLL(None).mincore(
            ctypes.byref(start), ctypes.c_size_t(len(content)), found)
        del start  # else the map could not be closed
    return [bool(page[0] & 1) for page in found][(position - first) // _PAGE:]
