"""The pack of a file that no storage has open: its answers, and its ends."""

import os
import random
import time

from ZODB.FileStorage import FileStorage
from ZODB.serialize import referencesf

from fsyncstorage import datafile
from fsyncstorage.format import index
from fsyncstorage.pack import checksum
from fsyncstorage.pack import progress

from ..often import often
from ..support import PATIENCE
from ..support import TestCase
from ..support import commit
from ..support import oid
from ..support import until
from . import phases
from .histories import state
from .nodes import Follower
from .nodes import Hooks


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

    def check_refused(self, why, becoming=None):
        before = self.follower.content
        refused = self.follower.swaps(becoming or self.hooks.becoming)
        self.assertRegex(str(refused), why)
        # The caller needs the room for a copy, at once.
        self.assertEqual(self.names(), {'Data.fs'})
        self.assertEqual(self.follower.content, before)
        # It stays so.
        self.assertRegex(str(
            self.follower.swaps(becoming or self.hooks.becoming)), why)

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
        new = self.follower.pack.made(
            self.follower.size, self.hooks.becoming)
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

    def test_another_version(self):
        self.pack_alone()
        self.follower.begins(self.hooks.begin._replace(version=b'other'))
        self.check_refused(
            "another version packs: 3 here, b'other' there")

    def test_another_file(self):
        self.pack_alone()
        for changed in {'size': 1}, {'checksum': bytes(32)}:
            self.follower.begins(self.hooks.begin, own_process=False)
            self.check_refused(
                'another file: .* bytes',
                self.hooks.becoming._replace(**changed))

    def test_nothing_to_free(self):
        self.pack(own_process=False)
        self.assertIsNone(self.follower.swaps(self.hooks.becoming))
        before = self.names()
        self.follower.begins(self.hooks.begin._replace(
            end=self.follower.size), own_process=False)
        refused = self.follower.swaps(self.hooks.becoming)
        self.assertIn('nothing to free', str(refused))
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
                self.check_refused('the pack failed.*(checksum|seal)')


class Ends(UnopenedCase):

    level = 2

    def test_a_cancel(self):
        self.pack_alone()
        for own_process in False, True:
            for phase in often((progress.COPY,), (
                    progress.CHECK, progress.MARK, progress.COPY)):
                with self.subTest(phase, own_process=own_process), \
                        phases.held_up(phase) as there:
                    self.follower.begins(
                        self.hooks.begin, own_process=own_process)
                    self.assertTrue(there.wait(PATIENCE))
                    self.follower.pack.cancel()
                    self.check_refused('was cancelled')

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
