"""Sealed data files, made of what stock wrote.

Each transaction gets a seal as the storage makes it: its positions move, so
the pointers in its records are written anew.
"""

import contextlib
import struct
import zlib
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.utils import z64

from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window

from ..support import oid

header = struct.Struct('>8sQcHHH')
record_header = struct.Struct('>8s8sQQHQ')
number = struct.Struct('>Q')

# The shortest record that the walk of the pickles is content with.
NOTHING = b'N.N.'


def window_of(data):
    """A Window of bytes in memory, in place of a file."""
    return Window(
        lambda length, position: data[position:position + length], len(data))


def stock_file(path, transactions):
    """Let stock write a list of ({oid number: data}, metadata); its bytes."""
    storage = FileStorage(path)
    serials = {}
    with contextlib.closing(storage):
        for records, metadata in transactions:
            transaction = TransactionMetaData(**metadata)
            storage.tpc_begin(transaction)
            for key, data in records.items():
                storage.store(oid(key), serials.get(key, z64), data, '',
                              transaction)
            storage.tpc_vote(transaction)
            tid = storage.tpc_finish(transaction)
            serials.update(dict.fromkeys(records, tid))
    return read(path)


def small_file(path, count):
    """So many transactions, as small as they get, on a few objects."""
    return stock_file(
        path, [({index % 7: NOTHING}, {}) for index in range(count)])


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def write(path, data):
    with open(path, 'wb') as file:
        file.write(data)


def sealed(data, which=lambda index: True):
    """The same file, with a seal in those transactions."""
    window = window_of(data)
    made = bytearray(data[:scan.FIRST])
    moved = {0: 0}
    for index, transaction in enumerate(scan.transactions(window)):
        made += _transaction(
            window, transaction, len(made), moved, which(index))
    return bytes(made)


def _transaction(window, transaction, position, moved, with_seal):
    field = transaction.field
    size = len(field) + (seal.room(field) if with_seal else 0)
    at = position + len(transaction.front) + size
    body = bytearray()
    for record in transaction.records:
        moved[record.position] = at + len(body)
        body += record_header.pack(
            record.oid, record.tid, moved[record.previous], position, 0,
            record.length)
        body += (window.read(record.position + scan.RECORD_HEADER,
                             record.length)
                 if record.length else number.pack(moved[record.back]))
    length = at + len(body) - position
    body += number.pack(length)
    front = header.pack(
        transaction.tid, length, transaction.status, len(transaction.user),
        len(transaction.description), size)
    front += transaction.user + transaction.description
    if with_seal:
        field = seal.make(
            front, field, transaction.status, position, length,
            durable=position, records_crc=zlib.crc32(body))
    return front + field + body


def positions(data):
    """Where the transactions of a sound file begin, and the file ends."""
    found = [transaction.position for transaction
             in scan.transactions(window_of(data))]
    return found + [len(data)]


def changed(data, position, new):
    """With one byte, or some, changed."""
    if isinstance(new, int):
        new = bytes([new])
    return data[:position] + new + data[position + len(new):]


def forged(version=9, size=seal.SMALLEST, position=4):
    """A sound seal with nothing in it but what every version has."""
    front = struct.pack('>8sB2xBQ', seal.MAGIC, version, size, position)
    front += bytes(size - len(front) - 4)
    return front + zlib.crc32(front).to_bytes(4, 'big')


def swallowing():
    """Bytes that are a sound seal of another version, together with the seal
    of ours that will be behind them."""
    front = forged(size=24 + seal.SIZE)[:20]
    # With these four bytes, their checksum is that of no bytes.
    return front + (zlib.crc32(front) ^ 0x6dd90a9d).to_bytes(4, 'little')


@contextlib.contextmanager
def later_release(version=seal.VERSION + 1, size=seal.SIZE + 16):
    """A context in which seals are made by a release that is not written yet,
    with a version and a size of its own."""
    with mock.patch.multiple(
            seal, VERSION=version, SIZE=size,
            _FRONT=struct.Struct(f'>8sBBcBQQQ{size - seal.SIZE}x')):
        yield
