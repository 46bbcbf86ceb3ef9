"""The keys of everything in etcd, and the bytes of the values.

All keys of a log begin with its prefix, and are text, so that an operator can
list them with `etcdctl get --prefix --keys-only`:

    log                  the identity of the log
    head                 the place of its last record
    lease                which node may write (`lease`)
    record/NUMBER        the records
    note/NODE            the notes
    blob/ID/NUMBER       chunks of staged blobs

A record has a CRC of its own.  Every other value is *sealed*: it ends with a
CRC of its key and itself.  So a value that is damaged, or is shown under
another key, is detected.
"""

import struct
import typing
import zlib

from ..history.record import IDENTITY
from ..history.record import Damaged

#: The version of the keys and values; the identity of the log begins with it.
LAYOUT = b'fsyncstorage log 1 '

_CRC = struct.Struct('>I')
# Formats of the numbers of records and chunks, which keep the keys in order.
_RECORD = '%016x'
_CHUNK = '%08x'


class Span(typing.NamedTuple):
    """The keys from `start` on, before `end`."""

    start: bytes
    end: bytes


def below(directory: bytes) -> Span:
    """All keys that begin with this; its last byte is a slash."""
    return Span(directory, directory[:-1] + b'0')


class Keys:

    def __init__(self, prefix: str) -> None:
        root = prefix.rstrip('/').encode() + b'/'
        self.all = below(root)
        self.log = root + b'log'
        self.head = root + b'head'
        self.lease = root + b'lease'
        self._records = root + b'record/'
        self._notes = root + b'note/'
        self._blobs = root + b'blob/'
        self.records = below(self._records)
        self.notes = below(self._notes)
        self.blobs = below(self._blobs)

    def record(self, sequence: int) -> bytes:
        return self._records + (_RECORD % sequence).encode()

    def note(self, node: bytes) -> bytes:
        return self._notes + node.hex().encode()

    def chunks(self, id: bytes) -> Span:
        """The keys of one blob's chunks."""
        return below(self._blobs + id.hex().encode() + b'/')

    def chunk(self, id: bytes, number: int) -> bytes:
        return self.chunks(id).start + (_CHUNK % number).encode()

    # What a key stands for

    def sequence_of(self, key: bytes) -> int:
        number = _named(key, self._records)
        try:
            sequence = int(number, 16)
        except ValueError:
            sequence = -1
        if sequence < 1 or self.record(sequence) != key:
            raise Damaged('a key of a record is no number')
        return sequence

    def node_of(self, key: bytes) -> bytes:
        return _unhexed(_named(key, self._notes))

    def blob_of(self, key: bytes) -> bytes:
        name, _, _ = _named(key, self._blobs).partition(b'/')
        id = _unhexed(name)
        if len(id) != IDENTITY:
            raise Damaged('a key of a chunk names no blob')
        return id


def _named(key: bytes, directory: bytes) -> bytes:
    if not key.startswith(directory):
        raise Damaged('a key that was not asked for')
    return key[len(directory):]


def _unhexed(name: bytes) -> bytes:
    try:
        raw = bytes.fromhex(name.decode('ascii'))
    except ValueError:
        raise Damaged('a key is not in hexadecimal digits') from None
    if raw.hex().encode() != name:
        raise Damaged('a key is not in hexadecimal digits')
    return raw


# Values

def sealed(key: bytes, raw: bytes) -> bytes:
    return raw + _CRC.pack(zlib.crc32(raw, zlib.crc32(key)))


def opened(key: bytes, value: bytes) -> bytes:
    """What was sealed under this key."""
    raw = value[:-_CRC.size]
    if value != sealed(key, raw):
        raise Damaged(f'the value of {key.decode("ascii")} is damaged')
    return raw


def sealed_identity(key: bytes, log: bytes) -> bytes:
    return sealed(key, LAYOUT + log)


def opened_identity(key: bytes, value: bytes) -> bytes:
    raw = opened(key, value)
    if not raw.startswith(LAYOUT) or len(raw) != len(LAYOUT) + IDENTITY:
        raise Damaged('the identity of the log is of another release')
    return raw[len(LAYOUT):]
