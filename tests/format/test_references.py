"""What a record refers to, its class, and whether it is of a blob: the same as
ZODB finds, and nothing is run or taken for harm.
"""

import binascii
import contextlib
import gc
import io
import itertools
import os
import pickletools
import random
import tracemalloc
import unittest
import warnings
import zlib
from unittest import mock

import ZODB
from BTrees.IOBTree import IOBTree
from BTrees.OOBTree import OOBTree
from hypothesis import strategies
from persistent.mapping import PersistentMapping
from persistent.wref import WeakRef
from ZODB._compat import Pickler
from ZODB.blob import Blob
from ZODB.blob import FilesystemHelper
from ZODB.blob import is_blob_record
from ZODB.MappingStorage import MappingStorage
from ZODB.serialize import ObjectWriter
from ZODB.serialize import get_refs
from ZODB.tests.MinPO import MinPO
from ZODB.utils import get_pickle_metadata

from fsyncstorage.check import findings
from fsyncstorage.check import verify
from fsyncstorage.format import references as references_module
from fsyncstorage.format.classes import ENOUGH
from fsyncstorage.format.classes import FRONT_OF_BLOB
from fsyncstorage.format.classes import LONGEST
from fsyncstorage.format.classes import class_name
from fsyncstorage.format.classes import is_of_blob
from fsyncstorage.format.references import TooMuch
from fsyncstorage.format.references import references

from ..generated import given
from ..generated import settings
from ..often import often
from ..support import TestCase
from ..support import oid
from . import hostilefiles
from .sealing import NOTHING
from .sealing import window_of
from .sealing import write


def expected(record):
    return [oid for oid, _ in get_refs(record)]


def records():
    """Of many kinds of objects, as ZODB writes them."""
    databases = {}
    db = ZODB.DB(MappingStorage(), databases=databases)
    other = ZODB.DB(MappingStorage(), databases=databases,
                    database_name='other')
    with db.transaction() as connection:
        root = connection.root()
        root['tree'] = OOBTree({'%d' % n: MinPO(n) for n in range(200)})
        root['numbers'] = IOBTree({n: (n, 1.5, 'x' * n) for n in range(200)})
        root['mapping'] = mapping = PersistentMapping()
        mapping['all'] = [
            None, True, False, 1, 300, 70_000, -5, 1 << 40, 1 << 3000, 2.5,
            b'bytes', b'\xff' * 300, 'text', '\u20ac', '\ud800', (), (1,),
            (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1, [2]], {}, {'a': {}},
            {1, 2}, frozenset('ab'), complex(1, 2), slice, range(5),
            MinPO, MinPO(1), [MinPO(n) for n in range(300)]]
        connection.add(mapping)
        root['weak'] = [WeakRef(mapping), WeakRef(root['tree'])]
        far = connection.get_connection('other')
        far.root()['far'] = MinPO()
        far.add(far.root()['far'])
        root['far'] = far.root()['far']
    found = [db.storage.load(oid)[0] for oid in db.storage._data]
    db.close()
    other.close()
    return found


def asks_for_memory(record):
    file = io.BytesIO(record)
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter('ignore')  # of escapes in rubbish
        for _ in range(2):
            for opcode, argument, _ in pickletools.genops(file):
                if 'PUT' in opcode.name and argument > len(record):
                    return True
    return False


class SoundRecords(unittest.TestCase):

    def test_as_zodb_finds_them(self):
        found = records()
        self.assertGreater(len(found), 500)
        for record in found:
            self.assertEqual(references(record), expected(record))

    def test_every_opcode_of_the_protocols(self):
        """Each is read, at least in one of these; none of a later one is."""
        samples = {
            'INT': b'I12\n', 'BININT': b'J\1\0\0\0', 'BININT1': b'K\1',
            'BININT2': b'M\1\0', 'LONG': b'L12L\n', 'LONG1': b'\x8a\1\1',
            'LONG4': b'\x8b\1\0\0\0\1', 'STRING': b"S'abcdefgh'\n",
            'BINSTRING': b'T\1\0\0\0a', 'SHORT_BINSTRING': b'U\1a',
            'BINBYTES': b'B\1\0\0\0\xff', 'SHORT_BINBYTES': b'C\1\xff',
            'NONE': b'N', 'NEWTRUE': b'\x88', 'NEWFALSE': b'\x89',
            'UNICODE': b'V\\u20ac\n', 'BINUNICODE': b'X\3\0\0\0\xe2\x82\xac',
            'FLOAT': b'F1.5\n', 'BINFLOAT': b'G' + bytes(8),
            'EMPTY_LIST': b']', 'APPEND': b']Na', 'APPENDS': b'](NNe',
            'LIST': b'(Nl', 'EMPTY_TUPLE': b')', 'TUPLE': b'(NNt',
            'TUPLE1': b'N\x85', 'TUPLE2': b'NN\x86', 'TUPLE3': b'NNN\x87',
            'EMPTY_DICT': b'}', 'DICT': b'(NNd', 'SETITEM': b'}NNs',
            'SETITEMS': b'}(NNu', 'POP': b'NN0', 'DUP': b'N2',
            'MARK': b'N(N1', 'POP_MARK': b'N(N1', 'GET': b'Np5\ng5\n',
            'BINGET': b'Nq\5h\5', 'LONG_BINGET': b'Nr\5\0\0\0j\5\0\0\0',
            'PUT': b'Np5\n', 'BINPUT': b'Nq\5', 'LONG_BINPUT': b'Nr\5\0\0\0',
            'EXT1': b'\x82\1', 'EXT2': b'\x83\1\0', 'EXT4': b'\x84\1\0\0\0',
            'GLOBAL': b'ca\nb\n', 'REDUCE': b'NNR', 'BUILD': b'NNb',
            'INST': b'(Nia\nb\n', 'OBJ': b'(NNo', 'NEWOBJ': b'NN\x81',
            'PROTO': b'\x80\3N', 'STOP': b'N', 'PERSID': b'Pabcdefgh\n',
            'BINPERSID': b'C\x08abcdefghQ'}
        for opcode in pickletools.opcodes:
            with self.subTest(opcode.name):
                if opcode.proto <= 3:
                    record = samples[opcode.name] + b'.N.'
                    self.assertEqual(references(record), expected(record))
                else:
                    with self.assertRaises(ValueError):
                        references(opcode.code.encode('latin-1') + b'N.N.')


class Forms(unittest.TestCase):
    """Of a reference."""

    CLASS = b'\x80\3cmodule\nName\nq\0.'
    REFERENCE = b'C\x08abcdefgh'

    def test_a_state_that_recalls_what_the_class_remembered(self):
        record = b'cm\nN\nq\5.' + self.REFERENCE + b'h\5\x86Q.'
        self.assertEqual(references(record), [b'abcdefgh'])
        with self.assertRaises(ValueError):  # it was not remembered
            references(record.replace(b'h\5', b'h\6'))

    def test_what_is_around_a_reference(self):
        """Of any length, as a value, and remembered or not."""
        reference = self.REFERENCE + b'q\1h\0\x86q\2Q'
        for length, size, code, remember in itertools.product(
                (0, 7, 8, 9, 255, 256, 70_000), (1, 4), b'CUBXT',
                (b'', b'q\7', b'r\7\0\0\0')):
            if length < 1 << 8 * size and (code in b'CU') == (size == 1):
                value = length.to_bytes(size, 'little') + b'Q' * length
                record = self.CLASS + b'(' + b''.join(
                    [bytes([code]), value, remember, reference]) * 2 + b't.'
                self.assertEqual(references(record), [b'abcdefgh'] * 2)

    def test_how_it_is_written(self):
        for first in b'', b'q\1', b'r\1\0\0\0':
            for form in b'', b'h\0\x86', b'j\0\0\0\0\x86', (
                    b'cm\nN\n\x86'), b'cm\nN\nq\2\x86q\3':
                record = self.CLASS + self.REFERENCE + first + form + b'Q.'
                self.assertEqual(references(record), [b'abcdefgh'])
        # In other ways: recalled, in another order, in a tuple that is made
        # of a row.
        for state, oids in {
                b'C\x08abcdefghq\1h\0\x86q\2Q0h\2Q.': 2,
                b'C\x08abcdefghq\1NC\x0812345678q\2Nh\1Q.': 1,
                b'C\x08abcdefghh\0\x86C\x08123456780Q.': 1,
                b'(C\x08abcdefghh\0tQ.': 1,
                b'(C\x08abcdefgh(Nimodule\nName\ntQ.': 1,
                b'U\x08abcdefghQ.': 1, b'B\x08\0\0\0abcdefghQ.': 1,
                b']C\x08abcdefghaQ.': 0}.items():
            with self.subTest(state):
                self.assertEqual(
                    references(self.CLASS + state), [b'abcdefgh'] * oids)


class Rubbish(unittest.TestCase):

    level = 2

    def test_what_zodb_takes_is_taken(self):
        other = random.Random(15)
        originals = records()
        for _ in range(often(1500, 20_000)):
            record = bytearray(other.choice(originals))
            for _ in range(other.randint(1, 3)):
                record[other.randrange(len(record))] = other.randrange(256)
            record = bytes(record)
            if asks_for_memory(record):
                continue  # ZODB would give it
            try:
                wanted = expected(record)
            except Exception:
                with self.subTest(record):
                    with contextlib.suppress(ValueError):
                        references(record)
            else:
                if all(len(oid) == 8 for oid in wanted):
                    self.assertEqual(references(record), wanted, record)

    def test_memory_and_time_are_proportional(self):
        size = often(5_000, 50_000)
        for name, record in {
                'a far memo': b'Nr\xff\xff\xff\x7f.N.',
                'a far memo in words': b'Np9999999999999999999\n.N.',
                'a length': b'B\xff\xff\xff\xffN.N.',
                'a long length': b'\x8b\xff\xff\xff\x7fN.N.',
                'digits': b'I' + b'9' * size + b'\n.N.',
                'dictionaries': b'}' * size + b'.N.',
                'deep tuples': b')' + b'\x85' * size + b'.N.',
                'deep lists': b'(' * size + b'l' * size + b'.N.',
                'a deep key': b'})' + b'\x85' * size + b'Ns.N.',
                'a deep reference': b')' + b'\x85' * size + b'Q.N.',
                'marks': b'(' * size + b'.N.',
                'a memo': b''.join(
                    b'C\x08' + bytes(8) + b'r' + n.to_bytes(4, 'little')
                    for n in range(size // 15)) + b'.N.'}.items():
            with self.subTest(name):
                gc.collect()
                tracemalloc.start()
                try:
                    references(record)
                except ValueError:
                    pass
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                self.assertLess(peak, 25 * len(record) + 10_000)

    def test_values_have_a_bound(self):
        most, steps = often(3_000, 10_000), 100
        for name, values in {
                'None': b'N', 'marks': b'(N', 'oids': b'C\x0812345678',
                'references': b'C\x0812345678Q0',
                'references only': b'C\x0812345678Q',
                'a memo': b''.join(
                    b'C\x0812345678r' + n.to_bytes(4, 'little')
                    for n in range(2 * most)),
                'names': b'cmodule\nName\n0'}.items():
            record = b'N.' + values * (20 * most // len(values)) + b'Q.'
            if name == 'a memo':
                record = b'N.' + values + b'Q.'
            with (self.subTest(name),
                  mock.patch.object(references_module, 'STEPS', steps)):
                tracemalloc.start()
                self.addCleanup(tracemalloc.stop)
                with self.assertRaises(TooMuch):
                    references(record, most)
                self.assertLess(
                    tracemalloc.get_traced_memory()[1],
                    200 * (most + steps))
                tracemalloc.stop()

    def test_no_oid(self):
        for pickle in (b'K\1Q', b'NQ', b'C\7abcdefgQ', b'C\x08abcdefgh\x85Q',
                       b'Pabc\n', b'C\x08abcdefghNN\x87Q'):
            with self.assertRaises(ValueError):
                references(pickle + b'.N.')

    def test_a_number_that_is_cut_off(self):
        for state in b'X\1', b'B\1\0\0', b'Nr\0', b'NNr\0', b'j', b'j\0\0\0':
            with self.subTest(state), self.assertRaises(ValueError):
                references(b'N.' + state)

    def test_nothing_at_all(self):
        self.assertEqual(references(NOTHING), [])
        for record in b'', b'N', b'N.', b'N.N', b'.N.', b'N.N\xff':
            with self.assertRaises(ValueError):
                references(record)


def compressed(data):
    return b'.z' + zlib.compress(data)


def hexed(data):
    return b'.h' + binascii.hexlify(data)


class BlobRecordTests(unittest.TestCase):

    def test_what_zodb_writes(self):
        blob = ObjectWriter().serialize(Blob())
        self.assertTrue(is_of_blob(blob))
        for wrap in (compressed, hexed, lambda data: hexed(compressed(data)),
                     lambda data: compressed(hexed(data))):
            self.assertTrue(is_of_blob(wrap(blob)[:FRONT_OF_BLOB]))
        for other in MinPO(Blob), MinPO('cZODB.blob\nBlob\n.'):
            self.assertFalse(is_of_blob(ObjectWriter().serialize(other)))

    def test_every_protocol(self):
        for protocol, fast in itertools.product(range(4), (False, True)):
            data = []
            pickler = Pickler(mock.Mock(write=data.append), protocol)
            pickler.fast = fast
            pickler.dump(Blob)
            data = b''.join(data) + b'N.'
            self.assertTrue(is_blob_record(data))
            self.assertTrue(is_of_blob(data))

    def test_what_is_none(self):
        for data in (b'', b'.', b'.z', b'.h', b'.z.z', b'.hx', b'N.N.',
                     b'cZODB.blob\nBlobs\n.', b'cZODB.blob\nBlob\nN\x86.',
                     b'(cZODB.blob\nBlob\nNt.', b'cZODB.blob\nBlob\n'):
            self.assertFalse(is_of_blob(data), data)
            self.assertFalse(is_blob_record(data), data)


class CheckTests(TestCase):

    def check(self, *records):
        """The result of a check with a blob directory."""
        file = hostilefiles.File()
        for number, data in enumerate(records):
            file.append(lambda position, here: hostilefiles.record(
                position, number, data, tid=file.tid))
        return verify.verify(
            window_of(bytes(file.data)), FilesystemHelper(self.directory))

    def test_no_bound_makes_the_file_of_a_blob_one_without_record(self):
        """It would be taken for what can be removed."""
        helper = FilesystemHelper(self.directory)
        helper.create()
        path = helper.getBlobFilename(oid(0), oid(1))
        os.makedirs(os.path.dirname(path))
        write(path, b'')
        with mock.patch.multiple(verify.Budget, AT_LEAST=0, TIMES=0):
            report = self.check(b'cZODB.blob\nBlob\n.N.').report
        self.assertEqual(report.counts, {findings.UNREAD: 1})
        self.assertEqual(report.blobs, {'records': 1, 'files': 1})


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

    def test_of_wrapped_records(self):
        record = b'\x80\3' + class_pickle('module', 'Name') + b'.' + STATE
        for wrapped in (
                b'.z' + zlib.compress(record), b'.h' + record.hex().encode(),
                b'.h' + (b'.z' + zlib.compress(record)).hex().encode()):
            self.assertEqual(class_name(wrapped), 'module.Name')
        self.assertIsNone(class_name(b'.e' + record))


class Harm(unittest.TestCase):

    @settings(max_examples=often(100, 1000, 30))
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
