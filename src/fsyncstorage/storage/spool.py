"""What a caller stores in one transaction, in a file that has no name.

The file is a log of operations, so that a transaction need not remember in
memory what it stores before its vote.  An entry is::

    kind (1)  oid (8)  serial (8)  other serial (8)  length (8)  data

A thread that uses it owns it, as it owns the transaction.
"""

import contextlib
import struct
import tempfile
import typing
from collections.abc import Iterator
from typing import IO

from ZODB.POSException import StorageError
from ZODB.utils import z64

from .. import forks

# Bytes that are written, or read, at a time.
AT_ONCE = 1 << 16

# What an entry is: a store (of no data: a deletion) that replaces the revision
# with this serial; a restore with this serial, of the data in the transaction
# with the other serial; an object that was read with this serial; data alone;
# the undo of the transaction with this serial (of other storages only, see
# server.oneatatime).
STORE, RESTORE, READ, DATA, UNDO = b's', b'r', b'c', b'd', b'u'

_entry = struct.Struct('>c8s8s8sQ')

# Data; or their position in the spool and their length, in one number.  (A
# pair would take 80 bytes more for each record.)
StoredData = bytes | int
_LENGTHS = 1 << 48


class Entry(typing.NamedTuple):

    kind: bytes
    oid: bytes
    serial: bytes
    other: bytes
    length: int
    #: The data, for `read`.
    data: StoredData


class Spool:

    def __init__(self, directory: str | None = None) -> None:
        """Without a directory, it is in that of the system."""
        self._directory = directory or tempfile.gettempdir()
        self._file: IO[bytes] = tempfile.TemporaryFile(
            buffering=AT_ONCE, dir=self._directory)
        self._end = 0
        #: The file is positioned at its end.
        self._is_at_end = True

    def add(self, kind: bytes, oid: bytes = z64, serial: bytes = z64,
            other: bytes = z64, data: bytes = b'') -> int:
        """Return what `read` wants for these data."""
        if not self._is_at_end:  # else a seek would write the buffer
            self._file.seek(self._end)
        self._is_at_end = False  # if there is an error
        with self._named_errors():
            self._file.write(
                _entry.pack(kind, oid, serial, other, len(data)))
            self._file.write(data)
        position = self._end + _entry.size
        self._end = position + len(data)
        self._is_at_end = True
        return position * _LENGTHS + len(data)

    def flush(self) -> None:
        """Write the rest: a full disk is an error now, not later."""
        with self._named_errors():
            self._file.flush()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = self._directory
            raise

    def read(self, data: int) -> bytes:
        return self._read(*divmod(data, _LENGTHS))

    def _read(self, position: int, length: int) -> bytes:
        self._is_at_end = False
        with self._named_errors():  # to read is to write the buffer first
            self._file.seek(position)
            data = self._file.read(length)
        if len(data) != length:
            raise StorageError('records of the transaction are lost: its spool'
                               ' file is too short')
        return data

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order in which they were added."""
        position = 0
        while position < self._end:
            kind, oid, serial, other, length = _entry.unpack(
                self._read(position, _entry.size))
            position += _entry.size
            if serial == z64:
                serial = z64  # one object for all of them
            yield Entry(kind, oid, serial, other, length,
                        position * _LENGTHS + length if length else b'')
            position += length

    def close(self) -> None:
        with contextlib.suppress(OSError):  # of bytes still to be written
            self._file.close()

    def abandon(self) -> None:
        """Called in the child of a fork: the file is the parent's."""
        forks.silence(self._file)
