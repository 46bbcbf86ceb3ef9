"""What of a file is in the page cache, without a wait, and without a change.

To read it without a wait (RWF_NOWAIT) would not tell: that asks the disk for
it, and a fast one may answer meanwhile.
"""

import mmap
import os

from fsyncstorage.processes.reading import pages_cached


def is_cached(descriptor, length, position):
    """Would a read of this part, as far as the file has it, not wait?"""
    return all(pages(descriptor, position, position + length))


def pages(descriptor, position=0, end=None):
    """A byte for each page of this part of a file: 1 if it is there."""
    size = os.fstat(descriptor).st_size
    end = size if end is None else min(end, size)
    if position >= end:
        return b''
    first = position - position % mmap.ALLOCATIONGRANULARITY
    found = pages_cached(descriptor, first, end - first)
    return found[(position - first) // mmap.PAGESIZE:]
