"""An index file that somebody wrote to do harm, with a correct checksum."""

import os
import struct
import tracemalloc
import zlib

import ZODB
from ZODB._compat import dumps
from ZODB.FileStorage import FileStorage
from ZODB.fsIndex import fsIndex

from fsyncstorage import datafile
from fsyncstorage.check import commandline
from fsyncstorage.format import index

from ..format.sealing import NOTHING
from ..format.sealing import read
from ..format.sealing import write
from ..support import TestCase
from ..support import commit
from ..support import run_command

FAR = 1 << 40


class Touch:
    """A pickle that makes a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class HostileIndexTests(TestCase):

    MEMORY = 4 << 20    # far more than the files here need

    def setUp(self):
        super().setUp()
        storage = self.open()
        for number in range(5):
            self.tid = commit(storage, {number: NOTHING})
        self.content = dict(storage._index)
        storage.close()
        self.index_path = self.path('Data.fs.index')
        self.good = read(self.index_path)
        self.end = os.path.getsize(self.path())

    def with_trailer(self, pickles, position=None):
        """A file of these bytes, as if we had written it."""
        _, _, fingerprint = index._TRAILER.unpack(
            self.good[-index.TRAILER_SIZE:-index._CRC.size])
        content = pickles + index._TRAILER.pack(
            index.MAGIC, self.end if position is None else position,
            fingerprint)
        return content + struct.pack('>I', zlib.crc32(content))

    def hostile_pickles(self):
        pickle = dumps(Touch(self.path('touched')), 3)
        position = dumps(self.end, 3)
        bucket = bytes(8)
        claims = b'\x80\x03C\x06' + bytes(6) + b'B' + b'\xff' * 4
        return {
            'code in the place of the position': pickle,
            'code in the place of a bucket': position + pickle,
            'code in the place of the end': (
                position + dumps((bytes(6), bucket), 3) + pickle),
            'a position in a memo': b'\x80\x03K\x04r\xff\xff\xff\x0f.',
            'a bucket in a memo': (
                position + b'\x80\x03C\x06' + bytes(6)
                + b'r\xff\xff\xff\x0fC\x08' + bucket + b'\x86.'),
            'a long bucket': position + claims,
            'a bucket that is cut off': position + claims[:-1] + b'\0' * 99,
            'an empty bucket': position + dumps((bytes(6), b''), 3),
            'half an entry': position + dumps((bytes(6), bytes(4)), 3),
            'keys that do not rise': position + dumps(
                (bytes(6), bytes(2 * 8)), 3),
            'prefixes that do not rise': position + 2 * dumps(
                (b'prefix', bucket), 3),
            'a deep one': position + b'\x80\x03' + b')\x85' * 100_000 + b'.',
            'a long number': b'\x80\x03I' + b'9' * 100_000 + b'\n.',
        }

    def files(self):
        end = dumps(None, 3)
        for name, pickles in self.hostile_pickles().items():
            yield name, pickles + end
            yield name + ', sealed', self.with_trailer(pickles + end)

    def test_no_code_runs_and_no_memory_is_taken(self):
        for name, content in self.files():
            with self.subTest(name):
                write(self.index_path, content)
                tracemalloc.start()
                self.addCleanup(tracemalloc.stop)
                with self.assertRaises(index.Damaged):
                    index.load(self.index_path)
                self.assertLess(
                    tracemalloc.get_traced_memory()[1], self.MEMORY)
                tracemalloc.stop()
                status, _, _ = run_command(
                    commandline.main, self.path(), '--index')
                self.assertEqual(status, 1)
                for read_only in True, False:
                    self.assert_opened_without(read_only)
                self.assertFalse(os.path.exists(self.path('touched')))

    def assert_opened_without(self, read_only=False):
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            storage = self.open(read_only=read_only)
        self.assertIn('will be scanned', logs.output[0])
        self.assertEqual(dict(storage._index), self.content)
        storage.close()

    def test_of_an_old_release(self):
        # It would have to be unpickled; so it is not read any more.
        write(self.index_path, dumps(
            {'pos': self.end, 'index': fsIndex(self.content)}, 1))
        self.assert_opened_without()

    def test_positions_that_cannot_be(self):
        body = self.good[self.good.index(b'.') + 1:-index.TRAILER_SIZE]
        for position in 0, 1, 7, 34, 1 << 50, -1, -1 << 40:
            with self.subTest(position):
                write(self.index_path, self.with_trailer(
                    dumps(position, 3) + body, max(position, 0)))
                with self.assertRaises(index.Damaged):
                    index.load(self.index_path)

    def test_a_position_behind_the_end_is_not_believed(self):
        # With the fingerprint that the file has up to there.
        position = self.end + 1000
        wrong = fsIndex({oid: at + 1 for oid, at in self.content.items()})
        with datafile.open_existing(self.path()) as file:
            index.save(self.index_path, index.Snapshot(wrong, position), file)
        storage = self.open()
        self.assertEqual(storage.getSize(), self.end)
        self.assertEqual(dict(storage._index), self.content)

    def test_stocks_index_of_a_damaged_file(self):
        # What stock's check of it raises is no reason not to open the file.
        ZODB.DB(FileStorage(self.path('stock.fs'))).close()
        good = read(self.path('stock.fs.index'))
        data = read(self.path('stock.fs'))
        last = len(data) - 8 - int.from_bytes(data[-8:], 'big')
        write(self.path('stock.fs'),
              data[:last + 16] + b'\xff' + data[last + 17:])
        write(self.path('stock.fs.index'), good)
        storage = self.open('stock.fs')
        self.assertEqual(storage.getSize(), last)

    def test_no_regular_file(self):
        os.remove(self.index_path)
        os.mkfifo(self.index_path)
        with self.assertRaisesRegex(index.Damaged, 'no regular file'):
            index.load(self.index_path)
        os.remove(self.index_path)
        os.mkdir(self.index_path)
        storage = self.open(read_only=True)
        self.assertEqual(dict(storage._index), self.content)

    def test_zeros_without_end(self):
        write(self.index_path, b'')
        os.truncate(self.index_path, FAR)
        with self.assertRaises(index.Damaged):
            index.load(self.index_path)
        write(self.index_path, dumps(self.end, 3))
        os.truncate(self.index_path, FAR)
        with self.assertRaises(index.Damaged):
            index.load(self.index_path)
