"""The pack of a file that no storage has open: its answers, and its ends."""

import os
import random
import signal
import threading
import time
from unittest import mock

from ZODB.FileStorage import FileStorage
from ZODB.serialize import referencesf

from fsyncstorage import datafile
from fsyncstorage.format import index
from fsyncstorage.pack import bulk
from fsyncstorage.pack import checksum
from fsyncstorage.pack import progress
from fsyncstorage.pack.unopened import Why
from fsyncstorage.pack.unopened import made

from ..support import PATIENCE
from ..support import TestCase
from ..support import commit
from ..support import oid
from ..support import until
from . import phases
from .histories import state
from .nodes import Follower
from .nodes import Hooks
from .processes import on_linux


class UnopenedCase(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = phases.fill(self.open(pack_process=False))
        self.hooks = Hooks(self.storage)
        os.mkdir(self.path('follower'))
        self.follower = Follower(self.storage, self.path('follower/Data.fs'))
        self.addCleanup(self.follower.close)

    def pack_alone(self):
        """The storage packs; the follower has its file from before."""
        self.storage.pack(time.time() + 1, referencesf)
        self.assertIsNotNone(self.hooks.becoming)

    def pack(self, **options):
        self.pack_alone()
        self.follower.begins(self.hooks.begin, **options)

    def names(self):
        return set(os.listdir(self.path('follower')))

    def check_refused(self, why, reason='.', becoming=None):
        before = self.follower.content
        refused = self.follower.swaps(becoming or self.hooks.becoming)
        self.assertIs(refused.why, why)
        self.assertRegex(str(refused), reason)
        # The caller needs the room for a copy, at once.
        self.assertEqual(self.names(), {'Data.fs'})
        self.assertEqual(self.follower.content, before)
        # It stays so.
        self.assertIs(
            self.follower.swaps(becoming or self.hooks.becoming).why, why)

    def copied(self):
        """Wait until only the rest is left."""
        until(lambda: self.follower.pack.is_copied
              or self.follower.pack._failure, 'the copy')


class Answers(UnopenedCase):

    def test_the_same_file(self):
        for own_process in False, True:
            with self.subTest(own_process=own_process):
                root = state(random.Random(own_process), [])
                commit(self.storage, {0: root}, {
                    0: self.storage.getTid(oid(0))})
                self.follower.apply()
                self.pack(own_process=own_process)
                self.assertIsNone(self.follower.swaps(self.hooks.becoming))
                self.assertEqual(self.names(), {'Data.fs', 'Data.fs.index'})
                with open(self.path(), 'rb') as file:
                    self.assertEqual(self.follower.content, file.read())
                self.assertEqual(
                    index.load(self.follower.path + '.index').whole,
                    self.hooks.becoming.size)
        self.follower.close()
        stock = FileStorage(self.follower.path, read_only=True)
        self.assertEqual(stock.load(oid(0))[0], root)
        stock.close()

    def test_what_is_handed_out(self):
        """A file that is open, locked and durable, and its index."""
        disk = self.controlled_disk()
        self.pack()
        self.copied()
        del disk.log[:]
        new = made(self.follower.pack, self.follower.size,
                   self.hooks.becoming)
        self.assertIn('sync', disk.log)
        self.assertNotIn('write', disk.log[:disk.log.index('sync')])
        with new.file:
            self.assertEqual(new.file.size(), new.becoming.size)
            with datafile.open_existing(new.file.name) as other:
                self.assertRaises(BlockingIOError, other.lock)
            self.assertEqual(
                dict(new.index.items()), dict(self.storage._index.items()))
            self.assertEqual(
                checksum.of_first(new.file.fileno(), new.becoming.size),
                new.becoming.checksum)
            self.follower.pack.replace(new, keep_old=True)
            self.assertEqual(new.file.name, self.follower.path)
        self.assertEqual(
            self.names(), {'Data.fs', 'Data.fs.index', 'Data.fs.old'})
        # What has the name is not removed any more.
        self.follower.close()
        self.assertEqual(
            self.names(), {'Data.fs', 'Data.fs.index', 'Data.fs.old'})

    def test_what_has_not_got_its_name_stays(self):
        """The caller has kept that it is to get it."""
        self.pack()
        new = made(self.follower.pack, self.follower.size,
                   self.hooks.becoming)
        new.file.close()
        self.follower.close()
        self.assertIn('Data.fs.pack', self.names())

    def test_it_was_away(self):
        self.pack_alone()
        self.check_refused(Why.NOT_BEGUN, 'has not packed')

    def test_another_version(self):
        self.pack_alone()
        self.follower.begins(self.hooks.begin._replace(version=b'other'))
        self.check_refused(Why.OTHER_VERSION, "2 here, b'other' there")

    def test_another_file(self):
        self.pack_alone()
        for changed in {'size': 1}, {'checksum': bytes(32)}:
            self.follower.begins(self.hooks.begin, own_process=False)
            self.check_refused(
                Why.DIFFERENT, 'bytes',
                self.hooks.becoming._replace(**changed))

    def test_nothing_to_free(self):
        self.pack(own_process=False)
        self.assertIsNone(self.follower.swaps(self.hooks.becoming))
        before = self.names()
        self.follower.begins(self.hooks.begin._replace(
            end=self.follower.size), own_process=False)
        refused = self.follower.swaps(self.hooks.becoming)
        self.assertIs(refused.why, Why.NOTHING_TO_FREE)
        self.assertEqual(self.names(), before)

    def test_damage(self):
        content = bytearray(self.follower.content)
        content[content.index(b'xxxx')] ^= 1
        with open(self.follower.path, 'wb') as file:
            file.write(content)
        self.pack_alone()
        for own_process in False, True:
            with self.subTest(own_process=own_process):
                self.follower.begins(
                    self.hooks.begin, own_process=own_process)
                self.check_refused(Why.FAILED, 'checksum|seal')

    def test_damage_behind_the_end(self):
        """What comes later is read by `catch_up`, or for the swap."""
        self.pack_alone()
        for catch_up in False, True:
            self.follower.begins(self.hooks.begin, own_process=False)
            self.copied()
            self.follower.pack._thread.join()
            with mock.patch.object(
                    self.follower.pack._copier, 'copy_later',
                    side_effect=OSError(5, 'read error')):
                if catch_up:
                    self.follower.pack.catch_up()
                    self.assertFalse(self.follower.pack.is_copied)
                    self.assertEqual(self.names(), {'Data.fs'})
                self.check_refused(Why.FAILED, 'read error')

    def test_what_is_in_the_way(self):
        os.mkdir(self.path('follower/Data.fs.old'))
        self.pack()
        refused = self.follower.swaps(self.hooks.becoming)
        self.assertIs(refused.why, Why.FAILED)
        self.assertIn('is a directory', str(refused))
        self.assertEqual(self.names(), {'Data.fs', 'Data.fs.old'})

    def test_no_room(self):
        self.pack_alone()
        with mock.patch.object(bulk.work, 'free_bytes', return_value=100):
            self.follower.begins(self.hooks.begin, own_process=False)
            self.check_refused(Why.FAILED, '100 are free')


class Ends(UnopenedCase):

    def test_how_far_it_is(self):
        self.pack_alone()
        with phases.held_up(progress.COPY) as there:
            self.follower.begins(self.hooks.begin, own_process=False)
            self.assertTrue(there.wait(PATIENCE))
            figures = self.follower.pack.watch.figures()
            self.assertEqual(figures['phase'], progress.COPY)
            self.assertGreater(figures['share'], 0)
            self.assertFalse(self.follower.pack.is_copied)
            # It does nothing yet.
            self.follower.pack.catch_up()
        self.assertIsNone(self.follower.swaps(self.hooks.becoming))

    def test_a_cancel(self):
        self.pack_alone()
        for own_process in False, True:
            for phase in progress.CHECK, progress.MARK, progress.COPY:
                with self.subTest(phase, own_process=own_process), \
                        phases.held_up(phase) as there:
                    self.follower.begins(
                        self.hooks.begin, own_process=own_process)
                    self.assertTrue(there.wait(PATIENCE))
                    self.follower.pack.cancel()
                    self.check_refused(Why.CANCELLED)

    def test_a_cancel_while_the_swap_waits_for_it(self):
        """A standby that is stopped must not wait for a pack."""
        self.pack_alone()
        with phases.held_up(progress.REFERENCES) as there:
            self.follower.begins(self.hooks.begin, own_process=False)
            self.assertTrue(there.wait(PATIENCE))
            canceller = threading.Thread(target=self.follower.pack.cancel)
            canceller.start()
            self.check_refused(Why.CANCELLED)
            canceller.join()

    def test_a_close(self):
        """Nothing is left, whatever it does."""
        self.pack_alone()
        for phase in progress.CHECK, progress.COPY:
            with phases.held_up(phase) as there:
                self.follower.begins(self.hooks.begin, own_process=False)
                self.assertTrue(there.wait(PATIENCE))
                self.follower.close()
            self.assertEqual(self.names(), {'Data.fs'})
        self.follower.begins(self.hooks.begin, own_process=False)
        self.copied()
        self.follower.close()
        self.assertEqual(self.names(), {'Data.fs'})

    @on_linux
    def test_the_process_is_killed(self):
        self.pack_alone()
        started = []

        class Process(bulk.Process):

            def __init__(self, *args):
                super().__init__(*args)
                started.append(self.pid)

        with mock.patch.object(bulk, 'Process', Process), phases.at(
                progress.MARK,
                lambda watch: os.kill(started[0], signal.SIGKILL)):
            self.follower.begins(self.hooks.begin)
            self.check_refused(Why.FAILED, 'ended before it was done')

    def test_the_rest_is_copied_bit_by_bit(self):
        """So that little is left when the swap comes."""
        follower = self.follower
        copied = []

        def begins(*agreed):
            Hooks.begins(self.hooks, *agreed)
            follower.apply()
            follower.begins(self.hooks.begin, own_process=False)
            self.copied()
            follower.pack._thread.join()
            for number in range(100, 105):
                commit(self.storage, {number: b'%d' % number * 100})
                follower.apply()
                follower.pack.catch_up()
                copied.append(follower.pack._copier.copied_to)
                self.assertEqual(copied[-1], follower.size)
            return self.hooks.begin.end

        with mock.patch.object(self.hooks, 'begins', begins):
            self.pack_alone()
        self.assertEqual(len(set(copied)), 5)
        self.assertIsNone(follower.swaps(self.hooks.becoming))
        with open(self.path(), 'rb') as file:
            self.assertEqual(follower.content, file.read())
