"""What a reader sees: one file, one index, up to one transaction.

A `View` does not change, except that its index, which it shares, runs ahead:
the index has transactions that are appended and not yet published.  Every
look-up walks back from there to what the view may show.  Publishing replaces
the view by a new one, a pack by a view of another file.  A reader keeps the
view it began with, and with it the open file.  So reading takes no lock.

Left to others: which view is the current one, and the gate (the storage).
"""

import errno
import itertools
import logging
import os
import struct
from base64 import encodebytes
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from ZODB.FileStorage.FileStorage import TransactionRecord
from ZODB.FileStorage.format import DATA_HDR
from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.FileStorage.format import CorruptedDataError
from ZODB.fsIndex import fsIndex
from ZODB.POSException import POSKeyError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from ..datafile import DataFile
from . import extension
from .headers import Header
from .headers import header_at
from .headers import headers_before
from .scan import FIRST
from .scan import LONGEST
from .window import Window

logger = logging.getLogger(__name__)

_data_header = struct.Struct(DATA_HDR)
# The same, without the fields that a look-up does not need.
_record = struct.Struct('>8s8sQ10xQ')
_number = struct.Struct('>Q')

# One read gets the page in which a record begins, and the next page; so also
# records before it.  (ZODB stores new objects in reverse order of oids.)
PAGE = 4096
BLOCK = 2 * PAGE

# Errors of a system or file system that does not know what is cached.
_NO_SUCH_FLAG = None, errno.EOPNOTSUPP, errno.ENOSYS

_LATER_THAN_ALL = b'\xff' * 8

# An entry of a log of transactions, or of a history; and what selects entries.
Entry = dict[str, Any]
Filter = Callable[[Entry], object]
# Of a record: tid, previous position (or its own), data or b'', back pointer.
Found = tuple[bytes, int, bytes, int]
# The data, their tid, and the tid of the next revision (None: these are last).
Revision = tuple[bytes, bytes, bytes | None]


def pread_cached(descriptor: int, length: int, position: int) -> bytes:
    """os.pread, but only from the page cache; else BlockingIOError."""
    buffer = bytearray(length)
    try:
        got = os.preadv(descriptor, [buffer], position, os.RWF_NOWAIT)
    except (AttributeError, OSError) as error:  # no such call, or flag
        if getattr(error, 'errno', None) not in _NO_SUCH_FLAG:
            raise
        raise BlockingIOError(errno.EAGAIN, 'not known here') from None
    # The rest is on the disk, unless the file ends there.
    if got < length and position + got < os.fstat(descriptor).st_size:
        raise BlockingIOError(errno.EAGAIN, 'cached in part')
    return bytes(memoryview(buffer)[:got])


def check_oid(oid: bytes) -> None:
    """Refuse anything but an oid: stock would silently pad or cut it."""
    if not isinstance(oid, bytes):
        raise TypeError(f'an oid is 8 bytes, not {oid!r}')
    if len(oid) != 8:
        raise ValueError(f'an oid is 8 bytes, not {len(oid)}: {oid!r}')


def check_serial(serial: bytes) -> None:
    """Refuse anything but a serial: the file must have what was given."""
    if serial.__class__ is not bytes or len(serial) != 8:
        raise ValueError(f'a serial is 8 bytes, not {serial!r}')


def serial_or_none(given: bytes) -> bytes:
    """What a caller gives as a serial; z64, which no revision has, in place of
    what is none."""
    is_one = given.__class__ is bytes and len(given) == 8 and given != z64
    return given if is_one else z64  # one object for all of them


def read_header(
        file: DataFile, position: int,
        oid: bytes | None = None) -> tuple[bytes, bytes, int, int, int, int]:
    """The header of the record at a position, as in `DATA_HDR`; with an oid,
    the record must be of that object."""
    descriptor = file.descriptor
    buffer = os.pread(descriptor.number, DATA_HDR_LEN, position)
    if len(buffer) < DATA_HDR_LEN or (
            oid is not None and not buffer.startswith(oid)):
        raise CorruptedDataError(oid, buffer, position)
    return _data_header.unpack(buffer)


def serial_at(file: DataFile, position: int, oid: bytes) -> bytes:
    """The serial of the record at a position.

    An object that has just changed often changes again: then its serial is
    known without reading.
    """
    return file.serials.get(position) or read_header(file, position, oid)[1]


def _earlier(oid: bytes, target: int, position: int) -> int:
    """The target of a pointer in the record at that position.

    It must lead backwards: else a damaged file could let a reader circle.
    """
    if target >= position:
        raise CorruptedDataError(oid, _number.pack(target), position)
    return target


class View:

    __slots__ = ('file', 'index', 'end', 'tid')

    pread = staticmethod(os.pread)
    #: Does it keep the last block that it has read?
    keeps = True

    def __init__(self, file: DataFile, index: fsIndex, end: int,
                 tid: bytes) -> None:
        self.file = file
        self.index = index
        self.end = end      # transactions from here on are not shown
        self.tid = tid      # the last one shown

    def shows_all_before(self, tid: bytes) -> bool:
        shown: bool = u64(tid) <= u64(self.tid) + 1
        return shown

    # One record

    def _read(self, position: int, oid: bytes,
              before: bytes = _LATER_THAN_ALL) -> Found:
        """What a record has.

        The data of one that is not before the tid may be left out: a look-up
        of an old revision passes all later ones, which may be large.

        Objects that were stored together are often read together: mostly, the
        next one is in the block that was read last.
        """
        start, block = self.file.block
        at = position - start
        if 0 <= at <= len(block) - DATA_HDR_LEN:
            found, tid, previous, length = _record.unpack_from(block, at)
            first = at + DATA_HDR_LEN
            last = first + length
            if found == oid and first < last <= len(block):
                return tid, previous, block[first:last], 0
        return self._read_from_file(position, oid, before)

    def _read_from_file(
            self, position: int, oid: bytes, before: bytes) -> Found:
        descriptor = self.file.descriptor
        at = position % PAGE
        start = position - at
        block = self.pread(descriptor.number, BLOCK, start)
        if self.keeps and position < self.end:
            self.file.block = start, block[:self.end - start]
        first = at + DATA_HDR_LEN
        if len(block) < first:
            raise CorruptedDataError(oid, block[at:], position)
        found, tid, previous, length = _record.unpack_from(block, at)
        if found != oid:
            raise CorruptedDataError(oid, block[at:first], position)
        if not length:
            back, = _number.unpack_from(block, first)
            return tid, previous, b'', back
        data = block[first:first + length]
        if len(data) == length:  # mostly
            return tid, previous, data, 0
        if tid >= before:
            return tid, previous, b'', 0
        begin = start + first
        if (length > LONGEST or
                begin + length > os.fstat(descriptor.number).st_size):
            raise CorruptedDataError(oid, block[at:first], position)
        while len(data) < length:  # one read returns 2 GB at most
            more = self.pread(descriptor.number, length - len(data),
                              begin + len(data))
            if not more:
                raise CorruptedDataError(oid, data[:DATA_HDR_LEN], position)
            data += more
        return tid, previous, data, 0

    def _revisions(self, oid: bytes,
                   before: bytes = _LATER_THAN_ALL) -> Iterator[Found]:
        """tid, position, data, back pointer of each record, newest first."""
        if oid.__class__ is not bytes:
            check_oid(oid)
        position = self.index.get(oid, 0)
        while position:
            tid, previous, data, back = self._read(position, oid, before)
            if position < self.end:
                yield tid, position, data, back
            position = previous and _earlier(oid, previous, position)

    def _data(self, oid: bytes, position: int, back: int) -> bytes:
        """The data of a record that has a back pointer in their place."""
        return self.load_back(oid, _earlier(oid, back, position))[0]

    def load_back(self, oid: bytes, position: int) -> tuple[bytes, bytes]:
        """The data to which a back pointer leads, and the tid with which they
        were written."""
        data = b''
        while not data:
            if not position:
                raise POSKeyError(oid)
            tid, _, data, back = self._read(position, oid)
            position = back and _earlier(oid, back, position)
        return data, tid

    def record(self, oid: bytes, position: int) -> tuple[bytes, bytes, int]:
        """tid, data or b'', back pointer of the record at this position."""
        tid, _, data, back = self._read(position, oid)
        return tid, data, back

    def _missing(self, oid: bytes) -> POSKeyError:
        check_oid(oid)
        return POSKeyError(oid)

    # The look-ups of IStorage

    def load_before(self, oid: bytes, tid: bytes) -> Revision | None:
        if oid.__class__ is not bytes:
            check_oid(oid)
        return self.load_before_from(self.index.get(oid, 0), oid, tid)

    def load_before_from(
            self, position: int, oid: bytes, tid: bytes) -> Revision | None:
        """The same, from the position of the newest record."""
        end_tid = None
        while position:
            found, previous, data, back = self._read(position, oid, tid)
            if position < self.end:
                if found < tid:
                    return (data or self._data(oid, position, back),
                            found, end_tid)
                end_tid = found
            position = previous and _earlier(oid, previous, position)
        if end_tid is None:
            raise self._missing(oid)
        return None

    def load(self, oid: bytes) -> tuple[bytes, bytes]:
        found = self.load_before(oid, _LATER_THAN_ALL)
        assert found is not None
        return found[:2]

    def load_serial(self, oid: bytes, serial: bytes) -> bytes:
        behind = serial + b'\0'  # all that is not later is before that
        for tid, position, data, back in self._revisions(oid, behind):
            if tid == serial:
                return data or self._data(oid, position, back)
            if tid < serial:
                break
        raise self._missing(oid)

    def get_tid(self, oid: bytes) -> bytes:
        for tid, _, data, back in self._revisions(oid):
            if not data and not back:
                break  # its creation was undone
            return tid
        raise self._missing(oid)

    def next_record(
            self,
            oid: bytes | None) -> tuple[bytes, bytes, bytes, bytes | None]:
        """oid, tid and data of the first current record at or after this oid,
        and the next oid (None at the end)."""
        while True:
            oid = self.index.minKey(oid)
            try:
                data, tid = self.load(oid)
            except POSKeyError:
                if not self._later_than_view(oid):
                    raise
                oid = p64(u64(oid) + 1)
            else:
                return oid, tid, data, self._oid_after(oid)

    def _later_than_view(self, oid: bytes) -> bool:
        return next(self._revisions(oid), None) is None

    def _oid_after(self, oid: bytes) -> bytes | None:
        while True:
            try:
                oid = self.index.minKey(p64(u64(oid) + 1))
            except ValueError:  # the end of the index
                return None
            if not self._later_than_view(oid):
                return oid

    # Transactions

    def window(self) -> Window:
        """A window of its own, to read headers of transactions."""
        return Window.of_data_file(self.file, self.end)

    def history(self, oid: bytes, size: int,
                filter: Filter | None) -> list[Entry]:
        result: list[Entry] = []
        window = self.window()
        position = self.index.get(oid, 0)
        known = False
        while position and len(result) < size:
            _, tid, previous, transaction, _, length = read_header(
                self.file, position, oid)
            if position < self.end:
                known = True
                header = header_at(window, transaction)
                entry = {**_extension(header), **_description(header),
                         'tid': tid, 'size': length}
                if filter is None or filter(entry):
                    result.append(entry)
            position = previous and _earlier(oid, previous, position)
        if not known and size > 0:
            raise self._missing(oid)
        return result

    def undo_log(self, first: int, last: int,
                 filter: Filter | None) -> list[Entry]:
        return list(itertools.islice(
            (entry for entry in self._undoable()
             if filter is None or filter(entry)),
            max(first, 0), max(last, 0)))

    def _undoable(self) -> Iterator[Entry]:
        """Yield what can be undone, newest first, back to the last pack."""
        for header in headers_before(self.window(), self.end):
            if header.status == b'p':
                return
            if header.status == b' ':
                yield {
                    'id': encodebytes(header.tid).rstrip(),
                    'size': header.length, **_description(header),
                    **_extension(header)}

    def last_invalidations(self,
                           count: int) -> list[tuple[bytes, list[bytes]]]:
        position = self.end
        for header in itertools.islice(
                headers_before(self.window(), self.end), max(count, 0)):
            position = header.position
        return [(record.tid, [data.oid for data in record])
                for record in ViewIterator(self, position=position)]


def _description(header: Header) -> Entry:
    return {
        'time': TimeStamp(header.tid).timeTime(),
        'user_name': header.user,
        'description': header.description,
    }


def _extension(header: Header) -> Entry:
    pickle = header.extension
    return extension.shown(pickle) if pickle else {}


class CachedView(View):
    """A view that never waits for the disk: it raises BlockingIOError."""

    __slots__ = ()

    pread = staticmethod(pread_cached)


class ViewIterator:
    """The transactions of a view, as stock's FileIterator yields them.

    It reads the open file of the view.  After a pack, another file has that
    name.
    """

    def __init__(self, view: View, start: bytes | None = None,
                 stop: bytes | None = None, position: int = FIRST) -> None:
        for tid in start, stop:
            if tid is not None:
                check_oid(tid)
        self._file = view.file.reader()
        self._name = view.file.name
        self._window = view.window()
        self._position = position
        self._stop = stop
        if start:
            self._position = view.end
            for header in headers_before(self._window, view.end):
                if header.tid < start:
                    break
                self._position = header.position

    def __iter__(self) -> 'ViewIterator':
        return self

    def __next__(self) -> TransactionRecord:
        while self._position < self._window.end and not self._file.closed:
            header = header_at(self._window, self._position)
            if self._stop is not None and header.tid > self._stop:
                break
            if not self._is_sound(header):
                logger.warning(
                    '%s: the transaction at %d is damaged: an iteration ends'
                    ' before it', self._name, header.position)
                break
            self._position = header.end
            if header.status != b'u':  # undone by an old release of ZODB
                return TransactionRecord(
                    header.tid, header.status.decode(), header.user,
                    header.description, header.extension, header.records,
                    header.position + header.length, self._file,
                    header.position)
        self.close()
        raise StopIteration

    def _is_sound(self, header: Header) -> bool:
        """Do its lengths agree?"""
        behind = header.position + header.length
        return (header.status in (b' ', b'p', b'u')
                and header.records <= behind
                and header.end <= self._window.end
                and self._window.read(behind, 8) == _number.pack(
                    header.length))

    def __len__(self) -> int:
        """As in stock, for code that wants the length of any sequence."""
        return 0

    def iterator(self) -> 'ViewIterator':
        """So that it can be copied from, like a storage."""
        return self

    def close(self) -> None:
        self._file.close()
