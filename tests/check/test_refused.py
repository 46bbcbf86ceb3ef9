"""What the storage refuses, `fsync-check` finds: with no option."""

import contextlib
import os
import random

from fsyncstorage import FsyncStorage
from fsyncstorage.check import findings
from fsyncstorage.format import index
from fsyncstorage.storage.recovery import DamagedFile

from ..format.sealing import changed
from ..format.sealing import positions
from ..format.sealing import read
from ..format.sealing import write
from ..often import often
from ..support import commit
from .test_check import DAMAGE
from .test_check import CheckCase


class Refused(CheckCase):

    def setUp(self):
        super().setUp()
        self.index = self.path('Data.fs.index')
        with contextlib.closing(FsyncStorage(self.path())) as storage:
            for number in range(10):
                commit(storage, {number: b'N.N.'})
        self.data = read(self.path())
        self.begins = positions(self.data)

    def is_refused(self):
        try:
            FsyncStorage(self.path(), read_only=True).close()
        except DamagedFile:
            return True
        return False

    def assert_found(self, position, *options):
        """It is one problem, at this position, for both."""
        self.assertTrue(self.is_refused())
        problem, = self.report(*options, status=DAMAGE)['problems']
        self.assertEqual((problem['kind'], problem['position']),
                         (findings.TRANSACTION, position))
        self.assertIn('10 objects', problem['reason'])
        self.assertIn(f'{len(self.data)} bytes', problem['reason'])

    def test_a_file_that_was_cut_off(self):
        """As a backup is that was copied in part."""
        for size, end in (
                (self.begins[6], self.begins[6]),
                (self.begins[6] + 30, self.begins[6]),
                (self.begins[9] + 1, self.begins[9])):
            for options in [], ['--index']:
                with self.subTest(size, options=options):
                    write(self.path(), self.data[:size])
                    self.assert_found(end, *options)

    def test_an_end_that_was_overwritten(self):
        """Nothing is behind it, and it looks like the tail of a crash."""
        last = self.begins[9]
        size = len(self.data) - last
        for damaged in (
                changed(self.data, last, bytes(size)),
                changed(self.data, last + 16, b'c')):
            write(self.path(), damaged)
            self.assert_found(last)

    def test_behind_the_index_of_a_pack(self):
        """The index has a part of the file, and says how long all of it is."""
        os.truncate(self.path(), self.begins[9])
        os.remove(self.index)
        FsyncStorage(self.path()).close()
        index.say_whole(self.index, len(self.data))
        stored = index.load(self.index)
        self.assertEqual((stored.position, stored.whole),
                         (self.begins[9], len(self.data)))
        for more in 0, 1, 30:
            write(self.path(), self.data[:self.begins[9] + more])
            self.assertTrue(self.is_refused())
            problem, = self.report(status=DAMAGE)['problems']
            self.assertEqual(problem['position'], self.begins[9])

    def test_any_damage(self):
        """What the storage refuses, and more."""
        rng = random.Random(1)
        refused, times = 0, often(150, 3000, 60)
        for _ in range(times):
            at = rng.randrange(4, len(self.data))
            length = rng.choice([1, 8, 50, 300, len(self.data)])
            there = self.data[at:at + length]
            damaged = rng.choice([
                self.data[:at],
                changed(self.data, at, bytes(len(there))),
                changed(self.data, at, rng.randbytes(len(there)))])
            write(self.path(), damaged)
            if self.is_refused():
                refused += 1
                with self.subTest(damaged):
                    self.report(status=DAMAGE)
        self.assertGreater(refused, times / 3)

    def test_what_the_storage_takes(self):
        """An index of another file proves nothing, nor does a damaged one."""
        write(self.path(), self.data[:self.begins[6] + 30])
        right = read(self.index)
        with contextlib.closing(FsyncStorage(self.path('other'))) as other:
            commit(other, {number: b'N.' + b'x' * 100 + b'.'
                           for number in range(50)})
        for content in read(self.path('other.index')), right[:-1], b'':
            write(self.index, content)
            self.assertFalse(self.is_refused())
            report = self.report()
            self.assertEqual(report['problems'], [])
            self.assertEqual(report['tail']['position'], self.begins[6])
