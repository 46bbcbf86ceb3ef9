"""A scratch directory in memory, for tests that have a disk of their own.

What they ask of it is not what a real disk keeps, and its syncs would only
take time.
"""

import contextlib
import os
import tempfile
from unittest import mock

from fsyncstorage.commit import reserve

MEMORY = '/dev/shm'
# What a storage reserves ahead there: memory is filled with zeros for it each
# time, and the megabytes that it reserves on a disk would take longer than all
# else that is done to a small file.
AHEAD = 64 << 10


@contextlib.contextmanager
def scratch_directory():
    """In memory, where there is such a place."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with (tempfile.TemporaryDirectory(prefix='fsyncstorage-', dir=where)
          as path, mock.patch.object(reserve, 'AHEAD', AHEAD)):
        yield path
