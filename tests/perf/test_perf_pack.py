"""Packs beside clients; not how long anything took."""

import os
from unittest import mock

from fsyncstorage.timing.running import supervisor
from perf import contents
from perf import pack
from perf import slowdisk

from ..timing.test_timing import Scratch


class SlowDiskTests(Scratch):

    level = 2
    SPEED = 1000

    def setUp(self):
        super().setUp()
        self.slept = []
        self.synced = []
        self.file = self.opened('before', b'x' * 50)

    def opened(self, name, data):
        file = self.enterContext(open(
            os.path.join(self.scratch, name), 'wb', buffering=0))
        file.write(data)
        return file

    def disk(self, *settings):
        return slowdisk.SlowDisk(self.scratch, *settings, self.slept.append)

    def slowed(self, *settings):
        disk = self.disk(*settings)
        disk.begin()
        return disk.slowed(self.synced.append)

    def test_what_was_written_since_the_last_sync(self):
        sync = self.slowed(self.SPEED, 0.5)
        new = self.opened('new', b'x' * 100)
        for file, more in (
                (self.file, b''), (self.file, b'x' * 10), (self.file, b''),
                (new, b''), (new, b'x' * 20)):
            file.write(more)
            sync(file.fileno())
        self.assertEqual(self.slept, [0.5, 0.51, 0.5, 0.6, 0.52])
        self.assertEqual(len(self.synced), 5)

    def test_what_another_process_has_synced(self):
        sync = self.slowed(self.SPEED, 0.5)
        new = self.opened('new', b'x' * 100)
        of_another = self.disk(self.SPEED, 0.5).slowed(self.synced.append)
        of_another(new.fileno())
        sync(new.fileno())
        new.write(b'x' * 10)
        sync(new.fileno())
        of_another(new.fileno())
        self.assertEqual(self.slept, [0.6, 0.5, 0.51, 0.5])

    def test_of_any_speed(self):
        self.opened('new', b'x' * 100)
        self.slowed(None, 0.5)(self.file.fileno())
        self.assertEqual(self.slept, [0.5])

    def test_the_disk_as_it_is(self):
        self.slowed(None, 0)(self.file.fileno())
        self.assertEqual((self.slept, self.synced), ([], [self.file.fileno()]))

    def test_one_sync_at_a_time(self):
        turns = []
        with mock.patch.object(slowdisk.fcntl, 'flock', (
                lambda file, how: turns.append((file.name, how)))):
            self.slowed(None, 0.5)(self.file.fileno())
        self.assertEqual(turns, [(
            os.path.join(self.scratch, slowdisk.TURN),
            slowdisk.fcntl.LOCK_EX)])


class PackTests(Scratch):

    level = 2

    def figures(self, name, **settings):
        directory = os.path.join(self.scratch, 'sample')
        os.mkdir(directory)
        contestant, = (
            one for one in pack.CAMPAIGNS[0].contestants if one.name == name)
        return supervisor.run(lambda: pack.measure(
            contestant, directory, **{
                'objects': 2500, 'clients': 2, 'packs': True, 'seconds': 0.1,
                **pack.AS_IT_IS, 'loop': 'asyncio', **settings}))

    def test_ours_on_a_slow_disk(self):
        """The process that packs is on this disk, too."""
        found = self.figures('fsync-client', speed=None, latency=0.02)
        self.assert_packed(found)
        self.assertGreater(found['child_peak_mb'], 1)

    def test_stock(self):
        found = self.figures('zeo')
        self.assert_packed(found)
        self.assertNotIn('child_peak_mb', found)

    def assert_packed(self, found):
        built = os.path.join(self.scratch, 'built-2500', 'Data.fs')
        self.assertLess(found['packed_bytes'], os.path.getsize(built))
        for figure in (
                'commits', 'reads', 'max_seconds', 'reads_max_seconds',
                'pack_seconds', 'server_peak_mb'):
            self.assertGreater(found[figure], 0, figure)

    def test_without_a_pack(self):
        found = self.figures('fsync-client', packs=False)
        self.assertGreater(found['commits'], 0)
        self.assertNotIn('pack_seconds', found)

    def test_without_clients(self):
        found = self.figures('fsync-client', clients=0)
        self.assertGreater(found['pack_seconds'], 0)
        self.assertNotIn('commits', found)

    def test_only_pages_are_changed(self):
        self.assertEqual(
            [each for each in range(1, 2500) if not contents.is_page(each)],
            [1, 1001, 2001])
