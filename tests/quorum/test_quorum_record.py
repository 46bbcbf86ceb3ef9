"""A record and its bytes: nothing is believed of what comes from a log.  What
a node keeps on its disk: all of it, or what was there before.
"""

import dataclasses
import os
import struct
import unittest
import zlib
from unittest import mock

from hypothesis import strategies

from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.files.state import Becoming
from fsyncstorage.quorum.files.state import Kept
from fsyncstorage.quorum.files.state import Tie
from fsyncstorage.quorum.history import record as records
from fsyncstorage.quorum.history.batch import Batch
from fsyncstorage.quorum.history.batch import chunks
from fsyncstorage.quorum.history.fold import Pack
from fsyncstorage.quorum.history.fold import State
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

from ..generated import given
from ..generated import settings
from ..support import TestCase
from .samples import BEGIN
from .samples import BLOBS
from .samples import END
from .samples import EPOCH
from .samples import KIND
from .samples import SELF
from .samples import SEQUENCE
from .samples import VERSION
from .samples import changed
from .samples import with_sum

NUMBERS = strategies.integers(0, records.LIMIT - 1)
IDENTITIES = strategies.binary(min_size=16, max_size=16)
OIDS = strategies.binary(min_size=8, max_size=8)
CHECKSUMS = strategies.binary(min_size=32, max_size=32)
SOME_BLOBS = strategies.builds(
    Blob, IDENTITIES, OIDS, OIDS, NUMBERS, CHECKSUMS)
BLOB = Blob(b's' * 16, b'o' * 8, b't' * 8, 5, b'c' * 32)


@strategies.composite
def chunk(draw):
    begin = draw(strategies.integers(0, 1 << 60))
    data = draw(strategies.binary(min_size=1, max_size=40))
    before, behind = draw(strategies.tuples(
        strategies.integers(0, 99), strategies.integers(0, 99)))
    blobs = tuple(draw(strategies.lists(SOME_BLOBS, max_size=3)))
    if blobs and draw(strategies.booleans()):
        before, data, behind = 0, b'', behind + 1
    return begin + before, Data(
        begin, begin + before + len(data) + behind, blobs, data)


PLACED = strategies.one_of(chunk(), strategies.tuples(
    NUMBERS, strategies.one_of(
        strategies.builds(Epoch, IDENTITIES),
        strategies.builds(
            PackBegin, OIDS, strategies.booleans(),
            strategies.binary(min_size=1, max_size=64)),
        strategies.builds(PackSwap, IDENTITIES, NUMBERS, CHECKSUMS),
        strategies.builds(PackEnd, IDENTITIES),
        strategies.builds(Trim, NUMBERS))))


@strategies.composite
def some_record(draw):
    position, body = draw(PLACED)
    return Record(
        draw(IDENTITIES), draw(NUMBERS.filter(bool)), draw(IDENTITIES),
        draw(NUMBERS.filter(bool)), draw(IDENTITIES), draw(IDENTITIES),
        draw(NUMBERS), position, body)


STATES = strategies.builds(
    State, IDENTITIES, strategies.builds(Place, NUMBERS, IDENTITIES), NUMBERS,
    IDENTITIES, NUMBERS, NUMBERS, strategies.none(),
    strategies.one_of(strategies.none(), strategies.builds(
        Pack, IDENTITIES, NUMBERS, OIDS, strategies.booleans(),
        strategies.binary(min_size=1, max_size=64))))
KEPT = strategies.builds(
    Kept, STATES, strategies.builds(Tie, OIDS, IDENTITIES), IDENTITIES,
    strategies.one_of(strategies.none(), strategies.builds(
        Becoming, NUMBERS, strategies.binary(min_size=32, max_size=32))))

FIRST = State(b'l' * 16, Place(7, b'k' * 16), 2, b'w' * 16, 1, 104)
PACK = Pack(b'p' * 16, 90, b'the time', True, b'1')
BECOMING = Becoming(80, b'c' * 32)
TIE = Tie(b't' * 8, b'd' * 16)
KEPT_SAMPLE = Kept(
    dataclasses.replace(FIRST, pack=PACK), TIE, SELF, BECOMING)

#: How it is parsed, its bytes, and what it is.
PACKED = strategies.one_of(
    some_record().map(lambda made: (parse, pack(made), made)),
    KEPT.map(lambda made: (states.parse, states.pack(made), made)))

SAMPLE = Record(
    b'l' * 16, 7, b'p' * 16, 2, b'w' * 16, b'b' * 16, 1, 104, Data(
        100, 110, (BLOB,), b'bytes'))
# Where the fields of its blob are.
OF_BLOB = BLOBS + 4
SIZE_OF_BLOB = OF_BLOB + 32


def with_field(offset, shape, value):
    return changed(pack(SAMPLE), offset, shape, value)


class Bytes(unittest.TestCase):

    level = 2

    @given(PACKED)
    @settings(max_examples=100)
    def test_what_is_packed_is_parsed(self, packed):
        parse, raw, made = packed
        self.assertEqual(parse(raw), made)

    @given(PACKED, strategies.data())
    @settings(max_examples=100)
    def test_a_changed_bit_is_damage(self, packed, data):
        parse, raw, _ = packed
        raw = bytearray(raw)
        bit = data.draw(strategies.integers(0, len(raw) * 8 - 1))
        raw[bit // 8] ^= 1 << bit % 8
        with self.assertRaises(Damaged):
            parse(bytes(raw))

    @given(PACKED, strategies.data())
    def test_a_part_and_more_than_all_are_damage(self, packed, data):
        parse, raw, _ = packed
        cut = data.draw(strategies.integers(0, len(raw) - 1))
        for each in raw[:cut], raw + b'\0':
            with self.assertRaises(Damaged):
                parse(each)

    @given(strategies.binary(max_size=300))
    def test_any_bytes_are_damage(self, raw):
        for each in raw, records.MAGIC + raw:
            with self.assertRaises(Damaged):
                parse(each)

    @given(some_record(), strategies.data())
    @settings(max_examples=100)
    def test_any_bytes_with_a_right_sum(self, record, data):
        """They are damage, or a record that has these bytes."""
        raw = bytearray(pack(record))
        for _ in range(data.draw(strategies.integers(1, 3))):
            at = data.draw(strategies.integers(8, len(raw) - 1))
            raw[at] = data.draw(strategies.integers(0, 255))
        raw = with_sum(bytes(raw))
        try:
            found = parse(raw)
        except (Damaged, Unknown):
            return
        self.assertEqual(pack(found), raw)

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
        large = dataclasses.replace(KEPT_SAMPLE.state, end=LIMIT)
        with self.assertRaisesRegex(Damaged, 'a number'):
            states.parse(states.pack(KEPT_SAMPLE._replace(state=large)))
        raw = bytearray(states.pack(KEPT_SAMPLE)[:-4])
        raw[9] |= 4  # there is something that this release does not know
        with self.assertRaisesRegex(Damaged, 'a number'):
            states.parse(raw + struct.pack('>I', zlib.crc32(raw)))
        with mock.patch.object(states, 'VERSION', 99):
            later = states.pack(KEPT_SAMPLE)
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


class Chunks(unittest.TestCase):

    CONTENT = bytes(range(256))

    def read(self, position, length):
        return self.CONTENT[position:position + length]

    @given(strategies.integers(1, 256),
           strategies.lists(SOME_BLOBS, max_size=5),
           strategies.integers(records.BLOB, 200))
    def test_all_of_a_batch_is_in_its_chunks(self, end, blobs, room):
        batch = Batch(0, end, self.read, blobs)
        made = chunks(batch, room)
        bodies = [each.body() for each in made]
        for each, body in zip(made, bodies):
            body.check(each.position)
            self.assertLessEqual(
                len(body.packed()), room + records.MOST - records.ROOM)
        self.assertEqual(
            b''.join(each.data for each in bodies), self.CONTENT[:end])
        self.assertEqual(
            [blob for each in bodies for blob in each.blobs], blobs)
        self.assertTrue(bodies[-1].data)


def transaction(tid, data):
    """As far as a tie looks at it."""
    length = len(tid) + 8 + len(data)
    return b''.join((
        tid, length.to_bytes(8, 'big'), data, length.to_bytes(8, 'big')))


def reader(content):
    return lambda position, length: content[position:position + length]


class TheFile(unittest.TestCase):
    """What is kept is about one file, and no other one of the same length."""

    LONG = b'FS30' + b''.join(
        transaction(b'tid %4d' % number, b'x' * number)
        for number in range(500))

    def misfit(self, content, kept_of=LONG, end=None):
        end = len(kept_of) if end is None else end
        state = dataclasses.replace(FIRST, end=end)
        kept = Kept(state, states.tie_of(reader(kept_of), end), SELF)
        return states.misfit(kept, reader(content), len(content))

    def test_one_whose_last_length_is_any(self):
        """It is another file; nothing before its begin is read."""
        for length in 0, 1, len(self.LONG), (1 << 64) - 1:
            self.assertIsNotNone(self.misfit(
                self.LONG[:-8] + length.to_bytes(8, 'big')))

    def test_what_changes_within_the_last_bytes(self):
        for back in 1, 100, states.TIED:
            at = len(self.LONG) - back
            self.assertIsNotNone(self.misfit(
                self.LONG[:at] + b'?' + self.LONG[at + 1:]))


class Files(TestCase):

    def test_what_is_saved_is_loaded(self):
        self.assertIsNone(states.load(self.path()))
        read = reader(TheFile.LONG)
        states.save(self.path(), FIRST, read, SELF, BECOMING)
        self.assertEqual(states.load(self.path()), Kept(
            FIRST, states.tie_of(read, FIRST.end), SELF, BECOMING))

    def test_damage_is_not_taken_for_nothing(self):
        path = self.path() + states.SUFFIX
        for content in b'', b'other', states.pack(KEPT_SAMPLE)[:-1]:
            with open(path, 'wb') as file:
                file.write(content)
            with self.assertRaisesRegex(Damaged, 'Data.fs.quorum'):
                states.load(self.path())
        os.remove(path)
        os.mkfifo(path)
        with self.assertRaisesRegex(Damaged, 'no file'):
            states.load(self.path())
