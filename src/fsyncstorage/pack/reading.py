"""Reads a large file, and leaves the page cache to those who need it.

What is in the page cache stays there; what has to be read from the disk for us
is dropped again.  (So the file is read without read-ahead, which would bring
more into the cache.)
"""

import mmap
import os


class Reader:
    """Called like os.pread.  No other reader may share this open file."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._can_tell = (hasattr(os, 'RWF_NOWAIT')
                          and hasattr(os, 'posix_fadvise'))
        if self._can_tell:
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_RANDOM)

    def __call__(self, length: int, position: int) -> bytes:
        if not self._can_tell:
            return os.pread(self._number, length, position)
        cached = self._cached(length, position)
        missing = length - len(cached)
        if not missing:
            return cached
        position += len(cached)
        data = os.pread(self._number, missing, position)
        # Only whole pages are dropped: also the one that begins before.
        begin = position - position % mmap.PAGESIZE
        os.posix_fadvise(self._number, begin, position + missing - begin,
                         os.POSIX_FADV_DONTNEED)
        return cached + data if cached else data

    def _cached(self, length: int, position: int) -> bytes:
        """What is in the page cache, up to the first page that is not."""
        buffer = bytearray(length)
        try:
            got = os.preadv(self._number, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return b''
        except OSError:  # this file system cannot tell
            self._can_tell = False
            return b''
        return bytes(memoryview(buffer)[:got])
