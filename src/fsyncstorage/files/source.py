"""A committed blob, and where its bytes come from.

A `Source` is made from a blob while its connection is open, and needs no
connection after that.  It uses these methods of the storage:

- `openArriving(oid, serial)`, of our client: the bytes of a blob as they
  arrive from the server, without waiting for the last one;
- `leaseBlob(oid, serial, seconds)`, of our storages: the path of a local file
  that stays for this time, for another program to read.

With a storage that has neither, it uses the methods of every storage with
blobs: `openCommittedBlobFile` and `loadBlob`.
"""

import os

from ZODB.Connection import TmpStore
from ZODB.interfaces import BlobError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import z64

#: Seconds in which another program must open a file whose path it was given.
LEASE = 60


class Source:

    def __init__(self, storage, oid, serial):
        #: Two sources with the same key have the same bytes.
        self.key = storage, oid, serial
        #: The entity tag: a blob of one serial never changes.
        self.tag = f'"{oid.hex()}-{serial.hex()}"'
        #: Whole seconds, as in a file system or in HTTP.
        self.modified = int(TimeStamp(serial).timeTime())

    @classmethod
    def of(cls, blob):
        serial = _serial(blob)
        return cls(blob._p_jar.db().storage, blob._p_oid, serial)

    def open(self):
        """The file, or the part that has arrived so far; and the size of the
        whole file."""
        storage, *revision = self.key
        open_ = getattr(storage, 'openArriving',
                        storage.openCommittedBlobFile)
        file = open_(*revision)
        if is_complete(file):
            return file, os.fstat(file.fileno()).st_size
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return file, size

    def lease(self):
        """The path of the file, for another program to open.

        None: the file is not cached yet, and `open` gets the first byte
        sooner.
        """
        storage, *revision = self.key
        lease = getattr(storage, 'leaseBlob', None)
        return lease(*revision, LEASE) if lease else storage.loadBlob(
            *revision)


def is_complete(file):
    """Does the file have a descriptor?  One that is still arriving does not.
    """
    try:
        file.fileno()
    except OSError:
        return False
    return True


def _serial(blob):
    serial = blob._p_serial
    connection = blob._p_jar
    is_ghost = connection is not None and blob._p_changed is None
    if is_ghost:
        # As Connection.setstate in ZODB 6.4, before it loads the blob.
        serial = connection._storage.load(blob._p_oid)[1]
    if serial == z64 or blob._p_changed or _is_in_a_savepoint(blob):
        raise BlobError('the blob is not committed, or was changed since')
    if is_ghost and connection.opened and _is_here(connection, blob, serial):
        blob._p_activate()  # so that it has its serial the next time
    return serial


def _is_here(connection, blob, serial):
    """Is the file local?  If not, activating a ghost would fetch all of it."""
    lease = getattr(connection.db().storage, 'leaseBlob', None)
    return (lease and not isinstance(connection._storage, TmpStore)
            and lease(blob._p_oid, serial, 0) is not None)


def _is_in_a_savepoint(blob):
    """Was the blob changed in a savepoint?  Nothing else shows this."""
    storage = blob._p_jar._storage
    return isinstance(storage, TmpStore) and blob._p_oid in storage.index
