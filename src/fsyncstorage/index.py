"""The index file: an exact snapshot of the index at one position.

It is a stock index file, with a trailer behind the point where stock stops
reading::

    8  magic
    8  position      everything before it is in this index
    4  fingerprint   of the data file that the index belongs to
    4  crc           of all before, from the first byte of the file

An index with a trailer is believed if all of it is right; one without was
written by stock, and is left to stock's own check.

`Snapshot` keeps what the index said at its position while commits go on: it is
told before entries change, and keeps the old ones.

Left to others: when an index is written, and that the data before its
position is durable first (checkpoints).
"""

import contextlib
import io
import struct
import typing
import zlib

from BTrees.fsBTree import fsBucket
from ZODB._compat import Unpickler
from ZODB._compat import _protocol
from ZODB._compat import dumps
from ZODB.fsIndex import fsIndex
from ZODB.fsIndex import num2str

from . import datafile
from .scan import FIRST

MAGIC = b'\xf5FSYNCIX'
_TRAILER = struct.Struct('>8sQI')
_CRC = struct.Struct('>I')
TRAILER_SIZE = _TRAILER.size + _CRC.size


class Damaged(Exception):
    """The file is no index, or not all of one."""


class Loaded(typing.NamedTuple):
    index: fsIndex
    position: int
    #: None: written by stock, without a checksum.
    fingerprint: int | None


def save(path, position, pieces, fingerprint):
    """Write an index, and sync it.  `pieces` are (prefix, bucket bytes)."""
    file = datafile.open_new(path)
    try:
        with io.BufferedWriter(file, 1 << 18) as writer:
            crc = 0
            for data in _contents(position, pieces, fingerprint):
                crc = zlib.crc32(data, crc)
                writer.write(data)
            writer.write(_CRC.pack(crc))
            writer.flush()
            file.sync()
    except BaseException:
        datafile.remove_if_there(path)
        raise


def save_unchanging(path, position, index, file):
    """Write an index that nobody changes meanwhile."""
    pieces = Snapshot(index, position).pieces(contextlib.nullcontext())
    save(path, position, pieces, fingerprint(file, position))


def _contents(position, pieces, fingerprint):
    yield dumps(position, _protocol)
    for piece in pieces:
        yield dumps(piece, _protocol)
    yield dumps(None, _protocol)
    yield _TRAILER.pack(MAGIC, position, fingerprint)


def load(path):
    """The index in a file, or Damaged; None for one of an old release."""
    with open(path, 'rb') as file:
        content = file.read()
    try:
        if not isinstance(Unpickler(io.BytesIO(content)).load(), int):
            return None
        position, index, end = _unpickle(content)
    except Exception as error:  # what rubbish raises is not defined
        raise Damaged(f'{path} cannot be read ({error})') from error
    trailer = content[end:]
    if not trailer:
        return Loaded(index, position, None)
    crc, = _CRC.unpack(content[-_CRC.size:])
    if len(trailer) != TRAILER_SIZE or zlib.crc32(content[:-_CRC.size]) != crc:
        raise Damaged(f'{path} has a wrong checksum')
    magic, stated, fingerprint = _TRAILER.unpack(trailer[:-_CRC.size])
    if magic != MAGIC or stated != position:
        raise Damaged(f'{path} contradicts itself')
    return Loaded(index, position, fingerprint)


def _unpickle(content):
    """The position, the index, and where the trailer begins."""
    file = io.BytesIO(content)
    position = Unpickler(file).load()
    index = fsIndex()
    while (piece := Unpickler(file).load()) is not None:
        prefix, bucket = piece
        index._data[prefix] = fsBucket().fromString(bucket)
    return position, index, file.tell()


def fingerprint(file, position):
    """What tells this data file from another with the same length: its first
    and its last transaction before the position."""
    crc = 0
    if position > FIRST:
        with file.reader() as reader:
            for start in FIRST, _last_transaction(reader, position):
                reader.seek(start)
                # What is behind the position may still become another.
                crc = zlib.crc32(
                    reader.read(min(256, position - start)), crc)
    return crc


def last_tid(file, position):
    """That of the last transaction before the position."""
    with file.reader() as reader:
        reader.seek(_last_transaction(reader, position))
        return reader.read(8)


def _last_transaction(reader, position):
    """Where it begins, or 0 if that cannot be."""
    reader.seek(position - 8)
    length = int.from_bytes(reader.read(8), 'big')
    return max(position - 8 - length, 0)


class Snapshot:
    """The index as it is now, read piece by piece while it changes.

    The caller holds the lock that guards the index around each call, but not
    between the pieces.
    """

    def __init__(self, index, position):
        self.position = position
        self._index = index
        self._prefixes = list(index._data.keys())
        self._before = {}  # prefix -> suffix -> position, 0 for none

    def about_to_change(self, oids):
        """These entries will change: keep what they are."""
        for oid in oids:
            before = self._before.setdefault(oid[:6], {})
            if oid[6:] not in before:
                before[oid[6:]] = self._index.get(oid, 0)

    def pieces(self, lock):
        """(prefix, bucket bytes), as of the moment of the snapshot."""
        for prefix in self._prefixes:
            with lock:
                data = self._index._data[prefix].toString()
                before = dict(self._before.get(prefix, ()))
            if before:
                data = self._put_back(data, before)
            if data:
                yield prefix, data

    @staticmethod
    def _put_back(data, before):
        bucket = fsBucket().fromString(data)
        for suffix, position in before.items():
            if position:
                bucket[suffix] = num2str(position)
            else:
                bucket.pop(suffix, None)
        return bucket.toString() if len(bucket) else b''
