"""Records what code of ZODB does to files by itself, not through our Disk: it
makes directories for blobs.  (What it did beside that, `campaign` would find
out, which compares the directory with the log.)
"""

import contextlib
import os
from unittest import mock

import ZODB.blob


@contextlib.contextmanager
def recorded(recorder):
    """While this lasts, code of ZODB is recorded."""
    with mock.patch.object(ZODB.blob, 'os', _OS(recorder)):
        yield


class _OS:
    """The module `os`, which records new directories."""

    def __init__(self, recorder):
        self._recorder = recorder

    def __getattr__(self, name):
        return getattr(os, name)

    def makedirs(self, path, *args):
        with self._recorder.making_directory(path):
            os.makedirs(path, *args)

    mkdir = makedirs
