"""Rubbish on the port: the server lives, and the others are served.

10,000 peers, each of which sends something wrong and goes away, or does not go
away, while a stock client commits and reads.  Seeded: every run is the same.
"""

import contextlib
import logging
import random
import resource
import socket
import struct
import threading
from unittest import mock

import transaction
import ZEO
from ZEO.asyncio.marshal import encoder
from ZEO.StorageServer import registered_methods
from ZODB.utils import z64

from fsyncstorage.server import connection
from fsyncstorage.server.server import Server

from ..support import PATIENCE
from ..support import TestCase
from ..support import until

CASES = 10000
MOST_GROWTH = 64 << 20  # of memory, in bytes

encode = encoder(b'Z5')

VALUES = (
    None, 0, -1, 1 << 62, 1.5, '', 'x', b'', b'x', z64, b'\xff' * 8, (),
    (z64,), {}, {'a': 1}, [], [z64] * 3, b'x' * 10000, 'tid', True,
)


def frame(data):
    return struct.pack('>I', len(data)) + data


def call(name, *arguments, is_async=False, number=1):
    return frame(encode(number, is_async, name, arguments))


class Peer:
    """What one peer sends, made of a random number generator."""

    HELLO = frame(b'Z5')
    REGISTER = call('register', '1', False)

    def __init__(self, seed):
        self.random = random.Random(seed)

    def message(self):
        return getattr(self, self.random.choice(self.KINDS))()

    KINDS = (
        'noise', 'framed_noise', 'cut_frame', 'huge_frame', 'wrong_handshake',
        'unregistered', 'unknown_method', 'wrong_arguments', 'wrong_message',
        'wrong_order', 'noise_after_register', 'nothing', 'cut_call',
    )

    def bytes(self, most=300):
        return self.random.randbytes(self.random.randrange(most))

    def noise(self):
        return self.bytes()

    def framed_noise(self):
        return b''.join(frame(self.bytes(40)) for _ in range(5))

    def cut_frame(self):
        whole = frame(self.bytes())
        return whole[:self.random.randrange(len(whole))]

    def huge_frame(self):
        length = self.random.choice((connection.SHORT_FRAME + 1, 1 << 31,
                                     0xffffffff))
        return self.HELLO + struct.pack('>I', length) + self.bytes()

    def wrong_handshake(self):
        return frame(self.random.choice((
            b'', b'Z', b'Z4', b'M309', b'X5', b'z5', b'Z55', b'ruok?',
            self.bytes(20))))

    def unregistered(self):
        return self.HELLO + call(*self.a_call())

    def unknown_method(self):
        name = self.random.choice((
            '__class__', 'service', '_give_up', 'notify_disconnected', 'log',
            'voted', '', 'storage', 5, None, ('a',), ['b'], {}))
        return self.HELLO + self.REGISTER + frame(
            encode(1, self.flag(), name, ()))

    def flag(self):
        return self.random.random() < 0.3

    def a_call(self):
        name = self.random.choice(sorted(registered_methods | {'register'}))
        count = self.random.randrange(6)
        return (name, *(self.random.choice(VALUES) for _ in range(count)))

    def wrong_arguments(self):
        return self.HELLO + self.REGISTER + b''.join(
            call(*self.a_call(), is_async=self.flag()) for _ in range(4))

    def wrong_message(self):
        return self.HELLO + self.REGISTER + frame(self.random.choice((
            b'', b'.', b'\x80\x03N.', encode(1, 2, 3)[:-1], encode(1),
            encode(1, False, 'ping', 5), encode({}, [], 'ping', ()),
            b'\x80\x03cos\nsystem\nX\x02\x00\x00\x00ls\x85R.')))

    def wrong_order(self):
        """Parts of a transaction, in any order."""
        parts = [
            call('tpc_begin', 7, b'', b'', {}), call('vote', 7),
            call('tpc_finish', 7), call('tpc_abort', 7),
            call('storea', z64, z64, b'data', 7, is_async=True),
            call('storeBlobStart', is_async=True),
            call('storeBlobChunk', b'data', is_async=True),
            call('storeBlobEnd', z64, z64, b'data', 7, is_async=True),
            call('undoa', b'nothing', 7, is_async=True),
        ]
        return self.HELLO + self.REGISTER + b''.join(
            self.random.choices(parts, k=6))

    def noise_after_register(self):
        return self.HELLO + self.REGISTER + self.bytes()

    def nothing(self):
        return b''

    def cut_call(self):
        whole = self.wrong_arguments()
        return whole[:self.random.randrange(len(whole))]


class Fuzz(TestCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.storage = self.open(blob_dir=self.path('blobs'))
        self.server = Server(('127.0.0.1', 0), {'1': self.storage})
        loop = threading.Thread(target=self.server.loop)
        loop.start()
        self.addCleanup(loop.join, PATIENCE)
        self.addCleanup(self.server.close)
        self.address = self.server.acceptor.addr
        # What it says about them would fill the screen.
        for name in 'connection', 'session', 'service', 'mailbox':
            silence = mock.patch.object(
                logging.getLogger(f'fsyncstorage.server.{name}'),
                'disabled', True)
            silence.start()
            self.addCleanup(silence.stop)

    def connect(self):
        peer = socket.create_connection(self.address)
        peer.settimeout(PATIENCE)
        self.addCleanup(peer.close)
        return peer

    @contextlib.contextmanager
    def client_at_work(self):
        """A stock client commits and reads, meanwhile."""
        database = ZEO.DB(self.address, wait_timeout=PATIENCE)
        committed, over = [0], threading.Event()

        def work():
            manager = transaction.TransactionManager()
            with contextlib.closing(database.open(manager)) as site:
                while not over.is_set():
                    site.root()['number'] = committed[0]
                    manager.commit()
                    committed[0] += 1
                    site.cacheMinimize()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield committed
        finally:
            over.set()
            thread.join(PATIENCE)
            database.close()

    def test_ten_thousand_peers(self):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        lingering = []
        with self.client_at_work() as committed:
            for number in range(CASES):
                lingering.append(self.strike(number))
                if len(lingering) > 50:  # go, without a word
                    lingering.pop(0).close()
            served = committed[0]
            self.assertGreater(served, 100)
            until(lambda: committed[0] > served, 'one more is served')
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        self.assertLess(after - before, MOST_GROWTH)
        for peer in lingering:
            peer.close()
        self.assert_nothing_is_left()

    def strike(self, number):
        peer = socket.create_connection(self.address)
        peer.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError):
            peer.sendall(Peer(number).message())
            if number % 7 == 0:
                peer.recv(100)
        return peer

    def assert_nothing_is_left(self):
        """The lock is free, and no file of a blob that never came is there."""
        with contextlib.closing(ZEO.DB(self.address)) as database:
            with database.transaction() as site:
                site.root()['last'] = 1
        self.assertFalse(self.storage._commit_lock.locked())
        self.assertEqual(
            [name for name in self.storage.fshelper.listOIDs()], [])

    def test_who_does_not_read_is_disconnected(self):
        """It asks for more than it takes, and then is told of commits."""
        with contextlib.closing(ZEO.DB(self.address)) as database:
            with database.transaction() as site:
                site.root()['big'] = b'x' * 1000000
            deaf = self.connect()
            deaf.sendall(Peer.HELLO + Peer.REGISTER)
            oid = z64
            asked = call('loadBefore', oid, b'\xff' * 8) * 1000
            deaf.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:  # the server stops reading
                    deaf.send(asked)
            with database.transaction() as site:  # others are served
                site.root()['more'] = 1
        self.assertLess(self.server.traffic.sent, 64 << 20)


