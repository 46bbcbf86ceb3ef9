"""Commits of our client on the channel, to a server of ours.  Goes with
`client/link.py`, `client/stream.py` and the server's tickets.
"""

import contextlib
import os
import threading
import unittest
import weakref
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

from fsyncstorage.client import committing
from fsyncstorage.client import link
from fsyncstorage.client import outgoing
from fsyncstorage.client.readchannel import Lost
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.client.stream import Stream
from fsyncstorage.client.tlsconnection import TLSConnection
from fsyncstorage.errors import NotFinishedInTime
from fsyncstorage.server import service
from fsyncstorage.server.session import Session
from fsyncstorage.wire import commits
from fsyncstorage.wire import commitserver
from fsyncstorage.wire import sessions

from ..often import often
from ..support import PATIENCE
from ..support import Thread
from ..support import in_a_child
from ..support import name_of_error
from ..support import oid
from ..support import until
from . import test_client_link
from .connected import ConnectedTestCase
from .connected import begin
from .connected import commit
from .connected import store
from .connected import vote

CUT = ClientDisconnected


class Transactions(test_client_link.Transactions):

    level = 2
    commit_channel = True

    def setUp(self):
        super().setUp()
        self.assertIsNotNone(self.client._server.stream)

    def channel(self):
        """The server's end of the only commit channel."""
        session, = self.in_loop(lambda: list(
            self.server.services['1'].sessions))
        return session.announced_on

    def test_stores_share_a_frame(self):
        """In their order, with what comes between them; not the large ones."""
        begun = vote(self.client, {7: b'seven', 8: b'eight'})
        serial = self.client.tpc_finish(begun)
        large = b'x' * committing.MOST_IN_A_FRAME
        transaction = begin(self.client)
        for number in 1, 2:
            store(self.client, transaction, number, b'early')
        self.client.deleteObject(oid(7), serial, transaction)
        for number, data in (1, b'x'), (3, large), (4, b'four'), (2, b'y'):
            store(self.client, transaction, number, data)
        with mock.patch.object(
                commitserver, 'request', wraps=commitserver.request) as taken:
            self.client.tpc_vote(transaction)
        self.assertEqual(
            b''.join(call.args[0][:1] for call in taken.call_args_list),
            b'NMCSSMV')
        self.client.tpc_finish(transaction)
        for number, data in (1, b'x'), (2, b'y'), (3, large), (4, b'four'):
            self.assertEqual(self.storage.load(oid(number))[0], data)
        with self.assertRaises(POSKeyError):
            self.storage.load(oid(7))

    def test_a_large_one_leaves_before(self):
        """And no more is taken before it has left."""
        transaction = begin(self.client)
        record = b'x' * outgoing.GATHERED
        store(self.client, transaction, 1, record)
        until(lambda: self.transactions() == 1, 'begun')
        channel = self.channel()
        self.in_loop(channel.transport.pause_reading)
        storing = Thread(self.store_many, transaction, record)
        until(self.client._server.stream._sending.locked, 'full')
        storing.join(0.2)
        self.assertTrue(storing.is_alive())
        self.assertLess(self.stored, 15)
        self.in_loop(channel.transport.resume_reading)
        storing.result()
        self.client.tpc_vote(transaction)
        self.client.tpc_finish(transaction)
        self.assertEqual(len(self.storage), 17)

    def store_many(self, transaction, record):
        for self.stored in range(16):
            store(self.client, transaction, self.stored + 2, record)

    def test_a_part_of_it_was_lost(self):
        """It cannot be voted any more: the server has the rest of it."""
        large = b'x' * outgoing.GATHERED
        transaction = begin(self.client)
        store(self.client, transaction, 1, large)
        with mock.patch.object(Stream, 'send', side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                store(self.client, transaction, 2, large)
        for step in (
                lambda: store(self.client, transaction, 3, large),
                lambda: self.client.tpc_vote(transaction)):
            with self.assertRaises(StorageTransactionError):
                step()
        self.client.tpc_abort(transaction)
        self.check_all_is_well()


class SideBySide(ConnectedTestCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.client = self.connect()

    def test_a_finish_beside_an_iterator_that_begins(self):
        """ZEO looks at its iterators in each finish."""
        going_through, go_on = threading.Event(), threading.Event()

        class Slow(weakref.WeakValueDictionary):

            def __iter__(self):
                for each in super().__iter__():
                    going_through.set()
                    go_on.wait(PATIENCE)
                    yield each

        client = self.connect()
        first = client.iterator()
        client._iterators = Slow(client._iterators)
        under_way = Thread(commit, client, {1: b'x'})
        self.assertTrue(going_through.wait(PATIENCE))
        second = Thread(client.iterator)
        second.join(0.1)
        go_on.set()
        under_way.result()
        self.assertIsNot(second.result(), first)

    def test_one_that_is_not_finished_in_time(self):
        """The other ones go on, over the same connection."""
        late, other = (
            vote(self.client, {number: b'x'}) for number in (1, 2))
        generation = self.client._connection_generation
        with self.assertLogs('ZEO.StorageServer', 'CRITICAL'):
            self.in_loop(self.time_out, 1)
        with self.assertRaisesRegex(NotFinishedInTime, 'transaction-timeout'):
            self.client.tpc_finish(late)
        self.client.tpc_abort(late)
        tid = self.client.tpc_finish(other)
        self.assertEqual(self.load(self.client, 2)[:2], (b'x', tid))
        with self.assertRaises(POSKeyError):
            self.load(self.client, 1)
        commit(self.client, {1: b'again'})
        self.assertEqual(self.client._connection_generation, generation)

    def time_out(self, number):
        """The transaction of this number."""
        session, = self.server.services['1'].sessions
        transaction = session.announced_on.session._transactions[number]
        transaction.timed_out(transaction.ballot)


class Announcing(ConnectedTestCase):

    #: How often another client seems to commit.
    announced = 1

    def cut_off_and_announce(self):
        session, = self.server.services['1'].sessions
        session.announced_on.abort()
        session.connection.abort()
        self.announce()

    def announce(self):
        """As if another client had committed; called in the loop."""
        service = self.server.services['1']
        for _ in range(self.announced):
            service.changed_elsewhere(
                p64(u64(service.last_tid) + 1), [oid(1)])


class TheSwitch(Announcing):

    level = 2
    announced = 2

    records = {1: b'one', 2: b'two'}

    def invalidations(self, client):
        """Where the client hears of a transaction of another one."""
        heard = []

        def hear(self, tid, oids):
            heard.append(threading.current_thread().name)

        with mock.patch.object(type(client), 'invalidateTransaction', hear):
            tid = commit(self.connect(), {2: b'new'}, self.tid)
            until(lambda: client.lastTransaction() == tid, 'told')
        return heard

    def test_invalidations_move(self):
        name, = self.invalidations(self.connect())
        self.assertIn('commit channel', name)

    def hear_of_two(self, client):
        """What the database of this client hears of two transactions that
        come together."""
        heard = []
        service = self.server.services['1']
        tids = [p64(u64(service.last_tid) + number) for number in (1, 2)]

        def announce():
            with mock.patch.object(service, 'announce'):
                for tid in tids:
                    service.changed_elsewhere(tid, [oid(1)])
            service.announce()

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

    def test_what_is_announced_meanwhile(self):
        """Between the registration, the switch and the verification, in each
        place: nothing is missed, and nothing is processed twice."""
        for place in 'get_info', 'getInvalidations':
            for when in 'before', 'behind':
                with self.subTest(place, when=when):
                    self.check_announced_meanwhile(place, when)

    def check_announced_meanwhile(self, place, when):
        client = self.connect()
        # There is a cache to be verified, and something stays in it.
        self.load(client, 1)
        self.load(client, 2)
        original, calls = getattr(Session, place), []

        def call(session, *args):
            calls.append(place)
            if when == 'before':
                self.announce()
            try:
                return original(session, *args)
            finally:
                if when == 'behind':
                    self.announce()

        with mock.patch.object(Session, place, call):
            generation = client._connection_generation
            self.in_loop(self.cut_off_and_announce)
            until(lambda: client._connection_generation >= generation + 2
                  and client.is_connected(), 'connected again')
        self.assertTrue(calls)
        client.ping()
        self.assertEqual(client.lastTransaction(),
                         self.server.services['1'].last_tid)
        self.assertIsNone(client._cache.load(oid(1)))
        self.assertIs(client._server.stream.end_reason, None)
        client.close()
        until(lambda: not self.sessions(), 'gone')

    def test_a_server_that_gives_no_ticket(self):
        """Or something else in its place."""
        def get_info(session, original=Session.get_info):
            info = original(session)
            info['fsyncstorage']['ticket'] = ticket
            return info

        for number, ticket in (3, None), (4, b'short'):
            with self.subTest(ticket), mock.patch.object(
                    Session, 'get_info', get_info):
                client = self.connect()
                self.assertIsNone(client._server.stream)
                tid = commit(client, {number: b'new'})
                self.assertEqual(
                    self.load(client, number)[:2], (b'new', tid))

    def test_a_server_of_another_version(self):
        """Each side says so, in one line."""
        def hello(*session):
            return sessions.hello(*session).replace(
                sessions.MAGIC + bytes([sessions.VERSION]),
                sessions.MAGIC + bytes([sessions.VERSION + 1]))

        self.patch(commits, hello=hello)
        with self.assertLogs('fsyncstorage', 'WARNING') as logged:
            client = self.connect()
            commit(client, {3: b'new'})
        self.assertEqual(
            sorted(record.name for record in logged.records),
            ['fsyncstorage.client.link', 'fsyncstorage.server.connection'])
        for line in logged.output:
            self.assertIn(f'speaks version {sessions.VERSION}', line)
        self.assertIsNone(client._server.stream)

    def test_a_marker_behind_a_channel_that_was_given_up(self):
        """Nothing more is told on this connection: another one is opened."""
        opening = link.opening
        self.patch(link, opening=self.refused)
        with self.assertLogs('fsyncstorage.client', 'WARNING'):
            client = self.connect()
        generation = client._connection_generation
        self.patch(link, opening=opening)
        client._server.loop.call_soon_threadsafe(client._server.moved)
        until(lambda: client._connection_generation > generation
              and client._server.stream is not None, 'connected again')
        name, = self.invalidations(client)
        self.assertIn('commit channel', name)

    def test_a_marker_before_a_channel_is_given_up(self):
        """The server has opened it, and its welcome has not come."""
        client = self.connect()
        client._server.client.register_failed_poll = 0
        opening = link.opening

        def too_late(loop, *args):
            link.opening = opening
            client._server.moved()
            return self.refused(loop)

        self.patch(link, opening=too_late)
        with self.assertLogs(level='ERROR'):
            self.cut_off(client)
        self.assertIs(link.opening, opening)
        name, = self.invalidations(client)
        self.assertIn('commit channel', name)

    def refused(self, loop, *args):
        future = loop.create_future()
        future.set_exception(Lost('refused'))
        return future

    def test_a_client_that_may_not_write(self):
        client = self.connect(read_only=True)
        self.assertIsNone(client._server.stream)
        self.assertEqual(len(self.server.tickets), 0)
        self.invalidations(client)

    def test_tickets_are_not_kept(self):
        client = self.connect()
        self.assertEqual(self.server.tickets, {})
        with mock.patch.object(link, 'is_possible', False):
            other = self.connect()
        self.assertEqual(len(self.server.tickets), 1)
        other.close()
        client.close()
        until(lambda: not self.server.tickets, 'forgotten')


class Ends(Announcing):

    level = 2
    records = {1: b'one'}

    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.generation = self.client._connection_generation

    def session(self):
        session, = self.in_loop(lambda: list(
            self.server.services['1'].sessions))
        return session

    def is_connected_again(self):
        return (self.client._connection_generation >= self.generation + 2
                and self.client.is_connected())

    def check_connected_again(self):
        until(self.is_connected_again, 'connected again')
        self.assertIsNotNone(self.client._server.stream)
        until(lambda: len(self.in_loop(
            lambda: self.server.services['1'].sessions)) == 1, 'one is left')
        commit(self.client, {100 + self.generation: b'x'})
        self.assertEqual(self.transactions(), 0)

    def test_of_the_verification(self):
        """What was opened for it ends with it, and another one is tried."""
        for name, calls in ('getInvalidations', 1), ('get_info', 2):
            with self.subTest(name):
                self.check_verification_that_fails(name, calls)

    def check_verification_that_fails(self, name, calls):
        self.load(self.client, 1)  # there is a cache to verify
        self.client._server.client.register_failed_poll = 0
        original, left, opened = getattr(Session, name), [calls], []

        def fail(session, *args):
            left[0] -= 1
            if left[0]:
                return original(session, *args)
            opened.append(self.client._server._stream)
            raise ZeroDivisionError

        with self.assertLogs(level='ERROR'):
            with mock.patch.object(Session, name, fail):
                self.generation = self.client._connection_generation
                self.in_loop(self.cut_off_and_announce)
                until(lambda: opened, 'failed')
                until(lambda: opened[0].end_reason is not None, 'ended')
        self.assertEqual(opened[0].end_reason, 'the connection has ended')
        self.check_connected_again()
        self.assertIsNot(self.client._server.stream, opened[0])

    def test_an_error_in_what_finishes(self):
        """The channel goes on; connections that were not told drop what they
        hold, before the last tid is seen."""
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
        self.assertEqual(self.client._connection_generation, self.generation)

    def test_an_interrupt_among_announcements(self):
        """Of several transactions, as they are completed together: nobody
        goes on with an old state."""
        # What a thread that was interrupted says of it is no concern here.
        self.patch(threading, excepthook=lambda *args: None)
        cache, database = self.client._cache, ZODB.DB(self.client)
        connection = database._mvcc_storage.new_instance()
        other, tid = self.connect(), self.tid
        for number, (of, name, is_done) in enumerate((
                (cache, 'invalidate_each', False),
                (cache, 'invalidate_each', True),
                (database._mvcc_storage, 'invalidate', True),
                (cache, 'setLastTid', True))):
            with self.subTest(name, is_done=is_done):
                self.generation = self.client._connection_generation
                connection.poll_invalidations()
                connection.load(oid(1))
                self.in_loop(self.be_quiet)
                for each in b'new', b'newer %d' % number:
                    tid = commit(other, {1: each}, tid)
                with self.interrupted(of, name, is_done):
                    # Another thread may have read its answer.
                    with self.assertRaises((KeyboardInterrupt, CUT)):
                        self.client.ping()
                    until(self.is_connected_again, 'connected again')
                changed = connection.poll_invalidations()
                self.assertTrue(changed is None or oid(1) in changed)
                self.assertEqual(connection.load(oid(1)), (each, tid))

    def be_quiet(self):
        """From now on, it is told with an answer of its own."""
        served = self.server.services['1']
        if served._quiet is not None:
            served._quiet.cancel()
        with mock.patch.object(service, 'QUIET', 2 * PATIENCE):
            served._flush(at_once=True)

    @contextlib.contextmanager
    def interrupted(self, of, name, is_done):
        """When this is called for the first time, before or behind it."""
        method, called = getattr(of, name), []

        def interrupt(*args):
            first = not called
            called.append(args)
            if is_done or not first:
                method(*args)
            if first:
                raise KeyboardInterrupt

        with mock.patch.object(of, name, interrupt):
            yield

    def test_a_fork(self):
        """The child is refused; the channel of the parent goes on, with what
        the parent has begun."""
        begun, voted = begin(self.client), vote(self.client, {2: b'x'})
        large = b'x' * outgoing.GATHERED
        for step in (lambda: begin(self.client),
                     lambda: store(self.client, begun, 3, large),
                     lambda: self.client.tpc_vote(begun),
                     lambda: self.client.tpc_finish(voted),
                     self.client.ping):
            self.assertTrue(self.is_refused_in_a_child(step))
        self.assertFalse(self.is_refused_in_a_child(
            lambda: self.client.tpc_abort(voted)))
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


class Gathered(unittest.TestCase):

    def test_a_large_one_leaves_in_parts(self):
        """It is not all in memory before its vote."""
        record = b'x' * (outgoing.GATHERED // 2)
        stream = mock.Mock()
        stream.begin.return_value = stream.stores.return_value = b'frame'
        transaction = committing.Committing(
            stream, 1, b'', b'', None, None, ' ')
        for number in range(5):
            transaction.add('storea', (oid(number), z64, record, 1))
        self.assertEqual(stream.send.call_count, 2)


class Hellos(ConnectedTestCase):
    """By hand, to a server of ours."""

    def setUp(self):
        super().setUp()
        self.patch(link, is_possible=False)
        # It would connect again, as it has not asked for a channel.
        self.patch(link.Link, moved=lambda self: None)
        self.client = self.connect()
        self.ticket, = self.server.tickets

    def say(self, instance=None, ticket=None, version=sessions.VERSION):
        """The client of a channel, and the server's answer."""
        peer = self.peer(hello=False)
        client = commits.Client(
            instance or self.server.instance, ticket or self.ticket)
        peer.send(client.hello.replace(
            sessions.MAGIC + bytes([sessions.VERSION]),
            sessions.MAGIC + bytes([version])))
        while (event := client.next()) is None:
            if not client.fill(peer.socket.recv, 1000):
                self.fail('no answer')
        return peer, event

    def check_refused(self, reason, **hello):
        _, event = self.say(**hello)
        self.assertEqual(event.reason, reason)
        commit(self.client, {reason: b'x'})

    def test_those_that_are_refused(self):
        """A ticket that nobody has, another version, another instance."""
        self.check_refused(5, ticket=bytes(16))
        self.assertIn(self.ticket, self.server.tickets)
        self.check_refused(1, version=7)
        self.check_refused(2, instance=bytes(16))

    def test_a_ticket_twice(self):
        """The first one goes on."""
        peer, event = self.say()
        self.assertEqual(event, commits.Welcome())
        _, event = self.say()
        self.assertEqual(event.reason, 5)
        until(lambda: self.client.is_connected(), 'goes on')
        peer.close()
        until(lambda: not self.in_loop(
            lambda: [each for each in self.server.services['1'].sessions
                     if each.ticket == self.ticket]), 'ended with its channel')

    def test_a_transaction_is_under_way(self):
        transaction = vote(self.client, {1: b'x'})
        _, event = self.say()
        self.assertEqual(event.reason, 5)
        self.client.tpc_finish(transaction)

    def test_no_transaction_on_the_other_connection(self):
        """It would be told out of order."""
        peer, _ = self.say()
        generation = self.client._connection_generation
        transaction = begin(self.client)
        store(self.client, transaction, 1, b'x')
        with self.assertLogs('fsyncstorage.server', 'ERROR'):
            with self.assertRaises(CUT):
                self.client.tpc_vote(transaction)
        until(lambda: self.client._connection_generation > generation, 'cut')
        peer.close()


class OverTLS(ConnectedTestCase):

    level = 2
    tls = True

    def setUp(self):
        super().setUp()
        self.client = self.connect()

    def test_many_threads(self):
        each_does = often(10, 30)
        before = len(list(self.storage.iterator()))

        def commit_own(number):
            serial = z64
            for count in range(each_does):
                serial = commit(
                    self.client, {number: b'%d' % count}, serial)
                # It is there for this client, and in its cache.
                self.assertEqual(self.load(self.client, number)[1], serial)

        threads = [Thread(commit_own, number) for number in range(1, 9)]
        for each in threads:
            each.result()
        self.assertEqual(
            len(list(self.storage.iterator())) - before, 8 * each_does)

    def test_much_in_both_directions(self):
        """A thread sends while another one receives."""
        number, oids = 5, [oid(number) for number in range(1 << 16)]
        transaction = begin(self.client)
        storing = Thread(self.store_much, transaction, number)
        service = self.server.services['1']
        for _ in range(10):
            self.in_loop(
                service.changed_elsewhere, p64(u64(service.last_tid) + 1),
                oids)
        storing.result()
        self.client.ping()
        self.assertEqual(self.client.lastTransaction(), service.last_tid)
        self.client.tpc_abort(transaction)

    def store_much(self, transaction, number):
        for each in range(number):
            store(self.client, transaction, each, bytes(1 << 22))


class InterruptsOverTLS(ConnectedTestCase):

    tls = True

    def test_while_it_receives(self):
        """What came may be lost: the channel ends."""
        client = self.connect()
        stream = client._server.stream
        transaction = vote(client, {1: b'x'})
        recv = TLSConnection.recv

        def interrupted(connection, most, flags=0):
            data = recv(connection, most, flags)
            if not flags:
                raise KeyboardInterrupt
            return data

        with mock.patch.object(TLSConnection, 'recv', interrupted):
            with self.assertRaises(KeyboardInterrupt):
                client.tpc_finish(transaction)
        self.assertIsNotNone(stream.end_reason)
        client.tpc_abort(transaction)
        commit(client, {2: b'x'})
