"""Random Data.fs files, written byte by byte: what any program may have done.

Objects refer to each other; transactions undo others, and undo undos;
creations are undone; some references lead nowhere; some transactions have two
records of one object, as old releases of ZEO wrote them for blobs.
"""

import random
import struct
import typing
import zlib

from ZODB._compat import FILESTORAGE_MAGIC
from ZODB.utils import p64

from fsyncstorage.format import seal

FIRST_TID = 0x03f0000000000000
OBJECTS = 8
NOWHERE = 1000
CLASS = b'\x80\x03cpersistent.mapping\nPersistentMapping\nq\x00.'
BLOB = b'\x80\x03cZODB.blob\nBlob\nq\x00.\x80\x03N.'
HEADER = struct.Struct('>8sQcHHH')
RECORD = struct.Struct('>8s8sQQHQ')


class Options(typing.NamedTuple):
    transactions: int
    dangling: bool = False
    twice: bool = False     # two records of one object
    sealed: bool = False
    undos: float = .35      # how many of the records
    classes: int = 1        # of objects that are no blobs


class Record(typing.NamedTuple):
    oid: bytes
    position: int


def class_of(number):
    """How a record of one of several classes begins."""
    return CLASS if not number else CLASS.replace(b'Map', b'Ma%d' % number)


def tid(number):
    return p64(FIRST_TID + number)


def state(rng, oids, begin=CLASS):
    """A record that refers to these objects."""
    references = b''.join(
        b'C\x08' + p64(oid) + b'N\x86Q' for oid in oids)
    noise = bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
    return (begin + b'\x80\x03](' + references
            + b'B' + struct.pack('<I', len(noise)) + noise + b'e.')


class History:

    def __init__(self, rng, options):
        self._rng = rng
        self._options = options
        self._bytes = bytearray(FILESTORAGE_MAGIC)
        self._records = {}      # oid -> positions
        #: Objects that are blobs.
        self._blobs = set(rng.sample(range(1, OBJECTS), 2))
        self.has_duplicates = False
        for number in range(options.transactions):
            self._transaction(number)
        self.last = options.transactions - 1

    def __bytes__(self):
        return bytes(self._bytes)

    def _transaction(self, number):
        rng = self._rng
        oids = rng.sample(range(OBJECTS), rng.randrange(1, 4))
        if number == 0:
            oids = [0, 1, 2]
        if self._options.twice and rng.random() < .3:
            oids.append(rng.choice(oids))
            self.has_duplicates = True
        user = b'u' * rng.randrange(3)
        extension = rng.choice([b'', b'\x80\x03}q\x00.'])
        front = 23 + len(user)
        field = extension
        if self._options.sealed:
            field += bytes(seal.room(extension))
        begin = len(self._bytes)
        records, positions = b'', []
        for oid in oids:
            at = begin + front + len(field) + len(records)
            positions.append((oid, at))
            records += self._record(oid, number, begin)
        length = front + len(field) + len(records)
        header = HEADER.pack(tid(number), length, b' ', len(user), 0,
                              len(field)) + user
        behind = records + p64(length)
        if self._options.sealed:
            field = seal.make(header, extension, b' ', begin, length,
                              rng.randrange(begin + 1), zlib.crc32(behind),
                              id=rng.randbytes(16))
        self._bytes += header + field + behind
        for oid, at in positions:
            self._records.setdefault(oid, []).append(at)

    def _record(self, oid, number, begin):
        rng = self._rng
        earlier = self._records.get(oid, [])
        previous = earlier[-1] if earlier else 0
        data, back = b'', 0
        if earlier and rng.random() < self._options.undos:
            # An undo; of the creation, if there is nothing before.
            back = rng.choice([0, *earlier, *earlier[-2:]])
            if oid == 0 and not back:
                back = earlier[0]
        elif oid in self._blobs:
            data = BLOB
        else:
            oids = rng.sample(range(OBJECTS), rng.randrange(3))
            if self._options.dangling and rng.random() < .1:
                oids.append(NOWHERE)
            data = state(rng, self._existing(oids), class_of(
                oid % self._options.classes))
        return RECORD.pack(
            p64(oid), tid(number), previous, begin, 0, len(data)) + (
                data or p64(back))

    def _existing(self, oids):
        """A reference leads nowhere only where that is wanted (or where a
        creation is undone)."""
        if self._options.dangling:
            return oids
        return [oid for oid in oids if oid in self._records or oid < 3]


def random_history(number):
    rng = random.Random(number)
    return rng, History(rng, Options(
        transactions=rng.randrange(1, 14),
        dangling=rng.random() < .15,
        twice=rng.random() < .15,
        sealed=rng.random() < .4))
