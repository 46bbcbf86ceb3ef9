"""Blobs in a directory that the client shares with its server: the other kind,
beside a cache of its own (client.blobs)."""

import os

from ZODB.blob import LAYOUTS
from ZODB.blob import FilesystemHelper
from ZODB.blob import rename_or_copy_blob
from ZODB.POSException import POSKeyError

from ...wire import frames
from .directory import LAYOUT
from .directory import BlobCacheLayout


def helper_of_cache(directory):
    """Where the files of a cache lie, for programs that ask a client for its
    `fshelper`."""
    LAYOUTS.setdefault(LAYOUT, BlobCacheLayout())
    return FilesystemHelper(directory, LAYOUT)


class SharedDirectory:

    def __init__(self, directory):
        self.helper = FilesystemHelper(directory)
        self.temporary_directory = self.helper.temp_dir

    def load(self, oid, serial):
        """The path.  A file that is not here is nowhere."""
        path = self.helper.getBlobFilename(oid, serial)
        if not os.path.exists(path):
            raise POSKeyError(oid, f'no blob file {path}')
        return path

    def lease(self, oid, serial, seconds):
        try:
            return self.load(oid, serial)
        except POSKeyError:
            return None

    def open(self, oid, serial, blob=None):
        from ZODB.blob import BlobFile
        path = self.load(oid, serial)
        return open(path, 'rb') if blob is None else BlobFile(path, 'r', blob)

    open_arriving = open

    def store(self, transaction, oid, serial, record, path):
        """The server finds the file by its name, in the directory of its
        object."""
        self.helper.getPathForOID(oid, create=True)
        descriptor, name = self.helper.blob_mkstemp(oid, serial)
        os.close(descriptor)
        rename_or_copy_blob(path, name + '-')
        os.remove(name)
        transaction.written[oid] = record
        transaction.add(frames.BlobByName(
            0, oid, serial, os.path.basename(name + '-').encode(), record))

    def stats(self):
        return {}

    def close(self):
        """Nothing is open."""
