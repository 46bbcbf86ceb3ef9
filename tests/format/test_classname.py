"""The class of a record, by its name: as ZODB finds it, and nothing is run."""

import os
import pickle
import tracemalloc
import unittest
import zlib
from unittest import mock

from hypothesis import strategies
from ZODB.utils import get_pickle_metadata

from fsyncstorage.format.classname import ENOUGH
from fsyncstorage.format.classname import FRONT
from fsyncstorage.format.classname import LONGEST
from fsyncstorage.format.classname import class_name
from fsyncstorage.format.classname import plain_beginning

from ..generated import given
from .test_references import records

names = strategies.text(
    strategies.characters(exclude_characters='\n', exclude_categories=['Cs']),
    max_size=30)
STATE = b'\x80\x03}q\0.'


def like_zodb(record):
    return '.'.join(get_pickle_metadata(record))


def class_pickle(module, name):
    return b'c%s\n%s\nq\0' % (module.encode(), name.encode())


class Names(unittest.TestCase):

    def test_of_what_zodb_writes(self):
        found = set()
        for record in records():
            self.assertEqual(class_name(record), like_zodb(record))
            found.add(class_name(record))
        self.assertIn('BTrees.OOBTree.OOBucket', found)

    @given(names, names, strategies.sampled_from([b'', b'\x80\2', b'\x80\3']))
    def test_of_a_class_alone_or_with_arguments(self, module, name, begin):
        found = class_pickle(module, name)
        for record in (found + b'.', found + b')q\1\x86q\2.',
                       b'(' + found + b'K\1K\2tq\1.'):
            record = begin + record + STATE
            self.assertEqual(class_name(record), like_zodb(record))
            self.assertEqual(
                class_name(record), class_name(plain_beginning(record)))

    @given(names, names, strategies.integers(1, 3))
    def test_of_names_in_the_place_of_a_class(self, module, name, protocol):
        for value in (module, name), ((module, name), None), (
                (module, name), ()):
            record = pickle.dumps(value, protocol) + STATE
            self.assertIsNone(plain_beginning(record))
            self.assertEqual(class_name(record), like_zodb(record))

    def test_of_names_that_python_2_wrote(self):
        for record in (b'((U\6moduleU\4NametN\x86.',
                       b'(T\6\0\0\0moduleT\4\0\0\0Namet.'):
            self.assertEqual(class_name(record + STATE), 'module.Name')
            self.assertEqual(like_zodb(record + STATE), 'module.Name')

    def test_of_wrapped_records(self):
        record = b'\x80\3' + class_pickle('module', 'Name') + b'.' + STATE
        for wrapped in (
                b'.z' + zlib.compress(record), b'.h' + record.hex().encode(),
                b'.h' + (b'.z' + zlib.compress(record)).hex().encode()):
            self.assertEqual(class_name(wrapped), 'module.Name')
        self.assertIsNone(class_name(b'.e' + record))

    def test_the_front_of_a_record_suffices(self):
        record = b'\x80\3' + class_pickle('m' * 100, 'N' * 100) + STATE * 999
        self.assertEqual(
            class_name(plain_beginning(record[:FRONT])),
            class_name(record[:ENOUGH]))


class Harm(unittest.TestCase):

    @given(strategies.binary(max_size=60))
    def test_any_bytes(self, front):
        for record in front, b'\x80\3c' + front, b'.z' + front:
            name = class_name(record)
            self.assertTrue(name is None or type(name) is str)

    def test_nothing_is_imported_or_called(self):
        with mock.patch.object(os, 'system') as system:
            self.assertEqual(
                class_name(b'cos\nsystem\n(X\4\0\0\0truetR.N.'), 'os.system')
            for record in (b"(K\1ios\nsystem\n.N.", b'N0cos\nsystem\n)R.N.',
                           b'(((cos\nsystem\n)R.N.', b'\x82\1.N.'):
                self.assertIsNone(class_name(record))
        system.assert_not_called()

    def test_long_names_are_cut_off(self):
        name = class_name(b'cm\n' + b'N' * 1000 + b'\n.')
        self.assertEqual(name, 'm.' + LONGEST * 'N' + '...')
        self.assertIsNone(class_name((b'cm\n' + b'N' * 10_000)[:ENOUGH]))

    def test_bytes_that_are_no_text(self):
        self.assertEqual(class_name(b'c\xff\n\xe2\x82\n.'), r'\xff.\xe2\x82')

    def test_memory(self):
        zeros = b'.z' + zlib.compress(bytes(1 << 22), 9)
        for front in (
                b'(Nr\xff\xff\xff\xffNt.', b'Np' + b'9' * 1000 + b'\n.',
                b'B\xff\xff\xff\xff', b'(' * ENOUGH, b')' * ENOUGH,
                b')' + b'\x85' * ENOUGH, b'X\xff\xff\xff\x7f', zeros,
                b'\x8b\xff\xff\xff\x7f', b'(I' + b'9' * 4000 + b'\nt.'):
            with self.subTest(front[:10]):
                tracemalloc.start()
                self.assertIsNone(class_name(front[:ENOUGH]))
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                self.assertLess(peak, 100_000)
