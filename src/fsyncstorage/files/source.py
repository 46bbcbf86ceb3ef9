"""A committed blob: where its bytes come from, and how they are sent.

A `Source` is made from a blob while its connection is open, and needs no
connection after that.  It uses these methods of the storage:

- `openArriving(oid, serial)`, of our client: the bytes of a blob as they
  arrive from the server, without waiting for the last one;
- `leaseBlob(oid, serial, seconds)`, of our storages: the path of a local file
  that stays for this time, for another program to read.

With a storage that has neither, it uses the methods of every storage with
blobs: `openCommittedBlobFile` and `loadBlob`.

What is sent is sent in pieces, in bounded memory.  WSGI servers close a body,
whether it was read or not.
"""

import os

from ZODB.Connection import TmpStore
from ZODB.interfaces import BlobError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import z64

#: Seconds in which another program must open a file whose path it was given.
LEASE = 60
# Bytes.  With smaller pieces, switching between threads costs more than to
# send them.
PIECE = 1 << 18


class Source:

    def __init__(self, blob):
        serial, oid = _serial(blob), blob._p_oid
        #: Two sources with the same key have the same bytes.
        self.key = blob._p_jar.db().storage, oid, serial
        #: The entity tag: a blob of one serial never changes.
        self.tag = f'"{oid.hex()}-{serial.hex()}"'
        #: Whole seconds, as in a file system or in HTTP.
        self.modified = int(TimeStamp(serial).timeTime())

    def open(self):
        """The file, or the part that has arrived so far; and the size of the
        whole file."""
        storage, *revision = self.key
        file = getattr(storage, 'openArriving',
                       storage.openCommittedBlobFile)(*revision)
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


class Body:
    """A range of a file.

    If the file ends too early, that is an error: the server then closes the
    connection, so that no client mistakes a part for the whole.
    """

    def __init__(self, file, start, stop):
        self._file = file
        self._start, self._stop = start, stop

    def __iter__(self):
        at = self._file.seek(self._start)
        while at < self._stop:
            piece = self._file.read(min(PIECE, self._stop - at))
            if not piece:
                raise OSError(
                    f'{self._file!r} ends at {at}, not at {self._stop}')
            yield piece
            at += len(piece)

    def close(self):
        self._file.close()


class InPieces:
    """A file for the server to send, which returns at most a PIECE at a time.

    Waitress reads as much as the system may buffer, which can be megabytes for
    each reader, and then reads again what it could not send of it.
    """

    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def read(self, size=-1):
        return self._file.read(min(size, PIECE))  # -1: all


def is_complete(file):
    """Does the file have a descriptor?  A part that has arrived has none."""
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
