"""When a connection commits in one trip, and what its transaction sees.  Goes
with `client/connection.py`.
"""

import contextlib
from unittest import mock

import transaction
import ZODB
import ZODB.Connection
from persistent.mapping import PersistentMapping
from transaction.interfaces import TransactionFailedError
from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected
from ZODB.DB import TransactionalUndo
from ZODB.DemoStorage import DemoStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import ConflictError
from ZODB.tests.hexstorage import HexStorage

from fsyncstorage.client.connection import Connection
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.client.stream import Stream
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.wire import frames

from ..resource import BEHIND
from ..resource import Resource
from .connected import ConnectedTestCase


class Hex(HexStorage):
    """Without an argument that ZODB has given up."""

    def invalidate(self, tid, oids):
        self.db.invalidate(tid, oids)


class DatabaseTestCase(ConnectedTestCase):

    def setUp(self):
        super().setUp()
        self.patch(ZODB.DB, klass=ZODB.Connection.Connection)
        self.client = self.connect()
        self.db = self.database(self.client)
        self.manager = transaction.TransactionManager()
        self.connection = self.db.open(self.manager)
        self.root = self.connection.root()
        #: The requests of the client that finish something.
        self.asked = []
        ask = Stream.ask

        def note(stream, message, *args, **options):
            if message.__class__ in (frames.Trip, frames.Finish):
                self.asked.append(message.__class__.__name__.lower())
            return ask(stream, message, *args, **options)

        self.patch(Stream, ask=note)

    def database(self, storage, **options):
        db = ZODB.DB(storage, **options)
        self.addCleanup(db.close)
        return db

    def change(self, value):
        self.manager.begin()
        self.root['value'] = value

    def check_asked(self, *names):
        self.assertEqual(self.asked, list(names))
        self.asked.clear()

    def seen_by_others(self, look=lambda root: root['value']):
        with self.db.transaction() as other:
            return look(other.root())


class Trips(DatabaseTestCase):

    def test_alone(self):
        self.change(1)
        self.manager.commit()
        self.check_asked('trip')
        self.assertEqual(self.seen_by_others(), 1)
        self.change(2)
        self.manager.commit()
        self.assertEqual(self.root._p_serial, self.client.lastTransaction())

    def test_two_resources_of_the_same_key(self):
        key = self.connection.sortKey()
        self.change(1)
        self.manager.get().join(Resource(key))
        self.manager.commit()
        self.check_asked('finish')
        self.manager.begin()
        self.manager.get().join(Resource(key))
        self.root['value'] = 2
        self.manager.commit()
        self.check_asked('finish')

    def test_a_connection_whose_methods_are_called_by_hand(self):
        """It has not joined: nobody knows who else votes."""
        txn = self.manager.begin()
        self.root['value'] = 1
        txn._resources.remove(self.connection)
        for step in 'tpc_begin', 'commit', 'tpc_vote', 'tpc_finish':
            getattr(self.connection, step)(txn)
        self.check_asked('finish')

    def test_a_savepoint(self):
        self.change(1)
        self.manager.savepoint()
        self.root['value'] = 2
        rollback = self.manager.savepoint()
        self.root['value'] = 3
        rollback.rollback()
        self.manager.commit()
        self.check_asked('trip')
        self.assertEqual(self.seen_by_others(), 2)

    def test_a_transaction_that_began_on_the_connection_before(self):
        """It fails, as it does in two trips."""
        self.change(1)
        with mock.patch.object(
                self.client, 'tpc_begin', self.begin_and_cut_off(
                    self.client.tpc_begin)):
            with self.assertRaises(ClientDisconnected):
                self.manager.commit()
        self.manager.abort()
        self.change(2)
        self.manager.commit()
        self.assertEqual(self.seen_by_others(), 2)

    def begin_and_cut_off(self, begin):
        def begin_it(*args):
            begin(*args)
            self.cut_off(self.client)
        return begin_it


class TheClass(DatabaseTestCase):

    def test_another_one_was_chosen(self):
        class Chosen(ZODB.Connection.Connection):
            pass

        self.patch(ZODB.DB, klass=Chosen)
        with self.database(self.connect()).transaction() as opened:
            self.assertIs(type(opened), Chosen)
            opened.root()['value'] = 1
        self.check_asked('finish')

    def test_one_that_is_derived_from_it(self):
        class Derived(Connection):
            pass

        self.patch(ZODB.DB, klass=Derived)
        with self.database(self.connect()).transaction() as opened:
            opened.root()['value'] = 1
        self.check_asked('trip')

    def check_two_trips(self, storage):
        db = self.database(storage)
        self.asked.clear()
        with db.transaction() as opened:
            self.assertIs(type(opened), Connection)
            opened.root()['value'] = 1
        self.assertNotIn('trip', self.asked)

    def test_a_wrapper_around_it(self):
        self.storage = self.open('Hex.fs')
        self.serve()
        self.check_two_trips(Hex(self.connect()))
        self.check_asked('finish')

    def test_a_client_with_a_finish_or_a_vote_of_its_own(self):
        """The finish would be called before the commit, and the vote may
        refuse what is committed."""
        for name in 'tpc_finish', 'tpc_vote':
            method = getattr(FsyncClient, name)
            derived = type('Derived', (FsyncClient,), {
                name: lambda *args, method=method: method(*args)})
            with self.subTest(name):
                self.check_two_trips(self.connect(make=derived))
                self.check_asked('finish')

    def test_a_demo_storage_over_it(self):
        self.check_two_trips(DemoStorage(base=self.client))
        self.check_asked()

    def test_a_historical_connection(self):
        opened = self.db.open(
            transaction.TransactionManager(),
            before=self.client.lastTransaction())
        self.assertIsNone(opened._client())


class TooLate(DatabaseTestCase):
    """An abort of what is committed."""

    def check_committed(self, value):
        """For everybody, and the connection goes on."""
        self.assertEqual(self.seen_by_others(), value)
        self.manager.abort()
        self.manager.begin()
        self.assertEqual(self.root['value'], value)
        self.root['value'] = 'next'
        self.manager.commit()
        self.assertEqual(self.seen_by_others(), 'next')
        self.assertEqual(self.transactions(), 0)

    @contextlib.contextmanager
    def said_loudly(self):
        with self.assertLogs('fsyncstorage.client', 'CRITICAL') as logged:
            with self.assertLogs('txn', 'ERROR') as of_transaction:
                yield
        self.assertIn('already committed', logged.output[0])
        self.assertIn('Error in', of_transaction.output[-1])

    def fail_to_finish(self, error, *others, databases=(), lose=None):
        """The connection is lost, and it is not committed."""
        self.change(1)
        for each in others:
            self.manager.get().join(each)
        for name in databases:
            opened = self.database(MappingStorage(name)).open(self.manager)
            opened.root()['value'] = 1
        with mock.patch.object(
                self.connection._storage, 'tpc_finish',
                side_effect=lose or ClientDisconnected), \
                self.assertLogs('txn', 'ERROR'), \
                self.assertRaises(error) as caught:
            self.manager.commit()
        self.manager.abort()
        self.assertEqual(
            isinstance(caught.exception, TransientError),
            error is ClientDisconnected)

    def test_others_that_may_have_committed(self):
        """Before ours, or in their vote: nothing tries it again by itself."""
        self.fail_to_finish(OutcomeUnknown, Resource(''))
        self.fail_to_finish(OutcomeUnknown, Resource(BEHIND))
        self.fail_to_finish(OutcomeUnknown, databases=['!'])

    def test_others_that_have_not_committed(self):
        """They are aborted, and it can be tried again."""
        self.fail_to_finish(ClientDisconnected, databases=['~'])
        self.fail_to_finish(OutcomeUnknown, databases=['~', '!'])

    def test_the_order_is_that_of_the_votes(self):
        """Keys are not asked for again: that of a client has the address of
        its server, and raises when there is none."""
        keys = mock.Mock()
        for error, name in (ClientDisconnected, '~'), (OutcomeUnknown, '!'):
            def lose(*args):
                self.patch(ZODB.Connection.Connection, sortKey=keys)
                raise ClientDisconnected

            with self.subTest(name), mock.patch.object(
                    ZODB.Connection.Connection, 'sortKey',
                    ZODB.Connection.Connection.sortKey):
                self.fail_to_finish(error, databases=[name], lose=lose)
        keys.assert_not_called()

    def test_an_undo_that_has_not_committed(self):
        for error, name in (ClientDisconnected, '~'), (OutcomeUnknown, '!'):
            with self.subTest(name):
                self.fail_to_finish(error, TransactionalUndo(
                    self.database(MappingStorage(name)), []))

    def test_a_vote_that_has_not_committed(self):
        """ZEO resolves conflicts of its client a few times, and gives up."""
        self.change(1)
        with mock.patch.object(
                self.connection._storage, 'tpc_vote', return_value=None):
            with self.assertRaisesRegex(ConflictError, 'again and again'):
                self.manager.commit()
        self.manager.abort()
        self.assertNotIn('value', self.root)
        self.change(2)
        self.manager.commit()
        self.check_committed(2)

    def test_an_interrupt_between_vote_and_finish(self):
        vote = ZODB.Connection.Connection.tpc_vote

        def interrupted(*args):
            vote(*args)
            raise KeyboardInterrupt

        self.change(1)
        new = self.root['new'] = PersistentMapping(value=1)
        with mock.patch.object(
                ZODB.Connection.Connection, 'tpc_vote', interrupted):
            with self.said_loudly(), self.assertRaises(KeyboardInterrupt):
                self.manager.commit()
        self.assertIs(new._p_jar, self.connection)
        with self.assertRaises(TransactionFailedError):
            self.manager.commit()
        self.check_committed(1)
