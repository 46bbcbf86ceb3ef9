"""The committer, by hand: what becomes of each ballot, in each state."""

import contextlib
import errno
import itertools
import os
import threading
import time
from unittest import mock

from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.commit import locks
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.server import ballot as ballots
from fsyncstorage.server import committer as module
from fsyncstorage.server import times
from fsyncstorage.server.ballot import ASIDE
from fsyncstorage.server.ballot import BEGUN
from fsyncstorage.server.ballot import FINISHING
from fsyncstorage.server.ballot import OUTSIDE
from fsyncstorage.server.ballot import OVER
from fsyncstorage.server.ballot import VOTED
from fsyncstorage.server.ballot import VOTING
from fsyncstorage.server.ballot import WAITING
from fsyncstorage.server.waits import waits

from ..support import PATIENCE
from ..support import TestCase
from ..support import commit
from ..support import oid
from ..support import owners
from ..support import vote
from .byhand import Client
from .byhand import World
from .serving import counter
from .serving import record
from .serving import state_of

LOG = 'fsyncstorage.server'


class ByHand(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open(
            durability='none', blob_dir=self.path('blobs'))
        self.begin_service()

    def begin_service(self, **options):
        self.world = World(self.storage, **options)
        self.committer = self.world.committer
        self.begin, self.vote = self.world.begin, self.world.vote
        self.finish = self.world.finish

    def tearDown(self):
        """Whatever happened: nobody holds anything, and nothing is left."""
        self.storage.own_publishing(None)
        self.committer.close()
        self.assertEqual(owners(self.storage._turns), 0)
        self.assertEqual(self.storage._begun, {})
        self.assertEqual(
            os.listdir(self.storage.temporaryDirectory()), [])
        super().tearDown()

    def stored(self, records, serials={}):
        """Store these, published, and return the serials."""
        self.storage.own_publishing(None)
        tid = commit(self.storage, records, serials)
        self.storage.own_publishing(lambda: None)
        return dict.fromkeys(records, tid)

    def whats_told(self):
        told, self.world.told = self.world.told, []
        return [name if error is None else (name, type(error).__name__)
                for name, _, error in told]

    def states(self, *ballots):
        return [ballot.state for ballot in ballots]


class SideBySide(ByHand):

    def test_many_are_voted_and_finish_in_any_order(self):
        a, b, c = (self.vote(name, {number: b'x'})
                   for number, name in enumerate('abc'))
        self.assertEqual(self.states(a, b, c), [VOTED] * 3)
        for ballot in b, c, a:
            self.finish(ballot)
            self.assertEqual(ballot.state, FINISHING)
        self.world.publish()
        self.assertEqual(self.states(a, b, c), [OVER] * 3)
        self.assertEqual(self.whats_told(), [
            'vote a', 'vote b', 'vote c', 'finish b', 'finish c', 'finish a'])
        self.assertLess(self.storage.getTid(oid(1)),
                        self.storage.getTid(oid(0)))

    def test_the_same_object(self):
        """The second waits, and is told of the conflict when it can see what
        it conflicts with."""
        serials = self.stored({1: b'old'})
        first = self.vote('first', {1: b'x'}, serials)
        second = self.vote('second', {1: b'y'}, serials)
        self.assertEqual(self.states(first, second), [VOTED, WAITING])
        self.assertEqual(self.committer.waiting, 1)
        self.finish(first)
        self.world.settle()
        self.assertEqual(second.state, ASIDE)
        self.world.publish()
        self.world.settle()
        self.assertEqual(second.state, OVER)
        self.assertEqual(self.whats_told(), [
            'vote first', 'finish first', ('vote second', 'ConflictError')])
        self.assertEqual(self.storage.load(oid(1))[0], b'x')

    def test_the_same_object_that_resolves_conflicts(self):
        serials = self.stored({1: counter(0)})
        ballots = [self.vote(str(n), {1: counter(n)}, serials)
                   for n in (1, 10, 100)]
        for ballot in ballots:
            self.assertEqual(ballot.state, VOTED)
            self.finish(ballot)
            self.world.settle()
        self.world.publish()
        self.assertEqual(state_of(self.storage.load(oid(1))[0]), 111)

    def test_one_that_is_served_before_it_waits(self):
        """It waits no more for its objects, but perhaps for a thread."""
        first = self.vote('first', {1: b'x'})
        ask = self.storage.call_when_served

        def let_go_and_ask(*arguments):
            self.committer.abort(first)
            return ask(*arguments)

        with mock.patch.object(
                self.storage, 'call_when_served', let_go_and_ask):
            second = self.vote('second', {1: b'y'})
        self.assertEqual(second.state, VOTING)
        self.assertIsNone(second.waits_for)
        self.assertEqual(list(second.waited), [times.OBJECTS])
        self.world.settle()
        self.assertEqual(second.state, VOTED)

    def test_an_abort_serves_those_that_wait_in_order(self):
        first, *others = (self.vote(name, {1: b'x'}) for name in 'abc')
        for ballot in others:
            self.assertEqual(ballot.state, WAITING)
        first.abort()
        self.world.settle()
        self.assertEqual(self.states(first, *others), [OVER, VOTED, WAITING])
        others[0].abort()
        self.world.settle()
        self.assertEqual(others[1].state, VOTED)
        others[1].abort()

    def test_one_that_waits_is_aborted(self):
        first, second, third = (self.vote(name, {1: b'x'}) for name in 'abc')
        second.abort()
        self.assertEqual(second.state, OVER)
        self.assertEqual(self.committer.waiting, 1)
        first.abort()
        self.world.settle()
        self.assertEqual(self.whats_told(), ['vote a', 'vote c'])
        third.abort()

    def test_another_thread_of_the_process_stands_in_the_same_queue(self):
        transaction = vote(self.storage, {1: b'x'})
        ballot = self.vote('a', {1: b'y'})
        self.assertEqual(ballot.state, WAITING)
        self.storage.tpc_abort(transaction)
        self.world.settle()
        self.assertEqual(ballot.state, VOTED)
        ballot.abort()

    def test_none_is_passed_too_often(self):
        slow = self.vote('slow', {1: b'x'})
        waits = self.vote('waits', {1: b'x', 2: b'x'})
        for _ in range(locks.MOST_PASSED):
            passing = self.vote('passing', {2: b'x'})
            self.assertEqual(passing.state, VOTED)
            passing.abort()
        late = self.vote('late', {2: b'x'})
        self.assertEqual(self.states(waits, late), [WAITING, WAITING])
        slow.abort()
        self.world.settle()
        self.assertEqual(self.states(waits, late), [VOTED, WAITING])
        waits.abort()
        late.abort()

    def test_one_that_is_known_to_lose_does_not_wait(self):
        serials = self.stored({1: b'old', 2: b'old'})
        self.stored({3: b'x'})
        self.stored({1: b'newer'}, serials)
        holder = self.vote('holder', {2: b'x'}, serials)
        loser = self.vote('loser', {1: b'x', 2: b'x'}, serials)
        self.world.settle()
        self.assertEqual(self.states(holder, loser), [VOTED, OVER])
        self.assertEqual(self.whats_told(), [
            'vote holder', ('vote loser', 'ConflictError')])
        holder.abort()

    def test_an_exclusive_one(self):
        """It waits for those that came before it, and those behind for it."""
        serials = self.stored({1: b'x'})
        before = self.vote('before', {2: b'x'})
        alone = self.begin('alone')
        alone.add('restore', oid(1), serials[1], b'restored', None)
        self.world.ask_vote(alone)
        self.world.settle()
        behind = self.vote('behind', {3: b'x'})
        self.world.settle()
        self.assertEqual(
            self.states(before, alone, behind), [VOTED, WAITING, WAITING])
        before.abort()
        self.world.settle()
        self.assertEqual(self.states(alone, behind), [VOTED, WAITING])
        self.finish(alone)
        self.world.settle()
        self.assertEqual(behind.state, VOTED)
        behind.abort()
        self.world.publish()

    def test_an_exclusive_one_waits_for_a_pack_in_a_thread(self):
        """It has its turn, and the append lock is taken."""
        serials = self.stored({1: b'x'})
        alone = self.begin('alone')
        alone.add('restore', oid(1), serials[1], b'restored', None)
        asked = []
        lock = self.storage._commit_lock
        tpc_vote = self.storage.tpc_vote

        def note(transaction, **options):
            asked.append(options)
            if not options:
                lock.release()  # the pack has ended
            return tpc_vote(transaction, **options)

        lock.acquire()
        with mock.patch.object(self.storage, 'tpc_vote', note):
            self.world.ask_vote(alone)
            self.world.settle()
        self.assertEqual(asked, [{'wait': False}, {}])
        self.assertEqual(alone.state, VOTED)
        alone.abort()

    def test_conflicts_that_the_client_resolves(self):
        """It holds nothing meanwhile, and keeps what it stored."""
        serials = self.stored({1: b'x'})
        ballot = self.begin('a', {1: b'mine'})
        ballot._resolves_conflicts = True
        self.world.ask_vote(ballot)
        self.world.settle()
        self.assertEqual(ballot.state, BEGUN)
        (_, conflicts, _), = self.world.told
        self.assertEqual(conflicts[0]['serials'], (serials[1], z64))
        self.assertEqual(owners(self.storage._turns), 0)
        ballot.add('store', oid(1), serials[1], b'resolved')
        self.world.ask_vote(ballot)
        self.world.settle()
        self.finish(ballot)
        self.world.publish()
        self.assertEqual(self.storage.load(oid(1))[0], b'resolved')


class Ends(ByHand):

    def test_a_vote_fails(self):
        ballot = self.vote('a', {1: b''})
        self.assertEqual(self.whats_told(), [('vote a', 'StorageError')])
        self.assertEqual(ballot.state, OVER)

    def test_what_would_end_the_threads(self):
        """A record names a module that exits when it is imported: its client
        is told, and others are voted."""
        for error in SystemExit(2), KeyboardInterrupt():
            with mock.patch.object(self.storage, 'store', side_effect=error):
                for number in range(module.VOTERS + 1):
                    self.vote('a', {number: b'x'}, small=False)
                    self.world.settle()
            self.assertEqual(
                self.whats_told(),
                [('vote a', 'StorageError')] * (module.VOTERS + 1))
        self.vote('b', {9: b'x'}, small=False)
        self.world.settle()
        self.assertEqual(self.whats_told(), ['vote b'])

    def test_a_finish_that_would_end_the_thread(self):
        ballot = self.vote('a', {1: b'x'}, small=False)
        self.world.settle()
        self.whats_told()
        with mock.patch.object(
                self.storage, 'tpc_finish', side_effect=SystemExit):
            self.finish(ballot)
            self.world.settle()
        self.assertEqual(self.whats_told(), [('finish a', 'StorageError')])

    def abort_that_exits(self):
        tpc_abort = self.storage.tpc_abort

        def abort(transaction):
            tpc_abort(transaction)
            raise SystemExit

        return mock.patch.object(
            self.storage, 'tpc_abort', side_effect=abort)

    def do_in_thread(self, threads):
        """As one of them does: it goes on, whatever a job raises."""
        with contextlib.suppress(SystemExit):
            threads.do_one()

    def test_an_abort_that_would_end_the_thread(self):
        ballot = self.vote('a', {1: b'x'}, small=False)
        self.world.settle()
        with self.abort_that_exits():
            ballot.abort()
            self.do_in_thread(self.world.appender)
        self.world.settle()
        self.assertEqual(self.committer._ballots, set())

    def test_a_finish_and_its_abort_that_would_end_the_thread(self):
        ballot = self.vote('a', {1: b'x'}, small=False)
        self.world.settle()
        self.whats_told()
        with self.abort_that_exits(), mock.patch.object(
                self.storage, 'tpc_finish', side_effect=SystemExit):
            self.finish(ballot)
            self.do_in_thread(self.world.appender)
        self.world.settle()
        self.assertEqual(self.whats_told(), [('finish a', 'StorageError')])
        self.assertEqual(self.committer._ballots, set())

    def test_the_end_with_aborts_that_would_end_the_thread(self):
        for number, name in enumerate('abc'):
            self.vote(name, {number: b'x'})
        with self.abort_that_exits() as aborts, mock.patch.object(
                ballots.Ballot, 'is_forgotten') as forgotten:
            with contextlib.suppress(SystemExit):
                self.committer.close()
            self.world.deliver()
        self.assertEqual(aborts.call_count, 3)
        self.assertEqual(forgotten.call_count, 3)

    def test_the_next_vote_cannot_be_handed_out(self):
        """The one that is voted is told all the same."""
        self.vote('a', {1: b'x'}, small=False)
        self.world.voters.do_one()
        with mock.patch.object(
                self.committer, '_hand_out', side_effect=MemoryError), \
                self.assertLogs('fsyncstorage.server', 'ERROR'):
            self.world.deliver()
        self.assertEqual(self.whats_told(), ['vote a'])

    def test_an_abort_while_it_waits_for_a_thread(self):
        """Nothing of it is kept until a thread has time for it."""
        others = [self.vote('other', {number: b'x'}, small=False)
                  for number in range(module.VOTERS)]
        ballot = self.vote('a', {9: b'x'}, small=False)
        self.assertEqual(ballot.state, VOTING)
        ballot.abort()
        self.assertEqual(ballot.state, OVER)
        self.world.settle()
        self.assertEqual(self.committer.voted, len(others))
        self.assertEqual(self.whats_told(), ['vote other'] * len(others))

    def test_an_abort_while_a_thread_votes_it(self):
        ballot = self.begin('a', {1: b'x'}, small=False)
        tpc_vote = self.storage.tpc_vote

        def abort_meanwhile(*arguments, **options):
            ballot.abort()
            self.assertEqual(ballot.state, VOTING)
            return tpc_vote(*arguments, **options)

        with mock.patch.object(self.storage, 'tpc_vote', abort_meanwhile):
            self.world.ask_vote(ballot)
            self.world.settle()
        self.assertEqual(ballot.state, OVER)
        self.assertEqual(owners(self.storage._turns), 0)
        self.assertEqual(self.whats_told(), [])

    def test_an_abort_while_it_is_finished(self):
        """It goes on, and nobody is told."""
        ballot = self.vote('a', {1: b'x'})
        self.finish(ballot)
        ballot.abort()
        self.world.publish()
        self.assertEqual(self.whats_told(), ['vote a'])
        self.assertEqual(self.storage.load(oid(1))[0], b'x')

    def test_an_abort_of_a_large_one_is_left_to_a_thread(self):
        """It may have to remove files."""
        ballot = self.vote('a', {1: b'x'}, small=False)
        self.world.settle()
        ballot.abort()
        self.assertEqual(ballot.state, OVER)
        self.assertEqual(owners(self.storage._turns), 1)
        self.world.settle()
        self.assertEqual(owners(self.storage._turns), 0)

    def test_twice(self):
        ballot = self.vote('a', {1: b'x'})
        ballot.abort()
        ballot.abort()

    def test_it_is_not_finished_in_time(self):
        self.begin_service(timeout=10)
        slow, other = self.vote('slow', {1: b'x'}), self.vote('b', {1: b'x'})
        timer, = self.world.timers
        timer.ring()
        self.world.settle()
        self.assertEqual(self.states(slow, other), [OVER, VOTED])
        other.abort()

    def test_it_is_finished_in_time(self):
        self.begin_service(timeout=10)
        ballot = self.vote('a', {1: b'x'})
        self.finish(ballot)
        timer, = self.world.timers
        timer.ring()
        self.world.publish()
        self.assertEqual(self.whats_told(), ['vote a', 'finish a'])

    def test_a_finish_fails(self):
        ballot, waits = self.vote('a', {1: b'x'}), self.vote('b', {1: b'x'})
        with mock.patch.object(self.storage, '_append_once',
                               side_effect=OSError):
            self.finish(ballot)
        self.world.settle()
        self.assertEqual(self.whats_told(), [
            'vote a', ('finish a', 'OSError'), 'vote b'])
        waits.abort()

    def test_a_sync_fails(self):
        ballot = self.vote('a', {1: b'x'})
        with mock.patch.object(self.storage, 'tpc_finish') as finish:
            self.finish(ballot)
        _, told = finish.call_args.args
        told.done(p64(1), OutcomeUnknown())
        self.world.settle()
        self.assertEqual(self.whats_told(), [
            'vote a', ('finish a', 'OutcomeUnknown')])
        self.storage.tpc_abort(ballot.transaction)

    def test_another_thread_asks_while_one_is_voted(self):
        a = self.vote('a', {1: b'x'})
        since = self.committer.voted_since()
        told = []

        def now():
            told.append(self.committer.voted_since())
            return a.held_since + 1

        with mock.patch.object(ballots, 'time', mock.Mock(monotonic=now)):
            b = self.vote('b', {2: b'x'})
        self.assertEqual(b.held_since, a.held_since + 1)
        for each in *told, self.committer.voted_since():
            self.assertAlmostEqual(each, since, delta=0.5)
        self.assertEqual(len(told), 1)
        a.abort()
        b.abort()

    def test_the_end_of_all(self):
        serials = self.stored({1: b'x', 2: b'x'})
        begun = self.begin('begun', {9: b'x'})
        finishing = self.vote('finishing', {1: b'x'}, serials)
        self.finish(finishing)
        aside = self.vote('aside', {1: b'y'}, serials)
        voted = self.vote('voted', {2: b'x'}, serials)
        waiting = self.vote('waiting', {2: b'y'}, serials)
        self.world.settle()
        queued = self.vote('queued', {3: b'x'}, small=False)
        self.assertEqual(
            self.states(finishing, aside, voted, waiting, queued),
            [FINISHING, ASIDE, VOTED, WAITING, VOTING])
        self.assertTrue(self.committer.is_alive())
        self.committer.close()
        self.assertFalse(self.committer.is_alive())
        self.assertEqual(owners(self.storage._turns), 0)
        for ballot in begun, aside, voted, waiting, queued:
            ballot.abort()
        self.whats_told()
        self.world.publish()
        self.world.settle()
        self.assertEqual(self.whats_told(), ['finish finishing'])

    def test_votes_that_wait_for_a_thread_at_the_end(self):
        for number in range(module.VOTERS + 1):
            self.vote(str(number), {number: b'x'}, small=False)
        self.committer.close()
        self.world.deliver()
        self.assertFalse(self.world.voters.jobs)

    def test_nothing_begins_after_the_end(self):
        voted = self.vote('voted', {1: b'x'})
        self.committer.close()
        self.finish(voted)
        late = self.vote('late', {2: b'x'})
        self.world.settle()
        self.assertEqual(self.whats_told(), ['vote voted'])
        self.assertEqual(self.storage._begun, {})
        late.abort()


class NoThread(ByHand):
    """The system starts no thread for a step.  The committer goes on."""

    def setUp(self):
        super().setUp()
        self.voters, self.appender = self.world.voters, self.world.appender
        self.error = RuntimeError("can't start new thread")

    def test_of_votes(self):
        self.voters.error = self.error
        ballots = [self.vote(str(number), {number: b'x'}, small=False)
                   for number in range(module.VOTERS + 2)]
        self.world.settle()
        self.assertEqual(set(self.states(*ballots)), {OVER})
        self.assertEqual(self.whats_told(), [
            (f'vote {number}', 'RuntimeError')
            for number in range(module.VOTERS + 2)])
        self.assertEqual(self.committer._ballots, set())
        self.voters.error = None
        for number in range(module.VOTERS):
            self.vote(str(number), {number: b'x'}, small=False)
        self.assertEqual(len(self.voters.jobs), module.VOTERS)

    def test_of_a_vote_that_was_served(self):
        """Those behind it do not wait for it."""
        first = self.vote('first', {1: b'x'})
        second = self.vote('second', {1: b'x'}, small=False)
        self.world.settle()
        third = self.vote('third', {1: b'x'})
        self.assertEqual(self.states(second, third), [WAITING] * 2)
        self.voters.error = self.error
        first.abort()
        self.world.settle()
        self.assertEqual(self.states(second, third), [OVER, VOTED])
        third.abort()

    def test_of_a_vote_that_is_aborted(self):
        self.voters.error = self.error
        ballot = self.vote('a', {1: b'x'}, small=False)
        ballot.abort()
        self.world.settle()
        self.assertEqual(ballot.state, OVER)
        self.assertEqual(self.whats_told(), [])
        self.assertEqual(self.committer._queue.under_way, 0)

    def test_of_a_finish(self):
        ballot = self.vote('a', {1: b'x'}, small=False)
        self.world.settle()
        waits = self.vote('b', {1: b'x'})
        self.appender.error = self.error
        self.finish(ballot)
        self.assertEqual(ballot.state, OVER)
        self.world.settle()
        self.assertEqual(self.whats_told(), [
            'vote a', ('finish a', 'RuntimeError'), 'vote b'])
        waits.abort()

    def test_of_an_abort(self):
        ballot = self.vote('a', {1: b'x'}, small=False)
        self.world.settle()
        self.appender.error = self.error
        ballot.abort()
        self.assertEqual(self.committer._ballots, set())
        self.assertEqual(owners(self.storage._turns), 0)

    def test_of_the_end(self):
        self.vote('a', {1: b'x'})
        self.appender.error = self.error
        self.committer.close()
        self.assertEqual(owners(self.storage._turns), 0)


class Blobs(ByHand):

    def with_blob(self, name, number):
        ballot = self.begin(name)
        path = os.path.join(self.storage.temporaryDirectory(), name)
        with open(path, 'wb') as file:
            file.write(b'content')
        ballot.add_blob(oid(number), z64, record(), path)
        return ballot

    def files(self):
        return os.listdir(self.storage.temporaryDirectory())

    def test_what_was_sent_is_removed_when_it_is_voted(self):
        ballot = self.with_blob('a', 1)
        self.world.ask_vote(ballot)
        self.world.settle()
        self.assertEqual(ballot.state, VOTED)
        self.assertNotIn('a', self.files())
        ballot.abort()
        self.world.settle()
        self.assertEqual(self.files(), [])

    def test_an_abort_before_the_vote(self):
        self.with_blob('a', 1).abort()
        self.world.settle()
        self.assertEqual(self.files(), [])

    def test_the_end(self):
        self.begin_service(side_by_side=False)
        ballots = [self.with_blob(name, number)
                   for number, name in enumerate('abc')]
        for ballot in ballots[:2]:
            self.world.ask_vote(ballot)
        self.world.settle()
        self.assertEqual(self.states(*ballots), [VOTED, OUTSIDE, BEGUN])
        self.committer.close()
        self.assertEqual(self.files(), ['c'])
        ballots[2].abort()
        self.assertEqual(self.files(), [])


class Aside(ByHand):

    def setUp(self):
        super().setUp()
        self.serials = self.stored({1: b'x', 2: b'x'})

    def append(self, number):
        ballot = self.vote('appended', {number: b'new'}, self.serials)
        self.finish(ballot)

    def put_aside(self, number):
        ballot = self.vote('aside', {number: b'mine'}, self.serials)
        self.world.settle()
        self.assertEqual(ballot.state, ASIDE)
        return ballot

    def test_until_that_is_published(self):
        self.append(1)
        ballot = self.put_aside(1)
        self.committer.published()
        self.assertEqual(ballot.state, ASIDE)
        self.world.publish()
        self.world.settle()
        self.assertEqual(ballot.state, OVER)

    def test_one_is_told_and_ends_the_other(self):
        """As a user of ballots may that has several."""
        self.append(1)
        told = []
        ballots = [self.begin(name, {1: b'mine'}, self.serials)
                   for name in 'abc']

        def done(result, error):
            told.append(error)
            ballots[1].abort()

        for ballot in ballots:
            ballot.vote(done)
        self.world.settle()
        self.assertEqual(self.states(*ballots), [ASIDE] * 3)
        with mock.patch.object(
                type(ballots[0]), 'is_light', return_value=True), \
                mock.patch.object(
                    self.storage, 'tpc_begin', side_effect=OSError):
            self.world.publish()
        self.assertEqual(self.states(*ballots), [OVER] * 3)
        self.assertEqual(len(told), 2)

    def test_one_cannot_be_told(self):
        """As in a user of ballots with a defect: the others go on."""
        self.append(1)
        ballots = [self.begin(name, {1: b'mine'}, self.serials)
                   for name in 'ab']
        done = mock.Mock(side_effect=[ValueError('cannot be told'), None])
        for ballot in ballots:
            ballot.vote(done)
        self.world.settle()
        self.assertEqual(self.states(*ballots), [ASIDE] * 2)
        with mock.patch.object(
                type(ballots[0]), 'is_light', return_value=True), \
                mock.patch.object(
                    self.storage, 'tpc_begin', side_effect=OSError), \
                self.assertLogs(LOG, 'ERROR'):
            self.world.publish()
        self.assertEqual(self.states(*ballots), [OVER] * 2)

    def test_published_while_the_vote_was_made(self):
        """Nobody tells of it any more."""
        self.append(1)
        ballot = self.vote('aside', {1: b'mine'}, self.serials)
        self.world.voters.do_one()
        self.world.publish()
        self.world.settle()
        self.assertEqual(ballot.state, OVER)

    def test_failed_while_the_vote_was_made(self):
        self.append(1)
        ballot = self.vote('aside', {1: b'mine'}, self.serials)
        self.world.voters.do_one()
        self.committer.failed()
        self.world.deliver_one()
        self.assertEqual(ballot.state, VOTING)  # once more
        self.world.settle()
        self.assertEqual(ballot.state, ASIDE)
        ballot.abort()
        self.world.publish()

    def test_one_that_is_aside_is_aborted(self):
        self.append(1)
        ballot = self.put_aside(1)
        ballot.abort()
        self.assertEqual(self.committer.waiting, 0)
        self.world.publish()
        self.world.settle()
        self.assertNotIn(
            'vote aside', [name for name, _, _ in self.world.told])

    def test_it_will_never_be_published(self):
        self.append(1)
        ballot = self.put_aside(1)
        with mock.patch.object(
                self.storage, 'tpc_begin', side_effect=OSError):
            self.committer.failed()
            self.world.settle()
        self.assertEqual(ballot.state, OVER)
        self.assertEqual(
            self.whats_told()[-1], ('vote aside', 'OSError'))
        self.world.publish()


class AsideOfAnotherThread(ByHand):
    """What the ballot waits for was committed by another thread of the
    process: nobody tells the committer that it has failed."""

    def setUp(self):
        super().setUp()
        self.disk = self.controlled_disk()
        self.storage = self.open('Other.fs', durability='group-commit',
                                 blob_dir=self.path('other'))
        self.begin_service()
        self.serials = self.stored({1: b'x'})
        self.notified = threading.Event()
        self.storage.own_publishing(self.notified.set)
        self.disk.hold_syncs()
        self.world.finish_direct(vote(
            self.storage, {1: b'new'}, self.serials))
        self.disk.wait_for_sync()
        self.ballot = self.vote('aside', {1: b'mine'}, self.serials)

    def fail(self):
        self.notified.clear()
        self.disk.fail_sync(OSError(errno.EIO, 'fails'))
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            self.disk.release_syncs()
            self.assertTrue(self.notified.wait(PATIENCE))

    def check_told(self):
        self.world.settle()
        self.assertEqual(self.ballot.state, OVER)
        self.assertEqual(
            self.whats_told(), [('vote aside', 'WritingStopped')])

    def test_its_sync_fails(self):
        self.world.settle()
        self.assertEqual(self.ballot.state, ASIDE)
        self.fail()
        self.world.publish()
        self.check_told()

    def test_its_sync_fails_while_the_vote_is_made(self):
        self.world.voters.do_one()
        self.fail()
        self.world.publish()
        self.check_told()


class InTheLoop(ByHand):

    def check_thread(self, ballot):
        """Its step is left to a thread."""
        self.assertEqual(self.whats_told(), [])
        self.world.settle()

    def test_what_is_light_is_done_at_once(self):
        ballot = self.vote('a', {1: b'x'})
        self.finish(ballot)
        self.assertFalse(self.world.voters.jobs or self.world.appender.jobs)
        self.world.publish()
        self.assertEqual(self.whats_told(), ['vote a', 'finish a'])

    def check_vote_in_a_thread(self, *arguments, **options):
        ballot = self.vote('a', *arguments, **options)
        self.assertEqual(ballot.state, VOTING)
        self.assertEqual(len(self.world.voters.jobs), 1)
        self.world.settle()
        self.assertNotEqual(ballot.state, VOTING)
        ballot.abort()
        self.world.settle()

    def test_no_code_of_users(self):
        """Another thread may have appended since the loop has looked."""
        serials = self.stored({1: counter(0)})
        self.stored({1: counter(1)}, serials)
        with mock.patch.object(
                self.storage, 'store_is_plain', return_value=True):
            ballot = self.begin('a', {1: counter(10)}, serials)
            self.check_resolved_in_a_thread(ballot, 11)

    def test_no_code_of_users_in_the_vote(self):
        """The other thread appends before the ballot gets its objects."""
        serials = self.stored({1: counter(0)})
        other = vote(self.storage, {1: counter(1)}, serials)
        ballot = self.begin('a', {1: counter(10)}, serials)
        tpc_vote = self.storage.tpc_vote
        metadata = [other]

        def after_the_other(*arguments, **options):
            if metadata:
                self.world.finish_direct(metadata.pop())
            return tpc_vote(*arguments, **options)

        with mock.patch.object(self.storage, 'tpc_vote', after_the_other):
            self.check_resolved_in_a_thread(ballot, 11)

    def test_no_thread_waits_for_objects_of_what_the_loop_began(self):
        serials = self.stored({1: counter(0)})
        newer = self.stored({1: counter(1)}, serials)
        holder = vote(self.storage, {1: counter(2)}, newer)
        ballot = self.begin('a', {1: counter(10)}, serials)
        with mock.patch.object(self.storage._turns, 'wait', self.fail), \
                mock.patch.object(
                    self.storage, 'store_is_plain', return_value=True):
            self.world.ask_vote(ballot)
            self.world.settle()
        self.assertEqual(ballot.state, WAITING)
        self.storage.tpc_abort(holder)
        self.world.settle()
        self.assertEqual(ballot.state, VOTED)
        ballot.abort()

    def check_resolved_in_a_thread(self, ballot, value):
        with mock.patch.object(
                self.storage, 'tryToResolveConflict', self.fail):
            self.world.ask_vote(ballot)
        self.assertEqual(ballot.state, VOTING)
        self.world.settle()
        self.assertEqual(ballot.state, VOTED)
        self.finish(ballot)
        self.world.settle()
        self.world.publish()
        self.assertEqual(state_of(self.storage.load(oid(1))[0]), value)

    def test_what_is_large(self):
        self.check_vote_in_a_thread({1: b'x'}, small=False)

    def test_what_conflicts(self):
        self.stored({1: b'x'})
        self.check_vote_in_a_thread({1: b'x'})

    def test_what_went_to_a_file_because_there_is_much(self):
        with mock.patch.object(ballots, 'IN_MEMORY_OF_ALL', 0):
            self.check_vote_in_a_thread({1: b'x'})

    def test_at_the_end_of_a_pack(self):
        """Which may be at work on the disk under a lock of the storage."""
        self.storage.is_swapping = True
        self.check_vote_in_a_thread({1: b'x'})
        self.storage.is_swapping = False

    def test_not_while_a_pack_copies(self):
        self.storage.is_packing = True
        ballot = self.vote('a', {1: b'x'})
        self.assertEqual(ballot.state, VOTED)
        self.assertFalse(self.world.voters.jobs)
        ballot.abort()
        self.storage.is_packing = False

    def test_a_finish_while_the_append_lock_is_taken(self):
        ballot = self.vote('a', {1: b'x'})
        with self.storage._commit_lock:
            self.finish(ballot)
        self.assertEqual(len(self.world.appender.jobs), 1)
        self.world.settle()
        self.world.publish()
        self.assertEqual(self.whats_told(), ['vote a', 'finish a'])

    def test_a_disk_that_makes_writers_wait(self):
        asked = 0
        times = iter([asked, 0, 0, 1, 1.5,
                      asked, 1 + module.RETREAT, 9, 9])
        with mock.patch.object(module, 'time') as time, mock.patch.object(
                module, 'waits', itertools.count().__next__):
            time.monotonic = times.__next__
            first = self.vote('a', {1: b'x'})
            self.finish(first)
            self.assertEqual(len(self.world.appender.jobs), 1)
            second = self.vote('b', {2: b'x'})
        self.assertEqual(second.state, VOTED)
        self.world.settle()
        self.world.publish()
        second.abort()

    def test_a_processor_that_others_have(self):
        """No disk is slow: nothing goes to threads for it."""
        with mock.patch.object(module, 'LONG', -1), mock.patch.object(
                module, 'waits', return_value=7):
            self.finish(self.vote('a', {1: b'x'}))
            self.vote('b', {2: b'x'}).abort()
        self.assertFalse(self.world.appender.jobs or self.world.voters.jobs)
        self.world.publish()
        self.assertEqual(self.whats_told(), ['vote a', 'vote b', 'finish a'])

    def test_the_waits_of_a_thread(self):
        """Not what others have waited."""
        before = waits()
        time.sleep(0.001)
        self.assertGreater(waits(), before)

    def test_an_abort_while_the_disk_makes_writers_wait(self):
        """It may have to cut off what an exclusive vote has written."""
        ballots = [self.vote(name, {number: b'x'})
                   for number, name in enumerate('ab')]
        tpc_abort = self.storage.tpc_abort

        def slow(transaction):
            time.sleep(module.LONG)
            tpc_abort(transaction)

        with mock.patch.object(self.storage, 'tpc_abort', slow):
            for ballot in ballots:
                ballot.abort()
            self.assertEqual(owners(self.storage._turns), 1)
            self.assertEqual(len(self.world.appender.jobs), 1)
            self.world.settle()

    def test_what_a_client_made_up(self):
        """It is refused, and nobody else suffers."""
        ballot = self.begin('a')
        ballot.add('store', b'short', z64, b'x')
        self.world.ask_vote(ballot)
        self.world.settle()
        self.assertEqual(ballot.state, OVER)
        self.finish(self.vote('b', {1: b'x'}))
        self.world.publish()

    def test_threads_are_not_more_than_said(self):
        for number in range(2 * module.VOTERS):
            self.vote(str(number), {number: b'x'}, small=False)
        self.assertEqual(len(self.world.voters.jobs), module.VOTERS)
        self.world.voters.do_one()
        self.world.deliver()
        self.assertEqual(len(self.world.voters.jobs), module.VOTERS)


    def voted_by_threads(self):
        """The names of the clients, in their order."""
        names = []
        vote_in = ballots.Ballot.vote_in

        def noted(ballot, *arguments, **options):
            names.append(ballot.client.log_label)
            return vote_in(ballot, *arguments, **options)

        with mock.patch.object(ballots.Ballot, 'vote_in', noted):
            self.world.settle()
        return names

    def test_clients_take_turns(self):
        """One that has many votes, as on a commit channel."""
        many, other = Client('many'), Client('other')
        for number in range(module.VOTERS + 3):
            self.vote(many, {number: b'x'}, small=False)
        self.vote(other, {20: b'x'}, small=False)
        self.assertEqual(
            self.voted_by_threads(),
            ['many'] * module.VOTERS + ['many', 'other', 'many', 'many'])

    def test_those_that_hold_their_objects_come_first(self):
        """Others wait for them, and none for those that have not begun."""
        holder = self.vote('holder', {1: b'x'})
        waits = self.vote('waits', {1: b'x'}, small=False)
        self.world.settle()
        self.assertEqual(waits.state, WAITING)
        for number in range(module.VOTERS + 2):
            self.vote(f'later {number}', {number + 10: b'x'}, small=False)
        holder.abort()
        self.world.deliver()
        self.assertEqual(self.voted_by_threads()[module.VOTERS], 'waits')
        self.assertEqual(waits.state, VOTED)


class Files(ByHand):
    """A ballot's client is told when its files are closed, and not before."""

    def begin_one(self, name, *arguments, **options):
        ballot = self.begin(name, *arguments, **options)
        ballot.want_files()
        ballot.want_files()
        self.assertEqual(ballot.client.files, 1)
        return ballot

    def check_closed(self, ballot):
        self.assertEqual(ballot.client.files, 0)

    def test_a_vote(self):
        for small in True, False:
            ballot = self.begin_one('a', {1: b'x'}, small=small)
            self.world.ask_vote(ballot)
            self.world.settle()
            self.check_closed(ballot)
            ballot.abort()
            self.world.settle()
            self.check_closed(ballot)

    def test_a_vote_that_fails(self):
        ballot = self.begin_one('a', {1: b'x'})
        ballot.add('store', b'short', z64, b'x')
        self.world.ask_vote(ballot)
        self.world.settle()
        self.check_closed(ballot)

    def test_conflicts(self):
        """They are still needed."""
        self.stored({1: b'x'})
        ballot = self.begin_one('a', {1: b'y'})
        ballot._resolves_conflicts = True
        self.world.ask_vote(ballot)
        self.world.settle()
        self.assertEqual(ballot.state, BEGUN)
        self.assertEqual(ballot.client.files, 1)
        ballot.abort()
        self.check_closed(ballot)

    def test_an_abort_by_a_thread(self):
        ballot = self.begin_one('a', {1: b'x'}, small=False)
        ballot.abort()
        self.assertEqual(ballot.client.files, 1)
        # What it stored is not kept for so long.
        self.assertEqual(ballot._operations.in_memory, [])
        self.world.settle()
        self.check_closed(ballot)

    def test_an_abort_while_a_thread_votes_it(self):
        ballot = self.begin_one('a', {1: b'x'}, small=False)
        self.world.ask_vote(ballot)
        ballot.abort()
        self.assertEqual(ballot.client.files, 1)
        self.world.settle()
        self.check_closed(ballot)


class OtherStorages(ByHand):
    """Or ours, in a wrapper whose vote is not marked."""

    def begin_service(self, **options):
        super().begin_service(side_by_side=False, **options)

    def test_one_at_a_time(self):
        a, b, c = (self.vote(name, {number: b'x'})
                   for number, name in enumerate('abc'))
        self.world.settle()
        self.assertEqual(self.states(a, b, c), [VOTED, OUTSIDE, OUTSIDE])
        self.finish(a)
        self.world.settle()
        self.assertEqual(self.states(b, c), [VOTED, OUTSIDE])
        b.abort()
        self.world.settle()
        self.assertEqual(self.states(b, c), [OVER, VOTED])
        c.abort()
        self.world.publish()
        self.world.settle()

    def test_one_that_waits_is_aborted(self):
        a, b, c = (self.vote(name, {1: b'x'}) for name in 'abc')
        self.world.settle()
        b.abort()
        a.abort()
        self.world.settle()
        self.assertEqual(self.states(a, b, c), [OVER, OVER, VOTED])
        c.abort()

    def test_a_finish_that_fails(self):
        """Then it is aborted: not every storage frees its lock itself."""
        a, b = (self.vote(name, {1: b'x'}) for name in 'ab')
        self.world.settle()
        with mock.patch.object(
                self.storage, 'tpc_finish', side_effect=OSError):
            self.finish(a)
            self.world.settle()
        self.assertEqual(self.whats_told(), [
            'vote a', ('finish a', 'OSError'), 'vote b'])
        b.abort()

    def test_all_in_one_thread(self):
        self.assertIs(self.world.voters, self.world.appender)


class Room(ByHand):

    def test_what_is_in_the_storage_has_room_together(self):
        with mock.patch.object(module, 'ROOM', 6000):
            self.begin_service()
        a, b, c = (self.vote(name, {number: b'x'})
                   for number, name in enumerate('abc'))
        self.assertEqual(self.states(a, b, c), [VOTED, VOTED, OUTSIDE])
        b.abort()
        self.world.settle()
        self.assertEqual(self.states(a, c), [VOTED, VOTED])
        a.abort()
        c.abort()

    def test_one_that_failed_needs_none(self):
        with mock.patch.object(module, 'ROOM', 3000):
            self.begin_service()
        failed = self.begin('failed')
        failed.add('store', b'short', z64, b'x')
        self.world.ask_vote(failed)
        self.world.settle()
        self.assertEqual(failed.state, OVER)
        self.assertEqual(self.committer._ballots, set())
        serials = self.stored({1: b'x'})
        conflict = self.begin('conflict', {1: b'y'})
        conflict._resolves_conflicts = True
        self.world.ask_vote(conflict)
        self.world.settle()
        self.assertEqual(conflict.state, BEGUN)
        self.assertEqual(self.committer._ballots, set())
        voted = self.vote('voted', {1: b'z'}, serials)
        self.assertEqual(voted.state, VOTED)
        voted.abort()
        conflict.abort()

    def test_many_that_fail_as_they_are_admitted(self):
        with mock.patch.object(module, 'ROOM', 3000):
            self.begin_service()
        holder = self.vote('holder', {1: b'x'})
        others = [self.vote('other', {2: b'x'}) for _ in range(300)]
        with mock.patch.object(
                self.storage, 'tpc_begin', side_effect=OSError):
            holder.abort()
            self.world.settle()
        self.assertEqual(set(self.states(*others)), {OVER})

    def test_one_is_aborted_as_it_is_admitted(self):
        with mock.patch.object(module, 'ROOM', 3000):
            self.begin_service()
        a, b, c = (self.vote(name, {1: b'x'}) for name in 'abc')
        a.abort()
        b.abort()
        self.world.settle()
        self.assertEqual(self.states(a, b, c), [OVER, OVER, VOTED])
        c.abort()

    def test_what_is_aside_needs_none(self):
        with mock.patch.object(module, 'ROOM', 6000):
            self.begin_service()
        serials = self.stored({1: b'x'})
        first = self.vote('first', {1: b'x'}, serials)
        self.finish(first)
        aside = self.vote('aside', {1: b'y'}, serials)
        self.world.settle()
        self.assertEqual(aside.state, ASIDE)
        a, b, c = (self.vote(name, {number: b'x'})
                   for number, name in enumerate('abc', 2))
        self.assertEqual(self.states(a, b, c), [VOTED, VOTED, OUTSIDE])
        self.world.publish()
        self.world.settle()
        self.assertEqual(aside.state, OUTSIDE)  # behind the other
        for ballot in a, b, c:
            ballot.abort()
            self.world.settle()
        self.assertEqual(aside.state, OVER)

    def test_an_undo_is_alone(self):
        """It may take more memory than anybody knows."""
        self.stored({1: b'x'})
        voted = self.vote('voted', {2: b'x'})
        undos = []
        for name in 'ab':
            undos.append(self.begin(name))
            undos[-1].add('undo', self.storage.undoLog(0, 1)[0]['id'])
            self.world.ask_vote(undos[-1])
        self.world.settle()
        self.assertEqual(
            self.states(voted, *undos), [VOTED, OUTSIDE, OUTSIDE])
        voted.abort()
        self.world.settle()
        self.assertEqual(self.states(*undos), [VOTED, OUTSIDE])
        for ballot in undos:
            ballot.abort()
        self.world.settle()

    def test_until_it_is_given(self):
        """What it takes is known then: while it waits, others go in."""
        self.stored({1: b'x'})
        elsewhere = vote(self.storage, {2: b'x'})  # in a thread of the process
        undo = self.begin('undo')
        undo.add('undo', self.storage.undoLog(0, 1)[0]['id'])
        self.world.ask_vote(undo)
        other = self.vote('other', {3: b'x'})
        self.assertEqual(self.states(undo, other), [VOTING, OUTSIDE])
        self.world.settle()
        self.assertEqual(self.states(undo, other), [WAITING, WAITING])
        self.storage.tpc_abort(elsewhere)
        self.world.settle()
        self.assertEqual(self.states(undo, other), [VOTED, WAITING])
        for ballot in undo, other:
            ballot.abort()
        self.world.settle()

    def test_no_more_files_than_said(self):
        """A storage has a file for what is above 1 MB with what was stored
        before a conflict was resolved."""
        data = bytes(ballots.IN_MEMORY // 2)
        self.assertGreater(
            self.begin('a', {1: data}).weight, ballots.IN_MEMORY)

    def test_memory_is_counted_until_it_is_voted(self):
        before = ballots.kept.bytes
        first, second = (
            self.begin(name, {1: bytes(1000)}) for name in 'ab')
        self.assertGreater(ballots.kept.bytes, before + 2000)
        self.world.ask_vote(first)
        second.abort()
        self.assertEqual(ballots.kept.bytes, before)
        first.abort()
        self.assertEqual(ballots.kept.bytes, before)
        self.assertEqual(first.client.kept.bytes, 0)

    def test_a_client_that_has_many_uses_files(self):
        """So the others need none."""
        many = Client('many')
        with mock.patch.object(ballots, 'IN_MEMORY_OF_ONE', 3000):
            first, second = (
                self.begin(many, {number: bytes(2000)}) for number in (1, 2))
            other = self.begin('other', {3: bytes(2000)})
        self.assertEqual(
            [each.is_small for each in (first, second, other)],
            [True, False, True])
        second.abort()
        first.abort()
        self.assertEqual(many.kept.bytes, 0)
        other.abort()
        self.world.settle()
