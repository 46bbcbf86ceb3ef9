"""What a client makes of a commit whose answer was lost."""

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
from ZEO.StorageServer import never_resolve_conflict
from ZODB.blob import Blob
from ZODB.Connection import Connection as StockConnection
from ZODB.POSException import ConflictError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import z64

from fsyncstorage.client.failover import NoServer
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.client.stream import Stream
from fsyncstorage.client.stream import Unanswered
from fsyncstorage.errors import LeaderChanged
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import SyncFailed
from fsyncstorage.server import oursession
from fsyncstorage.server.ballot import FINISHING
from fsyncstorage.server.oursession import OurSession
from fsyncstorage.storage.outcome import UNKNOWN
from fsyncstorage.storage.outcome import Outcome
from fsyncstorage.wire import frames

from ..support import PATIENCE
from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import begin
from .connected import commit
from .connected import store


class Lost:
    """Ends a stream once, in one of the server's methods."""

    def __init__(self, original, goes_on):
        self._original = original
        self._goes_on = goes_on
        #: How often the method was called.
        self.calls = 0

    def __get__(self, session, owner):
        return functools.partial(self, session)

    def again(self):
        self.calls = 0

    def __call__(self, session, *args, **options):
        self.calls += 1
        if self.calls == 1:
            # Nothing leaves any more; the session ends behind this.
            session.connection.transport.abort()
            if not self._goes_on:
                return
        self._original(session, *args, **options)


class OutcomeTestCase(ConnectedTestCase):

    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.called = []

    def at_request(self, kind):
        """The stream ends when this comes, which is not processed."""
        lost = Lost(oursession._METHODS[kind], goes_on=False)
        patch = mock.patch.dict(oursession._METHODS, {kind: lost})
        patch.start()
        self.addCleanup(patch.stop)
        return lost

    def done_is_lost(self):
        """It is committed, and the client does not hear of it."""
        lost = Lost(OurSession._finished, goes_on=True)
        self.patch(OurSession, _finished=lost)
        return lost

    @contextlib.contextmanager
    def done_is_taken_by_another(self):
        """It is completed, and the stream is over for the one that waits."""
        wait = Stream._wait

        def lose(stream, answer):
            wait(stream, answer)
            if answer.message.__class__ is frames.Done:
                raise Unanswered('the connection has ended')

        with mock.patch.object(Stream, '_wait', lose):
            yield

    @contextlib.contextmanager
    def before_a(self, kind, function):
        """Called with the stream before a client asks it for that."""
        ask = Stream.ask

        def call(stream, message, *args, **options):
            if message.__class__ is kind:
                function(stream)
            return ask(stream, message, *args, **options)

        with mock.patch.object(Stream, 'ask', call):
            yield

    def check_all_is_well(self):
        until(self.client.is_connected, 'connected again')
        tid = commit(self.client, {99: b'x'})
        self.assertEqual(self.load(self.client, 99)[:2], (b'x', tid))
        self.assertEqual(self.transactions(), 0)


class InOneTrip:

    request = frames.Trip

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

    request = frames.Finish

    def commit(self, number=1, data=b'x', f=None, serial=z64):
        transaction = begin(self.client)
        store(self.client, transaction, number, data, serial)
        self.client.tpc_vote(transaction)
        try:
            return self.client.tpc_finish(
                transaction, f or self.called.append)
        except BaseException:
            self.client.tpc_abort(transaction)
            raise


class Outcomes:

    def check_kept(self, tid):
        self.assertEqual(self.storage.load(oid(1)), (b'x', tid))
        self.assertEqual(self.called, [tid])
        self.assertGreaterEqual(self.client.lastTransaction(), tid)
        self.assertEqual(self.load(self.client, 1)[:2], (b'x', tid))
        self.check_all_is_well()

    def test_it_is_kept(self):
        """It says that it waits, once, and for how long."""
        self.done_is_lost()
        with self.assertLogs('fsyncstorage.client', 'WARNING') as logged:
            tid = self.commit()
        self.assertEqual(len(logged.output), 1)
        self.assertIn('up to 60 s', logged.output[0])
        self.check_kept(tid)

    def test_it_is_kept_and_others_have_gone_on(self):
        """What they have changed is in the cache as they have left it."""
        other, first = self.connect(), self.commit()
        self.called.clear()
        self.done_is_lost()

        def later(stream):
            self.tid = commit(other, {1: b'other'}, self.storage.load(
                oid(1))[1])
            until(lambda: self.client.lastTransaction() == self.tid, 'told')

        # `f` sets the last tid of the connections, and must not be the last
        # to do it.
        def told(tid, oids):
            self.called.append((tid, list(oids)))

        with self.before_a(frames.Ask, later), mock.patch.object(
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

    @contextlib.contextmanager
    def nobody_is_asked(self):
        def fail(stream):
            raise AssertionError('asked')

        with self.before_a(frames.Ask, fail), \
                self.assertRaises(ClientDisconnected):
            yield
        self.assertEqual(self.called, [])

    def test_the_server_stops_and_has_not_read_it(self):
        """It says so: the next one is not asked."""
        stream, session = self.client._failover.stream, self.session()
        send = stream._send

        def unread(data):
            if data.endswith(last):
                self.in_loop(session.connection.transport.pause_reading)
                send(data)
                self.serve_again()
            else:
                send(data)

        last = frames.frame(self.request(1))
        with self.nobody_is_asked(), mock.patch.object(
                stream, '_send', unread):
            self.commit()
        self.commit()
        self.check_all_is_well()

    def test_nothing_of_it_has_left(self):
        with self.nobody_is_asked(), self.before_a(
                self.request, lambda stream: stream.end('of a test')):
            self.commit()

    def test_it_is_published_later(self):
        """The server answers when it is."""
        publish, go_on = self.storage.publish, threading.Event()
        session, asked = self.session(), threading.Event()
        with mock.patch.object(
                self.storage, 'publish',
                lambda: go_on.is_set() and publish()), self.before_a(
                    frames.Ask, lambda stream: asked.set()):
            committing = Thread(self.commit)
            until(lambda: self.in_loop(lambda: [
                each for each in session._ballots.values()
                if each.state is FINISHING]), 'finishing')
            self.in_loop(session.end)
            self.assertTrue(asked.wait(PATIENCE))
            committing.join(0.1)
            self.assertTrue(committing.is_alive())
            go_on.set()
            self.in_loop(self.service.publish)
            tid = committing.result()
        self.check_kept(tid)

    def test_the_next_connection_ends_too(self):
        self.done_is_lost()
        asked = self.at_request(frames.Ask)
        tid = self.commit()
        self.assertGreater(asked.calls, 1)
        self.check_kept(tid)

    def test_the_server_was_restarted(self):
        """The file knows."""
        self.done_is_lost()
        restarted = []

        def restart(stream):
            if not restarted:
                restarted.append(stream)
                self.serve_again()

        with self.before_a(frames.Ask, restart):
            tid = self.commit()
        self.check_kept(tid)

    def check_unknown(self):
        with self.assertRaises(OutcomeUnknown) as caught:
            self.commit()
        self.assertIsInstance(caught.exception, StorageError)
        self.assertNotIsInstance(
            caught.exception, (TransientError, StorageTransactionError))
        self.assertIn('repeat', str(caught.exception))
        self.assertEqual(self.called, [])

    def test_the_server_cannot_tell(self):
        self.done_is_lost()
        with mock.patch.object(
                self.storage, 'outcome',
                return_value=Outcome(UNKNOWN, None, 'a pack')):
            self.check_unknown()
        self.check_all_is_well()

    def test_no_server_comes(self):
        """It waits as long as for any other answer."""
        self.done_is_lost()
        self.client.wait_timeout = 0.1
        with mock.patch.object(FsyncClient, 'meet', self.refuse):
            self.check_unknown()

    def refuse(self, opened):
        opened.connection.close()
        raise NoServer('not now')

    def test_the_storage_is_closed(self):
        self.done_is_lost()
        with mock.patch.object(FsyncClient, 'meet', self.refuse):
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
        self.at_request(frames.Finish if self.klass
                        else frames.Trip)
        self.assertEqual(self.count(), 2)
        self.check(1)

    def test_an_unknown_one_is_not_repeated(self):
        self.done_is_lost()
        with mock.patch.object(
                self.storage, 'outcome',
                return_value=Outcome(UNKNOWN, None, 'a pack')):
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

    def test_a_conflict_that_this_client_resolves(self):
        """It asks twice for the same; the second answer is lost."""
        self.session().client_conflict_resolution = True
        self.storage.tryToResolveConflict = never_resolve_conflict
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
