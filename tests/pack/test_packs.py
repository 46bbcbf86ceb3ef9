"""What a storage says of its packs: how far, the end before time, forecasts;
and what a pack refuses at once."""

import errno
import functools
import os
import stat
import threading
import time
import unittest
from unittest import mock

import ZODB
import ZODB.blob
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.serialize import referencesf
from ZODB.tests.hexstorage import HexStorage

from fsyncstorage import FsyncStorage
from fsyncstorage.format.window import Window
from fsyncstorage.pack import packing
from fsyncstorage.pack import packs
from fsyncstorage.pack import progress
from fsyncstorage.pack import work
from fsyncstorage.processes.rate import Rate

from ..server.serving import record
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import commit
from . import phases


class PacksCase(TestCase):

    def packable(self, home='.', pack_process=False, **options):
        """A storage with something to free."""
        os.makedirs(self.path(home), exist_ok=True)
        return phases.fill(self.open(
            f'{home}/Data.fs', blob_dir=self.path(f'{home}/blobs'),
            pack_process=pack_process, **options))

    def content(self):
        return {
            os.path.join(parent, name): os.stat(
                os.path.join(parent, name)).st_size
            for parent, _, names in os.walk(self.directory)
            for name in names if not name.endswith(('.index', '.lock'))}

    def at(self, phase, do, kind=progress.PACK):
        """While this lasts, `do()` is called once in a phase."""
        return phases.at(phase, lambda watch: do(), kind)

    def pack(self, storage):
        storage.pack(time.time(), referencesf)


class Status(PacksCase):

    def test_before_and_after_a_pack(self):
        storage = self.packable()
        self.assertEqual(
            storage.packs.status(),
            {'pack': None, 'forecast': None, 'last': None})
        before = storage.getSize()
        self.pack(storage)
        status = storage.packs.status()
        last = status.pop('last')
        self.assertEqual(status, {'pack': None, 'forecast': None})
        self.assertGreaterEqual(last.pop('seconds'), 0)
        self.assertGreaterEqual(last.pop('ago'), 0)
        self.assertEqual(last, {'outcome': 'packed', 'before': before,
                                'after': storage.getSize()})
        self.pack(storage)
        self.assertEqual(
            storage.packs.status()['last']['outcome'], 'nothing')

    def test_in_each_phase(self):
        storage = self.packable()
        seen = []
        tell = progress.PackWatch.tell

        def tell_us(*args):
            tell(*args)
            seen.append(storage.packs.status()['pack'])

        with mock.patch.object(progress.PackWatch, 'tell', tell_us):
            self.pack(storage)
        self.assertEqual(list(dict.fromkeys(
            each['phase'] for each in seen)), phases.PHASES)
        shares = [each['share'] for each in seen]
        self.assertEqual(shares, sorted(shares))
        self.assertLessEqual(shares[-1], 1)
        self.assertGreater(shares[-1], 0.9)

    def test_one_that_fails(self):
        storage = self.packable()
        with mock.patch.object(
                packing.naming, 'link_old', side_effect=OSError(5, 'no')):
            with self.assertRaisesRegex(OSError, 'no'):
                self.pack(storage)
        self.assertEqual(storage.packs.status()['last']['outcome'], 'failed')


class Cancel(PacksCase):

    def test_in_each_phase(self):
        """Nothing is left behind, and nothing is changed."""
        storage = self.packable()
        before = self.content()
        for phase in phases.PHASES:
            with self.subTest(phase):
                with self.at(phase, storage.packs.cancel), self.assertLogs(
                        'fsyncstorage.pack', 'INFO') as logged:
                    with self.assertRaises(progress.Cancelled):
                        self.pack(storage)
                self.assertIn('the pack was cancelled', logged.output[-1])
                self.assertEqual(self.content(), before)
                self.assertEqual(
                    storage.packs.status()['last']['outcome'], 'cancelled')
        self.pack(storage)
        self.assertLess(storage.getSize(), before[self.path()])

    def test_nothing_to_cancel(self):
        storage = self.packable()
        with self.assertRaisesRegex(FileStorageError, 'No pack is under way'):
            storage.packs.cancel()


class Forecasts(PacksCase):

    level = 2

    def test_it_comes_true(self):
        storage = self.packable(pack_process=True)
        before = self.content()
        found = storage.packs.forecast(time.time())
        self.assertEqual(self.content(), before)
        self.assertEqual(found['old_size'], storage.getSize())
        sizes = {path: size for path, size in before.items()
                 if path.endswith('.blob')}
        self.pack(storage)
        self.assertEqual(found['new_size'], storage.getSize())
        gone = sizes.keys() - self.content().keys()
        self.assertEqual(found['blobs'], len(gone))
        self.assertEqual(
            found['blob_bytes'], sum(sizes[path] for path in gone))
        self.assertGreater(found['free'], found['needed'])
        self.assertGreater(found['needed'], found['new_size'])
        self.assertGreater(found['seconds'], 0)
        self.assertEqual(found['freed'], found['transactions'] + sum(
            row['bytes'] for row in found['rows']))
        classes = {row['class']: row for row in found['rows']}
        self.assertEqual(classes['ZODB.blob.Blob']['records'], 19)
        self.assertEqual(classes['ZODB.blob.Blob']['objects'], 19)
        self.assertEqual(found['objects'], 19)
        found = storage.packs.forecast(time.time())
        self.assertEqual((found['freed'], found['rows']), (0, []))

    def test_a_storage_that_only_reads(self):
        """It takes no lock, and others go on to commit."""
        storage = self.packable()
        reader = FsyncStorage(self.path(), read_only=True)
        self.addCleanup(reader.close)
        before = self.content()
        found = reader.packs.forecast(time.time())
        self.assertEqual(self.content(), before)
        self.assertGreater(found['freed'], 0)
        self.assertIsNone(found['blobs'])
        self.pack(storage)
        self.assertEqual(found['new_size'], storage.getSize())
        # Now the reader has a file that has lost its name.
        with self.assertRaisesRegex(FileStorageError, 'another file'):
            reader.packs.forecast(time.time())

    def test_one_at_a_time(self):
        storage = self.packable()

        def again():
            self.assertEqual(
                storage.packs.status()['forecast']['phase'], progress.MARK)
            with self.assertRaisesRegex(FileStorageError, 'under way already'):
                storage.packs.forecast(time.time())

        with self.at(progress.MARK, again, progress.FORECAST):
            storage.packs.forecast(time.time())
        self.assertIsNone(storage.packs.status()['forecast'])

    def test_it_is_not_wanted_any_more(self):
        for pack_process in True, False:
            with self.subTest(pack_process=pack_process):
                storage = self.packable(pack_process=pack_process)

                def refuse():
                    status = storage.packs.status()['forecast']
                    if status and status['phase']:
                        raise ZeroDivisionError

                with self.assertRaises(ZeroDivisionError):
                    storage.packs.forecast(time.time(), refuse)
                self.assertIsNone(storage.packs.status()['forecast'])
                storage.close()

    def test_a_close_ends_it(self):
        storage = self.packable(pack_process=True)
        started = threading.Event()

        class Hanging(packs.Process):
            """It never has an answer."""

            def __init__(self, *args):
                super().__init__(*args)
                self._process.begin = lambda job: started.set()

        with mock.patch.object(packs, 'Process', Hanging):
            thread = Thread(lambda: storage.packs.forecast(time.time()))
            self.assertTrue(started.wait(PATIENCE))
            storage.close()
            with self.assertRaisesRegex(ValueError, 'closed'):
                thread.result()


class PackTime(PacksCase):

    def test_a_time_in_the_future(self):
        """Of days below 0, as `zeopack -d -1` asks for them."""
        storage = self.packable()
        before = self.content()
        for do in self.pack_to, storage.packs.forecast:
            for ahead in 86400 - 60, 1e9, float('inf'):
                with self.assertRaisesRegex(FileStorageError, 'in the future'):
                    do(time.time() + ahead)
        self.assertEqual(self.content(), before)
        self.pack_to(time.time() + 10000)   # as ZODB's tests do

    def pack_to(self, when):
        storage = self.storage
        storage.pack(when, referencesf)

    def packable(self):
        self.storage = super().packable()
        return self.storage

    def test_what_a_wrong_clock_has_written(self):
        """It can be packed."""
        storage = self.packable()
        with mock.patch.object(packing.time, 'time', lambda: 1e9):
            self.pack_to(storage_time(storage))
        self.assertEqual(storage.packs.status()['last']['outcome'], 'packed')


def storage_time(storage):
    return ZODB.TimeStamp.TimeStamp(storage.lastTransaction()).timeTime() + 1


class Wrapped(PacksCase):
    """Where a wrapper changes records, a forecast would be wrong."""

    level = 2

    def test_it_is_refused(self):
        for process, gc in (False, False), (True, True):
            with self.subTest(process=process, gc=gc):
                storage = self.open(
                    f'{process}', pack_process=process, pack_gc=gc)
                db = ZODB.DB(HexStorage(storage))
                for text in 'one', 'two':
                    with db.transaction() as connection:
                        connection.root()['text'] = text
                with self.assertRaisesRegex(ValueError, 'wrapped'):
                    storage.packs.forecast(time.time())


as_root = unittest.skipUnless(os.getuid() == 0, 'only root gives files away')


class Owners(PacksCase):
    """A pack changes neither who has the file, nor who may read it."""

    def test_the_mode(self):
        for home, process in ('within', False), ('process', True):
            with self.subTest(home):
                storage = self.packable(home, process)
                path = self.path(f'{home}/Data.fs')
                os.chmod(path, 0o640)
                seen = []
                with self.at(progress.COPY, lambda: seen.append(
                        self.mode(path + '.pack'))):
                    self.pack(storage)
                self.assertEqual(
                    [*seen, self.mode(path), self.mode(path + '.index')],
                    3 * [0o640])

    def mode(self, path):
        return stat.S_IMODE(os.stat(path).st_mode)

    @as_root
    def test_the_owner(self):
        storage = self.packable()
        os.chown(self.path(), 1234, 2345)
        self.pack(storage)
        for name in 'Data.fs', 'Data.fs.index':
            found = os.stat(self.path(name))
            self.assertEqual((found.st_uid, found.st_gid), (1234, 2345))


class Room(PacksCase):

    level = 2

    def test_too_little(self):
        storage = self.packable()
        needed = storage.packs.forecast(time.time())['needed']
        before = self.content()
        with mock.patch.object(work, 'free_bytes', lambda file: needed - 1):
            with self.assertRaisesRegex(
                    OSError, f'need {needed:,} bytes, .*'
                    f' {needed - 1:,} are free') as caught:
                self.pack(storage)
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        self.assertEqual(self.content(), before)

    def test_just_enough(self):
        """Though less than the old file has."""
        storage = self.packable()
        needed = storage.packs.forecast(time.time())['needed']
        self.assertLess(needed, storage.getSize())
        with mock.patch.object(work, 'free_bytes', lambda file: needed):
            self.pack(storage)
        self.assertLess(storage.getSize(), needed)

    def test_a_disk_that_compresses(self):
        """The new file will take less there, too."""
        storage = self.packable('home', False)
        whole = storage.packs.forecast(time.time())
        with mock.patch.object(work, 'share_on_disk', lambda file: .5):
            half = storage.packs.forecast(time.time())
            self.assertAlmostEqual(
                whole['needed'] - half['needed'],
                whole['new_size'] / 2, delta=1)
            with mock.patch.object(
                    work, 'free_bytes', lambda file: half['needed']):
                self.pack(storage)

    def test_where_nothing_can_be_freed(self):
        """Little room is left: it is not filled to find that out."""
        storage = self.open(pack_process=False)
        commit(storage, {0: record()})
        with (mock.patch.object(work, 'free_bytes', lambda file: 0),
              mock.patch.object(work, 'Output') as output):
            self.pack(storage)
        output.assert_not_called()
        self.assertEqual(storage.packs.status()['last']['outcome'], 'nothing')

    def test_a_file_system_that_does_not_tell(self):
        with mock.patch.object(os, 'statvfs', lambda file: os.statvfs_result(
                [4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255])):
            self.assertIsNone(work.free_bytes(self.directory))
            storage = self.packable()
            self.assertIsNone(storage.packs.forecast(time.time())['free'])
            self.pack(storage)
        self.assertEqual(storage.packs.status()['last']['outcome'], 'packed')


class Rates(PacksCase):

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.rate = functools.partial(Rate, wait=self.wait, clock=self.clock)

    def clock(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds

    def test_a_pack_reads_and_writes_at_the_rate(self):
        storage = self.packable(pack_rate='1MB')
        before = storage.getSize()
        with (mock.patch.object(work, 'Rate', self.rate),
              mock.patch.object(Window, 'SIZE', 1 << 12)):
            self.pack(storage)
        # Three reads of the file and one of what is left, at least.
        self.assertGreaterEqual(
            self.now * (1 << 20), 3 * before + storage.getSize())

    def test_what_it_writes_counts(self):
        storage = self.packable(pack_rate='1MB')
        with (mock.patch.object(work, 'Rate', self.rate),
              mock.patch.object(
                  work, 'reading_at', lambda rate, pread: pread)):
            self.pack(storage)
        self.assertGreaterEqual(
            self.now * (1 << 20), .99 * storage.getSize())

    def test_no_commit_waits_for_the_rate(self):
        """What the append lock is held for is copied without it (I2)."""
        storage = self.packable(pack_rate='1MB')
        hold_still, held = storage.hold_still, []

        def commit_and_hold_still():
            with ZODB.DB(storage).transaction() as connection:
                connection.root()['late'] = 'x' * 1000
            rest = storage.getSize()
            hold_still()
            held.append(rest)

        def wait(seconds):
            self.assertFalse(storage._commit_lock.locked())
            self.wait(seconds)

        with (mock.patch.object(work, 'Rate', functools.partial(
                Rate, wait=wait, clock=self.clock)),
              mock.patch.object(storage, 'hold_still', commit_and_hold_still)):
            self.pack(storage)
        self.assertGreater(self.now, 0)
        self.assertEqual(len(held), 1)
        self.assertEqual(storage.packs.status()['last']['outcome'], 'packed')
