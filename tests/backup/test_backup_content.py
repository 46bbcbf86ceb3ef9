"""Content of any size: what was put is read, and nothing else is."""

import hashlib
import unittest

from fsyncstorage.backup import content
from fsyncstorage.backup import head as heads
from fsyncstorage.backup.head import Damaged
from fsyncstorage.backup.head import Head
from fsyncstorage.backup.layout import Database
from fsyncstorage.backup.store import LARGEST
from fsyncstorage.backup.store import Exists
from fsyncstorage.backup.store import StoreError

from ..support import TestCase
from .stores import Simple

KEY = 'main/blobs/a'
DATABASE = Database('main')


class Contents(TestCase):

    def setUp(self):
        super().setUp()
        self.patch(content, PART=10)
        self.store = Simple()

    def put(self, data, read=None):
        head = Head(heads.BLOB, heads.WHOLE, 0, len(data),
                    hashlib.sha256(data).digest())
        return content.put(
            self.store, DATABASE, KEY, head,
            read or (lambda at, length: data[at:at + length]))

    def get(self):
        head, pieces = content.get(self.store, DATABASE, KEY, (heads.BLOB,))
        return head, [*pieces]

    def test_any_size_is_read_as_it_was_put(self):
        for size in 0, 1, 9, 10, 11, 20, 25:
            with self.subTest(size):
                self.store.objects.clear()
                data = bytes(range(size))
                head = self.put(data)
                found, pieces = self.get()
                self.assertEqual((found, b''.join(pieces)), (head, data))
                self.assertLessEqual(max(map(len, pieces)), 10)

    def test_the_manifest_is_put_last(self):
        keys = []
        self.store.before = lambda method, key: (
            method == 'create' and keys.append(key))
        self.put(bytes(range(25)))
        self.assertEqual(keys[-1], KEY)
        self.assertEqual(len(keys), 4)

    def test_an_upload_that_was_cut_off_goes_on(self):
        data = bytes(range(35))

        def fail(method, key):
            if len(self.store.objects) == 2:
                raise StoreError('away')

        self.store.before = fail
        with self.assertRaises(StoreError):
            self.put(data)
        self.assertNotIn(KEY, self.store.objects)
        created = []
        self.store.before = lambda method, key: (
            method == 'create' and created.append(key))
        self.put(data)
        self.assertEqual(len(created), 3)
        self.assertEqual(b''.join(self.get()[1]), data)

    def test_what_is_there_stays(self):
        self.put(b'one')
        with self.assertRaises(Exists):
            self.put(b'two')
        self.assertEqual(self.get()[1], [b'one'])

    def test_what_changes_meanwhile_is_not_put(self):
        for data in b'one', bytes(25):
            with self.assertRaises(content.Changed):
                self.put(data, lambda at, length: b'x' * length)
            self.assertNotIn(KEY, self.store.objects)

    def test_each_flipped_byte_is_found_and_named(self):
        """In the object, and in each part."""
        for size in 5, 25:
            self.store.objects.clear()
            self.put(bytes(range(size)))
            for key, data in [*self.store.objects.items()]:
                for at in range(len(data)):
                    flipped = bytearray(data)
                    flipped[at] ^= 1
                    self.store.objects[key] = bytes(flipped)
                    with self.assertRaisesRegex(Damaged, key):
                        self.get()
                self.store.objects[key] = data

    def test_what_is_cut_off_is_found(self):
        for size in 5, 25:
            self.store.objects.clear()
            self.put(bytes(range(size)))
            for key, data in [*self.store.objects.items()]:
                for changed in data[:-1], data + b'\0', b'':
                    self.store.objects[key] = changed
                    with self.assertRaises(Damaged):
                        self.get()
                del self.store.objects[key]
                with self.assertRaisesRegex(Damaged, 'not there'):
                    self.get()
                self.store.objects[key] = data

    def test_a_part_of_another_length_than_its_manifest_says(self):
        """By a hostile store, whose sums are right."""
        parts = [b'0123456789', b'01234']
        names = [hashlib.sha256(part).digest() for part in parts]
        for name, part in zip(names, parts):
            self.store.objects[DATABASE.part(KEY, name)] = part
        data = b''.join(parts)
        body = content.bodies.manifest(
            [content.bodies.Part(names[0], 5),
             content.bodies.Part(names[1], 10)])
        self.store.objects[KEY] = Head(
            heads.BLOB, heads.MANIFEST, 0, len(data),
            hashlib.sha256(data).digest()).pack() + body
        with self.assertRaisesRegex(Damaged, 'length'):
            self.get()


class Bounds(unittest.TestCase):

    def test_an_object_is_far_below_what_a_store_takes(self):
        self.assertLess(2 * (content.PART + heads.SIZE), LARGEST)
