"""The committer, by hand: what becomes of each ballot, in each state.  Goes
with `server/committer.py`.
"""

import gc
import os
import threading
import weakref
from unittest import mock

from ZODB.utils import z64

from fsyncstorage.errors import Unpublished
from fsyncstorage.server import committer as module
from fsyncstorage.server.ballot import OUTSIDE
from fsyncstorage.server.ballot import OVER
from fsyncstorage.server.ballot import VOTED
from fsyncstorage.server.ballot import VOTING
from fsyncstorage.server.ballot import WAITING

from ..support import TestCase
from ..support import commit
from ..support import oid
from ..support import owners
from ..support import vote
from .byhand import World
from .serving import counter
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

    def test_an_exclusive_one_waits_for_a_pack_in_no_thread(self):
        """It is told when the pack has ended."""
        serials = self.stored({1: b'x'})
        alone = self.begin('alone')
        self.world.restore(alone, 1, serials[1], b'restored')
        self.storage.hold_still()
        self.world.ask_vote(alone)
        self.world.settle()
        self.assertEqual(alone.state, WAITING)
        self.storage.move_on()
        self.world.settle()
        self.assertEqual(alone.state, VOTED)
        self.committer.abort(alone)


class Ends(ByHand):

    def test_nothing_begins_after_the_end(self):
        voted = self.vote('voted', {1: b'x'})
        self.committer.close()
        self.finish(voted)
        late = self.vote('late', {2: b'x'})
        self.world.settle()
        self.assertEqual(self.whats_told(), ['vote voted'])
        self.committer.abort(late)
        self.assertEqual(self.storage._begun, {})

    def test_a_finish_fails(self):
        ballot, waits = self.vote('a', {1: b'x'}), self.vote('b', {1: b'x'})
        with mock.patch.object(self.storage, '_append_shared',
                               side_effect=OSError):
            self.finish(ballot)
        self.world.settle()
        self.assertEqual(self.whats_told(), [
            'vote a', ('finish a', 'OSError'), 'vote b'])
        self.committer.abort(waits)


class NothingStays(ByHand):
    """Of what has ended, without a collection of cycles: the file of a vote
    would stay open behind a pack that replaces it."""

    def setUp(self):
        super().setUp()
        gc.disable()
        self.addCleanup(gc.enable)

    def check(self, ballots, told):
        """Of the ballot in the list: the caller of Python 3.10 keeps what it
        hands over."""
        self.world.settle()
        self.world.publish()
        self.assertEqual(self.whats_told(), told)
        ballot = weakref.ref(ballots.pop())
        self.assertIsNone(ballot())

    def test_of_a_finish_while_the_append_lock_is_taken(self):
        ballots = [self.vote('a', {1: b'x'})]
        with self.storage._commit_lock:
            self.finish(ballots[0])
        self.assertEqual(len(self.world.appender.jobs), 1)
        self.check(ballots, ['vote a', 'finish a'])

    def test_of_a_conflict(self):
        serials = self.stored({1: b'x'})
        self.stored({1: b'y'}, serials)
        for small in True, False:
            self.check([self.vote('a', {1: b'z'}, serials, small=small)],
                       [('vote a', 'ConflictError')])


class InTheLoop(ByHand):

    def check_vote_in_a_thread(self, *arguments, **options):
        ballot = self.vote('a', *arguments, **options)
        self.assertEqual(ballot.state, VOTING)
        self.assertEqual(len(self.world.voters.jobs), 1)
        self.world.settle()
        self.assertNotEqual(ballot.state, VOTING)
        self.committer.abort(ballot)
        self.world.settle()

    def test_no_code_of_users(self):
        """Another thread may have appended since the loop has looked."""
        serials = self.stored({1: counter(0)})
        self.stored({1: counter(1)}, serials)
        with mock.patch.object(
                self.storage, 'vote_is_plain', return_value=True):
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
                    self.storage, 'vote_is_plain', return_value=True):
            self.world.ask_vote(ballot)
            self.world.settle()
        self.assertEqual(ballot.state, WAITING)
        self.storage.tpc_abort(holder)
        self.world.settle()
        self.assertEqual(ballot.state, VOTED)
        self.committer.abort(ballot)

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

    def test_behind_a_disk_that_was_slow(self):
        """A step that has waited long: threads do the next ones, for a while.
        """
        write, now = self.storage._append_shared, [module.time.monotonic()]

        def slowly(*arguments):
            now[0] += module.LONG + 1
            threading.Event().wait(0.001)  # the system counts it
            return write(*arguments)

        clock = mock.Mock(monotonic=lambda: now[0], time=module.time.time)
        with mock.patch.object(module, 'time', clock):
            with mock.patch.object(self.storage, '_append_shared', slowly):
                self.finish(self.vote('slow', {1: b'x'}))
            self.world.publish()
            self.check_vote_in_a_thread({2: b'x'})
            now[0] += module.RETREAT
            here = self.vote('b', {3: b'x'})
            self.assertEqual(here.state, VOTED)
            self.committer.abort(here)

    def test_threads_are_not_more_than_said(self):
        for number in range(2 * module.VOTERS):
            self.vote(str(number), {number: b'x'}, small=False)
        self.assertEqual(len(self.world.voters.jobs), module.VOTERS)
        self.world.voters.do_one()
        self.world.deliver()
        self.assertEqual(len(self.world.voters.jobs), module.VOTERS)


class OtherStorages(ByHand):
    """Or ours, in a wrapper whose vote is not marked."""

    def begin_service(self, **options):
        super().begin_service(side_by_side=False, **options)

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
        self.committer.abort(b)

    def test_nothing_is_left_of_what_has_ended(self):
        """Peers may begin and end transactions for ever."""
        a, b, c = (self.vote(name, {number: b'x'})
                   for number, name in enumerate('abc', 1))
        self.world.settle()
        self.finish(a)
        self.world.settle()
        for each in b, c:
            self.committer.abort(each)
            self.world.settle()
        self.assertEqual(self.committer.storage._begun, {})


class Room(ByHand):

    def test_many_that_fail_as_they_are_admitted(self):
        with mock.patch.object(module, 'ROOM', 3000):
            self.begin_service()
        holder = self.vote('holder', {1: b'x'})
        others = [self.vote('other', {2: b'x'}) for _ in range(300)]
        with mock.patch.object(
                self.storage, 'tpc_vote', side_effect=OSError):
            self.committer.abort(holder)
            self.world.settle()
        self.assertEqual(set(self.states(*others)), {OVER})

    def test_a_second_notice_of_a_turn(self):
        """By then it waits for room again, and goes on doing that."""
        with mock.patch.object(module, 'ROOM', 3000):
            self.begin_service()
        direct, notices = vote(self.storage, {1: b'x'}), []
        with mock.patch.object(
                self.storage, 'call_when_served',
                lambda transaction, notice: notices.append(notice) or True):
            ballot = self.vote('a', {1: b'y'})
        other = self.vote('b', {2: b'x'})
        self.assertEqual(self.states(ballot, other), [WAITING, OUTSIDE])
        notices[0]()
        with mock.patch.object(
                self.storage, 'tpc_vote', side_effect=Unpublished(z64)):
            self.world.deliver_one()
        for _ in range(2):
            self.world.deliver()
            self.assertEqual(self.states(ballot, other), [OUTSIDE, VOTED])
            notices[0]()
        for each in ballot, other:
            self.committer.abort(each)
        self.storage.tpc_abort(direct)
        self.world.settle()

    def test_giants_go_in_one_at_a_time_beside_the_others(self):
        """While the storage gets what they store, nobody waits for them."""
        with mock.patch.object(module, 'ROOM', 3000):
            self.begin_service()
        first, second = (
            self.vote(name, dict.fromkeys(numbers, b'x'), small=False)
            for name, numbers in (('a', range(9)), ('b', range(10, 19))))
        other = self.vote('other', {20: b'x'})
        self.assertEqual(
            self.states(first, second, other), [VOTING, OUTSIDE, VOTED])
        self.world.settle()
        self.assertEqual(
            self.states(first, second), [VOTED, OUTSIDE])
        self.committer.abort(first)
        self.world.settle()
        self.assertEqual(self.states(second, other), [VOTED, VOTED])
        for ballot in second, other:
            self.committer.abort(ballot)
        self.world.settle()

    def test_an_undo_is_a_giant(self):
        """It may take more memory than anybody knows."""
        self.stored({1: b'x'})
        self.stored({2: b'x'})
        undos = []
        for name, log in zip('ab', self.storage.undoLog(0, 2)):
            undos.append(self.begin(name))
            undos[-1].undoa(log['id'])
            self.world.ask_vote(undos[-1])
        for undo, states in zip(undos, ([VOTED, OUTSIDE], [OVER, VOTED])):
            self.world.settle()
            self.assertEqual(self.states(*undos), states)
            self.committer.abort(undo)
        self.world.settle()
