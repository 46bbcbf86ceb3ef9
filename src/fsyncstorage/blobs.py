"""Blob files that are durable before their transaction counts (I11).

A blob file is moved into its place when it is stored, under the commit lock.
The flusher syncs it, and the directories that name it, before it writes the
status of the transaction.  No sync happens here before that.

`Placed` is what one transaction moved into place.  It belongs to the
transaction: an abort takes back its own files, and no others.
"""

import os

from ZODB.blob import LAYOUT_MARKER
from ZODB.blob import LAYOUTS
from ZODB.blob import copied
from ZODB.blob import set_not_writable
from ZODB.utils import cp

from . import datafile


class Placed:

    def __init__(self, base, durable_names):
        self._base = base.rstrip(os.sep)
        #: Directories whose names are known to be durable; shared by all.
        self._durable_names = durable_names
        self._files = []

    def __bool__(self):
        return bool(self._files)

    def put(self, source, target):
        self._make_directory(os.path.dirname(target))
        self._files.append(target)
        try:
            datafile.disk.replace(source, target)
        except OSError:  # from another file system: copy it
            with open(source, 'rb') as from_file:
                with datafile.open_new(target) as to_file:
                    cp(from_file, to_file)
            os.remove(source)
            copied('Copied blob file %r to %r.', source, target)
        set_not_writable(target)

    def _make_directory(self, path):
        if not os.path.isdir(path):
            self._make_directory(os.path.dirname(path))
            try:
                datafile.disk.make_directory(path)
            except FileExistsError:
                return  # somebody else made it
            self._durable_names.discard(path)  # after a pack removed it

    def sync(self):
        """Make the files and their names durable."""
        directories = set()
        for path in self._files:
            datafile.sync_path(path)
            directories.update(self._names_to_sync(path))
        for path in sorted(directories, key=len, reverse=True):
            datafile.disk.sync_directory(path)
        leaves = {os.path.dirname(path) for path in self._files}
        self._durable_names |= directories - leaves

    def _names_to_sync(self, path):
        """The directories that name the file, and each other.

        Whether the name of an object's own directory is durable is not
        remembered: there are as many as blobs.  Those above it are few.
        """
        directory = os.path.dirname(path)
        yield directory
        while directory != self._base:
            directory = os.path.dirname(directory)
            yield directory
            if directory in self._durable_names:
                break

    def take_back(self):
        for path in self._files:
            datafile.remove_if_there(path)


def prepare(base):
    """A blob directory whose layout a power cut cannot take away.

    Stock never syncs the marker: it could be found empty.  So write it before
    stock looks, and make it durable before there are blobs.
    """
    base = os.path.abspath(base)
    _make_durably(base)
    marker = os.path.join(base, LAYOUT_MARKER)
    if not _names_a_layout(marker) and not set(os.listdir(base)) - _NOT_BLOBS:
        with datafile.open_new(marker) as file:
            file.write(b'bushy')
            file.sync()
    datafile.disk.sync_directory(base)
    datafile.disk.sync_directory(os.path.dirname(base))


def _make_durably(path):
    """A directory, and those that it is in."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        _make_durably(parent)
        datafile.disk.make_directory(path)
        datafile.disk.sync_directory(parent)


# What a blob directory without blobs may contain.
_NOT_BLOBS = {LAYOUT_MARKER, 'tmp', '.removed'}


def _names_a_layout(marker):
    try:
        with open(marker, 'rb') as file:
            return file.read().strip().decode('latin-1') in LAYOUTS
    except FileNotFoundError:
        return False
