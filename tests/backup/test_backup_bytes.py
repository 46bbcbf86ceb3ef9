"""Heads, manifests, lists and documents: what is written is read, and nothing
else is."""

import hashlib
import random
import struct
import unittest

from hypothesis import strategies as st

from fsyncstorage.backup import bodies
from fsyncstorage.backup import content
from fsyncstorage.backup import head as heads
from fsyncstorage.backup.head import Damaged
from fsyncstorage.backup.head import Head
from fsyncstorage.backup.head import Newer
from fsyncstorage.backup.layout import Database
from fsyncstorage.backup.layout import checked_database
from fsyncstorage.backup.store import LARGEST

from ..generated import given

SUM = hashlib.sha256(b'').digest()


def ids():
    return st.binary(min_size=8, max_size=8)


def sums():
    return st.binary(min_size=32, max_size=32)


@st.composite
def some_heads(draw):
    start = draw(st.integers(0, heads.LIMIT - 1))
    kind = draw(st.sampled_from(heads.KINDS))
    return Head(
        kind, heads.ELSEWHERE if kind == heads.PACK
        else draw(st.sampled_from([heads.WHOLE, heads.MANIFEST])), start,
        draw(st.integers(start, heads.LIMIT - 1)), draw(sums()),
        draw(st.integers(0, 1 << 64 - 1)), draw(ids()), draw(ids()),
        draw(sums()), draw(sums()), draw(ids()), draw(ids()) + draw(ids()))


def sealed(data):
    """With the sum that a hostile store would compute for it."""
    return data + hashlib.sha256(data).digest()


class Heads(unittest.TestCase):

    head = Head(heads.SEGMENT, heads.WHOLE, 4, 5, SUM)

    @given(some_heads())
    def test_each_is_read_as_it_was_written(self, head):
        data = head.pack()
        self.assertEqual(len(data), heads.SIZE)
        self.assertEqual(data[-32:], head.sum)
        self.assertEqual(heads.unpack(data + b'body', (head.kind,)), head)

    def refuse(self, data, error=Damaged):
        with self.assertRaises(error):
            heads.unpack(data, heads.KINDS)

    def test_each_flipped_bit_is_found(self):
        data = self.head.pack()
        for number in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[number // 8] ^= 1 << number % 8
            self.refuse(bytes(flipped))

    def test_what_is_cut_off(self):
        for length in range(heads.SIZE):
            self.refuse(self.head.pack()[:length])

    def changed(self, at, value):
        data = bytearray(self.head.pack()[:-32])
        data[at:at + len(value)] = value
        return sealed(bytes(data))

    def test_what_a_later_release_may_write(self):
        """Version, compression, encryption."""
        for at, value in (8, b'\3'), (11, b'\1'), (12, b'\1'):
            self.refuse(self.changed(at, value), Newer)

    def test_what_no_release_writes(self):
        number = struct.Struct('>Q').pack
        for at, value in (
                (0, b'x'), (9, b'?'), (10, b'\2'), (13, b'\1'), (15, b'\1'),
                (16, number(6)), (24, number(heads.LIMIT))):
            self.refuse(self.changed(at, value))

    def test_another_kind_than_expected(self):
        with self.assertRaisesRegex(Damaged, "'s'.*'l'"):
            heads.unpack(self.head.pack(), (heads.LIST,))


class Manifests(unittest.TestCase):

    @given(st.lists(st.tuples(sums(), st.integers(1, 100)).map(
        lambda part: bodies.Part(*part))))
    def test_each_is_read_as_it_was_written(self, parts):
        length = sum(part.length for part in parts)
        self.assertEqual(
            bodies.read_manifest(bodies.manifest(parts), length, 100), parts)

    def test_bad_ones(self):
        part = bodies.Part(SUM, 10)
        for body, length in (
                (bodies.manifest([part])[:-1], 10),
                (bodies.manifest([part]), 11),
                (bodies.manifest([part, part]), 10),
                (bodies.manifest([bodies.Part(SUM, 0)]), 0),
                (bodies.manifest([bodies.Part(SUM, 101)]), 101)):
            with self.assertRaises(Damaged):
                bodies.read_manifest(body, length, 100)


class BlobLists(unittest.TestCase):

    @given(st.dictionaries(
        st.tuples(ids(), ids()), st.tuples(
            st.none() | st.integers(0, heads.LIMIT - 1), sums())))
    def test_each_is_read_as_it_was_written(self, found):
        blobs = [bodies.ListedBlob(*name, size, bytes(32) if size is None
                                   else sum)
                 for name, (size, sum) in found.items()]
        self.assertEqual(
            bodies.read_blob_list(bodies.blob_list(blobs)),
            sorted(blobs, key=lambda blob: (blob.tid, blob.oid)))

    def test_bad_ones(self):
        one, two = (bodies.ListedBlob(bytes(8), bytes(7) + bytes([number]), 3,
                                      SUM) for number in (1, 2))
        first, second = map(bodies.blob_list, ([one], [two]))
        for body in (
                first[:-1], first + first, second + first,
                bodies.blob_list([one._replace(size=heads.LIMIT)]),
                bodies.blob_list([one._replace(size=None)])):
            with self.assertRaises(Damaged):
                bodies.read_blob_list(body)


class Documents(unittest.TestCase):

    fields = {'a': int, 'b': (int, float), 'c': str}

    def test_each_is_read_as_it_was_written(self):
        found = {'a': 1, 'b': 1.5, 'c': '\u20ac'}
        self.assertEqual(bodies.read_document(
            bodies.document({**found, 'later': []}), self.fields), found)

    def test_bad_ones(self):
        good = {'a': 1, 'b': 1, 'c': ''}
        for values in (
                {'a': 1}, {**good, 'a': True}, {**good, 'a': '1'},
                {**good, 'c': None}, {**good, 'b': []}):
            with self.assertRaises(Damaged):
                bodies.read_document(bodies.document(values), self.fields)
        for body in b'', b'[]', b'\xff', b'[' * 100_000, b'{"a": NaN}':
            with self.assertRaises(Damaged):
                bodies.read_document(body, self.fields)


class AnyBytes(unittest.TestCase):

    def test_readers_raise_no_other_error(self):
        chance = random.Random(1)
        for _ in range(2000):
            data = chance.randbytes(chance.choice([0, 1, 40, 56, 184, 400]))
            for read in (
                    lambda: heads.unpack(heads.MAGIC + data, heads.KINDS),
                    lambda: bodies.read_manifest(data, 1 << 20, 1 << 20),
                    lambda: bodies.read_blob_list(data),
                    lambda: bodies.read_document(data, {'a': int})):
                try:
                    read()
                except Damaged as error:
                    self.assertNotIn('\n', str(error))


class Names(unittest.TestCase):

    def test_of_databases(self):
        for name in 'main', '1', 'a.b-c_d', 'a' * 100:
            self.assertEqual(checked_database(name), name)
        for name in '', '.', '..', '.a', 'a/b', '-a', 'a b', 'a' * 101, 'a\n':
            with self.assertRaises(ValueError):
                checked_database(name)

    def test_their_order_is_that_of_numbers(self):
        timeline = Database('main').timeline(1)
        numbers = [0, 9, 10, 86_400, 10 ** 9]
        keys = [timeline.segment(number) for number in numbers]
        self.assertEqual(keys, sorted(keys))
        self.assertEqual([*map(timeline.sequence, keys)], numbers)

    def test_what_is_no_object_of_a_log(self):
        timeline = Database('main').timeline(1)
        for name in 'a', '1', '0' * 13, '0' * 12 + '.part', '\u0660' * 12:
            with self.assertRaises(Damaged):
                timeline.sequence(f'{timeline.log}/{name}')


class Bounds(unittest.TestCase):

    def test_an_object_is_far_below_what_a_store_takes(self):
        self.assertLess(2 * (content.PART + heads.SIZE), LARGEST)
