"""The committer, by hand: this thread is the loop, and also the committer's
own, when it carries out what was handed over."""

import threading
import unittest
from unittest import mock

from ZODB.POSException import ConflictError
from ZODB.utils import p64

from fsyncstorage.errors import Occupied
from fsyncstorage.errors import Unpublished
from fsyncstorage.server import committer as module
from fsyncstorage.server.committer import Committer

from ..support import PATIENCE
from ..support import Thread

LOG = 'fsyncstorage.server'


class Storage:
    """What a committer needs of one; `holder` has the commit lock."""

    fails = None
    occupied = False
    is_packing = False

    def __init__(self):
        self.published = 0
        self.log = []
        self.holder = None

    def lastTransaction(self):
        return p64(self.published)

    def tpc_abort(self, transaction):
        self.log.append(('abort', transaction))
        if self.holder == transaction:
            self.holder = None
        if self.fails:
            raise self.fails

    def tpc_finish(self, transaction, f):
        assert self.holder == transaction
        self.log.append(('finish', transaction))
        if self.fails:
            raise self.fails
        self.holder = None
        self.finishing = f
        return p64(self.published + 1)


class Ballot:

    abandoned = False

    def __init__(self, name, outcome=([], []), is_light=False):
        self.transaction = name
        self.outcome = outcome
        self.is_small = is_light
        self.closed = 0

    def is_light(self, storage):
        return self.is_small

    def vote(self, storage, wait=True):
        if storage.occupied and not wait:
            raise Occupied
        assert storage.holder is None
        storage.log.append(('vote', self.transaction))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if not self.outcome[1]:
            storage.holder = self.transaction
        return self.outcome

    def close(self):
        self.closed += 1


class Service:
    """Of a storage of ours; what it is told has these names."""

    own_publishing = commits_in_loop = True
    voted = 'voted'
    refused = 'refused'
    published = 'published'
    finished = 'finished'
    failed = 'failed'


class ByHand(unittest.TestCase):

    def setUp(self):
        self.storage = Storage()
        self.service = Service()
        self.told = []
        self.committer = Committer(
            'test', self.storage, self.service, lambda what, ballot, *rest:
            self.told.append((what, ballot.transaction, *rest)))

    def carry_out(self):
        """All orders that were given."""
        inbox = self.committer._inbox
        while not inbox.empty():
            self.committer.carry_out_next()

    def vote(self, *ballots):
        for ballot in ballots:
            self.committer.vote(ballot)
        self.carry_out()
        return ballots

    def finish(self, ballot):
        self.committer.finish(ballot)
        self.carry_out()

    def abort(self, ballot):
        self.committer.abort(ballot)
        self.carry_out()

    def whats_told(self):
        told, self.told = [each[:2] for each in self.told], []
        return told

    def test_one_after_the_other(self):
        first, second, third = self.vote(*map(Ballot, 'abc'))
        self.assertEqual(self.whats_told(), [('voted', 'a')])
        self.assertEqual(self.committer.waiting, 2)
        self.finish(first)
        self.assertEqual(self.whats_told(), [('voted', 'b')])
        self.assertEqual(first.closed, 1)
        self.abort(second)
        self.assertEqual(self.whats_told(), [('voted', 'c')])
        self.assertEqual(self.storage.log, [
            ('vote', 'a'), ('finish', 'a'), ('vote', 'b'), ('abort', 'b'),
            ('vote', 'c')])
        self.assertEqual(self.committer.waiting, 0)

    def test_it_publishes_when_the_storage_does(self):
        """In the loop, so the service need not be posted."""
        self.service.published = mock.Mock()
        ballot, = self.vote(Ballot('a'))
        self.finish(ballot)
        self.storage.finishing.publish(p64(1))
        self.storage.finishing.done(p64(1), None)
        self.service.published.assert_called_once_with(ballot, p64(1), True)
        self.assertEqual(self.whats_told(), [('voted', 'a')])

    def test_another_storage_publishes_when_its_finish_returns(self):
        self.service.own_publishing = False
        ballot, = self.vote(Ballot('a'))
        self.finish(ballot)
        self.assertEqual(self.told[1:], [('finished', 'a', p64(1))])
        self.storage.finishing(p64(1))
        self.assertEqual(self.told[2:], [('published', 'a', p64(1), False)])

    def test_a_sync_fails(self):
        ballot, = self.vote(Ballot('a'))
        self.finish(ballot)
        error = OSError()
        self.storage.finishing.done(p64(1), error)
        self.assertEqual(self.told[1:], [('failed', 'a', error)])

    def test_a_finish_fails(self):
        """Then it is aborted: not every storage frees its lock itself."""
        first, second = self.vote(*map(Ballot, 'ab'))
        self.storage.fails = error = OSError()
        with self.assertLogs(LOG, 'ERROR'):
            self.finish(first)
        self.assertEqual(self.told[1:2], [('failed', 'a', error)])
        self.assertEqual(self.whats_told()[2:], [('voted', 'b')])
        self.assertEqual(first.closed, 1)

    def test_an_abort_fails(self):
        first, second = self.vote(*map(Ballot, 'ab'))
        self.storage.fails = OSError()
        with self.assertLogs(LOG, 'ERROR'):
            self.abort(first)
        self.assertEqual(self.whats_told(), [('voted', 'a'), ('voted', 'b')])

    def test_a_vote_fails(self):
        error = ConflictError()
        first, second = self.vote(Ballot('a', error), Ballot('b'))
        self.assertEqual(self.told, [
            ('refused', 'a', error), ('voted', 'b', [], [])])
        self.assertEqual(first.closed, 1)

    def test_conflicts_that_the_client_resolves(self):
        """It holds nothing meanwhile, and keeps what it stored."""
        first, second = self.vote(Ballot('a', ([], ['conflict'])), Ballot('b'))
        self.assertEqual(self.told, [
            ('voted', 'a', [], ['conflict']), ('voted', 'b', [], [])])
        self.assertEqual(first.closed, 0)

    def test_who_waits_is_aborted(self):
        first, second, third = self.vote(*map(Ballot, 'abc'))
        self.abort(second)
        self.assertEqual(second.closed, 1)
        self.assertEqual(self.committer.waiting, 1)
        self.finish(first)
        self.assertNotIn(('vote', 'b'), self.storage.log)
        self.assertEqual(self.whats_told(), [('voted', 'a'), ('voted', 'c')])

    def test_who_is_abandoned_is_not_voted(self):
        """Its order to abort is still on its way."""
        ballot = Ballot('a')
        self.committer.vote(ballot)
        self.committer.abort(ballot)
        self.carry_out()
        self.assertEqual(self.storage.log, [])
        self.assertEqual(self.told, [])
        self.assertEqual(ballot.closed, 1)

    # Aside

    def put_aside(self, *tids):
        ballots = [Ballot(f'waits for {tid}', Unpublished(p64(tid)))
                   for tid in tids]
        self.vote(*ballots)
        for ballot in ballots:
            ballot.outcome = [], []
        self.storage.log.clear()
        return ballots

    def publish(self, tid):
        self.storage.published = tid
        self.committer.published()
        self.carry_out()

    def test_aside_until_that_is_published(self):
        first, second = self.put_aside(2, 1)
        self.assertEqual(self.whats_told(), [])
        self.assertEqual(self.committer.waiting, 2)
        self.publish(1)
        self.assertEqual(self.whats_told(), [('voted', 'waits for 1')])
        self.finish(second)
        self.publish(2)
        self.assertEqual(self.whats_told(), [('voted', 'waits for 2')])
        self.finish(first)

    def test_they_keep_their_order_and_go_first(self):
        aside = self.put_aside(2, 1, 3)
        holder, later = self.vote(*map(Ballot, 'ab'))
        self.publish(3)
        for ballot in (holder, *aside, later):
            self.finish(ballot)
        self.assertEqual(
            [name for what, name in self.storage.log if what == 'vote'],
            ['a', 'waits for 2', 'waits for 1', 'waits for 3', 'b'])

    def test_published_while_the_vote_was_made(self):
        """Nobody tells of it any more."""
        self.storage.published = 1
        ballot = Ballot('a')
        errors = [Unpublished(p64(1))]
        vote = ballot.vote

        def conflict_once(storage, wait):
            if errors:
                raise errors.pop()
            return vote(storage, wait)

        ballot.vote = conflict_once
        self.vote(ballot)
        self.assertEqual(self.whats_told(), [('voted', 'a')])

    def test_who_is_aside_is_aborted(self):
        ballot, = self.put_aside(1)
        self.abort(ballot)
        self.assertEqual(ballot.closed, 1)
        self.assertEqual(self.committer.waiting, 0)
        self.publish(1)
        self.assertEqual(self.storage.log, [])

    def test_it_will_never_be_published(self):
        ballot, = self.put_aside(1)
        ballot.outcome = error = OSError()
        self.committer.failed()
        self.carry_out()
        self.assertEqual(self.told, [('refused', ballot.transaction, error)])

    # In the loop

    def light(self, *names):
        return [Ballot(name, is_light=True) for name in names]

    def test_what_is_light_is_done_at_once(self):
        first, second = self.light(*'ab')
        self.committer.vote(first)
        self.assertEqual(self.whats_told(), [('voted', 'a')])
        self.committer.vote(second)
        self.committer.finish(first)
        self.assertEqual(self.storage.log, [
            ('vote', 'a'), ('finish', 'a'), ('vote', 'b')])
        self.committer.finish(second)
        self.assertTrue(self.committer._inbox.empty())

    def test_who_is_not_light_is_handed_over(self):
        first, = self.light('a')
        second = Ballot('b')
        self.committer.vote(first)
        self.committer.vote(second)
        self.committer.finish(first)
        self.assertEqual(self.storage.log[-1], ('finish', 'a'))
        self.carry_out()
        self.assertEqual(self.storage.log[-1], ('vote', 'b'))

    def test_nothing_at_once_while_the_thread_has_something_to_do(self):
        """The state is its own then."""
        first, second = self.light(*'ab')
        self.committer.failed()
        self.committer.vote(first)
        self.committer.vote(second)
        self.assertEqual(self.storage.log, [])
        self.carry_out()
        self.assertEqual(self.whats_told(), [('voted', 'a')])
        self.committer.finish(first)
        self.assertEqual(self.whats_told(), [('voted', 'b')])

    def test_the_lock_is_taken_by_somebody_else(self):
        """A pack, say: the loop does not wait for it."""
        first, second = self.light(*'ab')
        self.storage.occupied = True
        self.committer.vote(first)
        self.committer.vote(second)
        self.assertEqual(self.storage.log, [])
        self.carry_out()
        self.assertEqual(self.whats_told(), [('voted', 'a')])
        self.assertEqual(self.committer.waiting, 1)

    def test_nothing_at_once_of_other_storages(self):
        self.service.commits_in_loop = False
        first, = self.light('a')
        self.committer.vote(first)
        self.assertEqual(self.storage.log, [])

    def test_nothing_at_once_during_a_pack(self):
        """Which may be at work on the disk under a lock of the storage."""
        first, = self.light('a')
        self.committer.vote(first)
        self.storage.is_packing = True
        self.committer.finish(first)
        self.assertEqual(self.storage.log, [('vote', 'a')])

    def test_nothing_at_once_when_it_ends(self):
        first, second = self.light(*'ab')
        self.committer.vote(first)
        self.committer.start()
        self.committer.close()
        self.committer.finish(first)
        self.committer.vote(second)
        self.assertEqual(self.storage.log, [('vote', 'a'), ('abort', 'a')])

    def test_the_end_waits_for_what_is_done_in_the_loop(self):
        """It may come from another thread."""
        first, = self.light('a')
        begun, go_on = threading.Event(), threading.Event()
        vote = first.vote

        def vote_later(*args, **kw):
            begun.set()
            go_on.wait(PATIENCE)
            return vote(*args, **kw)

        first.vote = vote_later
        self.committer.start()
        loop = Thread(self.committer.vote, first)
        self.assertTrue(begun.wait(PATIENCE))
        closing = Thread(self.committer.close)
        self.assertTrue(self.committer._inbox.empty())
        go_on.set()
        loop.result()
        closing.result()
        self.assertEqual(self.storage.log, [('vote', 'a'), ('abort', 'a')])

    def test_what_a_client_made_up(self):
        """It is refused, as ever, and nobody else suffers."""
        first, second, third = self.light(*'abc')
        second.is_light = lambda storage: storage.nonsense
        second.outcome = error = TypeError()
        self.committer.vote(first)
        self.committer.vote(second)
        self.committer.vote(third)
        self.committer.finish(first)
        self.carry_out()
        self.assertEqual(self.told[1:], [
            ('refused', 'b', error), ('voted', 'c', [], [])])

    def test_a_disk_that_makes_writers_wait(self):
        first, second, third = self.light(*'abc')
        times = iter([0, 1, 1.5, 2, 1 + module.RETREAT, 99])
        with mock.patch.object(module, 'time') as time:
            time.monotonic = times.__next__
            self.committer.vote(first)
            self.committer.finish(first)
            self.assertEqual(self.storage.log, [('vote', 'a')])
            self.carry_out()
            self.committer.vote(second)
            self.assertEqual(self.storage.log[1:], [('finish', 'a')])
            self.carry_out()
            self.committer.finish(second)
        self.assertEqual(self.storage.log[-1], ('finish', 'b'))

    # The end

    def test_the_end(self):
        """Nobody holds the lock, and nobody's blobs are left."""
        aside = self.put_aside(1)
        holder, waiting = self.vote(*map(Ballot, 'ab'))
        self.committer.start()
        self.committer.close()
        self.assertFalse(self.committer.is_alive())
        self.assertIsNone(self.storage.holder)
        for ballot in (*aside, holder, waiting):
            self.assertEqual(ballot.closed, 1)

    def test_an_abort_after_the_end(self):
        self.committer.start()
        self.committer.close()
        late = Ballot('late')
        self.committer.vote(late)
        self.committer.abort(late)
        self.assertEqual(late.closed, 1)


class Racing(unittest.TestCase):

    def test_no_vote_is_forgotten(self):
        """Between `nobody waits` and going to rest."""
        storage = Storage()
        done = threading.Semaphore(0)
        committer = Committer(
            'test', storage, Service(), lambda *letter: done.release())
        committer.start()
        self.addCleanup(committer.close)
        for number in range(3000):
            committer.vote(Ballot(number, ConflictError()))
            if number % 3:
                self.assertTrue(done.acquire(timeout=PATIENCE))
        for number in range(1000):
            self.assertTrue(done.acquire(timeout=PATIENCE))
