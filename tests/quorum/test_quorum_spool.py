"""A pack that is late holds up nobody's log: what comes behind the swap is in
the spool of the node, which notes that, and is applied from there; also by a
start, and if the log does not have it any more.
"""

import contextlib
import errno
import os
import threading
import time
from unittest import mock

from ZODB.serialize import referencesf
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage.pack import progress
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following import rejoin
from fsyncstorage.quorum.following import repacking
from fsyncstorage.quorum.following import spool
from fsyncstorage.quorum.following import standby as module
from fsyncstorage.quorum.following.standby import Standby
from fsyncstorage.quorum.history.record import PackSwap
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.log import reading
from fsyncstorage.quorum.roles import takeover
from fsyncstorage.storage import opening

from ..pack.phases import held_up
from ..support import PATIENCE
from ..support import Thread
from ..support import until
from .blobnodes import BlobNodeTest
from .fakelog import FakeLog
from .logged import NODE
from .logged import FollowTest
from .samples import LOG


class SpoolTest(FollowTest):

    def setUp(self):
        super().setUp()
        self.patch(module, LOOK_EVERY=0.01, SOON=0.01)
        self.logged.objects = 5
        self.logged.write(*range(10, 60))
        self.begin()

    def standby(self, log=None):
        standby = Standby(self.rejoin_by(log or FakeLog(self.engine)), 1 << 30)
        self.addCleanup(standby.close)
        standby.start()
        return standby

    @contextlib.contextmanager
    def packing(self, log=None):
        """A standby, whose pack is held up."""
        with held_up(progress.COPY) as is_held_up:
            standby = self.standby(log)
            self.logged.begin_pack()
            self.assertTrue(is_held_up.wait(PATIENCE))
            yield standby

    @contextlib.contextmanager
    def late(self):
        """Its pack is late for the swap; it has noted what is behind that, and
        the log does not have it any more."""
        with self.packing() as standby:
            self.logged.write(30).swap().write(40, 50).lead().write(60)
            until(lambda: standby.follower.noted == self.engine.head, 'noted')
            self.assertLess(self.kept().state.place.sequence,
                            self.engine.head.sequence - 3)
            self.trim()
            yield standby

    def has_come_to_the_end(self, standby):
        until(lambda: standby.state == self.here().state, 'the end')
        until(lambda: self.kept().state == self.here().state, 'it is kept')
        self.assertEqual(self.content(), self.logged.content)
        until(lambda: not os.path.exists(self.spool), 'it is removed')

    @property
    def spool(self):
        return self.path('Data.fs.quorum.spool')

    def trim(self):
        """As far as it has noted.  (The whole log is in `records`.)"""
        self.engine.trim(self.engine.head.sequence)


class Goes(SpoolTest):

    def test_on_when_its_pack_is_ready(self):
        with self.late() as standby:
            self.assertTrue(os.path.exists(self.spool))
            # For it, the log begins with the swap.
            self.assertEqual(standby.follower.log.ends().first,
                             self.kept().state.place.sequence + 1)
        self.has_come_to_the_end(standby)
        self.logged.write(70)
        self.has_come_to_the_end(standby)

    def test_on_after_a_start(self):
        """Also where a crash has left a part of a record behind it."""
        for tail in b'', b'\0\0\0\x50of a record':
            with self.subTest(tail):
                with self.late() as standby:
                    noted = standby.follower.noted
                    standby.close()
                with open(self.spool, 'ab') as file:
                    file.write(tail)
                self.logged.write(70)
                again = self.rejoin()
                self.assertGreater(again.noted, noted)
                self.assertEqual(again.state, self.here().state)
                self.assertEqual(self.content(), self.logged.content)
                self.assertFalse(os.path.exists(self.spool))
                again.close()

    def test_on_from_a_start_that_does_not_wait_for_the_pack(self):
        self.patch(rejoin, LONGEST_WAIT=0.0)
        with self.late() as standby:
            standby.close()
            with held_up(progress.COPY):
                again = self.standby()
                self.assertEqual(again.follower.noted, self.engine.head)
                self.logged.write(70)
                until(lambda: again.follower.noted == self.engine.head,
                      'it notes more')
                self.assertFalse(again.has_caught_up)
        self.has_come_to_the_end(again)

    def test_on_when_its_pack_had_no_room(self):
        """It waits for its retry, and says once that it packs again."""
        bulk, packs = repacking.Bulk, []

        class Full(bulk):

            def copied(self, *args):
                packs.append(args)
                raise OSError(28, 'No space left on device')

        self.patch(repacking, Bulk=Full, PAUSES=1e9)
        standby = self.standby()
        with self.assertLogs('fsyncstorage', 'WARNING') as said:
            self.logged.begin_pack()
            until(lambda: packs, 'it packs')
            self.logged.write(30).swap()
            until(lambda: len(packs) == 2, 'it packs again')
            for _ in range(3):
                self.logged.write(40)
                until(lambda: standby.follower.noted == self.engine.head,
                      'it notes what comes')
        until(lambda: 'No space left' in standby.why_not_ready, 'it says why')
        self.assertEqual(
            len([each for each in said.output if 'packed now' in each]), 1)
        standby.close()
        self.patch(repacking, Bulk=bulk)
        self.has_come_to_the_end(self.standby())


class AFullDisk(SpoolTest):
    """For a moment, at the swap."""

    def test_the_swap_is_tried_again(self):
        self.patch(module, SOON=PATIENCE)
        save, failed = states.save, []

        def failing(path, state, read, node, becoming=None):
            if becoming is not None and not failed:
                failed.append(becoming)
                raise OSError(errno.ENOSPC, 'No space left on device')
            save(path, state, read, node, becoming)

        standby = self.standby()
        with mock.patch.object(states, 'save', failing):
            self.logged.begin_pack()
            self.logged.write(30).swap()
            self.has_come_to_the_end(standby)
        self.assertTrue(failed)
        self.assertIsNotNone(opening.load_index(self.path()))


class Figures(SpoolTest):

    def test_none_is_behind_after_a_swap(self):
        """The end of the log is measured in the file that was replaced."""
        self.patch(module, SOON=PATIENCE, MEASURED_EVERY=0.0)
        standby = self.standby()
        self.logged.write(30, 40)
        self.logged.begin_pack().swap()
        self.has_come_to_the_end(standby)
        self.assertEqual(standby.lag, (0, 0))


class MadeAnew(SpoolTest):

    def test_a_spool_that_was_left_behind(self):
        """The log must be kept for what is before it."""
        earlier = self.kept().state.place
        with self.late() as standby:
            self.assertLess(earlier.sequence, spool.Spool(
                self.path(), LOG).first - 1)
            standby.close()
        found = spool.Spool(self.path(), LOG)
        found.kept(earlier)
        self.assertEqual(found.last.sequence, 0)
        self.assertFalse(os.path.exists(self.spool))

    def test_a_log_that_goes_on_behind_a_gap(self):
        with self.late() as standby:
            head = self.engine.head.sequence
            self.engine.trim(head + 1)
            swap = self.kept().state.place.sequence + 1
            self.assertEqual(standby.follower.log.ends().first, swap)
            self.engine.trim(head + 2)
            self.assertEqual(standby.follower.log.ends().first, head + 2)
            self.engine.first = 1


class Blobs(BlobNodeTest):

    level = 2

    def late(self, log):
        """The storage that leads, a standby by this log, whose pack waits for
        an event, and that."""
        goes_on = threading.Event()

        class Held(repacking.Bulk):

            def copied(self, *args):
                goes_on.wait()
                return super().copied(*args)

        self.patch(module, LOOK_EVERY=0.01, SOON=0.01)
        self.patch(repacking, Bulk=Held)
        storage = self.lead(pack_process=False, pack_gc=False)
        standby = Standby(self.follow(log=log), 1 << 30)
        self.addCleanup(standby.close)
        self.addCleanup(goes_on.set)
        standby.start()
        old = self.commit_blobs(storage, {1: b'old'})
        self.commit_blobs(storage, {1: b'new'}, {1: old})
        storage.pack(time.time() + 1, referencesf)
        return storage, standby, goes_on

    def test_they_are_fetched_before_the_place_is_noted(self):
        """The log removes them with their records."""
        storage, standby, goes_on = self.late(FakeLog(self.engine))
        self.commit_blobs(storage, {2: b'later'})
        until(lambda: standby.follower.noted == self.engine.head, 'noted')
        self.assertEqual(self.contents('b'), [b'later', b'new', b'old'])
        self.engine.trim(self.engine.head.sequence)
        self.engine.blobs.clear()
        goes_on.set()
        until(lambda: standby.state.place == self.engine.head, 'the end')
        self.assertEqual(self.contents('b'), [b'later', b'new'])
        self.has_what_the_log_has('b')
        until(lambda: not self.lists('b'), 'no list is left')

    def test_no_place_within_a_batch_is_noted(self):
        """Its first records name its blobs, which come with its last one: the
        log has to keep those."""
        log = Behind(self.engine)
        storage, standby, _ = self.late(log)
        until(lambda: standby.follower.noted == self.engine.head, 'noted')
        before = self.engine.head
        log.last = before.sequence + 2
        batch = self.begin_blobs(storage, {2: b'acknowledged'})
        for number in range(3, 7):
            storage.store(p64(number), z64, b'.' + bytes(900_000), '', batch)
        storage.tpc_vote(batch)
        storage.tpc_finish(batch)
        self.assertGreater(self.engine.head.sequence, log.last)
        spooled = self.path('b/Data.fs.quorum.spool')
        until(lambda: bytes(900_000) in content(spooled), 'it is read')
        self.assertEqual(standby.follower.noted, before)
        log.last = self.engine.head.sequence
        until(lambda: standby.follower.noted == self.engine.head, 'noted')
        self.assertIn(b'acknowledged', self.contents('b'))


class Behind(FakeLog):
    """Its reader is slower than its writer."""

    last = 1 << 60

    def read(self, sequence, member=None):
        return super().read(sequence, member)[:max(
            0, self.last + 1 - sequence)]


def content(path):
    with open(path, 'rb') as file:
        return file.read()


class Stale(FakeLog):
    """One member shows nothing any more."""

    stale = None

    def read(self, sequence, member=None):
        return [] if member is None and self._first == self.stale else (
            super().read(sequence, member))


class ADiskThatFails(SpoolTest):
    """What is not durable is not noted.  The standby ends, also while its pack
    would go on (I7)."""

    def ends(self, where, name):
        done, failed = getattr(where, name), threading.Event()

        def failing(*args):
            if os.path.exists(self.spool) and not failed.is_set():
                failed.set()
                raise OSError(5, 'Input/output error')
            return done(*args)

        with self.packing() as standby:
            with mock.patch.object(where, name, failing):
                self.logged.swap()
                self.assertTrue(failed.wait(PATIENCE))
        until(lambda: standby.ended, 'it ends')
        self.assertIn('spool: a sync failed', standby.ended)
        self.assertLess(standby.follower.noted, self.engine.head)

    def test_its_sync(self):
        self.ends(datafile.DataFile, 'sync')

    def test_the_sync_of_its_directory(self):
        self.ends(datafile.disk, 'sync_directory')


class AMemberThatShowsNothing(SpoolTest):

    def test_it_reads_on_from_the_next_one(self):
        self.patch(reading, LOOKED_EVERY=0.1)
        log = Stale(self.engine)
        with self.packing(log) as standby:
            self.logged.swap()
            until(lambda: standby.follower.noted == self.engine.head, 'swap')
            log.stale = log._first
            self.logged.write(40)
            until(lambda: standby.follower.noted == self.engine.head, 'noted')
        self.has_come_to_the_end(standby)


class Takeover(SpoolTest):

    def test_it_does_not_wait_for_a_pack(self):
        """Another node may have its file.  So this one follows again."""
        self.patch(takeover, LONGEST_WAIT=0.01)
        with self.packing() as standby:
            standby.stop()
            self.logged.swap()
            self.assertIsNone(Thread(
                takeover.lead, standby.follower, FakeLog(self.engine), NODE,
                lambda: True, self.stopping).result())
            again = Standby(standby.follower, 1 << 30)
            self.addCleanup(again.close)
            again.start()
            self.logged.write(30)
            until(lambda: again.follower.noted == self.engine.head, 'noted')
            self.trim()
        self.has_come_to_the_end(again)


class OnlyWhatAMajorityHas(SpoolTest):

    def test_it_is_not_noted_before(self):
        confirmed = spool.confirmed
        self.patch(spool, confirmed=lambda log, state: False)
        with self.packing() as standby:
            self.logged.swap().write(40)
            until(lambda: os.path.exists(self.spool), 'it has begun')
            swap, = [number for number, raw in enumerate(
                self.engine.records, 1) if isinstance(
                    parse(raw).body, PackSwap)]
            until(lambda: standby.follower.noted.sequence == swap, 'the swap')
            self.patch(spool, confirmed=confirmed)
            until(lambda: standby.follower.noted == self.engine.head, 'all')
        self.has_come_to_the_end(standby)
