"""A server whose data are on the disk alone.

That what is added is there; how fast anything was is nowhere asserted.
"""

import contextlib
import os
import tempfile
from unittest import mock

import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.format.view import CachedView
from fsyncstorage.format.view import View
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.servers.zeosites import CONTESTANTS
from perf import colddisk
from perf import zeo_cold

from ..timing.test_timing import Scratch
from ..timing.test_timing_zeo import SETTINGS

DELAY = 0.02


class StorageTests(Scratch):
    """What is added to a load that finds nothing in the page cache."""

    level = 2

    def setUp(self):
        super().setUp()
        if obstacle := colddisk.obstacle(self.scratch):
            self.skipTest(obstacle)
        self.path = os.path.join(self.scratch, 'Data.fs')
        self.slept = []

    def test_dropped(self):
        with open(self.path, 'w+b', buffering=0) as file:
            file.write(b'x' * 5000)
            self.assertTrue(colddisk.is_cached(file.fileno(), 5000, 0))
            colddisk.drop(self.path)
            self.assertFalse(colddisk.is_cached(file.fileno(), 5000, 0))
            os.pread(file.fileno(), 5000, 0)
            self.assertTrue(colddisk.is_cached(file.fileno(), 5000, 0))

    def sleeps_of(self, make, load, delay=0.008):
        """In the first load after the cache was emptied, and in a second."""
        with colddisk.cold_reads(delay, self.slept.append) as misses:
            storage = make(self.path)
            with contextlib.closing(storage):
                ZODB.DB(storage)  # makes the root
                colddisk.drop(self.path)
                self.slept.clear()
                misses.clear()
                load(storage)
                first = list(self.slept)
                load(storage)
                self.assertEqual(len(misses), len(self.slept))
                return first, self.slept[len(first):]

    def test_stock(self):
        self.assertEqual(
            self.sleeps_of(
                FileStorage, lambda storage: storage.loadBefore(z64, maxtid)),
            ([0.008], []))

    def test_ours(self):
        self.assertEqual(
            self.sleeps_of(
                FsyncStorage, lambda storage: storage.loadBefore(z64, maxtid)),
            ([0.008], []))

    def load_as_the_server_does(self, storage):
        try:
            storage.load_before_cached(z64, maxtid)
        except BlockingIOError:
            # The disk has read the page by now.
            with open(self.path, 'rb') as file:
                file.read()
            storage.loadBefore(z64, maxtid)

    def test_ours_as_the_server_loads(self):
        self.assertEqual(
            self.sleeps_of(FsyncStorage, self.load_as_the_server_does),
            ([0.008], []))

    def test_a_disk_that_answers_at_once(self):
        self.enterContext(
            mock.patch.object(colddisk, 'pread_cached', os.pread))
        self.test_ours_as_the_server_loads()

    def test_a_disk_that_answers_at_once_and_is_not_slower(self):
        self.enterContext(
            mock.patch.object(colddisk, 'pread_cached', os.pread))
        self.assertEqual(
            self.sleeps_of(FsyncStorage, self.load_as_the_server_does, 0),
            ([0], []))

    def test_all_is_put_back(self):
        def seams():
            return (
                vars(colddisk._stock).get('open'), vars(View)['pread'],
                vars(CachedView)['pread'], vars(datafile.disk).get('open'))

        before = seams()
        with self.assertRaises(ZeroDivisionError):
            with colddisk.cold_reads(0.008):
                for seam, found in zip(before, seams()):
                    self.assertIsNot(seam, found)
                1 / 0
        self.assertEqual(seams(), before)

    def test_reads(self):
        for name in 'zeo', 'fsync-client':
            with self.subTest(name), tempfile.TemporaryDirectory(
                    dir=self.scratch) as directory:
                figures = supervisor.run(lambda: zeo_cold.measure(
                    zeo_cold.cold(CONTESTANTS[name]), directory, clients=2,
                    objects=2, access='ghosts', planted=8, read_latency=DELAY,
                    **SETTINGS))
                # Each object is on pages of its own; of all that is dropped
                # the system may keep a few pages.
                for missed in zeo_cold.MISSES.values():
                    self.assertGreater(figures[missed], 0.7, missed)
                self.assertGreaterEqual(figures['cold_p50_seconds'], DELAY)
                self.assertLess(figures['hot_p50_seconds'], DELAY)

    def test_a_file_system_in_memory(self):
        with mock.patch.object(colddisk, 'drop', lambda path: None):
            self.assertRegex(
                colddisk.obstacle(self.scratch), 'this (file )?system')
