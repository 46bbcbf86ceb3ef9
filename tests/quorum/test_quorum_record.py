"""A record and its bytes: nothing is believed of what comes from a log.  What
a node keeps on its disk: all of it, or what was there before.
"""

import dataclasses
import os
import struct
import unittest
import zlib
from unittest import mock

from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.files.state import Becoming
from fsyncstorage.quorum.files.state import Kept
from fsyncstorage.quorum.files.state import Tie
from fsyncstorage.quorum.history import record as records
from fsyncstorage.quorum.history.fold import Pack
from fsyncstorage.quorum.history.fold import State
from fsyncstorage.quorum.history.record import FRONT
from fsyncstorage.quorum.history.record import LIMIT
from fsyncstorage.quorum.history.record import Blob
from fsyncstorage.quorum.history.record import Damaged
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.history.record import PackBegin
from fsyncstorage.quorum.history.record import PackEnd
from fsyncstorage.quorum.history.record import PackSwap
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import Record
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import Unknown
from fsyncstorage.quorum.history.record import pack
from fsyncstorage.quorum.history.record import parse

from ..support import TestCase
from .samples import SELF

BLOB = Blob(b's' * 16, b'o' * 8, b't' * 8, 5, b'c' * 32)
SAMPLE = Record(
    b'l' * 16, 7, b'p' * 16, 2, b'w' * 16, b'b' * 16, 1, 104, Data(
        100, 110, (BLOB,), b'bytes'))
#: One of each kind.
RECORDS = [dataclasses.replace(SAMPLE, body=body) for body in (
    SAMPLE.body, Data(104, 110, (BLOB, BLOB), b''), Data(104, 106, (), b'xy'),
    Epoch(b'n' * 16), PackBegin(b'the time', True, b'version'),
    PackSwap(b'p' * 16, 80, b'c' * 32), PackEnd(b'p' * 16), Trim(5))]

FIRST = State(b'l' * 16, Place(7, b'k' * 16), 2, b'w' * 16, 1, 104)
PACK = Pack(b'p' * 16, 90, b'the time', True, b'1')
KEPT = Kept(dataclasses.replace(FIRST, pack=PACK), Tie(b't' * 8, b'd' * 16),
            SELF, Becoming(80, b'c' * 32))

#: How it is parsed, its bytes, and what it is.
PACKED = [
    *((parse, pack(each), each) for each in RECORDS),
    *((states.parse, states.pack(each), each) for each in (
        KEPT, KEPT._replace(state=FIRST), KEPT._replace(becoming=None)))]

# Where a field is in the bytes of a record, in those of its Data, and of the
# first blob.
VERSION, KIND, SEQUENCE, EPOCH = 8, 9, 26, 50
BEGIN, END, BLOBS = (FRONT + offset for offset in (0, 8, 16))
SIZE_OF_BLOB = BLOBS + 4 + 32


def with_sum(raw):
    """The same bytes, with a length and a CRC that are right."""
    front, rest = raw[:FRONT - 8], raw[FRONT:]
    front += struct.pack('>I', len(rest))
    return front + struct.pack('>I', zlib.crc32(front + rest)) + rest


def with_field(offset, shape, value):
    """A record with another value in one of its fields."""
    raw = bytearray(pack(SAMPLE))
    struct.pack_into(shape, raw, offset, value)
    return with_sum(bytes(raw))


class Bytes(unittest.TestCase):

    def test_what_is_packed_is_parsed(self):
        for parse, raw, made in PACKED:
            self.assertEqual(parse(raw), made)

    def test_a_changed_bit_is_damage(self):
        for parse, raw, _ in PACKED:
            for bit in range(8 * len(raw)):
                wrong = bytearray(raw)
                wrong[bit // 8] ^= 1 << bit % 8
                with self.assertRaises(Damaged):
                    parse(bytes(wrong))

    def test_a_part_and_more_than_all_are_damage(self):
        for parse, raw, _ in PACKED:
            for each in raw + b'\0', *(
                    raw[:cut] for cut in range(len(raw))):
                with self.assertRaises(Damaged):
                    parse(each)

    def test_any_byte_with_a_right_sum(self):
        """It is damage, or a record that has these bytes."""
        for raw in map(pack, RECORDS):
            for at in range(8, len(raw)):
                for value in 0, 1, 2, 127, 128, 255:
                    wrong = bytearray(raw)
                    wrong[at] = value
                    wrong = with_sum(bytes(wrong))
                    try:
                        found = parse(wrong)
                    except (Damaged, Unknown):
                        continue
                    self.assertEqual(pack(found), wrong)

    def test_a_link_stands_for_all_of_it(self):
        """And for all before it, by the link of the record before."""
        places = {
            records.place_of(pack(dataclasses.replace(SAMPLE, **fields)))
            for fields in (
                {}, {'previous': b'q' * 16}, {'writer': b'x' * 16},
                {'body': dataclasses.replace(SAMPLE.body, data=b'other')})}
        self.assertEqual(len({place.link for place in places}), 4)

    def test_a_later_release(self):
        for offset in VERSION, KIND:
            with self.assertRaisesRegex(Unknown, 'does not know'):
                parse(with_field(offset, 'B', 200))
        # Its records may be larger.
        with self.assertRaises(Unknown):
            parse(with_sum(
                with_field(VERSION, 'B', 200) + bytes(records.MOST)))

    def test_what_is_kept_and_not_known_is_damage(self):
        """Also where the CRC is right."""
        large = dataclasses.replace(KEPT.state, end=LIMIT)
        with self.assertRaisesRegex(Damaged, 'a number'):
            states.parse(states.pack(KEPT._replace(state=large)))
        raw = bytearray(states.pack(KEPT)[:-4])
        raw[9] |= 4  # there is something that this release does not know
        with self.assertRaisesRegex(Damaged, 'a number'):
            states.parse(raw + struct.pack('>I', zlib.crc32(raw)))
        with mock.patch.object(states, 'VERSION', 99):
            later = states.pack(KEPT)
        with self.assertRaisesRegex(Damaged, 'version 99'):
            states.parse(later)


class Bounds(unittest.TestCase):
    """Whoever makes the sum right is not believed either."""

    def test_what_cannot_be_is_damage(self):
        for offset, shape, value in (
                (SEQUENCE, '>Q', 0), (SEQUENCE, '>Q', 1 << 63),
                (EPOCH, '>Q', 0), (EPOCH, '>Q', (1 << 64) - 1),
                (BEGIN, '>Q', 105), (BEGIN, '>Q', 1 << 63),
                (END, '>Q', 108), (END, '>Q', 1 << 63),
                (BLOBS, '>I', 0xffffffff), (BLOBS, '>I', 2),
                (SIZE_OF_BLOB, '>Q', 1 << 63)):
            with self.subTest(offset=offset, value=value):
                with self.assertRaises(Damaged):
                    parse(with_field(offset, shape, value))

    def test_none_is_larger_than_an_engine_takes(self):
        most = records.ROOM
        for length, fits in (most, True), (most + 1, False):
            made = dataclasses.replace(SAMPLE, position=0, body=Data(
                0, length, (), bytes(length)))
            if fits:
                self.assertEqual(len(pack(made)), records.LARGEST)
            else:
                with self.assertRaises(ValueError):
                    pack(made)
        raw = with_sum(pack(dataclasses.replace(SAMPLE, position=0, body=Data(
            0, most + 1, (), bytes(most)))) + b'\0')
        with self.assertRaisesRegex(Damaged, f'of {records.MOST + 1} bytes'):
            parse(raw)


class Files(TestCase):

    def test_damage_is_not_taken_for_nothing(self):
        path = self.path() + states.SUFFIX
        for content in b'', b'other', states.pack(KEPT)[:-1]:
            with open(path, 'wb') as file:
                file.write(content)
            with self.assertRaisesRegex(Damaged, 'Data.fs.quorum'):
                states.load(self.path())
        os.remove(path)
        os.mkfifo(path)
        with self.assertRaisesRegex(Damaged, 'no file'):
            states.load(self.path())
