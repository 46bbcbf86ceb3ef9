"""Blobs of a server on the same machine: read where the server keeps them.

The server names its directory of blobs, and hands over a descriptor of the
marker file in it.  The directory that this process sees under that name (or
under another one, which the client's configuration has) is used only as long
as it holds that very file: in another container, or on another machine, the
name may be that of another directory.

A blob that is committed never changes.  So a path is right if the file is
there.  The file may be gone when it is opened: a pack removes blobs.  If
anything is not certain, the path is None: then the blob comes through the
cache.
"""

import os
import stat

from ZODB.blob import LAYOUT_MARKER
from ZODB.blob import LAYOUTS
from ZODB.blob import FilesystemHelper

_LONGEST_LAYOUT = 16


class NotHere(Exception):
    """This process does not see the server's directory."""


class LocalBlobs:

    def __init__(self, directory, marker):
        """`marker`: a Descriptor; it stays open, so that no other file gets
        its inode."""
        self._marker = marker
        self._status = os.fstat(marker.number)
        if not stat.S_ISREG(self._status.st_mode):
            raise NotHere('the marker is no file')
        if not (isinstance(directory, str) and directory.startswith('/')
                and '\0' not in directory):
            raise NotHere('the server does not name its directory')
        self._path = os.path.join(directory, LAYOUT_MARKER)
        if not self._is_here():
            raise NotHere(f'{directory} is not the directory of the server')
        said = os.pread(marker.number, _LONGEST_LAYOUT, 0)
        layout = said.decode('ascii', 'replace').strip()
        if layout not in LAYOUTS:
            raise NotHere(f'{directory} has a layout that is not known')
        self._files = FilesystemHelper(directory, layout)

    def _is_here(self):
        try:
            return os.path.samestat(os.lstat(self._path), self._status)
        except (OSError, ValueError):
            return False

    def path(self, oid, serial):
        """The path of a blob; None if it cannot be read here."""
        if not self._is_here():
            return None
        path = self._files.getBlobFilename(oid, serial)
        try:
            is_file = stat.S_ISREG(os.stat(path).st_mode)
        except OSError:
            return None
        return path if is_file and os.access(path, os.R_OK) else None
