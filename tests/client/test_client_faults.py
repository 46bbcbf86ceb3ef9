"""What the client makes of interrupts, full disks, forks, and odd callers."""

import contextlib
import errno
import gc
import itertools
import os
import threading
import unittest
import warnings
from unittest import mock

from ZEO.Exceptions import ClientDisconnected
from ZODB.Connection import TransactionMetaData
from ZODB.utils import maxtid
from ZODB.utils import p64

from fsyncstorage.client import cache as module
from fsyncstorage.client import channels
from fsyncstorage.client import plainprefetch
from fsyncstorage.client import reader
from fsyncstorage.client.cache import Cache
from fsyncstorage.client.written import Written
from fsyncstorage.server.session import Session

from ..commit.test_interrupts import Interrupter
from ..commit.test_interrupts import WithinConditions
from ..support import TestCase
from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import begin
from .connected import commit
from .connected import store


class Interrupts(ConnectedTestCase):
    """Over the ZEO connection; test_client_commits has them on the channel."""

    records = {1: b'old'}
    commit_channel = False

    def test_of_a_finish_that_goes_on(self):
        """The cache is not told, so it is verified again."""
        client = self.connect()
        self.load(client, 1)
        transaction = begin(client)
        store(client, transaction, 1, b'new', self.tid)
        client.tpc_vote(transaction)
        written = client._written(transaction)
        generation = client._connection_generation
        written.close()  # what the interrupted thread does
        with self.assertRaises(ValueError):
            client._server.tpc_finish(
                id(transaction), written, lambda tid: None)
        until(lambda: client._connection_generation >= generation + 2
              and client.is_connected(), 'connected again')
        self.assertEqual(self.load(client, 1)[0], b'new')

    def test_what_is_over_is_not_looked_at(self):
        written = Written(1)
        written.close()
        with self.assertRaises(ValueError):
            list(written)

    def test_of_a_begin(self):
        client = self.connect()
        for name in 'set_data', 'data':
            transaction = TransactionMetaData()
            with mock.patch.object(transaction, name,
                                   side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    client.tpc_begin(transaction)
            self.assertFalse(client._commit_lock.locked())
        commit(client, {2: b'two'})

    def test_of_an_end(self):
        """No transaction is known any more that could end once more."""
        client = self.connect()
        transaction = begin(client)
        set_data = transaction.set_data

        def set_and_interrupt(*arguments):
            set_data(*arguments)
            raise KeyboardInterrupt

        with mock.patch.object(transaction, 'set_data', set_and_interrupt):
            with self.assertRaises(KeyboardInterrupt):
                client.tpc_abort(transaction)
        self.assertFalse(client._commit_lock.locked())
        commit(client, {2: b'two'})

    def test_at_each_line_while_the_lock_is_taken_and_freed(self):
        lock = threading.Lock()
        for at in itertools.count(1):
            written = Written(1)
            interrupter = Interrupter(at)
            with contextlib.suppress(KeyboardInterrupt), interrupter:
                written.hold(lock)
                written.close()
            written.close()
            self.assertFalse(lock.locked())
            if not interrupter.fired:
                break
        self.assertGreater(at, 4)

    def test_an_end_that_is_repeated_leaves_the_lock_to_another(self):
        lock = threading.Lock()
        written = Written(1)
        written.hold(lock)
        self.assertTrue(lock.locked())
        written.close()
        with lock:
            written.close()
            self.assertTrue(lock.locked())

    def test_of_a_thread_that_joins_a_load(self):
        """The thread that loads is not held up."""
        client = self.connect()
        cache = client._cache
        load, _ = cache.ask(oid(1), maxtid, cache.pending.generation)
        joining = Thread(self.load_interrupted, client)
        until(lambda: load.done is not None, 'it joins')
        joining.join(0.05)
        Thread(cache.answered, load).result()
        self.assertEqual(joining.result()[0], b'old')

    def load_interrupted(self, client):
        with WithinConditions():
            return self.load(client, 1)

    def test_of_the_thread_whose_load_is_joined(self):
        """It did not come to its end; who waits asks by itself."""
        client = self.connect()
        client._cache.ask(
            oid(1), maxtid, client._cache.pending.generation)
        with mock.patch.object(reader, 'SHARED_LOAD_WITHIN', 0.01):
            self.assertEqual(self.load(client, 1)[0], b'old')


class Prefetching(ConnectedTestCase):

    records = {number: b'data' for number in range(1, 5)}

    def prefetch(self, client, *numbers):
        client.prefetch(map(oid, numbers), maxtid)

    def test_a_new_object(self):
        client = self.connect()
        client.prefetch([oid(1), None, oid(2)], maxtid)
        for number in 1, 2:
            self.assertEqual(self.load(client, number)[0], b'data')

    def test_what_is_no_oid(self):
        """The others are as if they had not been asked for."""
        client = self.connect()
        for before in (), (4,):
            self.prefetch(client, *before)
            with self.assertRaises(AssertionError):
                client.prefetch([oid(1), 'nonsense'], maxtid)
            self.assertEqual(client._cache.pending._loads, {})
        for number in 1, 4:
            self.assertEqual(self.load(client, number)[0], b'data')

    def test_what_was_never_sent(self):
        client = self.connect()
        cache, prefetches = client._cache, client._server._reader._prefetches
        for before in (), (4,):
            self.prefetch(client, *before)
            cache.ask_for_missing(
                [oid(1)], maxtid, cache.pending.generation, prefetches, [])
            load = Thread(self.load, client, 1)
            self.assertEqual(load.result()[0], b'data')

    def test_a_load_within_a_load(self):
        """Of a finalizer, while answers are read."""
        client = self.connect()
        self.prefetch(client, 1, 2, 3)
        answered, found = client._cache.answered, []

        def answered_and_collected(load):
            if not found:
                found.append(None)
                found.append(self.load(client, 3)[0])
                self.prefetch(client, 4)
            answered(load)

        with mock.patch.object(
                client._cache, 'answered', answered_and_collected):
            data = Thread(self.load, client, 2).result()[0]
        self.assertEqual([data, found[1]], [b'data', b'data'])

    def test_without_a_server(self):
        """Nothing waits for one, or it would not be connected to."""
        client = self.connect()
        self.address = self.server.acceptor.addr
        self.server.close()
        until(lambda: not client.is_connected(), 'disconnected')
        link = client._server
        with mock.patch.object(link, 'io_call', wraps=link.io_call) as calls:
            for _ in range(1000):
                self.prefetch(client, 1, 2, 3)
        self.assertEqual(calls.call_count, 0)
        self.serve_again()
        until(client.is_connected, 'connected')

    def test_its_channel_ends_with_the_connection(self):
        client = self.connect()
        for _ in range(3):
            self.prefetch(client, 1, 2)
            self.cut_off(client)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            gc.collect()
        self.assertEqual(caught, [])


class PrefetchingPlainly(ConnectedTestCase):
    """From a server without read channels."""

    records = {number: b'data' for number in range(1, 30)}

    def setUp(self):
        super().setUp()
        self.patch(plainprefetch, 'WINDOW', 4)
        self.patch(Session, 'get_info', lambda session: {
            'name': '', 'length': 0, 'size': 0, 'supportsUndo': 1,
            'interfaces': ()})
        self.client = self.connect()

    def loads(self):
        return self.in_loop(lambda: self.server.stats['1'].loads)

    def start_prefetch(self, *numbers):
        return Thread(self.client.prefetch, map(oid, numbers), maxtid)

    def check_they_come(self, *numbers):
        until(lambda: all(oid(number) in self.client._cache.current
                          for number in numbers), 'all of them')

    def test_the_first_waits_for_nothing(self):
        with self.loads_held_up():
            self.start_prefetch(1, 2, 3, 4).result()
        self.check_they_come(1, 2, 3, 4)

    def test_so_many_at_a_time(self):
        with self.loads_held_up():
            threads = [self.start_prefetch(*range(1, 10))]
            until(lambda: self.loads() >= 4, 'asked')
            threads += [self.start_prefetch(*range(first, first + 4))
                        for first in range(10, 30, 4)]
            # What is sent from now on comes behind what was sent before.
            self.client.ping()
            self.assertEqual(self.loads(), 4)
            self.assertTrue(threads[0].is_alive())
        for thread in threads:
            thread.result()
        self.check_they_come(*range(1, 30))

    def test_the_connection_ends_meanwhile(self):
        with self.loads_held_up(), self.assertLogs('ZEO', 'ERROR'):
            thread = self.start_prefetch(*range(1, 9))
            until(lambda: self.loads() >= 4, 'asked')
            self.cut_off(self.client)
            thread.result()
        self.start_prefetch(20).result()
        self.check_they_come(20)


class CacheFile(TestCase):

    def setUp(self):
        super().setUp()
        self.cache = Cache(self.path('cache'), 100_000)
        self.addCleanup(self.cache.close)
        self.cache.setLastTid(p64(1))

    def fill(self, numbers):
        for number in numbers:
            self.cache._add(oid(number), p64(1), b'%d' % number * 50)

    def load(self, number):
        return self.cache.loadBefore(oid(number), maxtid)

    def test_a_full_disk(self):
        """It is empty then; no load and no invalidation fails."""
        def pwrite(*args):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        for use in (lambda: self.load(1),
                    lambda: self.cache.invalidate(oid(1), p64(2)),
                    lambda: self.cache.store(oid(9), p64(1), None, b'nine')):
            self.fill(range(1, 6))
            with mock.patch.object(os, 'pwrite', pwrite), self.assertLogs(
                    module.logger, 'WARNING'):
                use()
            self.assertIsNone(self.load(2))
        self.fill([7])
        self.assertEqual(self.load(7)[0], b'7' * 50)
        self.assertTrue(self.cache)

    def test_a_write_of_a_part(self):
        write = os.pwrite
        self.fill(range(1, 60))
        with mock.patch.object(
                os, 'pwrite', lambda fd, data, position: write(
                    fd, data[:4096], position)), self.assertLogs(
                module.logger, 'WARNING'):
            self.assertIsNone(self.load(1))
        self.assertEqual(len(self.cache), 0)

    def test_an_interrupted_store(self):
        self.fill([1])
        self.cache._unwritten._pieces.pop()
        with self.assertLogs(module.logger, 'WARNING'):
            self.assertIsNone(self.load(1))

    def test_a_record_that_was_torn(self):
        self.fill([1])
        position = self.cache.current[oid(1)]
        self.load(1)
        os.pwrite(self.cache.f.fileno(), b'xx',
                  position + module.HEADER.size + 50)
        with self.assertRaises(AssertionError):
            self.load(1)

    def test_a_fork_writes_nothing(self):
        self.fill([1])
        with mock.patch.object(os, 'getpid', return_value=1):
            with self.assertRaises(ClientDisconnected):
                self.load(1)
        self.fill([2])
        for number in 1, 2:
            self.assertEqual(self.load(number)[0], b'%d' % number * 50)


class Rest(unittest.TestCase):

    def test_a_lost_channel_leaves_room(self):
        class Channel:
            close = interrupt = staticmethod(lambda: None)

        pool = channels.Channels('test', 1)
        with mock.patch.object(pool, '_new', Channel):
            pool.take()
            gc.collect()
            with mock.patch.object(channels, 'LOOK_AGAIN', 0.01):
                self.assertIsInstance(Thread(pool.take).result(), Channel)
