"""The client's loads on read channels, and the channels themselves."""

import contextlib
import os
import socket
import threading
import unittest
from unittest import mock

from ZEO.ClientStorage import ClientStorage
from ZEO.Exceptions import ServerException
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64

from fsyncstorage import wire
from fsyncstorage.client import channels
from fsyncstorage.client import readchannel
from fsyncstorage.client.channels import Channels
from fsyncstorage.client.readchannel import Lost
from fsyncstorage.client.readchannel import ReadChannel
from fsyncstorage.server import channel as server_channel
from fsyncstorage.server.blobsender import SENT_AT_ONCE

from ..commit.test_interrupts import WithinConditions
from ..support import PATIENCE
from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import commit


class Loads(ConnectedTestCase):

    records = {1: b'one', 2: b'two', 3: b'three'}

    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.joined = 0
        self.client._cache.ask = self.count_who_joins(self.client._cache.ask)

    def count_who_joins(self, ask):
        def counted(*args):
            load, last_tid = ask(*args)
            self.joined += last_tid is not None
            return load, last_tid
        return counted

    def until_joined(self, number):
        """So many wait for the load of another."""
        until(lambda: self.joined == number, 'joined')

    def asked(self):
        return self.figures.requests

    def test_the_answers_of_a_stock_client(self):
        later = commit(self.client, {1: b'one again'}, self.tid)
        stock = self.connect(make=ClientStorage)
        tids = [p64(u64(tid) + more)
                for tid in (self.tid, later) for more in (-1, 0, 1)]
        for number in 1, 2, 99:
            for tid in *tids, maxtid:
                with self.subTest(number=number, tid=tid):
                    self.assertEqual(
                        outcome(self.client, number, tid),
                        outcome(stock, number, tid))
        self.assertGreater(self.asked(), 10)

    def test_an_error_of_the_server(self):
        self.nothing_is_cached()
        self.patch(self.storage, 'loadBefore', mock.Mock(
            side_effect=ValueError('a reason')))
        with self.assertRaisesRegex(ServerException, 'a reason'):
            self.load(self.client, 1)

    def test_the_thread_that_wants_it_reads_it(self):
        threads = []
        load = ReadChannel.load

        def load_here(channel, *args):
            threads.append(threading.current_thread())
            return load(channel, *args)

        self.patch(ReadChannel, 'load', load_here)
        self.load(self.client, 1)
        self.assertEqual(threads, [threading.current_thread()])

    # What is kept

    def test_what_was_loaded_is_in_the_cache(self):
        for _ in range(3):
            self.assertEqual(
                self.load(self.client, 1), (b'one', self.tid, None))
        self.assertEqual(self.asked(), 1)

    def test_also_after_the_cache_was_cleared(self):
        self.load(self.client, 1)
        self.client._cache.clear()
        for _ in range(3):
            self.load(self.client, 1)
        self.assertEqual(self.asked(), 2)

    def test_an_end_that_the_cache_has_not_heard_of(self):
        """The same may come to be there as current: nothing twice."""
        cache = self.client._cache
        commit(self.connect(), {1: b'one again'}, self.tid)
        until(lambda: cache.tid > self.tid, 'heard')
        heard, cache.tid = cache.tid, self.tid
        before = p64(u64(self.tid) + 1)
        self.assertEqual(
            self.load(self.client, 1, before), (b'one', self.tid, heard))
        self.assertEqual(len(cache), 0)
        cache.tid = heard
        self.load(self.client, 1, before)
        self.assertEqual(len(cache), 1)

    # Two who want the same

    def test_it_is_asked_for_once(self):
        with self.loads_held_up():
            loads = [Thread(self.load, self.client, 1) for _ in range(5)]
            self.until_asked(1)
            self.until_joined(4)
        for load in loads:
            self.assertEqual(load.result(), (b'one', self.tid, None))
        self.assertEqual(self.asked(), 1)

    def test_an_answer_that_is_too_old_for_the_second(self):
        """Who has seen more since then has to ask."""
        other = self.connect()
        with self.loads_held_up():
            first = Thread(self.load, self.client, 1)
            self.until_asked(1)
            seen = commit(other, {2: b'two again'}, self.tid)
            until(lambda: self.client.lastTransaction() == seen, 'seen')
            second = Thread(self.load, self.client, 1)
            self.until_joined(1)
        for load in first, second:
            self.assertEqual(load.result(), (b'one', self.tid, None))
        self.assertEqual(self.asked(), 2)

    def test_an_answer_that_was_overtaken(self):
        """It is not kept, and not waited for."""
        other = self.connect()
        with self.loads_held_up():
            first = Thread(self.load, self.client, 1)
            self.until_asked(1)
            seen = commit(other, {1: b'one again'}, self.tid)
            until(lambda: self.client.lastTransaction() == seen, 'seen')
            second = Thread(self.load, self.client, 1)
            self.until_asked(2)
        first.result()
        self.assertEqual(second.result(), (b'one again', seen, None))
        self.assertEqual(self.load(self.client, 1)[1], seen)

    def test_the_first_is_interrupted(self):
        """The second asks, and the channel is not used any more."""
        load = ReadChannel.load
        waits = threading.Event()

        def interrupted(channel, *args):
            self.patch(ReadChannel, 'load', load)
            waits.wait(PATIENCE)
            raise KeyboardInterrupt

        self.patch(ReadChannel, 'load', interrupted)
        first = Thread(self.load, self.client, 1)
        until(lambda: self.client._cache.pending.find(oid(1), maxtid), 'asked')
        second = Thread(self.load, self.client, 1)
        self.until_joined(1)
        waits.set()
        with self.assertRaises(KeyboardInterrupt):
            first.result()
        self.assertEqual(second.result(), (b'one', self.tid, None))
        until(lambda: self.figures.channels == 1, 'closed')

    def test_what_cannot_be_kept(self):
        """Its thread gets the error; who waits for it asks."""
        keep = self.client._cache._keep

        def fail(load):
            self.client._cache._keep = keep
            raise OSError('the disk is full')

        self.client._cache._keep = fail
        with self.loads_held_up():
            first = Thread(self.load, self.client, 1)
            self.until_asked(1)
            second = Thread(self.load, self.client, 1)
            self.until_joined(1)
        with self.assertRaises(OSError):
            first.result()
        self.assertEqual(second.result(), (b'one', self.tid, None))

    # Channels that are lost

    def test_a_channel_that_is_lost(self):
        """The ZEO connection answers in its place."""
        with self.loads_held_up():
            load = Thread(self.load, self.client, 1)
            self.until_asked(1)
            self.close_channels()
        self.assertEqual(load.result(), (b'one', self.tid, None))
        self.assertEqual(self.asked(), 1)
        self.load(self.client, 2)
        self.assertEqual(self.asked(), 2)

    def test_a_server_that_refuses(self):
        """For some seconds nobody tries again, and it is said once."""
        self.patch(server_channel, 'MOST_CHANNELS', 0)
        self.patch(channels, 'RETREAT', 3600)
        with self.assertLogs('fsyncstorage.client', 'WARNING') as logged:
            for number in self.records:
                self.assertEqual(self.load(self.client, number)[1], self.tid)
        self.assertEqual(len(logged.output), 1)
        self.assertIn('0 channels are open', logged.output[0])
        self.assertEqual(self.asked(), 0)

    def test_after_these_seconds(self):
        self.patch(channels, 'RETREAT', 0)
        with mock.patch.object(server_channel, 'MOST_CHANNELS', 0):
            self.load(self.client, 1)
        self.load(self.client, 2)
        self.assertEqual(self.asked(), 1)


class LoadsWithTLS(Loads):

    tls = True


class LoadsOverUnixSockets(Loads):

    address = 'zeo.sock'


class AnyHost(ConnectedTestCase):
    """As in ZEO, '' is this machine."""

    records = {1: b'one'}

    def check(self):
        _, port = self.server.acceptor.addr
        self.load(self.connect(('', port)), 1)
        self.assertEqual(self.figures.requests, 1)

    def test_plain(self):
        self.check()


class AnyHostWithTLS(AnyHost):

    tls = True


class Few(ConnectedTestCase):
    """Channels that are fewer than threads."""

    records = {number: b'x' for number in range(20)}

    def test_no_more_than_were_allowed(self):
        client = self.connect(read_channels=2)
        with self.loads_held_up():
            loads = [Thread(self.load, client, number) for number in range(20)]
            self.until_asked(2)
            until(lambda: waiting(client) == 18, 'waiting')
            self.assertEqual(self.figures.channels, 2)
        for load in loads:
            self.assertEqual(load.result(), (b'x', self.tid, None))
        self.assertEqual(self.figures.channels, 2)

    def test_what_was_used_last_goes_first(self):
        client = self.connect()
        with self.loads_held_up():
            loads = [Thread(self.load, client, number) for number in range(3)]
            self.until_asked(3)
        for load in loads:
            load.result()
        used = []
        load = ReadChannel.load

        def note(channel, *args):
            used.append(channel)
            return load(channel, *args)

        self.patch(ReadChannel, 'load', note)
        for number in range(3, 20):
            self.load(client, number)
        self.assertEqual(len(set(used)), 1)


class Blobs(ConnectedTestCase):

    # More than is on its way at a time.
    content = b'many bytes' * 2_000_000

    def setUp(self):
        super().setUp()
        self.serial = self.store_blob(1, self.content)
        self.client = self.connect(blob_dir=self.path('cache'))

    def check_blob(self):
        with open(self.client.loadBlob(oid(1), self.serial), 'rb') as file:
            self.assertTrue(file.read() == self.content)

    def test_by_a_channel(self):
        self.check_blob()
        self.assertEqual(self.figures.requests, 1)

    def test_a_blob_that_is_not_there(self):
        with self.assertRaises(POSKeyError):
            self.client.loadBlob(oid(2), self.serial)

    def test_no_channel(self):
        """It comes over the ZEO connection."""
        self.patch(server_channel, 'MOST_CHANNELS', 0)
        with self.assertLogs('fsyncstorage.client', 'WARNING'):
            self.check_blob()
        with self.assertRaises(POSKeyError):
            self.client.loadBlob(oid(2), self.serial)

    def test_a_channel_that_is_lost_in_the_middle(self):
        """The rest comes on another."""
        self.after_the_first_piece(self.close_channels)
        self.check_blob()
        self.assertEqual(self.figures.requests, 2)
        first, second = self.offsets
        self.assertEqual(first, 0)
        self.assertGreaterEqual(second, SENT_AT_ONCE)

    def test_a_server_that_is_started_again_in_the_middle(self):
        self.after_the_first_piece(self.serve_again)
        self.check_blob()

    def after_the_first_piece(self, function):
        blob = ReadChannel.blob
        self.offsets = []
        todo = [function]

        def blob_and_then(channel, oid, serial, offset, most):
            self.offsets.append(offset)
            for event in blob(channel, oid, serial, offset, most):
                yield event
                if event.__class__ is wire.Chunk and todo:
                    todo.pop()()

        self.patch(ReadChannel, 'blob', blob_and_then)

    def test_what_comes_when_nobody_wants_it_any_more(self):
        """Over the ZEO connection: it is not taken for what is wanted now."""
        self.patch(server_channel, 'MOST_CHANNELS', 0)
        call = self.client._call

        def interrupted(*args, wait):
            future = mock.Mock(wraps=call(*args, wait=wait))
            future.result.side_effect = [KeyboardInterrupt, mock.DEFAULT]
            return future

        self.client._call = interrupted
        with self.assertLogs('fsyncstorage.client', 'WARNING'):
            with self.assertRaises(KeyboardInterrupt):
                self.check_blob()
        self.client._call = call
        with self.assertNoLogs('ZEO', 'ERROR'):
            self.check_blob()


def waiting(client):
    return client._server._reader._channels._waiting


def outcome(client, number, tid):
    try:
        return client.loadBefore(oid(number), tid)
    except POSKeyError as error:
        return type(error), error.args


class FakeChannel:

    closed = interrupted = False

    def close(self):
        self.closed = True

    def interrupt(self):
        self.interrupted = True


class ChannelsTest(unittest.TestCase):
    """Whatever happens to a channel, nobody waits for it in vain."""

    def setUp(self):
        self.opened = []
        patch = mock.patch.object(channels, 'ReadChannel', self.open)
        patch.start()
        self.addCleanup(patch.stop)
        self.channels = Channels('test', 2, 'a server')
        self.addCleanup(self.channels.close)

    def open(self, server, begun):
        self.opened.append(FakeChannel())
        return self.opened[-1]

    def refuse(self, server, begun):
        raise Lost('refused')

    def waiters(self, number):
        threads = [Thread(self.channels.take) for _ in range(number)]
        until(lambda: self.channels._waiting == number, 'waiting')
        return threads

    def test_one_that_is_given_back(self):
        one, _ = self.channels.take(), self.channels.take()
        waiter, = self.waiters(1)
        self.channels.give_back(one)
        self.assertIs(waiter.result(), one)

    def test_one_that_is_dropped(self):
        one, _ = self.channels.take(), self.channels.take()
        waiter, = self.waiters(1)
        self.channels.drop(one)
        self.assertTrue(one.closed)
        self.assertIs(waiter.result(), self.opened[2])

    def test_the_last_is_dropped_while_none_can_be_opened(self):
        one = self.channels.take()
        with mock.patch.object(channels, 'ReadChannel', self.refuse):
            with self.assertLogs('fsyncstorage.client', 'WARNING'):
                with self.assertRaises(Lost):
                    self.channels.take()
            waiters = self.waiters(3)
            self.channels.drop(one)
            for waiter in waiters:
                with self.assertRaises(Lost):
                    waiter.result()

    def test_one_that_cannot_be_opened_while_others_wait(self):
        one = self.channels.take()
        opening, refused = threading.Event(), threading.Event()

        def refuse_later(server, begun):
            opening.set()
            refused.wait(PATIENCE)
            raise Lost('refused')

        with mock.patch.object(channels, 'ReadChannel', refuse_later), \
                self.assertLogs('fsyncstorage.client', 'WARNING'):
            first = Thread(self.channels.take)
            opening.wait(PATIENCE)
            second, = self.waiters(1)
            refused.set()
            with self.assertRaises(Lost):
                first.result()
        self.channels.give_back(one)
        self.assertIs(second.result(), one)

    def test_an_interrupt_while_it_takes_the_lock(self):
        with contextlib.suppress(KeyboardInterrupt), WithinConditions():
            self.channels.take()
        Thread(self.channels.take).result()

    def test_an_error_closes_it(self):
        with self.assertRaises(KeyboardInterrupt):
            with self.channels.channel() as channel:
                raise KeyboardInterrupt
        self.assertTrue(channel.closed)
        with self.channels.channel() as another:
            self.assertIsNot(another, channel)
        self.assertFalse(another.closed)

    def test_close(self):
        free, used = self.channels.take(), self.channels.take()
        waiters = self.waiters(2)
        self.channels.give_back(free)
        self.channels.close()
        self.assertTrue(used.interrupted)
        lost = 0
        for waiter in waiters:
            try:
                self.channels.give_back(waiter.result())
            except Lost:
                lost += 1
        self.assertGreaterEqual(lost, 1)
        self.channels.give_back(used)
        self.assertTrue(free.closed and used.closed)
        with self.assertRaises(Lost):
            self.channels.take()

    def test_close_while_one_is_opened(self):
        closed = threading.Event()

        def open_later(server, begun):
            closed.wait(PATIENCE)
            return self.open(server, begun)

        with mock.patch.object(channels, 'ReadChannel', open_later):
            taker = Thread(self.channels.take)
            until(lambda: self.channels._opening, 'opening')
            self.channels.close()
            closed.set()
            with self.assertRaises(Lost):
                taker.result()
        self.assertTrue(self.opened[0].closed)

    def test_close_before_one_has_begun(self):
        """That is no fault of the server, so nothing is logged."""
        def open_when_closed(server, begun):
            self.channels.close()
            begun(FakeChannel())
            self.fail('it goes on')

        with mock.patch.object(channels, 'ReadChannel', open_when_closed), \
                self.assertNoLogs(channels.__name__), \
                self.assertRaises(Lost):
            self.channels.take()


class OneChannel(unittest.TestCase):
    """Whatever goes wrong is `Lost`, and leaves no socket."""

    def setUp(self):
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(self.listener.close)

    def open(self, address=None):
        return ReadChannel(
            address or self.listener.getsockname(), bytes(16), '1', None, None)

    @contextlib.contextmanager
    def peer(self, says):
        """Says that to whoever connects, and closes."""
        def answer():
            peer, _ = self.listener.accept()
            with peer:
                peer.sendall(says)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass

        thread = Thread(answer)
        yield
        thread.result()

    def test_nobody_is_there(self):
        address = self.listener.getsockname()
        self.listener.close()
        for nobody in address, '/nowhere/zeo.sock':
            with self.assertRaises(Lost), self.assertNoWarning():
                self.open(nobody)

    @contextlib.contextmanager
    def assertNoWarning(self):
        before = len(os.listdir('/dev/fd'))
        yield
        self.assertEqual(len(os.listdir('/dev/fd')), before)

    def test_what_is_no_server_of_ours(self):
        for says in b'', b'HTTP/1.1 400\r\n', b'\0\0\0\2Z5', (
                b'\0\0\0\2Z5' b'\0\0\0\5f\0\0\0\0'):
            with self.subTest(says), self.peer(says):
                with self.assertRaises(Lost):
                    self.open()

    def test_a_refusal(self):
        refusal = b'\0\0\0\2Z5' b'\0\0\0\x0aR\0\0\0\0' b'\4full'
        with self.peer(refusal):
            with self.assertRaises(readchannel.ChannelRefused) as caught:
                self.open()
        self.assertEqual(caught.exception.args, (4, 'full'))
        self.assertEqual(str(caught.exception), 'full')

    def test_a_hello_that_cannot_be_sent(self):
        connection = mock.Mock()
        connection.sendall.side_effect = BrokenPipeError
        with mock.patch.object(
                readchannel, 'connect', return_value=connection):
            with self.assertRaises(Lost):
                self.open()
        connection.close.assert_called_once()
