"""A record and its bytes: nothing is believed of what comes from a log."""

import dataclasses
import unittest

from hypothesis import strategies

from fsyncstorage.quorum.history import record as records
from fsyncstorage.quorum.history.batch import Batch
from fsyncstorage.quorum.history.batch import chunks
from fsyncstorage.quorum.history.record import Blob
from fsyncstorage.quorum.history.record import Commit
from fsyncstorage.quorum.history.record import Damaged
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.history.record import PackBegin
from fsyncstorage.quorum.history.record import PackEnd
from fsyncstorage.quorum.history.record import PackSwap
from fsyncstorage.quorum.history.record import Record
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import Unknown
from fsyncstorage.quorum.history.record import pack
from fsyncstorage.quorum.history.record import parse

from ..generated import given
from ..generated import settings
from .samples import BEGIN
from .samples import BLOBS
from .samples import COMMITS
from .samples import END
from .samples import EPOCH
from .samples import KIND
from .samples import SEQUENCE
from .samples import VERSION
from .samples import changed
from .samples import with_sum

NUMBERS = strategies.integers(0, records.LIMIT - 1)
IDENTITIES = strategies.binary(min_size=16, max_size=16)
OIDS = strategies.binary(min_size=8, max_size=8)
SOME_COMMITS = strategies.builds(
    Commit, strategies.binary(min_size=36, max_size=36), OIDS)
CHECKSUMS = strategies.binary(min_size=32, max_size=32)
SOME_BLOBS = strategies.builds(
    Blob, IDENTITIES, OIDS, OIDS, NUMBERS, CHECKSUMS, strategies.booleans())
BLOB = Blob(b's' * 16, b'o' * 8, b't' * 8, 5, b'c' * 32, True)


@strategies.composite
def chunk(draw):
    begin = draw(strategies.integers(0, 1 << 60))
    data = draw(strategies.binary(min_size=1, max_size=40))
    before, behind = draw(strategies.tuples(
        strategies.integers(0, 99), strategies.integers(0, 99)))
    commits = tuple(draw(strategies.lists(SOME_COMMITS, max_size=3)))
    blobs = tuple(draw(strategies.lists(SOME_BLOBS, max_size=3)))
    if (commits or blobs) and draw(strategies.booleans()):
        before, data, behind = 0, b'', behind + 1
    return begin + before, Data(
        begin, begin + before + len(data) + behind, commits, blobs, data)


PLACED = strategies.one_of(chunk(), strategies.tuples(
    NUMBERS, strategies.one_of(
        strategies.builds(Epoch, IDENTITIES, IDENTITIES),
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


SAMPLE = Record(
    b'l' * 16, 7, b'p' * 16, 2, b'w' * 16, b'b' * 16, 1, 104, Data(
        100, 110, (Commit(b'c' * 36, b't' * 8),), (BLOB,), b'bytes'))


# Where the fields of its blob are.
OF_BLOB = BLOBS + 4 + records.COMMIT
SIZE_OF_BLOB, SHARED = OF_BLOB + 32, OF_BLOB + 72


def with_field(offset, shape, value):
    return changed(pack(SAMPLE), offset, shape, value)


class Bytes(unittest.TestCase):

    level = 2

    @given(some_record())
    @settings(max_examples=100)
    def test_what_is_packed_is_parsed(self, record):
        self.assertEqual(parse(pack(record)), record)
        self.assertEqual(
            records.place_of(pack(record)).sequence, record.sequence)

    @given(some_record(), strategies.data())
    @settings(max_examples=100)
    def test_a_changed_bit_is_damage(self, record, data):
        raw = bytearray(pack(record))
        bit = data.draw(strategies.integers(0, len(raw) * 8 - 1))
        raw[bit // 8] ^= 1 << bit % 8
        with self.assertRaises(Damaged):
            parse(bytes(raw))

    @given(some_record(), strategies.data())
    def test_a_part_and_more_than_all_are_damage(self, record, data):
        raw = pack(record)
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


class Bounds(unittest.TestCase):
    """Whoever makes the sum right is not believed either."""

    def test_what_cannot_be_is_damage(self):
        for offset, shape, value in (
                (SEQUENCE, '>Q', 0), (SEQUENCE, '>Q', 1 << 63),
                (EPOCH, '>Q', 0), (EPOCH, '>Q', (1 << 64) - 1),
                (BEGIN, '>Q', 105), (BEGIN, '>Q', 1 << 63),
                (END, '>Q', 108), (END, '>Q', 1 << 63),
                (COMMITS, '>I', 0xffffffff), (COMMITS, '>I', 2),
                (BLOBS, '>I', 0xffffffff), (BLOBS, '>I', 2),
                (SHARED, 'B', 2), (SIZE_OF_BLOB, '>Q', 1 << 63)):
            with self.subTest(offset=offset, value=value):
                with self.assertRaises(Damaged):
                    parse(with_field(offset, shape, value))

    def test_none_is_larger_than_an_engine_takes(self):
        most = records.ROOM
        for length, fits in (most, True), (most + 1, False):
            made = dataclasses.replace(SAMPLE, position=0, body=Data(
                0, length, (), (), bytes(length)))
            if fits:
                self.assertEqual(len(pack(made)), records.LARGEST)
            else:
                with self.assertRaises(ValueError):
                    pack(made)
        raw = with_sum(pack(dataclasses.replace(SAMPLE, position=0, body=Data(
            0, most + 1, (), (), bytes(most)))) + b'\0')
        with self.assertRaisesRegex(Damaged, f'of {records.MOST + 1} bytes'):
            parse(raw)


class Chunks(unittest.TestCase):

    CONTENT = bytes(range(256))

    def read(self, position, length):
        return self.CONTENT[position:position + length]

    @given(strategies.integers(1, 256),
           strategies.lists(SOME_COMMITS, max_size=5),
           strategies.lists(SOME_BLOBS, max_size=5),
           strategies.integers(max(records.COMMIT, records.BLOB), 200))
    def test_all_of_a_batch_is_in_its_chunks(self, end, commits, blobs, room):
        batch = Batch(0, end, self.read, commits, blobs)
        made = chunks(batch, room)
        bodies = [each.body() for each in made]
        for each, body in zip(made, bodies):
            body.check(each.position)
            self.assertLessEqual(
                len(body.packed()), room + records.MOST - records.ROOM)
        self.assertEqual(
            b''.join(each.data for each in bodies), self.CONTENT[:end])
        self.assertEqual(
            [commit for each in bodies for commit in each.commits], commits)
        self.assertEqual(
            [blob for each in bodies for blob in each.blobs], blobs)
        self.assertTrue(bodies[-1].data)
