"""What a client makes of a commit whose answer was lost.  Goes with
`client/outcome.py` and `client/finishing.py`, where it patches the stream.
"""

import contextlib
import functools
import threading
from unittest import mock

import transaction
import ZODB
from BTrees.Length import Length
from persistent.mapping import PersistentMapping
from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected
from ZODB.blob import Blob
from ZODB.Connection import Connection as StockConnection
from ZODB.POSException import ConflictError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.client import link
from fsyncstorage.client import zeoconnection
from fsyncstorage.client.answer import Unanswered
from fsyncstorage.client.stream import Stream
from fsyncstorage.errors import LeaderChanged
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import SyncFailed
from fsyncstorage.server import commitchannel
from fsyncstorage.server import outcomes
from fsyncstorage.server.commitchannel import CommitChannel
from fsyncstorage.wire import commits
from fsyncstorage.wire import commitserver

from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import begin
from .connected import commit
from .connected import store


class Lost:
    """Ends the client of a channel once, in one of the server's methods."""

    def __init__(self, original, goes_on):
        self._original = original
        self._goes_on = goes_on
        #: How often the method was called.
        self.calls = 0

    def __get__(self, channel, owner):
        return functools.partial(self, channel)

    def again(self):
        self.calls = 0

    def __call__(self, channel, *args, **options):
        self.calls += 1
        if self.calls == 1:
            channel.session.end()
            if not self._goes_on:
                return
        self._original(channel, *args, **options)


class OutcomeTestCase(ConnectedTestCase):

    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.called = []

    def connect(self, **options):
        client = super().connect(**options)
        # A server that ends a connection is tried again at once.
        client._server.client.connect_poll = 0
        return client

    def at_request(self, kind, goes_on=False):
        """The client is ended when this comes; it is processed or not."""
        lost = Lost(commitchannel._METHODS[kind], goes_on)
        patch = mock.patch.dict(commitchannel._METHODS, {kind: lost})
        patch.start()
        self.addCleanup(patch.stop)
        return lost

    def done_is_lost(self):
        """It is committed, and the client does not hear of it."""
        lost = Lost(CommitChannel._finished, goes_on=True)
        self.patch(CommitChannel, _finished=lost)
        return lost

    @contextlib.contextmanager
    def done_is_taken_by_another(self):
        """It is completed, and the stream is over for the one that waits."""
        wait = Stream._wait

        def lose(stream, answer):
            wait(stream, answer)
            if answer.event.__class__ is commits.Done:
                raise Unanswered('the connection has ended')

        with mock.patch.object(Stream, '_wait', lose):
            yield

    def check_all_is_well(self):
        until(self.has_channel, 'connected again')
        self.assertEqual(self.transactions(), 0)
        self.assertEqual(self.client._server._committing, {})
        tid = commit(self.client, {99: b'x'})
        self.assertEqual(self.load(self.client, 99)[:2], (b'x', tid))

    def has_channel(self):
        stream = self.client._server.stream
        return stream is not None and stream.end_reason is None


class InOneTrip:

    request = commitserver.Trip

    def commit(self, number=1, data=b'x', f=None, serial=z64):
        """As a connection of ours does it."""
        transaction = begin(self.client)
        store(self.client, transaction, number, data, serial)
        try:
            self.assertTrue(self.client.finish_with_vote(
                transaction, lambda txn: self.client.tpc_finish(
                    txn, f or self.called.append)))
            self.client.tpc_vote(transaction)
            return self.client.tpc_finish(
                transaction, lambda tid: self.fail('called twice'))
        except BaseException:
            with contextlib.suppress(StorageTransactionError):
                self.client.tpc_abort(transaction)
            raise


class InTwoTrips:

    request = commitserver.Finish

    def commit(self, number=1, data=b'x', f=None, serial=z64):
        transaction = begin(self.client)
        store(self.client, transaction, number, data, serial)
        self.client.tpc_vote(transaction)
        try:
            return self.client.tpc_finish(
                transaction, f or self.called.append)
        except BaseException:
            if not self.client._server.is_closed():
                self.client.tpc_abort(transaction)
            raise


class Outcomes:

    def test_it_is_kept(self):
        self.done_is_lost()
        tid = self.commit()
        self.assertEqual(self.storage.load(oid(1)), (b'x', tid))
        self.assertEqual(self.called, [tid])
        self.assertGreaterEqual(self.client.lastTransaction(), tid)
        self.assertEqual(self.load(self.client, 1)[:2], (b'x', tid))
        self.check_all_is_well()

    def test_it_is_kept_and_others_have_gone_on(self):
        """What they have changed is in the cache as they have left it."""
        other, first = self.connect(), self.commit()
        self.called.clear()
        lost, ask = self.done_is_lost(), Stream.ask

        def later(stream, *args):
            self.assertEqual(lost.calls, 1)
            self.tid = commit(other, {1: b'other'}, self.storage.load(
                oid(1))[1])
            until(lambda: self.client.lastTransaction() == self.tid, 'told')
            return ask(stream, *args)

        # `f` sets the last tid of the connections, and must not be the last
        # to do it.
        def told(tid, oids):
            self.called.append((tid, list(oids)))

        with mock.patch.object(Stream, 'ask', later), mock.patch.object(
                self.client, 'invalidateTransaction', told), \
                mock.patch.object(self.client, 'invalidateCache') as dropped:
            dropped.side_effect = lambda: self.called.append('dropped')
            tid = self.commit(data=b'mine', serial=first)
        self.assertEqual(
            self.called[-3:], [tid, (self.tid, []), 'dropped'])
        self.assertLess(tid, self.tid)
        self.assertEqual(self.client.lastTransaction(), self.tid)
        self.assertEqual(self.load(self.client, 1)[:2], (b'other', self.tid))
        self.check_all_is_well()

    def test_it_is_not_kept(self):
        """And can be repeated."""
        self.at_request(self.request)
        with self.assertRaises(ClientDisconnected):
            self.commit()
        self.assertEqual(self.called, [])
        self.commit()
        self.assertEqual(len(self.called), 1)
        self.check_all_is_well()

    def test_the_server_stops_and_has_not_read_it(self):
        """It says so: the next one, which knows nothing, is not asked."""
        stream = self.client._server.stream
        send = stream._send

        def unread(data):
            if not stream._finishes:
                return send(data)
            session, = self.server.services['1'].sessions
            self.in_loop(session.announced_on.transport.pause_reading)
            send(data)
            self.serve_again()

        with mock.patch.object(stream, '_send', unread), \
                mock.patch.object(Stream, 'ask') as ask:
            with self.assertRaises(ClientDisconnected):
                self.commit()
        ask.assert_not_called()
        self.assertEqual(self.called, [])
        self.commit()
        self.check_all_is_well()

    def test_nothing_of_it_has_left(self):
        """The server is not asked."""
        stream = self.client._server.stream
        name = self.request.__name__.lower()
        original = getattr(Stream, name)

        def too_late(*args):
            stream.end('of a test')
            return original(*args)

        with mock.patch.object(Stream, name, too_late), mock.patch.object(
                Stream, 'ask') as ask, self.assertRaises(ClientDisconnected):
            self.commit()
        ask.assert_not_called()

    def test_it_is_published_later(self):
        """The server answers when it is."""
        publish, go_on = self.storage.publish, threading.Event()
        service = self.server.services['1']
        lost = self.at_request(self.request, goes_on=True)
        with mock.patch.object(
                self.storage, 'publish',
                lambda: go_on.is_set() and publish()), mock.patch.object(
                    Stream, 'ask', autospec=True,
                    side_effect=Stream.ask) as ask:
            committing = Thread(self.commit)
            until(lambda: lost.calls and ask.called, 'asked')
            committing.join(0.1)
            self.assertTrue(committing.is_alive())
            go_on.set()
            self.in_loop(service.publish)
            tid = committing.result()
        self.assertEqual(self.storage.load(oid(1)), (b'x', tid))
        self.assertEqual(self.called, [tid])
        self.check_all_is_well()

    def test_the_next_connection_ends_too(self):
        self.done_is_lost()
        asked = self.at_request(commitserver.Ask)
        tid = self.commit()
        self.assertEqual(self.called, [tid])
        self.assertGreater(asked.calls, 1)
        self.check_all_is_well()

    def test_a_server_that_has_not_announced_it(self):
        """It could be told to connections before what came before it."""
        self.done_is_lost()
        outcome = commitserver.outcome
        with mock.patch.object(
                commitserver, 'outcome', lambda number, kept, tid: outcome(
                    number, kept, maxtid)):
            self.check_unknown()
        self.check_all_is_well()

    def check_unknown(self):
        with self.assertRaises(OutcomeUnknown) as caught:
            self.commit()
        self.assertIsInstance(caught.exception, StorageError)
        self.assertNotIsInstance(
            caught.exception, (TransientError, StorageTransactionError))
        self.assertIn('repeat', str(caught.exception))
        self.assertEqual(self.called, [])

    def test_the_server_has_forgotten_it(self):
        self.patch(outcomes, MOST_ENDED=0)
        self.done_is_lost()
        self.check_unknown()
        self.check_all_is_well()

    def test_the_server_was_restarted(self):
        self.done_is_lost()
        ask = Stream.ask

        def restart(*args):
            Stream.ask = ask
            self.serve_again()
            return ask(*args)

        with mock.patch.object(Stream, 'ask', restart):
            self.check_unknown()
        self.check_all_is_well()

    def test_no_server_comes(self):
        """It waits as long as for any other answer."""
        self.done_is_lost()
        self.client._server.timeout = 0.1
        with mock.patch.object(zeoconnection.ZeoConnection, 'verify', never):
            self.check_unknown()

    def test_the_next_connection_has_no_channel(self):
        self.done_is_lost()
        self.patch(link, is_possible=False)
        self.check_unknown()

    def test_a_server_that_does_not_answer(self):
        self.done_is_lost()
        self.patch(CommitChannel, _tell_outcome=lambda *args: None)
        self.client._server.timeout = 0.5
        self.check_unknown()

    def test_the_storage_is_closed(self):
        self.done_is_lost()
        with mock.patch.object(zeoconnection.ZeoConnection, 'verify', never):
            committing = Thread(self.check_unknown)
            until(lambda: not self.client.is_connected(), 'cut')
            self.client.close()
            committing.result()

    def test_an_error_of_f_that_is_transient(self):
        """An application would try again what is committed."""
        def fail(tid):
            self.called.append(tid)
            raise ConflictError

        for loses in False, True:
            with self.subTest(loses):
                self.called.clear()
                until(self.has_channel, 'connected again')
                if loses:
                    self.done_is_lost()
                with self.assertRaises(StorageError) as caught:
                    self.commit(1 + loses, f=fail)
                self.assertNotIsInstance(caught.exception, TransientError)
                self.assertEqual(
                    self.storage.load(oid(1 + loses))[1], self.called[0])

    def test_a_failed_sync(self):
        """It is the same error as of the storage itself."""
        with mock.patch.object(
                self.storage, 'tpc_finish', side_effect=SyncFailed('a test')):
            with self.assertLogs('fsyncstorage.server', 'ERROR'):
                with self.assertRaisesRegex(SyncFailed, 'a test') as caught:
                    self.commit()
        self.assertIsInstance(caught.exception, OutcomeUnknown)

    def test_a_change_of_the_leading_node(self):
        """Nothing was promised to anybody: it can be tried again."""
        with mock.patch.object(
                self.storage, 'tpc_vote', side_effect=LeaderChanged('a test')):
            with self.assertRaisesRegex(LeaderChanged, 'a test') as caught:
                self.commit()
        self.assertIsInstance(caught.exception, TransientError)


async def never(connection, server_tid):
    """A server that is not verified."""


class OfOneTrip(InOneTrip, Outcomes, OutcomeTestCase):
    pass


class OfTwoTrips(InTwoTrips, Outcomes, OutcomeTestCase):

    level = 2


class OfDatabases(OutcomeTestCase):
    """What an application sees."""

    level = 2
    klass = None

    def setUp(self):
        super().setUp()
        self.client.close()
        self.client = self.connect(blob_dir=self.path('cache'))
        self.db = ZODB.DB(self.client)
        self.addCleanup(self.db.close)
        if self.klass is not None:
            self.db.klass = self.klass
            self.db.open()  # another one is made by the next call
        self.manager = transaction.TransactionManager()
        self.connection = self.db.open(self.manager)
        self.root = self.connection.root()
        self.manager.begin()
        self.root['counted'] = PersistentMapping(value=0)
        self.manager.commit()

    def count(self):
        tries = []
        for attempt in self.manager.attempts(5):
            with attempt:
                tries.append(1)
                until(self.client.is_connected, 'connected')
                self.root['counted']['value'] += 1
        return len(tries)

    def check(self, value):
        other = self.db.open(transaction.TransactionManager())
        self.assertEqual(other.root()['counted']['value'], value)
        other.close()
        self.assertEqual(self.root['counted']['value'], value)

    def test_a_kept_one_is_not_repeated(self):
        self.done_is_lost()
        self.assertEqual(self.count(), 1)
        self.check(1)
        self.count()
        self.check(2)

    def test_one_that_is_not_kept_is_repeated(self):
        self.at_request(commitserver.Finish if self.klass
                        else commitserver.Trip)
        self.assertEqual(self.count(), 2)
        self.check(1)

    def test_an_unknown_one_is_not_repeated(self):
        self.patch(outcomes, MOST_ENDED=0)
        self.done_is_lost()
        with self.assertRaises(OutcomeUnknown):
            self.count()
        self.manager.begin()
        self.check(1)

    def make_conflict(self):
        """One that the server resolves; return the object."""
        self.root['length'] = length = Length(0)
        self.manager.commit()
        length.change(1)
        with self.db.transaction() as other:
            other.root()['length'].change(10)
        return length

    def check_resolved(self, length):
        """The state that is read next, and changed, is that of the file."""
        self.assertEqual(length(), 11)
        length.change(100)
        self.manager.commit()
        with self.db.transaction() as other:
            self.assertEqual(other.root()['length'](), 111)

    def commit_and_look(self, length):
        """Before it is finished, no state has the serial that is not kept."""
        finish, states = StockConnection.tpc_finish, []

        def note(*args):
            states.append(length._p_changed)
            finish(*args)

        with mock.patch.object(StockConnection, 'tpc_finish', note):
            self.manager.commit()
        self.assertEqual(states, [None])
        self.check_resolved(length)

    def test_a_resolved_conflict_that_another_thread_completed(self):
        length = self.make_conflict()
        with self.done_is_taken_by_another():
            self.commit_and_look(length)

    def test_a_resolved_conflict_whose_answer_is_lost(self):
        length = self.make_conflict()
        self.done_is_lost()
        self.commit_and_look(length)

    def test_a_blob(self):
        self.done_is_lost()
        blob = self.root['blob'] = Blob(b'content')
        self.manager.commit()
        self.assertIsNotNone(self.client.leaseBlob(
            blob._p_oid, self.client.lastTransaction()))
        with blob.open() as file:
            self.assertEqual(file.read(), b'content')


class OfDatabasesInTwoTrips(OfDatabases):

    level = 3
    klass = StockConnection
