"""A data file that is on the disk, and not in the page cache.

A database that was just made is in the memory of the machine; a large one is
not.  What a cold read costs there is shown by a file that was dropped from the
cache before.
"""

import os
import tempfile

from fsyncstorage.datafile import disk
from fsyncstorage.reading import pread_cached

_PROBE = b'x' * 4096


def drop(path):
    """The next read of any part of the file is one of the disk."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        disk.sync(descriptor)  # what is not written yet would stay
        disk.drop_cache(descriptor, 0)
    finally:
        os.close(descriptor)


def read_singly(descriptor):
    """Nothing is read ahead through this descriptor: as it would help little
    in a large file."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def is_cached(descriptor, length, position):
    """Whether a read would not wait for the disk.

    To ask may start to read it.
    """
    try:
        pread_cached(descriptor, length, position)
    except BlockingIOError:
        return False
    return True


def obstacle(directory):
    """Why files in there cannot be dropped, or None."""
    with tempfile.NamedTemporaryFile(dir=directory, buffering=0) as file:
        file.write(_PROBE)
        if not is_cached(file.fileno(), len(_PROBE), 0):
            return 'this system does not tell what it has in its cache'
        drop(file.name)
        if is_cached(file.fileno(), len(_PROBE), 0):
            return 'this file system is in memory, or keeps what it has read'
    return None
