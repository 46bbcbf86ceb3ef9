"""The file of the client's cache: a log, in a ring of segments.

Nothing in it is changed in place.  When the last segment is full, the oldest
is overwritten.  Each segment is a chain of records:

    check     4   CRC-32 of the rest of the record, begun with its position
    previous  4   the check of the record before
    kind      1
    length    4   of the body
    oid       8
    serial    8
    end       8
    body

    DATA      a revision; `end` is zeros for a current one
    ENDED     the current revisions of these oids (the body) end at `serial`;
              zeros: they are forgotten
    TOLD      the last tid is `serial` now
    SEGMENT   a segment begins: its number (`oid`), and the last tid

A position counts from the begin of the first segment that there ever was, and
is never used again: so a record that is left from an earlier round does not
check.  The first `previous` of a segment links it to the one before.

*The promise*: what can be read, up to the first record that is torn or
missing, is true as of the last tid there.  A process that is killed leaves
such a file; and so does a power cut, whose pages arrive in any order.

Left to the cache: a lock, what the records mean, and to forget objects before
`begin`, which are overwritten.
"""

import contextlib
import fcntl
import logging
import os
import struct
import tempfile
from zlib import crc32

from zc.lockfile import LockError
from ZEO.Exceptions import ClientDisconnected
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from .. import core

logger = logging.getLogger(__name__)

#: What our file begins with, of any version; the version; bytes of a segment.
NAME, VERSION = b'fsyncstorage cache ', b'1\n'
FILE_HEAD = struct.Struct('>24sQ')

SEGMENTS = 8
SMALLEST_SEGMENT = 1 << 12
#: `Positions` have six bytes.
MOST = 1 << 48

DATA, ENDED, TOLD, SEGMENT = b'D', b'E', b'T', b'S'
CHECK = 4
HEAD = struct.Struct('>IIcI8s8s8s')
# All of it but for the check.
_checked_head = struct.Struct('>IcI8s8s8s')
# A check begins with the rest of the position.  (No ring's size divides it.)
MODULUS = (1 << 32) - 1

#: So many bytes of records are written together.
TOGETHER = 1 << 16
#: One call reads most objects, and some of those behind them.
READ_AHEAD = 1 << 12
SCAN_AHEAD = 1 << 20


class CacheFile:

    def __init__(self, path, size):
        """LockError if another cache uses it; ValueError if it is none."""
        self._process = os.getpid()
        self._segment = max(
            (size - FILE_HEAD.size) // SEGMENTS, SMALLEST_SEGMENT)
        self.ring = SEGMENTS * self._segment
        #: Of a body.
        self.longest = self._segment - 2 * HEAD.size
        self._head = FILE_HEAD.pack(NAME + VERSION, self._segment)
        #: Where the next record comes, and where its segment ends.
        self.end = self._segment_end = 0
        #: The last tid that was told, and the last check.
        self.told, self._check = z64, None
        # While the file is scanned, all is in the file.
        self._begin_tail(MOST)
        #: What was read last, and its position.
        self._block, self._block_at = b'', 0
        self._file = _opened(path)
        #: For the core.
        self.descriptor = self._file.fileno()
        try:
            self._is_ours = self._has_our_head(path)
        except BaseException:
            self.close()
            raise

    def _has_our_head(self, path):
        head = os.pread(self._file.fileno(), FILE_HEAD.size, 0)
        if head == self._head:
            return True
        if head.startswith(NAME):
            logger.info(
                '%s begins empty: it has another size or version', path)
        elif head.strip(b'\0'):
            raise ValueError(
                f'{path} is no cache of this client, it begins with'
                f' {head[:8]!r}: move it away, or choose another name')
        return False

    # Writing

    def _begin_tail(self, position):
        #: What is not written yet, and its position.
        self._tail, self._tail_at = bytearray(), position
        #: All before this position is overwritten.
        self.begin = position - self.ring

    def tell(self, tid):
        if tid > self.told:
            self.append(TOLD, z64, tid, z64)
            self.told = tid

    def append(self, kind, oid, serial, end, body=b''):
        """Return the position of the new record."""
        size = HEAD.size + len(body)
        if self.end + size > self._segment_end:
            self._begin_segment()
        elif len(self._tail) >= TOGETHER:
            self.write()
        position = self.end
        checked = _checked_head.pack(
            self._check, kind, len(body), oid, serial, end) + body
        self._check = crc32(checked, position % MODULUS)
        self._tail += self._check.to_bytes(CHECK, 'big') + checked
        self.end = position + size
        return position

    def _begin_segment(self):
        self.write()
        if self._segment_end > MOST - self._segment:
            raise OSError('all its positions were used')
        self.end = self._segment_end
        self._segment_end += self._segment
        self._begin_tail(self.end)
        self.append(SEGMENT, p64(self.end // self._segment), self.told, z64)

    def write(self):
        """Write what was appended."""
        if self._tail:
            self._write_at(self._place(self._tail_at), self._tail)
            self._begin_tail(self.end)

    def empty(self, tid):
        """Begin a chain that knows nothing but this last tid."""
        if self._segment_end > MOST - self._segment:
            self._segment_end = 0
        self.told, self._check, self._tail = tid, 0, bytearray()
        self._check_process()
        os.ftruncate(self._file.fileno(), FILE_HEAD.size)
        os.ftruncate(self._file.fileno(), FILE_HEAD.size + self.ring)
        self._write_at(0, self._head)
        if not self._is_ours:
            # Or a power cut could leave a file that is not taken for ours.
            os.fsync(self._file.fileno())
            self._is_ours = True
        self._begin_segment()
        self.write()

    def _write_at(self, place, data):
        self._check_process()
        if os.pwrite(self._file.fileno(), data, place) < len(data):
            raise OSError('not all of it was written')

    def _check_process(self):
        if os.getpid() != self._process:
            raise ClientDisconnected(
                'this cache was opened by another process, before a fork')

    def _place(self, position):
        return FILE_HEAD.size + position % self.ring

    # Reading

    def read(self, position, ahead=READ_AHEAD):
        """Return the record at this position: check, previous, kind, oid,
        serial, end, body; None: there is none that checks."""
        block, first = self._bytes_at(position, HEAD.size, ahead)
        if len(block) - first < HEAD.size:
            return None
        check, previous, kind, length, oid, serial, end = HEAD.unpack_from(
            block, first)
        size = HEAD.size + length
        if first + size > len(block):
            if position % self._segment + size > self._segment:
                return None
            block, first = self._bytes_at(position, size, ahead)
        checked = bytes(block[first + CHECK:first + size])
        if check != crc32(checked, position % MODULUS):
            return None
        body = checked[HEAD.size - CHECK:]
        return check, previous, kind, oid, serial, end, body

    def revision(self, position, oid):
        """Data and serial of this object, as DATA at that position has them;
        None: it has not."""
        record = self.read(position)
        if record is None or record[2] != DATA or record[3] != oid:
            return None
        return record[6], record[4]

    def _bytes_at(self, position, size, ahead):
        """A block that has so many bytes from there on, unless the file ends
        before; and where in the block they begin."""
        if position >= self._tail_at:
            return self._tail, position - self._tail_at
        first = position - self._block_at
        if first < 0 or first + size > len(self._block):
            # Other bytes will come behind the begin of the tail.
            size = min(max(size, ahead), self._tail_at - position)
            self._block = os.pread(
                self._file.fileno(), size, self._place(position))
            self._block_at, first = position, 0
        return self._block, first

    # Opening

    def scan(self, forget, replay):
        """Call `replay` with each record that can be read.  If it returns
        False, the record counts as damaged.

        Where a segment is not whole, or the next one is of another chain,
        `forget` is called before the next one: ends of revisions may be
        missing.  (What ends a revision of the next segment comes behind it.)

        Return False if nothing can be read.
        """
        for number in self._numbers() if self._is_ours else ():
            self.end = number * self._segment
            self._segment_end = self.end + self._segment
            record = self.read(self.end, SCAN_AHEAD)
            if record is not None and record[1] != self._check:
                self._check, self.told = record[1], z64
                forget()
            while (record is not None and record[1] == self._check
                    and replay(self.end, *record[2:])):
                self._check = record[0]
                self.end += HEAD.size + len(record[-1])
                if self.end > self._segment_end - HEAD.size:
                    break
                record = self.read(self.end, SCAN_AHEAD)
        self._block = b''
        self._begin_tail(self.end)
        return self._check is not None

    def _numbers(self):
        """Of the segments that have begun, in their order."""
        numbers = []
        for place in range(SEGMENTS):
            head = os.pread(self._file.fileno(), HEAD.size,
                            self._place(place * self._segment))
            if len(head) == HEAD.size:
                number = u64(HEAD.unpack(head)[4])
                if (number % SEGMENTS == place
                        and self.read(number * self._segment) is not None):
                    numbers.append(number)
        return sorted(numbers)

    def close(self):
        """What is not written is lost."""
        self.descriptor = core.NO_DESCRIPTOR
        with contextlib.suppress(OSError):
            # A child may have inherited the file.
            fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)
            self._file.close()


def _opened(path):
    """The file, which no other cache uses."""
    if path is None:
        return tempfile.TemporaryFile(buffering=0)
    file = open(path, 'r+b', 0, opener=lambda path, flags: os.open(
        path, flags | os.O_CREAT, 0o666))
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        file.close()
        if isinstance(error, BlockingIOError):
            raise LockError(
                f'the cache {path} is used by another client') from error
        raise
    return file
