"""The packs of a node that writes: what the log is told, and when; what is
kept meanwhile; and what becomes of a pack of which it is not told.  What a
node keeps is never more than its disk has, and not much less.
"""

import os
import random
import threading
import time
from unittest import mock

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.serialize import referencesf

from fsyncstorage.errors import LeaderChanged
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.pack import progress
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.history.record import PackBegin
from fsyncstorage.quorum.history.record import PackEnd
from fsyncstorage.quorum.history.record import PackSwap
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.leading import keeping
from fsyncstorage.quorum.leading import replicator

from ..pack.nodes import Committer
from ..pack.phases import at
from ..support import PATIENCE
from ..support import Thread
from ..support import commit
from ..support import until
from .fakelog import FakeLog
from .logged import IN_PROCESS
from .nodes import NodeTest
from .nodes import bodies
from .nodes import led
from .packed import becoming


class AgreeingCase(NodeTest):

    def setUp(self):
        super().setUp()
        self.number = 0
        self.storage = self.lead()
        self.committer = Committer(random.Random(1), self.storage)
        self.do(20)

    def lead(self, node='a', **options):
        return super().lead(node, **{
            'pack_process': False, 'pack_keep_old': False, **options})

    def do(self, times=1):
        """(No undos: they may make a reference lead nowhere.)"""
        for _ in range(times):
            self.committer.store([random.Random(self.number).randrange(9)])
            self.number += 1

    def pack(self):
        self.storage.pack(time.time() + 1, referencesf)

    def told_of_packs(self):
        """The kinds of all records of packs."""
        return [type(body) for body in bodies(self.engine)
                if isinstance(body, PackBegin | PackSwap | PackEnd)]

    def names(self):
        return set(os.listdir(os.path.dirname(self.path_of('a'))))

    def when_landed(self, kind, do):
        """`do()` is called when such a record is about to be in the log."""
        def landed(raw):
            if isinstance(parse(raw).body, kind):
                do()

        self.engine.landed = landed


class Told(AgreeingCase):

    def test_what_the_log_is_told(self):
        end = self.storage.getSize()
        self.pack()
        begin, swap = (parse(raw) for raw in self.engine.records[-2:])
        self.assertIsInstance(begin.body, PackBegin)
        self.assertEqual(begin.position, end)
        self.assertIsInstance(swap.body, PackSwap)
        self.assertEqual(
            (swap.body.size, swap.body.checksum), becoming(self.content()))
        self.has_what_the_log_has()
        self.assertEqual(self.storage.stats()['quorum']['generation'], 1)

    def test_a_cancel(self):
        with at(progress.COPY, lambda watch: watch.cancel()), \
                self.assertRaises(progress.Cancelled):
            self.pack()
        self.assertEqual(self.told_of_packs(), [PackBegin, PackEnd])
        self.do()
        self.has_what_the_log_has()

    def test_a_commit_before_the_pack_is_over(self):
        """The state behind the swap is kept, and never one before it."""
        self.storage.close()
        self.patch(keeping, LATE=0.0)
        self.storage = self.committer._storage = self.lead()
        over = self.storage.pack_hooks.over

        def is_over(swapped):
            self.do(3)
            until(lambda: self.kept().end == self.storage.getSize(), 'kept')
            over(swapped)

        self.patch(self.storage.pack_hooks, over=is_over)
        self.pack()
        self.assertEqual(self.kept().end, self.storage.getSize())
        self.storage.close()
        self.assertIsNone(states.load(self.path_of('a')).becoming)
        self.storage = self.lead()
        self.has_what_the_log_has()


class NotTold(AgreeingCase):
    """All is as it was before, and no `.pack` is left."""

    def another_leads(self):
        os.makedirs(self.path('b'), exist_ok=True)
        log = FakeLog(self.engine)
        with open(self.path_of('b'), 'wb') as copy:
            copy.write(self.content())
        with open(self.path_of('a') + states.SUFFIX, 'rb') as kept, \
                open(self.path_of('b') + states.SUFFIX, 'wb') as copy:
            copy.write(kept.read())
        follower = rejoin(
            self.path_of('b'), log, threading.Event(), IN_PROCESS)
        led(log, follower.state, 'b')
        follower.close()

    def test_another_leads_before_the_swap_is_told(self):
        before = self.content(), self.names()
        keep = self.storage.replica._keeper.save_becoming

        def save_becoming(*args):
            keep(*args)
            self.another_leads()

        with mock.patch.object(
                self.storage.replica._keeper, 'save_becoming', save_becoming):
            with self.assertRaisesRegex(
                    FileStorageError, 'could not be told'):
                self.pack()
        self.assertEqual((self.content(), self.names()), before)
        self.assertFalse(self.storage._commit_lock.locked())
        with self.assertRaises(LeaderChanged):
            commit(self.storage, {100: b'x'})
        self.storage.close()
        self.storage = self.lead()
        self.has_what_the_log_has()
        self.assertEqual(self.kept().generation, 0)


class NotKnown(AgreeingCase):
    """The log may have the swap: nothing is written any more, and the next
    start finds out."""

    def packs_and_is_closed(self, befalls):
        """The answer to the swap does not come before the close."""
        self.patch(replicator, LONGEST_WAIT_AT_CLOSE=0.0)
        self.before = self.content()
        keeper = self.storage.replica._keeper
        keep = keeper.save_becoming
        befallen = threading.Event()

        def save_becoming(*args):
            keep(*args)
            befalls()
            befallen.set()

        self.patch(keeper, save_becoming=save_becoming)
        pack = Thread(self.pack)
        # Before it, what waits is the record that a pack begins.
        self.assertTrue(befallen.wait(PATIENCE))
        until(lambda: self.storage.replica._outage.seconds
              and self.storage.replica._writer.left, 'it waits')
        self.storage.close()
        with self.assertRaises(OutcomeUnknown):
            pack.result()
        self.assertIn('Data.fs.pack', self.names())
        self.assertEqual(self.content(), self.before)

    def starts_again(self, generation):
        self.storage = self.lead()
        self.assertEqual(self.kept().generation, generation)
        self.has_what_the_log_has()
        self.assertFalse(
            {'Data.fs.pack', 'Data.fs.pack.index'} & self.names())
        self.committer._storage = self.storage
        self.do(3)
        self.pack()
        self.has_what_the_log_has()

    def test_it_has_it(self):
        self.packs_and_is_closed(self.storage.line.hold_answers)
        self.starts_again(1)

    def test_it_has_it_not(self):
        def away():
            self.storage.line.is_away = True

        self.packs_and_is_closed(away)
        self.starts_again(0)


class Kept(NodeTest):

    def test_the_epoch_before_anything_of_it(self):
        for epoch in 1, 2:
            storage = self.lead()
            self.assertEqual(self.kept().epoch, epoch)
            storage.close()

    def test_never_more_than_both_have(self):
        """The log, and the disk."""
        disk, storage = self.controlled_disk(), self.lead()
        before = self.kept()
        for number, first in enumerate(['log', 'disk']):
            if first == 'log':
                disk.hold_again()
                committer = Thread(commit, storage, {number: b'x'})
                disk.wait_for_sync()
            else:
                storage.line.hold_answers()
                committer = Thread(commit, storage, {number: b'x'})
                storage.line.wait_for_question()
            storage.replica.keep()
            self.assertEqual(self.kept(), before)
            disk.release_syncs()
            storage.line.release_answers()
            committer.result()
            storage.replica.keep()
            before = self.kept()
            self.assertEqual(before.end, storage.getSize())

    def test_it_is_tried_again(self):
        self.patch(keeping, LATE=0.0)
        storage, save = self.lead(), states.save
        no_room = [OSError(28, 'No space left on device')] * 2
        self.patch(states, save=lambda *args: (
            _raise(no_room.pop()) if no_room else save(*args)))
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            commit(storage, {1: b'x'})
            until(lambda: self.kept().end == storage._pos, 'kept')
        self.assertEqual(len(logs.output), 1)
        self.assertIn('is tried again', logs.output[0])


def _raise(error):
    raise error
