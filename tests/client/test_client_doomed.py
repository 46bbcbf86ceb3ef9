"""A transaction that has seen what the server then lost is doomed.

It neither reads on in what the server has now, nor commits; the next one does.
"""

import contextlib
import unittest
from unittest import mock

import transaction
from persistent.mapping import PersistentMapping
from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.DB import DB
from ZODB.MappingStorage import MappingStorage
from ZODB.mvccadapter import MVCCAdapter
from ZODB.POSException import ConflictError
from ZODB.POSException import ReadConflictError
from ZODB.tests.hexstorage import HexStorage
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.client import failover
from fsyncstorage.client.doom import Doom
from fsyncstorage.client.failover import NoServer
from fsyncstorage.client.storage import FsyncClient

from ..support import Thread
from ..support import commit as commit_to
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import commit as commit_over

FAR = 99  # an object that no database of these tests uses


class Person(PersistentMapping):
    """An object of a test."""


class View:
    """A connection to a database, with transactions of its own."""

    def __init__(self, db):
        self.manager = transaction.TransactionManager()
        self.connection = db.open(self.manager)
        self.commit = self.manager.commit
        self.begin = self.manager.begin

    @property
    def root(self):
        return self.connection.root()

    def close(self):
        self.manager.abort()
        self.connection.close()


class DoomedTestCase(ConnectedTestCase):

    crashes = 0

    def setUp(self):
        super().setUp()
        self.client = self.connect(blob_dir=self.path('cache'))
        self.db = DB(self.wrapped(self.client))
        self.addCleanup(self.db.close)
        view = self.view()
        view.root['a'], view.root['b'] = Person(), Person()
        view.commit()

    def wrapped(self, client):
        return client

    def view(self):
        view = View(self.db)
        self.addCleanup(view.close)
        return view

    def keep(self):
        """What there is now survives the crash."""
        self.crashes += 1
        storage = self.open_kept()
        storage.copyTransactionsFrom(self.storage)
        storage.close()
        with open(self.path(f'kept-{self.crashes}.unsynced'), 'w'):
            pass

    def open_kept(self):
        name = f'kept-{self.crashes}'
        return self.open(name, blob_dir=self.path(f'{name}-blobs'))

    def commit(self, **values):
        """Return a view; its transaction begins behind this."""
        view = self.view()
        for name, value in values.items():
            view.root[name]['value'] = value
        view.commit()
        return view

    def lose(self, before_serving=lambda storage: None):
        """All that was not kept."""
        with self.another_stream(self.client):
            self.end_server()
            self.serve_kept(before_serving)

    def serve_kept(self, before_serving=lambda storage: None):
        self.storage = self.open_kept()
        before_serving(self.storage)
        self.serve()

    def end_server(self):
        """Return when the client knows."""
        super().end_server()
        until(lambda: not self.client.is_connected(), 'disconnected')


class Doomed(DoomedTestCase):

    def test_it_reads_no_more(self):
        self.keep()
        view = self.commit(a=1)
        self.assertEqual(view.root['a']['value'], 1)
        self.lose()
        with self.assertRaises(ReadConflictError):
            view.root['b'].get('value')

    def test_a_load_of_what_was_lost(self):
        self.keep()
        view = self.commit()
        view.root['a']['friend'] = Person()
        view.commit()
        view.connection.cacheMinimize()
        friend = view.root['a']['friend']
        self.client._cache.begin_anew(self.client.lastTransaction())
        self.end_server()
        load = Thread(lambda: friend.get('value'))
        self.serve_kept()
        with self.assertRaises(ReadConflictError):
            load.result()

    def check_no_commit(self, view):
        with self.assertRaises(ConflictError):
            view.commit()
        view.begin()

    def test_what_depends_on_what_was_lost(self):
        """It has read one object, and writes another."""
        self.keep()
        view = self.commit(a=1)
        view.root['b'].get('value')
        view.root['b']['value'] = 1 + view.root['a']['value']
        self.lose()
        self.check_no_commit(view)
        self.assertNotIn('value', view.root['b'])

    def test_a_reference_to_an_object_that_was_lost(self):
        """Somebody else would get its oid."""
        view = self.commit()
        self.keep()
        view.root['a']['friend'] = Person(name='lost')
        view.commit()
        friend = view.root['a']['friend']
        view.root['b']['friend'] = friend
        self.lose()
        other = self.connect()
        while (given := other.new_oid()) < friend._p_oid:
            pass
        self.assertEqual(given, friend._p_oid)
        self.check_no_commit(view)
        self.assertNotIn('friend', view.root['b'])

    def test_it_began_while_the_server_was_away(self):
        self.keep()
        view = self.commit(a=1)
        person = view.root['b']
        person.get('value')
        with self.another_stream(self.client):
            self.end_server()
            view.begin()
            person['value'] = 2
            self.serve_kept()
        self.check_no_commit(view)

    def test_a_blob_that_was_lost(self):
        self.keep()
        view = self.view()
        view.root['a']['file'] = Blob(b'lost')
        view.commit()
        blob = view.root['a']['file']
        self.lose()
        with self.assertRaises(ReadConflictError):
            blob.open('r')

    def test_the_next_one_goes_on(self):
        """In every connection, the idle ones as well."""
        idle = self.view()
        self.keep()
        view = self.commit(a=1)
        idle.begin()
        self.assertEqual(idle.root['a']['value'], 1)
        idle.close()
        self.lose()
        for each in view, self.view():
            each.begin()
            self.assertNotIn('value', each.root['a'])
            each.root['b']['value'] = each.root['b'].get('value', 0) + 1
            each.commit()
        view.begin()
        self.assertEqual(view.root['b']['value'], 2)


class WhatCameMeanwhile(DoomedTestCase):
    """Others had committed to the new state before this client came back."""

    level = 2

    def lose_and_go_on(self, tid=None):
        def commit(storage):
            transaction = TransactionMetaData()
            storage.tpc_begin(transaction, tid)
            storage.store(oid(FAR), z64, b'data', '', transaction)
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)

        self.lose(commit)

    def check(self, tid_of):
        self.keep()
        kept = self.client.lastTransaction()
        view = self.commit(a=1)
        view.root['b'].get('value')
        view.root['b']['value'] = 1
        lost = self.client.lastTransaction()
        self.lose_and_go_on(tid_of(kept, lost))
        with self.assertRaises(ConflictError):
            view.commit()
        view.begin()
        self.assertNotIn('value', view.root['a'])
        view.root['b']['value'] = 2
        view.commit()
        self.assertEqual(view.root['b']['value'], 2)

    def test_later_than_all_that_was_lost(self):
        self.check(lambda kept, lost: None)

    def test_with_a_clock_that_went_back(self):
        self.check(lambda kept, lost: p64(u64(kept) + 1))

    def test_a_connection_that_ends_before_it_is_used(self):
        """The next one finds that all is as the client knows it."""
        self.keep()
        view = self.commit(a=1)
        view.root['b'].get('value')
        view.root['b']['value'] = 1
        meet, ended = FsyncClient.meet, []

        def meet_and_end_once(client, opened):
            stream = meet(client, opened)
            if not ended:
                stream.end('of a test')
                ended.append(stream)
            return stream

        with mock.patch.object(FsyncClient, 'meet', meet_and_end_once):
            self.lose()
        self.assertTrue(ended[0].is_over)
        with self.assertRaises(ConflictError):
            view.commit()


class BeforeTheFirstConnection(DoomedTestCase):
    """A client that was started without a server, with a cache on disk."""

    def test_what_it_has_read(self):
        cache = {'client': 'test', 'var': self.path('')}
        self.keep()
        before = DB(self.connect(**cache))
        with before.transaction() as connection:
            connection.root()['a']['value'] = 1
            connection.root()['b'].get('value')
        before.close()
        self.end_server()
        client = FsyncClient(self.address, wait=False, **cache)
        with contextlib.closing(DB(client)) as db:
            view = View(db)
            self.addCleanup(view.close)
            value = view.root['a']['value']
            view.root['b']['value'] = value
            self.serve_kept(lambda storage: commit_to(storage, {FAR: b'data'}))
            until(client.is_connected, 'connected')
            with self.assertRaises(ConflictError):
                view.commit()
            view.begin()
            self.assertNotIn('value', view.root['a'])


class Wrapped(DoomedTestCase):
    """Behind another storage, as with zc.zlibstorage."""

    check_no_commit = Doomed.check_no_commit
    test_it_reads_no_more = Doomed.test_it_reads_no_more
    test_what_depends_on_what_was_lost = (
        Doomed.test_what_depends_on_what_was_lost)

    def wrapped(self, client):
        return HexStorage(client)


class NotDoomed(DoomedTestCase):

    def check_it_goes_on(self, view):
        view.root['b'].get('value')
        view.root['b']['value'] = 1
        view.commit()

    def test_nothing_was_lost(self):
        view = self.commit(a=1)
        with self.another_stream(self.client):
            self.end_server()
            self.storage = self.open(blob_dir=self.path('blobs'))
            self.serve()
        self.check_it_goes_on(view)

    def test_away_from_a_server_for_long(self):
        """It does not remember what came since; it has lost nothing."""
        view = self.commit(a=1)
        self.patch(self.service, invalidations_since=lambda tid: None,
                   look_up_invalidations=lambda *args: None)
        # Not to the storage: its server would not hear of it.
        other = self.connect()
        with self.another_stream(self.client):
            with mock.patch.object(
                    failover, 'opened', side_effect=NoServer('away')):
                self.client._failover.stream.end('of a test')
                until(lambda: not self.client.is_connected(), 'disconnected')
                commit_over(other, {FAR: b'data'})
        self.check_it_goes_on(view)

    def test_a_historical_connection_beside_an_idle_one(self):
        """That one began where this one looks; it may lie idle for long."""
        self.commit(a=1)
        at = self.client.lastTransaction()
        self.commit(b=1)
        self.keep()
        self.commit(b=2)
        self.lose()
        with contextlib.closing(self.db.open(
                transaction.TransactionManager(), at=at)) as connection:
            root = connection.root()
            self.assertEqual(root['a']['value'], 1)
            self.assertNotIn('value', root['b'])


class Races(unittest.TestCase):
    """What a thread was about to do when its transaction was doomed."""

    def setUp(self):
        self.adapter = MVCCAdapter(MappingStorage())
        self.instance = self.adapter.new_instance()
        self.doom = Doom()
        self.instance.poll_invalidations()

    def fall(self):
        self.doom.fall(self.adapter, z64)

    def test_it_has_begun_to_commit(self):
        transaction = TransactionMetaData()
        self.instance.tpc_begin(transaction)
        self.fall()
        with self.assertRaises(ConflictError):
            self.instance.tpc_vote(transaction)
        self.instance.tpc_abort(transaction)

    def test_a_transaction_is_about_to_begin(self):
        """It has asked what it has to, and has not been told."""
        last_transaction = self.adapter._storage.lastTransaction

        def meanwhile():
            last = last_transaction()
            self.fall()
            return last

        with mock.patch.object(
                self.adapter._storage, 'lastTransaction', meanwhile):
            self.instance.poll_invalidations()
        with self.assertRaises(ReadConflictError):
            self.instance.load(oid(1))
        self.instance.poll_invalidations()
        self.instance.tpc_begin(TransactionMetaData())

    def test_the_next_one_begins_where_the_server_is(self):
        """Not where it has heard of a commit that was lost.

        Else it would see what is committed after its begin, up to there.
        """
        self.adapter.invalidate(p64(9), ())
        self.fall()
        self.instance.poll_invalidations()
        self.assertEqual(self.instance._start, p64(1))
