"""Data files that somebody wrote to do harm: well-formed where it serves."""

import struct
import zlib

from fsyncstorage.format import scan
from fsyncstorage.format import seal

from ..support import oid
from .sealing import NOTHING
from .sealing import header
from .sealing import number
from .sealing import record_header

MAGIC = b'FS30'


def record(position, key, data=b'', back=0, previous=0, length=None, tid=1):
    """A record of the transaction at that position."""
    return record_header.pack(
        oid(key), oid(tid), previous, position, 0,
        len(data) if length is None else length) + (
        data or number.pack(back))


def transaction(position, tid, body, status=b' ', field=b'', length=None,
                with_seal=False, durable=0, crc=None):
    """A transaction with these records; its length may be another."""
    size = len(field) + (seal.room(field) if with_seal else 0)
    if length is None:
        length = scan.HEADER + size + len(body)
    front = header.pack(oid(tid), length, status, 0, 0, size)
    end = number.pack(length)
    if with_seal:
        final = b' ' if status == b'c' else status
        made = header.pack(oid(tid), length, final, 0, 0, size)
        field = seal.make(
            made, field, final, position, length, durable,
            zlib.crc32(body + end) if crc is None else crc)
    return front + field + body + end


class File:
    """What is appended, transaction by transaction."""

    def __init__(self):
        self.data = bytearray(MAGIC)
        self.tid = 0

    @property
    def end(self):
        return len(self.data)

    def append(self, *records, **options):
        """`records` are functions of the position; or data of object 0."""
        self.tid += 1
        position = self.end
        size = scan.HEADER
        if options.get('with_seal'):
            size += seal.room(b'')
        body = b''
        for each in records or (NOTHING,):
            body += (record(position, 0, each, tid=self.tid)
                     if isinstance(each, bytes)
                     else each(position, position + size + len(body)))
        self.data += transaction(position, self.tid, body, **options)
        return position

    def add(self, data):
        self.data += data


def many_unfinished(count):
    """Each is damage, which only the last seal tells."""
    file = File()
    for _ in range(count):
        file.append(status=b'c', with_seal=True)
    file.append(with_seal=True, durable=1 << 40)
    return file.data


def damage_and_sound_in_turn(count):
    file = File()
    for _ in range(count):
        file.append()
        file.add(b'damaged' * 5)
    file.append()
    return file.data


def looks_like_headers(count):
    """Lengths that fit to each other, and no records."""
    period = 24
    length = struct.pack('>Q', count // 2 * period)
    file = File()
    file.add((bytes(8) + length + b' ' + b'\xff\xff' * 3 + b'.') * count)
    file.append()
    return file.data


def seals_over_the_rest(count):
    """What looks like an old transaction with a seal that does not fit; each
    would have to be read to its end."""
    file = File()
    file.add(bytes(40))
    size = scan.HEADER + seal.SIZE + 2
    ends = file.end + count * size
    for index in range(count):
        position = file.end
        length = ends + index * 8 - position
        file.add(transaction(
            position, index + 1, b'', b'u', length=length, with_seal=True,
            crc=0)[:size])
    for index in range(count):
        file.add(number.pack(ends + index * 8 - (44 + index * size)))
    return file.data


def records_over_the_rest(count):
    """The first record of each reaches to the end, where another is broken."""
    file = File()
    file.add(bytes(40))
    size = scan.HEADER + seal.SIZE + 2 + scan.RECORD_HEADER
    begin = file.end
    middle = begin + count * size
    step = 60
    for index in range(count):
        position = file.end
        end = middle + index * step
        length = end + 50 - position
        body = record(position, 0, b'x', length=end - position - size)[:-1]
        file.add(transaction(
            position, index + 1, body, length=length, with_seal=True,
            crc=0)[:size])
    for index in range(count):
        length = middle + index * step + 50 - (begin + index * size)
        file.add(bytes(50) + number.pack(length) + b'..')
    return file.data


def chain_of_back_pointers(count):
    file = File()
    last = 0
    for index in range(count):
        def made(position, here):
            nonlocal last
            made = record(position, 1, back=last, previous=last,
                          tid=file.tid) if last else record(
                position, 1, NOTHING, tid=file.tid)
            last = here
            return made
        file.append(made)
    return file.data


def pointers_to_the_same_data(count):
    """Each of another object, and to data that are forged: in a pickle are
    headers of records that reach to the end of the file."""
    file = File()
    start = file.end + scan.HEADER + scan.RECORD_HEADER
    size = scan.RECORD_HEADER
    filler = b'N.N.' + b'x' * 100 * count
    forged = b''.join(
        record(file.end, index + 1, b'x',
               length=(count - index - 1) * size + len(filler))[:-1]
        for index in range(count))
    file.append(forged + filler)
    for index in range(count):
        file.append(lambda position, here: record(
            position, index + 1, back=start + index * size, tid=file.tid))
    return file.data


# With a number for which a time that is not in proportion shows.
FILES = (
    (many_unfinished, 1000),
    (damage_and_sound_in_turn, 1000),
    (looks_like_headers, 20_000),
    (seals_over_the_rest, 8000),
    (records_over_the_rest, 4000),
    (chain_of_back_pointers, 1000),
    (pointers_to_the_same_data, 4000),
)
