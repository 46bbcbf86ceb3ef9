"""The index file: an exact snapshot of the index at one position.

It is a stock index file, with a trailer behind the point where stock stops
reading (docs/internals/file.rst has the layout).  The trailer names the
position up to which the index is complete, and the data file to which it
belongs.

An index with a trailer is used if all of it is sound.  An index without one
was written by stock, and gets the check that stock would make.

An index is a sequence of pickles, and they are never unpickled.  ZODB always
writes the same few opcodes, so these are matched byte for byte; everything
else is damage.  No length is relied on before its bytes were read.

`Snapshot` keeps the index as it was at its position while commits go on: it is
told before entries change, and keeps the old ones.

Left to others: when an index is written, and that the data before its
position are durable first (checkpoints).
"""

import array
import contextlib
import operator
import os
import re
import stat
import struct
import sys
import typing
import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from BTrees.fsBTree import fsBucket
from ZODB._compat import _protocol
from ZODB._compat import dumps
from ZODB.fsIndex import fsIndex
from ZODB.fsIndex import num2str

from .. import datafile
from .headers import headers_before
from .scan import FIRST
from .scan import HEADER
from .scan import LONGEST
from .window import Window

MAGIC = b'\xf5FSYNCIX'
# Magic, position, fingerprint; then the crc of everything up to here.
_TRAILER = struct.Struct('>8sQI')
_CRC = struct.Struct('>I')
TRAILER_SIZE = _TRAILER.size + _CRC.size

# Behind that, if a pack wrote the index: magic, the length of the data file,
# and the crc of these two.
MAGIC_OF_WHOLE = b'\xf5FSYNCIW'
_WHOLE = struct.Struct('>8sQ')

# At least this many bytes are written at a time.
_AT_ONCE = 1 << 18

# The pickles of an index: a position; then pairs of a prefix and a bucket;
# then None.  Stock writes no memo opcodes, `dumps` does.
_POSITION = re.compile(
    rb'\x80\x03(?:K(.)|M(..)|J(.{4})'
    rb'|\x8a(?:\x05(.{5})|\x06(.{6})|\x07(.{7})))\.', re.DOTALL)
_BEFORE_BUCKET = re.compile(
    rb'\x80\x03C\x06(.{6})(?:q.)?(?:C(.)|B(.{4}))', re.DOTALL)
_BEHIND_BUCKET = re.compile(rb'(?:q.)?\x86(?:q.)?\.', re.DOTALL)
_END = re.compile(rb'\x80\x03N\.')
_LONGEST_MATCH = 32
# Bytes of an entry: the last 2 of the oid; with the position, 8.
_KEY, _ENTRY = 2, 8
_LONGEST_BUCKET = _ENTRY << 16

# A prefix, and the bytes of its bucket.
_Piece = tuple[bytes, bytes]
_Lock = contextlib.AbstractContextManager[object]
_NO_LOCK = contextlib.nullcontext()


class Damaged(Exception):
    """The file is not an index, or not a complete one."""


class Loaded(typing.NamedTuple):
    index: fsIndex
    position: int
    #: None: stock wrote the index, without a checksum.
    fingerprint: int | None
    #: How long the data file was when a pack gave that file its name.
    whole: int | None

    @property
    def durable(self) -> int:
        """The data file was durable up to this position when the index got its
        name."""
        return max(self.position, self.whole or 0)


def save(path: str, snapshot: 'Snapshot', data_file: datafile.DataFile,
         lock: _Lock = _NO_LOCK) -> None:
    """Write a new index file; the other arguments are as for `write`."""
    file = datafile.open_new(path)
    try:
        with file:
            write(file, snapshot, data_file, lock)
    except BaseException:
        datafile.remove_if_there(path)
        raise


def write(file: datafile.DataFile, snapshot: 'Snapshot',
          data_file: datafile.DataFile, lock: _Lock = _NO_LOCK,
          noted: Callable[[int], object] = lambda written: None) -> None:
    """Write the index of a data file to an empty file, and sync it.

    The lock guards the index, if it may change meanwhile.  `noted(written)` is
    called between parts: it may sync what is written.
    """
    written = crc = 0
    buffer = bytearray()
    for data in _contents(snapshot, data_file, lock):
        crc = zlib.crc32(data, crc)
        buffer += data
        if len(buffer) >= _AT_ONCE:
            file.write_at(buffer, written)
            written += len(buffer)
            buffer = bytearray()
            noted(written)
    file.write_at(buffer + _CRC.pack(crc), written)
    file.sync()


def say_whole(path: str, size: int) -> None:
    """Note in an index, which has no such note yet, how long the data file is.

    The data file is durable up to there, and all of it is needed.
    """
    note = _WHOLE.pack(MAGIC_OF_WHOLE, size)
    with datafile.open_existing(path) as file:
        file.write_at(note + _CRC.pack(zlib.crc32(note)), file.size())
        file.sync()


def _contents(snapshot: 'Snapshot', data_file: datafile.DataFile,
              lock: _Lock) -> Iterator[bytes]:
    position = snapshot.position
    # (Now: a pack may take the data file away during the write.)
    trailer = _TRAILER.pack(MAGIC, position, fingerprint(data_file, position))
    yield dumps(position, _protocol)
    for piece in snapshot.pieces(lock):
        yield dumps(piece, _protocol)
    yield dumps(None, _protocol)
    yield trailer


def load(path: str) -> Loaded:
    """The index in a file; raise Damaged if it is not sound."""
    # O_NONBLOCK: opening a pipe must not wait.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise Damaged(f'{path} is no regular file')
    with open(number, 'rb', buffering=0):
        return load_open(number, path)


def load_open(number: int, path: str) -> Loaded:
    """As `load`, for an open file."""
    try:
        return _parse(_Content(Window.of_file(number)))
    except Damaged as reason:
        raise Damaged(f'{path} {reason}') from None


def _parse(content: '_Content') -> Loaded:
    """Parse an index file.  Damaged gets a reason that begins with a verb."""
    found = content.match(_POSITION)
    if not found:
        raise Damaged('cannot be read: it does not begin as an index')
    position = _number(found)
    if not (position == FIRST
            or FIRST + HEADER + 8 <= position < LONGEST):
        raise Damaged(f'cannot be right: it ends at {position}')
    index = fsIndex()
    last = b''
    while found := content.match(_BEFORE_BUCKET):
        prefix = found[1]
        if prefix <= last:
            raise Damaged('cannot be right: its oids do not rise')
        last = prefix
        index._data[prefix] = _bucket(content, _number(found))
    if not content.match(_END):
        raise Damaged('cannot be read: it has other pickles than an index')
    return Loaded(index, position, _read_trailer(content, position),
                  _read_whole(content))


def _number(found: re.Match[bytes]) -> int:
    """The number in the last group that has matched."""
    assert found.lastindex is not None
    return int.from_bytes(found[found.lastindex], 'little')


def _bucket(content: '_Content', size: int) -> fsBucket:
    if size % _ENTRY or not 0 < size <= _LONGEST_BUCKET:
        raise Damaged(f'cannot be right: a bucket of {size} bytes')
    data = content.take(size)
    if not content.match(_BEHIND_BUCKET):
        raise Damaged('cannot be read: a bucket does not end as one')
    keys = array.array('H', data[:size // _ENTRY * _KEY])
    if sys.byteorder == 'little':
        keys.byteswap()
    if not all(map(operator.lt, keys, keys[1:])):
        raise Damaged('cannot be right: its oids do not rise')
    return fsBucket().fromString(data)


def _read_trailer(content: '_Content', position: int) -> int | None:
    """The fingerprint; None if there is no trailer."""
    if content.is_at_end():
        return None
    trailer = content.take(_TRAILER.size)
    if content.crc() != content.take(_CRC.size):
        raise Damaged('has a wrong checksum')
    fingerprint: int
    magic, stated, fingerprint = _TRAILER.unpack(trailer)
    if magic != MAGIC or stated != position:
        raise Damaged('contradicts itself')
    return fingerprint


def _read_whole(content: '_Content') -> int | None:
    if content.is_at_end():
        return None
    note = content.take(_WHOLE.size)
    if (content.take(_CRC.size) != _CRC.pack(zlib.crc32(note))
            or not content.is_at_end()):
        raise Damaged('has a wrong checksum')
    whole: int
    magic, whole = _WHOLE.unpack(note)
    if magic != MAGIC_OF_WHOLE:
        raise Damaged('contradicts itself')
    return whole


class _Content:
    """The bytes of a file, taken from the beginning to the end."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._at = 0

    def match(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """Match the pattern here, and step over it; None: no match."""
        left = self._window.end - self._at
        data, start = self._cover(min(left, _LONGEST_MATCH))
        found = pattern.match(data, start)
        if found:
            self._at += found.end() - start
        return found

    def take(self, size: int) -> bytes:
        data, start = self._cover(size)
        self._at += size
        return data[start:start + size]

    def _cover(self, size: int) -> tuple[bytes, int]:
        try:
            return self._window.cover(self._at, size)
        except EOFError:
            raise Damaged('is too short') from None

    def is_at_end(self) -> bool:
        return self._at == self._window.end

    def crc(self) -> bytes:
        """The crc of all that was taken."""
        return _CRC.pack(self._window.crc(0, self._at, 0))


def fingerprint(file: datafile.DataFile, position: int) -> int:
    """A crc of the first and the last transaction before the position: it
    tells this data file from another of the same length."""
    crc = 0
    if position > FIRST:
        window = Window.of_data_file(file, position)
        last = next(headers_before(window, position), None)
        for start in FIRST, last.position if last else 0:
            # Bytes behind the position may still be replaced.
            crc = zlib.crc32(
                window.read(start, min(256, position - start)), crc)
    return crc


class Snapshot:
    """The index as it is now, read piece by piece while it changes.

    The caller holds the lock that guards the index around each call, but not
    between the pieces.
    """

    def __init__(self, index: fsIndex, position: int) -> None:
        self.position = position
        self._index = index
        self._prefixes = list(index._data.keys())
        # prefix -> suffix -> position, 0 for none
        self._before: dict[bytes, dict[bytes, int]] = {}

    def about_to_change(self, oids: Iterable[bytes]) -> None:
        """The entries of these oids will change: keep their old values."""
        for oid in oids:
            before = self._before.setdefault(oid[:6], {})
            if oid[6:] not in before:
                before[oid[6:]] = self._index.get(oid, 0)

    def pieces(self, lock: _Lock) -> Iterator[_Piece]:
        """Yield (prefix, bucket bytes), as of the moment of the snapshot."""
        for prefix in self._prefixes:
            with lock:
                data = self._index._data[prefix].toString()
                before = dict(self._before.get(prefix, ()))
            if before:
                data = self._put_back(data, before)
            if data:
                yield prefix, data

    @staticmethod
    def _put_back(data: bytes, before: dict[bytes, int]) -> bytes:
        bucket = fsBucket().fromString(data)
        for suffix, position in before.items():
            if position:
                bucket[suffix] = num2str(position)
            else:
                bucket.pop(suffix, None)
        return bucket.toString() if len(bucket) else b''
