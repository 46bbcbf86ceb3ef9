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

from .. import pages
from ..timing.test_timing import Scratch
from ..timing.test_timing_zeo import SETTINGS

DELAY = 0.02


class StorageTests(Scratch):
    """What is added to a load that finds nothing in the page cache."""

    def setUp(self):
        super().setUp()
        # Whether something is there does not depend on how fast the disk is.
        self.enterContext(
            mock.patch.object(colddisk, 'is_cached', pages.is_cached))
        self.enterContext(
            mock.patch.object(colddisk, 'pread_cached', pages.pread_cached))
        if obstacle := colddisk.obstacle(self.scratch):
            self.skipTest(obstacle)
        self.path = os.path.join(self.scratch, 'Data.fs')
        self.slept = []

    def cold(self):
        return colddisk.cold_reads(0.008, self.slept.append)

    def test_dropped(self):
        with open(self.path, 'w+b', buffering=0) as file:
            file.write(b'x' * 5000)
            self.assertTrue(colddisk.is_cached(file.fileno(), 5000, 0))
            colddisk.drop(self.path)
            self.assertFalse(colddisk.is_cached(file.fileno(), 5000, 0))
            os.pread(file.fileno(), 5000, 0)
            self.assertTrue(colddisk.is_cached(file.fileno(), 5000, 0))

    def sleeps_of(self, make, load):
        """In the first load after the cache was emptied, and in a second."""
        with self.cold() as misses:
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

    def test_ours_as_the_server_loads(self):
        def load(storage):
            try:
                storage.load_before_cached(z64, maxtid)
            except BlockingIOError:
                # The disk has read the page by now.
                with open(self.path, 'rb') as file:
                    file.read()
                storage.loadBefore(z64, maxtid)

        self.assertEqual(self.sleeps_of(FsyncStorage, load), ([0.008], []))

    def test_all_is_put_back(self):
        def seams():
            return (
                vars(colddisk._stock).get('open'), vars(View)['pread'],
                vars(CachedView)['pread'], vars(datafile.disk).get('open'))

        before = seams()
        with self.assertRaises(ZeroDivisionError):
            with self.cold():
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
