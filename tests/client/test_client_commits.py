"""Commits of our client: what leaves when, what is told to whom, and in which
order; interrupts, forks and lost connections.
"""

import contextlib
import os
import threading
from unittest import mock

import ZODB
from ZEO.Exceptions import ClientDisconnected
from ZODB.MappingStorage import MappingStorage
from ZODB.mvccadapter import MVCCAdapter
from ZODB.POSException import POSKeyError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.client.commit import GATHERED
from fsyncstorage.client.commit import MOST_IN_A_FRAME
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.client.stream import Stream
from fsyncstorage.client.tlsconnection import TLSConnection
from fsyncstorage.errors import NotFinishedInTime
from fsyncstorage.server.oursession import OurSession

from ..support import Thread
from ..support import commit as commit_to
from ..support import in_a_child
from ..support import name_of_error
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import begin
from .connected import commit
from .connected import store
from .connected import vote

CUT = ClientDisconnected
LARGE = bytes(GATHERED + 1)


class Transactions(ConnectedTestCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.client = self.connect()

    def check_all_is_well(self):
        """Nothing is left of what was before, here and at the server."""
        self.client.ping()
        self.assertEqual(self.transactions(), 0)
        for client in self.client, self.connect():
            tid = commit(client, {77: b'x'}, self.serial(77))
            self.assertEqual(tid, self.serial(77))

    def serial(self, number):
        try:
            return self.storage.load(oid(number))[1]
        except POSKeyError:
            return z64

    def test_stores_share_a_frame(self):
        """In their order, with what comes between them; not the large ones."""
        serial = commit(self.client, {7: b'seven', 8: b'eight'})
        large = bytes(MOST_IN_A_FRAME)
        receive, letters = OurSession.receive, []

        def note(session, body):
            letters.append(body[:1])
            receive(session, body)

        self.patch(OurSession, receive=note)
        client = self.connect()
        transaction = begin(client)
        for number in 1, 2:
            store(client, transaction, number, b'early')
        client.deleteObject(oid(7), serial, transaction)
        for number, data in (1, b'x'), (3, large), (4, b'four'), (2, b'y'):
            store(client, transaction, number, data)
        client.tpc_vote(transaction)
        self.assertEqual(b''.join(letters), b'BMDSSMV')
        client.tpc_finish(transaction)
        for number, data in (1, b'x'), (2, b'y'), (3, large), (4, b'four'):
            self.assertEqual(self.storage.load(oid(number))[0], data)
        with self.assertRaises(POSKeyError):
            self.storage.load(oid(7))

    def test_a_large_one_leaves_before(self):
        """And no more is taken before it has left."""
        transaction = begin(self.client)
        store(self.client, transaction, 1, LARGE)
        until(lambda: self.transactions() == 1, 'begun')
        transport = self.session().connection.transport
        self.in_loop(transport.pause_reading)
        storing = Thread(self.store_many, transaction, LARGE)
        until(self.client._failover.stream._sending.locked, 'full')
        storing.join(0.2)
        self.assertTrue(storing.is_alive())
        self.assertLess(self.stored, 15)
        self.in_loop(transport.resume_reading)
        storing.result()
        self.client.tpc_vote(transaction)
        self.client.tpc_finish(transaction)
        self.assertEqual(len(self.storage), 17)

    def store_many(self, transaction, record):
        for self.stored in range(16):
            store(self.client, transaction, self.stored + 2, record)

    def test_a_part_of_it_was_lost(self):
        """It cannot be voted any more: the server has the rest of it."""
        transaction = begin(self.client)
        store(self.client, transaction, 1, LARGE)
        with mock.patch.object(Stream, 'say', side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                store(self.client, transaction, 2, LARGE)
        for step in (
                lambda: store(self.client, transaction, 3, LARGE),
                lambda: self.client.tpc_vote(transaction)):
            with self.assertRaises(StorageTransactionError):
                step()
        self.client.tpc_abort(transaction)
        self.check_all_is_well()

    def test_what_has_no_frame(self):
        """It is refused here, and harms no other transaction."""
        stream, other = self.client._failover.stream, begin(self.client)
        transaction = begin(self.client)
        store(self.client, transaction, 1, b'x')
        self.client.undo(bytes(2000), transaction)
        with self.assertRaisesRegex(ValueError, 'Undo of 2005'):
            self.client.tpc_vote(transaction)
        self.client.tpc_abort(transaction)
        store(self.client, other, 2, b'x')
        self.client.tpc_vote(other)
        self.client.tpc_finish(other)
        self.assertIs(self.client._failover.stream, stream)
        self.check_all_is_well()

    # At each point

    def steps(self, transaction):
        return [
            lambda: store(self.client, transaction, 1, b'x'),
            lambda: store(self.client, transaction, 2, LARGE),
            lambda: store(self.client, transaction, 3, b'x'),
            lambda: self.client.tpc_vote(transaction),
            lambda: self.client.tpc_finish(transaction),
        ]

    def test_abort_at_each_point(self):
        for count in range(5):
            with self.subTest(count):
                transaction = begin(self.client)
                for step in self.steps(transaction)[:count]:
                    step()
                self.client.tpc_abort(transaction)
                self.client.tpc_abort(transaction)  # as managers do
                self.check_all_is_well()

    def test_abort_of_another_transaction(self):
        """It ended long ago; now somebody else's is being committed."""
        earlier = vote(self.client, {1: b'x'})
        self.client.tpc_finish(earlier)
        current = begin(self.client)
        store(self.client, current, 2, b'x')
        self.client.tpc_abort(earlier)
        store(self.client, current, 3, b'x')
        self.client.tpc_vote(current)
        self.client.tpc_abort(earlier)
        self.client.tpc_finish(current)
        self.assertEqual(len(self.storage), 3)
        self.check_all_is_well()

    def test_a_connection_that_is_lost_at_each_point(self):
        for lost_after in range(5):
            with self.subTest(lost_after):
                before = self.storage.lastTransaction()
                transaction = begin(self.client)
                steps = self.steps(transaction)
                for step in steps[:lost_after]:
                    step()
                with self.another_stream(self.client):
                    self.client._failover.stream.end('of a test')
                with self.assertRaises(CUT):
                    for step in steps[lost_after:]:
                        step()
                self.client.tpc_abort(transaction)
                self.assertEqual(self.storage.lastTransaction(), before)
                self.check_all_is_well()


class Others(ConnectedTestCase):
    """Whatever else a transaction may do."""

    records = {1: b'one', 2: b'two'}

    def setUp(self):
        super().setUp()
        self.client = self.connect()

    def finish(self, transaction):
        self.client.tpc_vote(transaction)
        return self.client.tpc_finish(transaction)

    def test_a_copy(self):
        """With its tids, and an object whose creation was undone."""
        source = self.open('source.fs')
        commit(source, {11: b'undone'})
        transaction = begin(source)
        source.undo(source.undoLog(0, 1)[0]['id'], transaction)
        source.tpc_vote(transaction)
        source.tpc_finish(transaction)
        commit(source, {12: b'kept'})
        self.client.copyTransactionsFrom(source)
        self.client.close()
        self.assertEqual(
            [(each.tid, [(found.oid, found.data) for found in each])
             for each in source.iterator()],
            [(each.tid, [(found.oid, found.data) for found in each])
             for each in self.storage.iterator(
                 next(iter(source.iterator())).tid)])
        self.assertRaises(POSKeyError, self.storage.load, oid(11))


class SideBySide(ConnectedTestCase):

    def test_one_that_is_not_finished_in_time(self):
        """The other ones go on, over the same connection."""
        client = self.connect()
        late, other = (vote(client, {number: b'x'}) for number in (1, 2))
        stream = client._failover.stream
        with self.assertLogs('ZEO.StorageServer', 'CRITICAL'):
            self.in_loop(self.time_out, 1)
        with self.assertRaisesRegex(NotFinishedInTime, 'transaction-timeout'):
            client.tpc_finish(late)
        client.tpc_abort(late)
        tid = client.tpc_finish(other)
        self.assertEqual(self.load(client, 2)[:2], (b'x', tid))
        with self.assertRaises(POSKeyError):
            self.load(client, 1)
        commit(client, {1: b'again'})
        self.assertIs(client._failover.stream, stream)

    def time_out(self, number):
        """The transaction of this number."""
        session, = self.service.sessions
        session.timed_out(session._ballots[number])


class Announcements(ConnectedTestCase):
    """Of transactions of another client."""

    level = 2
    records = {1: b'one', 2: b'two'}
    options = {'invalidation_age': 3600}

    def hear_of_two(self, client):
        """What the database of this client hears of two transactions that
        come together."""
        heard = []
        tids = [p64(u64(self.service.last_tid) + more) for more in (1, 2)]

        def announce():
            with mock.patch.object(self.service, 'announce'):
                for tid in tids:
                    self.service.changed_elsewhere(tid, [oid(1)])
            self.service.announce()

        with mock.patch.object(
                client._db, 'invalidate',
                lambda tid, oids: heard.append((tid, list(oids)))):
            self.in_loop(announce)
            until(lambda: client.lastTransaction() == tids[1], 'told')
        return heard, tids

    def test_a_database_hears_of_them_together(self):
        client = self.connect()
        ZODB.DB(client)
        heard, tids = self.hear_of_two(client)
        self.assertEqual(heard, [(tids[1], [oid(1), oid(1)])])

    def test_others_hear_of_each(self):
        """A server, and a derived class if it has its own method: that of the
        storage, or the database."""
        class Client(FsyncClient):

            def invalidateTransaction(self, tid, oids):
                super().invalidateTransaction(tid, oids)

        class Adapter(MVCCAdapter):

            def invalidate(self, transaction_id, oids):
                super().invalidate(transaction_id, oids)

        derived = self.connect(make=Client)
        client, server = self.connect(), self.connect()
        ZODB.DB(derived)
        client.registerDB(Adapter(MappingStorage()))
        server.registerDB(mock.Mock())
        for each in derived, client, server:
            each.ping()  # nothing else is under way
            heard, tids = self.hear_of_two(each)
            self.assertEqual(heard, [(tid, [oid(1)]) for tid in tids])

    def test_what_is_announced_while_a_client_is_welcomed(self):
        """In the thread that looks what has changed, too, and before the
        welcome leaves: nothing is missed, or comes twice."""
        for of, name in ((OurSession, 'meet'), (OurSession, '_welcoming'),
                         (self.service, 'look_up_invalidations')):
            for when in 'before', 'behind':
                with self.subTest(name, when=when):
                    self.check_announced_meanwhile(of, name, when)

    def check_announced_meanwhile(self, of, name, when):
        client = self.connect()
        for number in self.records:
            self.load(client, number)
        original, unannounced = getattr(of, name), []
        for _ in range(2):
            self.tid = commit_to(self.storage, {1: b'new'}, {1: self.tid})
            unannounced.append(self.tid)

        def announce():
            self.at_once(self.service.changed_elsewhere,
                         unannounced.pop(0), [oid(1)])

        def call(*args):
            if when == 'before':
                announce()
            try:
                return original(*args)
            finally:
                if when == 'behind':
                    announce()

        def cut_off_and_announce():
            session, = self.service.sessions
            session.connection.abort()
            announce()

        with contextlib.ExitStack() as stack:
            if of is self.service:  # so it has to be looked up
                stack.enter_context(mock.patch.object(
                    of, 'invalidations_since', return_value=None))
            stack.enter_context(mock.patch.object(of, name, call))
            stack.enter_context(self.another_stream(client))
            self.in_loop(cut_off_and_announce)
        client.ping()
        self.assertEqual(unannounced, [])
        self.assertEqual(client.lastTransaction(), self.tid)
        requests = self.server.stats['1'].loads
        self.assertEqual(self.load(client, 1), (b'new', self.tid, None))
        self.load(client, 2)  # it has stayed in the cache
        self.assertEqual(self.server.stats['1'].loads, requests + 1)
        client.close()
        until(lambda: not self.sessions(), 'gone')

    def at_once(self, function, *args):
        """In the loop, whether this is its thread or not."""
        if threading.current_thread() is self.thread:
            function(*args)
        else:
            self.in_loop(function, *args)


class Ends(ConnectedTestCase):

    level = 2
    records = {1: b'one'}

    def setUp(self):
        super().setUp()
        self.client = self.connect()

    def test_an_error_in_what_finishes(self):
        """The stream goes on; connections that were not told drop what they
        hold, before the last tid is seen."""
        stream = self.client._failover.stream
        transaction = vote(self.client, {1: b'new'}, self.tid)
        locked = []

        def fail(tid):
            raise ZeroDivisionError

        def drop():
            # The lock is that of a thread: another one asks.
            asking = Thread(self.client.lastTransaction)
            asking.join(0.1)
            locked.append(asking.is_alive())

        with mock.patch.object(self.client, 'invalidateCache', drop):
            with self.assertRaises(ZeroDivisionError):
                self.client.tpc_finish(transaction, fail)
        self.assertEqual(locked, [True])
        self.assertEqual(self.load(self.client, 1)[0], b'new')
        commit(self.client, {2: b'x'})
        self.assertIs(self.client._failover.stream, stream)

    def test_a_fork(self):
        """The child is refused; the stream of the parent goes on, with what
        the parent has begun."""
        begun, voted = begin(self.client), vote(self.client, {2: b'x'})
        for step in (lambda: begin(self.client),
                     lambda: store(self.client, begun, 3, LARGE),
                     lambda: self.client.tpc_vote(begun),
                     lambda: self.client.tpc_finish(voted),
                     self.client.ping):
            self.assertTrue(self.is_refused_in_a_child(step))
        for step in lambda: self.client.tpc_abort(voted), self.client.close:
            self.assertFalse(self.is_refused_in_a_child(step))
        self.client.ping()
        self.assertEqual(self.transactions(), 1)
        self.client.tpc_finish(voted)
        self.client.tpc_abort(begun)
        self.assertEqual(self.load(self.client, 2)[0], b'x')

    def is_refused_in_a_child(self, step):
        raised = in_a_child(name_of_error, step)
        self.assertIn(raised, ('', CUT.__name__))
        return raised

    def test_a_blob_of_a_fork(self):
        """A child that aborts what its parent commits leaves it the file."""
        self.client.close()
        self.client = self.connect(blob_dir=self.path('cache'))
        with open(self.path('blob'), 'wb') as file:
            file.write(b'a blob')
        transaction = begin(self.client)
        self.client.storeBlob(
            oid(3), z64, b'x', self.path('blob'), '', transaction)
        self.assertFalse(self.is_refused_in_a_child(
            lambda: self.client.tpc_abort(transaction)))
        (_, staged), = transaction.data(self.client).blobs
        self.assertTrue(os.path.exists(staged))
        self.client.tpc_vote(transaction)
        tid = self.client.tpc_finish(transaction)
        with open(self.client.loadBlob(oid(3), tid), 'rb') as file:
            self.assertEqual(file.read(), b'a blob')


class OverTLS(ConnectedTestCase):

    level = 2
    tls = True

    def setUp(self):
        super().setUp()
        self.client = self.connect()

    def test_much_in_both_directions(self):
        """A thread sends while another one receives."""
        number, oids = 5, [oid(number) for number in range(1 << 16)]
        transaction = begin(self.client)
        storing = Thread(self.store_much, transaction, number)
        for _ in range(10):
            self.in_loop(self.service.changed_elsewhere,
                         p64(u64(self.service.last_tid) + 1), oids)
        storing.result()
        self.client.ping()
        self.assertEqual(
            self.client.lastTransaction(), self.service.last_tid)
        self.client.tpc_abort(transaction)

    def store_much(self, transaction, number):
        for each in range(number):
            store(self.client, transaction, each, bytes(1 << 22))

    def test_an_interrupt_while_it_receives(self):
        """What came may be lost: the stream ends."""
        stream = self.client._failover.stream
        transaction = vote(self.client, {1: b'x'})
        recv = TLSConnection.recv

        def interrupted(connection, most, flags=0):
            data = recv(connection, most, flags)
            if not flags:
                raise KeyboardInterrupt
            return data

        with mock.patch.object(TLSConnection, 'recv', interrupted):
            with self.assertRaises(KeyboardInterrupt):
                self.client.tpc_finish(transaction)
        self.assertIsNotNone(stream.end_reason)
        self.client.tpc_abort(transaction)
        commit(self.client, {2: b'x'})
