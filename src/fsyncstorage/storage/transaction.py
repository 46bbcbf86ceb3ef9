"""One transaction, from its begin until it is appended.

All that belongs to a transaction is in here: what it is called, its records,
the blob files that it has put in place, and where it will be written.  The
storage has nothing of it but the object, and drops that at the end.

Its states::

    begun     records are added; they are spooled in memory, and from a size
              on in a file that has no name
    voted     `end` is set: it is in the file, with status 'c'

Whoever holds the commit lock owns it.  The records know their places, so it
cannot be moved: nothing else may be written at `start` before it.

Left to others: which records are allowed (records), who has the turn and what
becomes of it (commits).
"""

import contextlib
import io
import os
import struct
import tempfile
import zlib

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.format import DATA_HDR
from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.FileStorage.format import TRANS_HDR
from ZODB.FileStorage.format import TRANS_HDR_LEN
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import as_bytes
from ZODB.utils import p64

from .. import forks
from .. import seal

# A transaction up to this size is kept in memory until its vote.
SPOOL_IN_MEMORY = 1 << 20
COPY_CHUNK = 1 << 20

LONGEST_FIELD = 65535
STATUS_OFFSET = 16  # of the status byte in the header

_header = struct.Struct(TRANS_HDR)
_record_header = struct.Struct(DATA_HDR)


class Transaction:

    #: Where the next one begins; 0 before the vote.
    end = 0
    #: What it has put in place (blobs.Placed); None without a blob directory.
    blobs = None

    def __init__(self, metadata, tid, status, start, sealed, directory):
        """`sealed`: with a checksum, if there is room for one."""
        #: The caller's object, by which it is known from outside.
        self.metadata = metadata
        self.tid = tid
        #: The byte that makes it count.
        self.status = status
        #: Where it will be written.
        self.start = start
        #: oid -> the place that its last record will have.
        self.places = {}
        #: Oids whose conflicts were resolved.
        self.resolved = []
        self._user = as_bytes(metadata.user)
        self._description = as_bytes(metadata.description)
        self._extension = metadata.extension_bytes
        if self._extension:
            # Without the seal of another file, if it is a copy.
            self._extension = seal.strip(self._extension)
        self._refuse_long_fields()
        room = seal.room(self._extension) if sealed else 0
        self.sealed = bool(room)
        # Records are placed behind the seal, so it needs its room now.
        self._header_length = (
            TRANS_HDR_LEN + len(self._user) + len(self._description)
            + len(self._extension) + room)
        self._size = 0   # of the records
        self._directory = directory
        self._spool = io.BytesIO()
        self._in_memory = True

    def _refuse_long_fields(self):
        for field, what in ((self._user, 'user name too long'),
                            (self._description, 'description too long'),
                            (self._extension, 'too much extension data')):
            if len(field) > LONGEST_FIELD:
                raise FileStorageError(what)

    # Records

    def add(self, oid, tid, previous, data, back=0):
        """A record; without data, one that points back to other data.

        Return the place that it will have in the file.
        """
        if self.end:
            raise StorageTransactionError(
                'a transaction that was voted takes no more records')
        place = self.start + self._header_length + self._size
        length = len(data)
        header = _record_header.pack(
            oid, tid, previous, self.start, 0, length)
        if self._spool.tell() != self._size:
            # What was read, or a record or a vote that failed.
            self._spool.seek(self._size)
        self._spool.write(header)
        self._spool.write(data or p64(back))
        self._size += DATA_HDR_LEN + (length or 8)
        self.places[oid] = place
        if self._in_memory and self._size > SPOOL_IN_MEMORY:
            self._spill()
        return place

    def _spill(self):
        """A large transaction goes on in a file."""
        file = tempfile.TemporaryFile(dir=self._directory)
        file.write(self._spool.getbuffer())
        self._spool = file
        self._in_memory = False

    def record(self, place):
        """tid, data or b'', back pointer of a record of this transaction."""
        spool = self._spool
        spool.seek(place - self.start - self._header_length)
        _, tid, _, _, _, length = _record_header.unpack(
            spool.read(DATA_HDR_LEN))
        content = spool.read(length or 8)
        if length:
            return tid, content, 0
        return tid, b'', int.from_bytes(content, 'big')

    # The vote

    def write(self, file, durable):
        """Write it into its place, with status 'c'.

        `durable`: where that ends of the file which is known to be on disk.
        """
        length = self._header_length + self._size
        trailer = p64(length)
        if self._spool.seek(0, os.SEEK_END) < self._size:
            raise StorageError('records of the transaction are lost: the file'
                               ' that they were spooled in is too short')
        self._spool.seek(0)
        if self._size <= COPY_CHUNK:  # one write for all
            body = self._spool.read(self._size) + trailer
            file.write_at(
                self._header(length, zlib.crc32(body), durable) + body,
                self.start)
        else:
            position = self.start + self._header_length
            crc = 0
            for chunk in self._chunks(trailer):
                file.write_at(chunk, position)
                position += len(chunk)
                crc = zlib.crc32(chunk, crc)
            file.write_at(self._header(length, crc, durable), self.start)
        self.end = self.start + length + len(trailer)

    def _chunks(self, trailer):
        left = self._size
        while left:
            chunk = self._spool.read(min(left, COPY_CHUNK))
            left -= len(chunk)
            yield chunk
        yield trailer

    def _header(self, length, records_crc, durable):
        """The header with status 'c'; its seal knows the final one."""
        user, description, field = (
            self._user, self._description, self._extension)
        front = _header.pack(
            self.tid, length, self.status, len(user), len(description),
            self._header_length - TRANS_HDR_LEN
            - len(user) - len(description)) + user + description
        if self.sealed:
            field = seal.make(front, field, self.status, self.start, length,
                              durable, records_crc)
        return b''.join((front[:STATUS_OFFSET], b'c',
                         front[STATUS_OFFSET + 1:], field))

    # The end

    def close(self):
        """Its records are not needed any more."""
        with contextlib.suppress(OSError):  # of what it did not write yet
            self._spool.close()

    def abandon(self):
        """We are in the child of a fork: its file is the parent's."""
        forks.silence(self._spool)
