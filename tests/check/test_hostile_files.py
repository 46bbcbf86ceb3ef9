"""Data files that somebody wrote to do harm: what a check of them costs."""

import functools
import tracemalloc
import unittest
import zlib
from unittest import mock

from ZODB.FileStorage.format import CorruptedDataError
from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage.check import findings
from fsyncstorage.check import verify
from fsyncstorage.check import wrapped
from fsyncstorage.format import scan
from fsyncstorage.format.view import View
from fsyncstorage.format.window import Window
from fsyncstorage.storage import recovery

from ..format import hostilefiles
from ..format.sealing import NOTHING
from ..format.sealing import positions
from ..format.sealing import window_of
from ..format.sealing import write
from ..often import often
from ..support import TestCase
from ..support import oid


class CountingWindow(Window):
    """Counts the bytes that are read, and those that are looked at again."""

    work = 0

    @classmethod
    def of_bytes(cls, data):
        data = bytes(data)

        def pread(length, position):
            made.work += length + 1000  # a call costs as much
            return data[position:position + length]

        made = cls(pread, len(data))
        return made

    def read(self, position, length):
        self.work += length
        return super().read(position, length)

    def crc(self, position, end, crc):
        self.work += end - position
        return super().crc(position, end, crc)


class TimeTests(unittest.TestCase):
    """In proportion to the size, whatever is in the file."""

    level = 2

    # What may be read, for a byte of the file.
    MOST = 200

    def test_of_the_check(self):
        for make, count in hostilefiles.FILES:
            with self.subTest(make.__name__):
                window = CountingWindow.of_bytes(make(count))
                verify.verify(window)
                self.assertLess(
                    window.work,
                    self.MOST * window.end + wrapped.Budget.AT_LEAST)

    def test_of_opening(self):
        for make, count in hostilefiles.FILES:
            with self.subTest(make.__name__):
                window = CountingWindow.of_bytes(make(count))
                try:
                    for _ in scan.transactions(window):
                        pass
                except scan.Damage as damage:
                    recovery._proof_behind(window, z64, damage, True)
                self.assertLess(window.work, self.MOST * window.end)


class ChainTests(unittest.TestCase):

    def test_long_chains_of_back_pointers_are_followed_once(self):
        count = 1000
        data = bytes(hostilefiles.chain_of_back_pointers(count))
        with mock.patch.object(
                scan, 'earlier_record',
                side_effect=scan.earlier_record) as earlier:
            report = verify.verify(window_of(data)).report
        self.assertEqual(report.problems, [])
        self.assertLess(earlier.call_count, 4 * count)

    def test_an_error_is_remembered(self):
        data = bytearray(hostilefiles.chain_of_back_pointers(100))
        first, second = positions(bytes(data))[:2]
        # The second one points to what is no record.
        at = second + scan.HEADER + scan.RECORD_HEADER
        data[at:at + 8] = (first + 1).to_bytes(8, 'big')
        report = verify.verify(window_of(bytes(data))).report
        self.assertEqual(report.counts, {findings.POINTER: 99})


class PickleTests(unittest.TestCase):
    """What takes memory when it is unwrapped or read."""

    level = 2

    MEMORY = 3 * wrapped.LARGEST
    #: Zeros, far beyond the bound.
    MUCH = often(1 << 25, 1 << 30) + 1

    def check(self, *pickles):
        """The report, and what memory it took."""
        file = hostilefiles.File()
        for number, pickle in enumerate(pickles):
            file.append(lambda position, here: hostilefiles.record(
                position, number, pickle, tid=file.tid))
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        report = verify.verify(window_of(bytes(file.data))).report
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertLess(peak, self.MEMORY)
        return report

    @staticmethod
    @functools.cache
    def compressed(size):
        """So many zeros, without having them in memory."""
        stream = zlib.compressobj(9)
        step = 1 << 20
        return b'.z' + b''.join(
            stream.compress(bytes(min(step, size - at)))
            for at in range(0, size, step)) + stream.flush()

    def test_what_is_compressed_beyond_the_bound(self):
        report = self.check(self.compressed(self.MUCH))
        self.assertEqual(report.counts, {findings.UNREAD: 1})
        self.assertIn('more than 33,554,432 bytes', report.problems[0].reason)
        self.assertEqual(report.damages, 0)

    def test_what_is_compressed_twice(self):
        twice = b'.z' + zlib.compress(self.compressed(self.MUCH), 9)
        self.assertLess(len(twice), 8000)
        self.assertEqual(self.check(twice).opaque, 1)

    def test_many_values(self):
        most = often(50_000, wrapped.MOST_VALUES)
        size = often(2 * most + 10_000, wrapped.LARGEST - 100)
        pickle = b'N.' + b'(N' * (size // 2) + b'.'
        with mock.patch.object(verify, 'MOST_VALUES', most):
            report = self.check(b'.z' + zlib.compress(pickle, 9))
        self.assertEqual(report.counts, {findings.UNREAD: 1})
        self.assertIn(f'more than {most:,} values', report.problems[0].reason)

    def test_many_small_ones(self):
        # Each is within the bound, all of them are not.
        with (mock.patch.object(wrapped.Budget, 'AT_LEAST', 1 << 20),
              mock.patch.object(wrapped, 'LARGEST', 1 << 18)):
            report = self.check(*[
                b'.z' + zlib.compress(b'N.X' + (200_000).to_bytes(4, 'little')
                                      + bytes(200_000) + b'.', 9)] * 100)
        self.assertTrue(report.walked)
        self.assertEqual(report.counts, {findings.UNREAD: 100 - report.walked})
        self.assertIn('all pickles together', report.problems[0].reason)

    def test_a_compressed_record_that_is_cut_off(self):
        data = zlib.compress(b'N.X' + (1 << 16).to_bytes(4, 'little')
                             + bytes(1 << 16) + b'.')
        for end in range(len(data)):
            self.assertEqual(
                self.check(b'.z' + data[:end]).counts, {findings.PICKLE: 1})

    def test_memo(self):
        report = self.check(b'Nr\xff\xff\xff\x0f.N.', b'Np99999999\n.N.')
        self.assertEqual(report.walked, 2)

    def test_deep(self):
        deep = b')' + b'\x85' * often(10_000, 1_000_000)
        self.check(deep + b'Q.N.', b'}' + deep + b'Ns.N.')

    def test_references_that_are_no_oids(self):
        for name in b'', b'short', b'too long by far':
            report = self.check(
                b'C' + bytes([len(name)]) + name + b'Q.N.')
            self.assertEqual(report.counts, {findings.PICKLE: 1})

    def test_an_error_does_not_quote_the_record(self):
        size = 5 << 20
        report = self.check(b'X' + size.to_bytes(4, 'little')
                            + b'\xff' * size + b'.N.')
        self.assertLess(len(report.problems[0].reason), 300)


class ReaderTests(TestCase):
    """Of a storage that believes its index: nothing was scanned."""

    TID = bytes(7) + b'\5'

    def view(self, *records):
        """Of a file with these records of object 1; the last is current."""
        file = hostilefiles.File()
        for make in records:
            last = file.append(make) + scan.HEADER
        write(self.path(), file.data)
        opened = datafile.open_existing(self.path(), read_only=True)
        self.addCleanup(opened.close)
        return View(opened, {oid(1): last}, file.end, self.TID)

    def assert_damage(self, view):
        for read in (
                lambda: view.load_before(oid(1), oid(0)),
                lambda: view.load_serial(oid(1), oid(0)),
                lambda: view.history(oid(1), 100, None)):
            with self.assertRaises((CorruptedDataError, POSKeyError)):
                read()

    def test_a_record_that_is_its_own_predecessor(self):
        self.assert_damage(self.view(
            lambda position, here: hostilefiles.record(
                position, 1, NOTHING, previous=here)))

    def test_two_that_are_each_others(self):
        at = scan.FIRST + scan.HEADER
        size = scan.HEADER + scan.RECORD_HEADER + len(NOTHING) + 8
        self.assert_damage(self.view(
            lambda position, here: hostilefiles.record(
                position, 1, NOTHING, previous=at + size),
            lambda position, here: hostilefiles.record(
                position, 1, NOTHING, previous=at)))

    def test_data_in_a_circle(self):
        at = scan.FIRST + scan.HEADER
        size = scan.HEADER + scan.RECORD_HEADER + 16
        for back in at, at + size:
            view = self.view(
                lambda position, here: hostilefiles.record(
                    position, 1, back=at + size),
                lambda position, here: hostilefiles.record(
                    position, 1, back=back))
            with self.assertRaises(CorruptedDataError):
                view.load(oid(1))

    def test_lengths_that_the_file_does_not_have(self):
        for length in 5000, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1:
            view = self.view(lambda position, here: hostilefiles.record(
                position, 1, NOTHING, length=length))
            with self.assertRaises(CorruptedDataError):
                view.load(oid(1))

    def test_the_last_tid_of_all(self):
        view = self.view(lambda position, here: hostilefiles.record(
            position, 1, NOTHING))
        view.tid = b'\xff' * 8
        self.assertTrue(view.shows_all_before(b'\xff' * 8))
