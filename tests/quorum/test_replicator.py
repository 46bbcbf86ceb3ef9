"""The policy `quorum`: a commit is acknowledged when the log and the disk have
it, and not before; and what becomes of it when one of them does not.

I16, as far as one node is concerned, and I3, I4, I7, I9 and I10 under this
policy.
"""

import errno
import itertools
import pickle
import threading

from transaction.interfaces import TransientError
from ZODB.utils import z64

from fsyncstorage import AsyncFinish
from fsyncstorage.commit.replica import NotReplicated
from fsyncstorage.errors import LeaderChanged
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import WritingStopped
from fsyncstorage.format import index
from fsyncstorage.quorum.history.record import MOST
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.leading import replicator
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.log import outage
from fsyncstorage.storage import outcome
from fsyncstorage.storage.transaction import STATUS_OFFSET

from ..commit.test_interrupts import Interrupter
from ..often import often
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until
from ..support import vote
from .fakelog import FakeLog
from .fakelog import Fault
from .nodes import NodeTest
from .nodes import content_of
from .nodes import led
from .nodes import state_behind

EIO = OSError(errno.EIO, 'Input/output error')
#: An extension that leaves no room for a seal.
UNSEALABLE = pickle.dumps({'x': 'y' * 65480})


def later(storage, records, told, **metadata):
    """Finish without waiting; `told` gets the tid and the error."""
    storage.tpc_finish(vote(storage, records, **metadata), AsyncFinish(
        lambda tid, error: told.append((tid, error))))


class Promises(NodeTest):

    def test_acknowledged_when_both_have_it(self):
        """I3, I4: the log alone is not enough, nor the disk."""
        disk = self.controlled_disk()
        storage = self.lead()
        before = storage.lastTransaction()
        for number, first in enumerate(['disk', 'log']):
            with self.subTest(first=first):
                disk.hold_again()
                storage.line.hold_answers()
                committer = Thread(commit, storage, {number: b'x'})
                disk.wait_for_sync()
                if first == 'log':
                    storage.line.release_answers()
                    self.has_the_log(storage)
                    disk.release_syncs()
                else:
                    disk.release_syncs()
                    storage.line.wait_for_question()
                    self.assertTrue(committer.is_alive())
                    self.assertEqual(storage.lastTransaction(), before)
                    self.assertEqual(storage.stats()['last_durable'], before)
                    storage.line.release_answers()
                before = committer.result()
                self.assertEqual(storage.lastTransaction(), before)
                self.has_what_the_log_has()
                storage = self.restarted(storage)

    def has_the_log(self, storage):
        self.assertEqual(len(content_of(self.engine)), storage._pos)
        self.assertLess(storage.stats()['last_durable'],
                        storage.stats()['last_appended'])

    def restarted(self, storage):
        storage.close()
        return self.lead()

    def test_the_question_is_on_its_way_while_the_disk_syncs(self):
        """I9: and the committer does all of it."""
        disk = self.controlled_disk()
        sync = disk.sync
        disk.sync = lambda fd: (self._tell('sync'), sync(fd))
        storage = self.lead()
        commit(storage, {1: b'x'})
        me = threading.get_ident()
        self.assertEqual(self.told, [
            ('ask', me), ('sync', me), ('answered', me)])

    def test_the_status_is_the_one_that_counts(self):
        """In the file it has another one while the log is asked."""
        storage = self.lead()
        start, seen = storage._pos, []

        def landed(raw):
            seen.append(self.content()[start + STATUS_OFFSET:][:1])

        self.engine.landed = landed
        commit(storage, {1: b'x'})
        self.assertEqual(seen.pop(), b' ')
        start = storage._pos
        storage.tpc_finish(vote(storage, {2: b'y'}, extension=UNSEALABLE))
        self.assertEqual(seen.pop(), b'c')
        self.has_what_the_log_has()

    def test_what_a_checkpoint_makes_durable(self):
        """An index never has what the log has not, nor what is not kept: a
        start can use it."""
        storage = self.lead()
        storage.line.hold_answers()
        committer = Thread(commit, storage, {1: b'x'})
        storage.line.wait_for_question()
        checkpoint = Thread(storage.journal.checkpoints.write)
        self.assertTrue(checkpoint.is_alive())
        storage.line.release_answers()
        committer.result()
        self.assertTrue(checkpoint.result())
        found = index.load(self.path_of('a') + '.index')
        self.assertEqual(found.position, storage.getSize())
        self.assertEqual(self.kept().end, found.position)


class NoMajority(NodeTest):

    def setUp(self):
        super().setUp()
        self.patch(outage, TROUBLE_AFTER=0.0)

    def test_commits_wait_and_readers_go_on(self):
        storage = self.lead()
        first = commit(storage, {1: b'first'})
        self.assertIsNone(storage.replica.trouble)
        storage.line.is_away = True
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            committer = Thread(commit, storage, {1: b'second'}, {1: first})
            until(lambda: storage.stats()['quorum']['outages'], 'it is said')
            self.assertEqual(storage.load(oid(1)), (b'first', first))
            self.assertIn('not answered', storage.replica.trouble)
            self.assertEqual(
                storage.stats()['quorum']['trouble'][:7], 'the log')
            voted = vote(storage, {2: b'x'})
            self.assertTrue(committer.is_alive())
            storage.line.is_away = False
            second = committer.result()
        self.assertEqual(storage.load(oid(1)), (b'second', second))
        storage.tpc_finish(voted)
        self.assertIsNone(storage.replica.trouble)
        self.has_what_the_log_has()
        self.assertIn('has not answered for', logs.output[0])
        self.assertIn('answers again', logs.output[-1])
        self.assertEqual(len(logs.output), 2)


class TheFence(NodeTest):

    def fence(self):
        """Another node leads, behind all that the log has."""
        led(FakeLog(self.engine), state_behind(self.engine), 'other')

    def fenced(self, storage):
        self.assertEqual(storage.stats()['failed'], True)
        self.assertIn('takes nothing more', storage.stats()['writing_stopped'])
        self.assertTrue(storage.stats()['quorum']['fenced'])
        with self.assertRaisesRegex(LeaderChanged, 'takes nothing more'):
            begin(storage)

    def test_transactions_that_meet_it(self):
        """Nothing was promised to anybody: they can be tried again."""
        storage = self.lead()
        commit(storage, {1: b'first'})
        begun, voted = begin(storage), vote(storage, {2: b'x'})
        storage.store(oid(3), z64, b'x', '', begun)
        self.fence()
        with self.assertRaises(Fenced):
            storage.replica.say(Trim(1))
        size = storage.getSize()
        with self.assertRaises(TransientError):
            storage.tpc_vote(begun)
        with self.assertRaises(TransientError):
            storage.tpc_finish(voted)
        with self.assertRaises(TransientError):
            begin(storage)
        self.assertEqual(storage.getSize(), size)
        self.assertFalse(storage.has_stopped)

    def test_a_question_for_a_commit(self):
        """The node that leads may have it, as long as ours knows."""
        storage = self.lead()
        since, id = commit(storage, {1: b'first'}), b'i' * 16
        self.assertEqual(
            storage.outcome(id, since).word, outcome.NOT_COMMITTED)
        storage.line.faults.extend([Fault.BEFORE])
        self.fence()
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            found = storage.outcome(id, since)
        self.assertEqual(found.word, outcome.UNKNOWN)
        self.assertIn('takes nothing more', found.reason)

    def test_a_commit_behind_it(self):
        """I7: it may be there, and nothing is written any more."""
        storage = self.lead()
        first = commit(storage, {1: b'first'})
        self.fence()
        before = content_of(self.engine)
        with self.assertLogs('fsyncstorage', 'CRITICAL') as logs:
            with self.assertRaisesRegex(OutcomeUnknown, 'takes nothing more'):
                commit(storage, {1: b'second'}, {1: first})
        self.assertIn('in epoch', logs.output[0])
        self.fenced(storage)
        self.assertEqual(storage.load(oid(1)), (b'first', first))
        self.assertEqual(content_of(self.engine), before)
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()
        self.assertLess(self.kept().end, len(self.content()))

    def test_all_that_wait_fail(self):
        """I10."""
        storage, told = self.lead(group_commit_delay=0), []
        storage.line.hold_answers()
        first = Thread(commit, storage, {1: b'x'})
        storage.line.wait_for_question()
        others = [Thread(commit, storage, {number: b'x'})
                  for number in range(2, 5)]
        later(storage, {9: b'x'}, told)
        until(lambda: storage.stats()['commits'] == 5, 'appended')
        self.fence()  # the first is in the log, the others are not
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            storage.line.release_answers()
            first.result()
            for each in others:
                with self.assertRaises(OutcomeUnknown):
                    each.result()
            until(lambda: told, 'told')
        self.assertIsInstance(told[0][1], OutcomeUnknown)
        self.fenced(storage)

    def test_in_the_middle_of_a_batch(self):
        """What is in the log of it is given up by all."""
        storage = self.lead()
        first = commit(storage, {1: b'x'})
        ask, asked = storage.line.ask, []

        def ask_the_second_after_the_fence(*append):
            asked.append(append)
            if len(asked) == 2:
                self.fence()
            ask(*append)

        storage.line.ask = ask_the_second_after_the_fence
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            with self.assertRaises(OutcomeUnknown):
                commit(storage, {2: bytes(3 * MOST)})
        self.assertEqual(len(asked), 2)
        self.fenced(storage)
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()
        again = self.lead()
        self.assertEqual(again.lastTransaction(), first)
        self.has_what_the_log_has()

    def test_a_log_that_was_restored(self):
        storage = self.lead()
        head = self.engine.head
        commit(storage, {1: b'x'})
        self.engine.restore(head)
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            with self.assertRaisesRegex(OutcomeUnknown, 'was confirmed'):
                commit(storage, {2: b'x'})
        self.fenced(storage)


class FailedDisk(NodeTest):

    def test_the_log_has_it_and_the_next_start_brings_it(self):
        """I7, though the log has answered."""
        disk = self.controlled_disk()
        storage = self.lead()
        disk.fail_sync(EIO)
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            with self.assertRaisesRegex(OutcomeUnknown, 'a sync failed'):
                commit(storage, {1: b'x'})
        with self.assertRaisesRegex(WritingStopped, 'check the disk'):
            begin(storage)
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()
        self.assertLess(self.kept().end, len(content_of(self.engine)))
        again = self.lead()
        self.assertEqual(again.load(oid(1))[0], b'x')
        self.has_what_the_log_has()

    def test_nothing_more_of_it_is_offered(self):
        """What would be read may not be what was written."""
        disk = self.controlled_disk()
        storage = self.lead()
        disk.fail_sync(EIO)
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            with self.assertRaises(OutcomeUnknown):
                commit(storage, {1: bytes(3 * MOST)})
        # What is no batch would bring in the rest of this one.
        with self.assertRaisesRegex(NotReplicated, 'has failed'):
            storage.replica.say(Trim(1))
        self.assertEqual(
            [what for what, _ in self.told], ['ask'])


class Close(NodeTest):

    def setUp(self):
        super().setUp()
        self.patch(replicator, LONGEST_WAIT_AT_CLOSE=0.1)

    def closed_while_waiting(self, storage):
        told, before = [], storage.stats()['commits']
        committer = Thread(commit, storage, {1: b'x'})
        until(lambda: storage.stats()['commits'] > before, 'appended')
        later(storage, {2: b'x'}, told)
        with self.assertLogs('fsyncstorage', 'ERROR') as logs:
            storage.close()
        with self.assertRaisesRegex(OutcomeUnknown, 'closed before its log'):
            committer.result()
        self.assertIsInstance(told[0][1], OutcomeUnknown)
        self.assertIn('goes on from what the log has', logs.output[0])

    def test_while_one_try_takes_long(self):
        """What was sent may be there."""
        storage = self.lead()
        storage.line.hold_answers()
        self.closed_while_waiting(storage)
        again = self.lead()
        self.assertEqual(again.load(oid(1))[0], b'x')
        self.has_what_the_log_has()


class Interrupts(NodeTest):
    """I10."""

    level = 2

    def test_of_a_finish_at_each_line(self):
        """Commits go on, or writing has stopped."""
        went_on = 0
        for at in itertools.count(1, often(11, 1)):
            name = str(at)
            self.engine = type(self.engine)(self.engine.log)
            storage = self.lead(name)
            first = vote(storage, {1: b'x' * 100})
            interrupter = Interrupter(at)
            try:
                with interrupter:
                    storage.tpc_finish(first)
            except KeyboardInterrupt:
                storage.tpc_abort(first)
            try:
                tid = commit(storage, {2: b'y'})
                self.assertEqual(tid, storage.lastTransaction())
                went_on += 1
            except WritingStopped as error:
                self.assertIn('interrupt (KeyboardInterrupt)', str(error))
                storage.close()
                storage = self.lead(name)
            storage.close()
            self.has_what_the_log_has(name)
            if not interrupter.fired:
                break
        self.assertGreater(at, 100)
        self.assertGreater(went_on, 10)
