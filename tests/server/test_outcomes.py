"""What a server answers when a client asks what became of its commit.  Goes
with `server/outcomes.py`.
"""

import threading
import unittest
from unittest import mock

from ZODB.utils import z64

from fsyncstorage.server import commitchannel
from fsyncstorage.server import outcomes
from fsyncstorage.server.ballot import Ballot
from fsyncstorage.server.session import Session
from fsyncstorage.wire import commits
from fsyncstorage.wire import commitserver
from fsyncstorage.wire import sessions

from ..support import PATIENCE
from ..support import Thread
from ..support import oid
from ..support import until
from .test_commitchannel import Channel
from .test_commitchannel import ChannelTestCase
from .test_commitchannel import raw

COMMITTED, NOT_COMMITTED, NOT_KNOWN = (
    commits.COMMITTED, commits.NOT_COMMITTED, commits.NOT_KNOWN)


class Records(unittest.TestCase):

    def setUp(self):
        self.record = outcomes.Record()
        self.told = []

    def ask(self, number):
        """What is told at once."""
        before = len(self.told)
        self.record.ask(number, lambda *told: self.told.append(told))
        return self.told[before:]

    def test_the_last_ones(self):
        """As many as a client may ask for.  Of older ones it is not known
        whether they were there."""
        last = outcomes.REMEMBERED + 50
        for number in range(1, last + 1):
            if number != 20:
                self.record.note(number, oid(number))
        self.record.end([], [], 0)
        for number in range(1, 51):
            self.assertEqual(self.ask(number), [(NOT_KNOWN, z64)])
        for number in range(51, last + 1):
            self.assertEqual(self.ask(number), [(COMMITTED, oid(number))])
        self.assertEqual(self.ask(last + 1), [(NOT_COMMITTED, z64)])


class Ended(unittest.TestCase):

    def setUp(self):
        self.now = 1000
        self.outcomes = outcomes.Outcomes(lambda: self.now)

    def end(self, ticket):
        self.outcomes.begin(ticket, None)
        self.outcomes.end(ticket, outcomes.Record(), [], [])

    def ask(self, ticket):
        told = []
        self.outcomes.ask(ticket, 1, lambda *each: told.append(each))
        (outcome, tid), = told
        return outcome

    def test_a_session_that_nobody_knows(self):
        self.assertEqual(self.ask(b'unknown'), NOT_KNOWN)

    def test_only_so_many(self):
        """A peer that comes and goes makes others forgotten, and no more."""
        for number in range(outcomes.MOST_ENDED + 10):
            self.end(number)
        self.assertEqual(self.ask(9), NOT_KNOWN)
        self.assertEqual(self.ask(10), NOT_COMMITTED)
        self.assertEqual(len(self.outcomes._ended), outcomes.MOST_ENDED)

    def test_only_so_long(self):
        self.end(1)
        self.now += outcomes.KEPT_FOR - 1
        self.end(2)
        self.assertEqual(self.ask(1), NOT_COMMITTED)
        self.now += 1
        self.assertEqual(self.ask(1), NOT_KNOWN)
        self.assertEqual(self.ask(2), NOT_COMMITTED)

    def test_one_that_is_there_is_ended_first(self):
        record = outcomes.Record()
        channel = mock.Mock()
        channel.end.side_effect = lambda: self.outcomes.end(
            1, record, [], [])
        self.outcomes.begin(1, channel)
        self.assertEqual(self.ask(1), NOT_COMMITTED)
        channel.end.assert_called_once_with()
        self.assertEqual(self.ask(1), NOT_COMMITTED)
        channel.end.assert_called_once_with()


class Asked(ChannelTestCase):
    """On another channel, of the same client or not."""

    def setUp(self):
        super().setUp()
        self.other = Channel(self.server, self.connect(self.server))
        self.addCleanup(self.other.close)

    def ask(self, id):
        number, frame = self.other.client.ask(sessions.in_doubt(id, z64))
        self.other.send(frame)
        return number

    def answer(self, number=None):
        """The tid; None: it is not committed.  Announcements come before."""
        self.told = []
        while not isinstance(event := self.other.next(), commits.Outcome):
            self.told.append(event)
        if number is not None:
            self.assertEqual(event.number, number)
        return event.outcome, event.tid

    def check(self, transaction, outcome, tid=z64):
        number = self.ask(self.channel.client.commit_id(transaction))
        self.assertEqual(self.answer(number), (outcome, tid))

    def check_it_was_ended(self):
        with self.assertRaises(EOFError):
            while True:
                self.channel.next()
        self.zeo.wait_for_end()

    def test_one_that_is_committed(self):
        transaction = self.channel.vote({1: b'x'})
        self.channel.next()
        tid = self.channel.finish(transaction)
        self.check(transaction, COMMITTED, tid)
        self.assertEqual(self.told, [commits.Invalid(tid, [oid(1)])])
        self.check_it_was_ended()
        self.check(transaction, COMMITTED, tid)

    def test_one_that_has_not_come(self):
        """And cannot come any more."""
        transaction = self.channel.begin()
        self.check(transaction, NOT_COMMITTED)
        self.check_it_was_ended()
        self.check(transaction, NOT_COMMITTED)
        self.check_nothing_is_left()

    def test_what_waits_for_its_objects(self):
        """A trip whose objects become free later is aborted all the same."""
        holds = self.other.vote({1: b'x'})
        self.other.next()
        transaction = self.channel.trip({1: b'y'})
        until(lambda: self.server.services['1'].committer.waiting, 'waits')
        self.check(transaction, NOT_COMMITTED)
        tid = self.other.finish(holds)
        self.check(transaction, NOT_COMMITTED)
        self.assertEqual(self.storage.load(oid(1)), (b'x', tid))

    def test_what_a_thread_votes(self):
        """Its outcome comes when the session has ended."""
        votes, go_on = threading.Event(), threading.Event()
        vote = Ballot.vote

        def slowly(ballot, *args, **options):
            votes.set()
            go_on.wait(PATIENCE)
            return vote(ballot, *args, **options)

        with mock.patch.object(Ballot, 'is_light', return_value=False), \
                mock.patch.object(Ballot, 'vote', slowly):
            transaction = self.channel.trip({1: b'x'})
            self.assertTrue(votes.wait(PATIENCE))
            self.check(transaction, NOT_COMMITTED)
            go_on.set()
            self.check_nothing_is_left()
        self.assertEqual(len(list(self.storage.iterator())), 1)
        self.check(transaction, NOT_COMMITTED)

    def test_what_has_come_and_waits_for_its_turn(self):
        """Frames that were received and not processed are dropped."""
        held, go_on = threading.Event(), threading.Event()
        finish = commitchannel.CommitChannel._finish

        def hold(channel, number):
            held.set()
            go_on.wait(PATIENCE)
            finish(channel, number)

        with mock.patch.dict(commitchannel._METHODS, {
                commitserver.Finish: hold}):
            self.channel.client._states[7] = commits.FINISHING
            transaction, frames = self.channel.trip_frames({1: b'x'})
            # More than some turns, of which the first one is long.
            self.channel.send(
                500 * raw(ord('F'), 7) + frames)
            self.assertTrue(held.wait(PATIENCE))
            number = self.ask(self.channel.client.commit_id(transaction))
            go_on.set()
            self.assertEqual(self.answer(number), (NOT_COMMITTED, z64))
        self.check(transaction, NOT_COMMITTED)
        self.check_nothing_is_left()
        self.assertEqual(len(list(self.storage.iterator())), 1)

    def test_one_that_is_finishing(self):
        """The answer comes when it is published, behind its announcement."""
        self.disk.hold_syncs()
        transaction = self.channel.trip({1: b'x'})
        self.disk.wait_for_sync()
        number = self.ask(self.channel.client.commit_id(transaction))
        self.check_it_was_ended()
        self.other.ping()
        self.disk.release_syncs()
        outcome, tid = self.answer(number)
        self.assertEqual(outcome, COMMITTED)
        self.assertEqual(self.told, [commits.Invalid(tid, [oid(1)])])
        self.assertEqual(self.storage.load(oid(1)), (b'x', tid))

    def test_one_that_is_published_while_its_client_goes(self):
        """The ZEO connection has gone, and the channel not yet."""
        sessions = self.server.services['1'].sessions
        before = len(sessions)
        self.disk.hold_syncs()
        transaction = self.channel.trip({1: b'x'})
        self.disk.wait_for_sync()
        with mock.patch.object(Session, 'follow'):
            self.zeo.close()
            until(lambda: len(sessions) < before, 'gone')
            self.disk.release_syncs()
            published = self.other.next()
        self.check(transaction, COMMITTED, published.tid)

    def test_one_whose_sync_fails(self):
        self.disk.hold_syncs()
        transaction = self.channel.trip({1: b'x'})
        self.disk.wait_for_sync()
        number = self.ask(self.channel.client.commit_id(transaction))
        self.check_it_was_ended()
        with self.assertLogs(level='CRITICAL'):
            self.disk.fail_sync(OSError(5, 'of a test'))
            self.disk.release_syncs()
            self.assertEqual(self.answer(number), (NOT_KNOWN, z64))

    def test_another_instance(self):
        transaction = self.channel.vote({1: b'x'})
        self.channel.next()
        _, ticket, _ = sessions.read_commit_id(
            self.channel.client.commit_id(transaction))
        self.ask(sessions.commit_id(bytes(16), ticket, transaction))
        self.assertEqual(self.answer(), (NOT_KNOWN, z64))
        self.channel.finish(transaction)  # it was not ended

    def finishing(self, number=1):
        """One that is being finished until the syncs are released."""
        if number == 1:
            self.disk.hold_syncs()
            self.addCleanup(self.disk.release_syncs)
        transaction = self.channel.trip({number: b'x'})
        if number == 1:
            self.disk.wait_for_sync()
        return transaction, self.channel.client.commit_id(transaction)

    def test_too_many_at_once(self):
        _, first = self.finishing()
        _, second = self.finishing(2)
        self.channel.ping()
        with mock.patch.object(commitchannel, 'MOST_QUESTIONS', 1):
            self.ask(first)
            self.other.ping()
            with self.assertLogs('fsyncstorage.server', 'ERROR'):
                self.ask(second)
                with self.assertRaises(EOFError):
                    self.other.next()

    def test_the_server_closes(self):
        """What is published last is answered, too."""
        _, id = self.finishing()
        number = self.ask(id)
        self.other.ping()
        closing = Thread(self.server.close)
        until(lambda: self.server._closing, 'it closes')
        self.disk.release_syncs()
        self.assertEqual(self.answer(number)[0], COMMITTED)
        closing.result()
