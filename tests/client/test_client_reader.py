"""The client's loads on read channels, and the channels themselves.  Goes with
`client/reader.py` and `client/channels.py`.
"""

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
from fsyncstorage.client.channels import Channels
from fsyncstorage.client.readchannel import Lost
from fsyncstorage.client.readchannel import ReadChannel
from fsyncstorage.server import channel as server_channel
from fsyncstorage.server.blobsender import SENT_AT_ONCE

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
        self.patch(self.storage, loadBefore=mock.Mock(
            side_effect=ValueError('a reason')))
        with self.assertRaisesRegex(ServerException, 'a reason'):
            self.load(self.client, 1)

    # Two who want the same

    def test_it_is_asked_for_once(self):
        with self.loads_held_up():
            loads = [Thread(self.load, self.client, 1) for _ in range(5)]
            self.until_asked(1)
            self.until_joined(4)
        for load in loads:
            self.assertEqual(load.result(), (b'one', self.tid, None))
        self.assertEqual(self.asked(), 1)

    def test_an_answer_that_is_true_only_of_an_earlier_tid(self):
        """The server has looked, others commit, and then it answers."""
        load = self.storage.loadBefore
        looked_up, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def slow(*args):
            found = load(*args)
            looked_up.set()
            go_on.wait(PATIENCE)
            return found

        self.nothing_is_cached()
        with mock.patch.object(self.storage, 'loadBefore', slow):
            first = Thread(self.load, self.client, 1)
            self.assertTrue(looked_up.wait(PATIENCE))
            seen = commit(self.connect(), {1: b'one again'}, self.tid)
            until(lambda: self.client.lastTransaction() == seen, 'seen')
            go_on.set()
            self.assertEqual(first.result()[:2], (b'one', self.tid))
        self.assertEqual(self.load(self.client, 1)[:2], (b'one again', seen))

    def test_the_first_is_interrupted(self):
        """The second asks, and the channel is not used any more."""
        load = ReadChannel.load
        waits = threading.Event()

        def interrupted(channel, *args):
            self.patch(ReadChannel, load=load)
            waits.wait(PATIENCE)
            raise KeyboardInterrupt

        self.patch(ReadChannel, load=interrupted)
        first = Thread(self.load, self.client, 1)
        until(lambda: self.client._cache.pending.find(oid(1), maxtid), 'asked')
        second = Thread(self.load, self.client, 1)
        self.until_joined(1)
        waits.set()
        with self.assertRaises(KeyboardInterrupt):
            first.result()
        self.assertEqual(second.result(), (b'one', self.tid, None))
        until(lambda: self.figures.channels == 1, 'closed')

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
        self.patch(server_channel, MOST_CHANNELS=0)
        self.patch(channels, RETREAT=3600)
        with self.assertLogs('fsyncstorage.client', 'WARNING') as logged:
            for number in self.records:
                self.assertEqual(self.load(self.client, number)[1], self.tid)
        self.assertEqual(len(logged.output), 1)
        self.assertIn('0 channels are open', logged.output[0])
        self.assertEqual(self.asked(), 0)

    def test_after_these_seconds(self):
        self.patch(channels, RETREAT=0)
        with mock.patch.object(server_channel, 'MOST_CHANNELS', 0):
            self.load(self.client, 1)
        self.load(self.client, 2)
        self.assertEqual(self.asked(), 1)


class Reached(ConnectedTestCase):

    records = {1: b'one'}
    tls = True

    def check(self, address):
        self.load(self.connect(address), 1)
        self.assertEqual(self.figures.requests, 1)

    def test_any_host_with_tls(self):
        """As in ZEO, '' is this machine."""
        _, port = self.server.acceptor.addr
        self.check(('', port))

    def test_a_unix_socket(self):
        self.address, self.tls = 'zeo.sock', False
        self.serve()
        self.check(self.path('zeo.sock'))


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


class Blobs(ConnectedTestCase):

    level = 2

    # More than is on its way at a time.
    content = b'many bytes' * 2_000_000

    def setUp(self):
        super().setUp()
        self.serial = self.store_blob(1, self.content)
        self.client = self.connect(blob_dir=self.path('cache'))

    def check_blob(self):
        with open(self.client.loadBlob(oid(1), self.serial), 'rb') as file:
            self.assertTrue(file.read() == self.content)

    def test_a_blob_that_is_not_there(self):
        with self.assertRaises(POSKeyError):
            self.client.loadBlob(oid(2), self.serial)

    def test_no_channel(self):
        """It comes over the ZEO connection."""
        self.patch(server_channel, MOST_CHANNELS=0)
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

        self.patch(ReadChannel, blob=blob_and_then)

    def test_what_comes_when_nobody_wants_it_any_more(self):
        """Over the ZEO connection: it is not taken for what is wanted now."""
        self.patch(server_channel, MOST_CHANNELS=0)
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

    def close(self):
        """All is over."""

    interrupt = close


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

    def test_close(self):
        """Before any channel is given back."""
        one, other = self.channels.take(), self.channels.take()
        waiters = self.waiters(2)
        self.channels.close()
        for waiter in waiters:
            with self.assertRaises(Lost):
                waiter.result()
        for each in one, other:
            self.channels.give_back(each)
        with self.assertRaises(Lost):
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
