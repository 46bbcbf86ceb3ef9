"""What tests of the read channel share: a server in a thread, a client."""

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from unittest import mock

import ZEO.asyncio.server
import ZEO.tests
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage import wire
from fsyncstorage.server import channel
from fsyncstorage.server.server import Server

from ..support import PATIENCE
from ..support import TestCase
from ..support import all_is_cached
from ..support import begin
from ..support import oid
from ..support import until

_CERTIFICATES = os.path.dirname(ZEO.tests.__file__)


def server_context():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*(
        os.path.join(_CERTIFICATES, name)
        for name in ('server.pem', 'server_key.pem')))
    return context


def client_context():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Peer:
    """A socket to a server, with a blocking client of the channel's frames."""

    def __init__(self, server, storage='1', instance=None, tls=False):
        self.client = wire.Client(instance or server.instance, storage)
        address = server.acceptor.addr
        family = socket.AF_INET if isinstance(address, tuple) else (
            socket.AF_UNIX)
        self.socket = socket.socket(family)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(address)
        if tls:
            self.socket = client_context().wrap_socket(self.socket)
        self.send = self.socket.sendall
        self.close = self.socket.close

    def next(self):
        """The next event, a chunk as a whole; EOFError when the server has
        closed."""
        event = self._next()
        while self.client.left:
            event = wire.Chunk(event.number, event.data + self._next().data)
        return event

    def _next(self):
        while (event := self.client.next()) is None:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                data = b''
            if not data:
                raise EOFError
            self.client.add(data)
        return event

    def rest(self):
        """All events until the server closes."""
        events = []
        with contextlib.suppress(EOFError):
            while True:
                events.append(self.next())
        return events

    def ask_to_load(self, number, tid=maxtid):
        request_number, request = self.client.load(oid(number), tid)
        self.send(request)
        return request_number

    def load(self, number, tid=maxtid):
        self.ask_to_load(number, tid)
        return self.next()

    def ask_for_blob(self, number, serial, *positions):
        request_number, request = self.client.blob(
            oid(number), serial, *positions)
        self.send(request)
        return request_number

    def blob(self, number, serial, *positions):
        """Size and what came of it."""
        self.ask_for_blob(number, serial, *positions)
        size = self.next().size
        data = []
        while not isinstance(event := self.next(), wire.End):
            data.append(event.data)
        return size, b''.join(data)


class ChannelTestCase(TestCase):

    new_event_loop = staticmethod(asyncio.new_event_loop)
    tls = False
    address = '127.0.0.1', 0

    def setUp(self):
        super().setUp()
        all_is_cached(self)
        self.storage = self.open(blob_dir=self.path('blobs'))

    def serve(self, **storages):
        """A server in a thread, of `self.storage` as 1 and of others."""
        storages['1'] = self.storage
        address = self.address
        if isinstance(address, str):
            address = self.path(address)
        with mock.patch.object(ZEO.asyncio.server, 'new_event_loop',
                               self.new_event_loop):
            self.server = Server(
                address, storages, ssl=server_context() if self.tls else None)
        self.thread = threading.Thread(target=self.server.loop)
        self.thread.start()
        self.addCleanup(self.thread.join)
        self.addCleanup(self.server.close)
        self.in_loop(list)  # it has begun: else a close would run the loop

    def peer(self, hello=True, **options):
        peer = Peer(self.server, tls=self.tls, **options)
        self.addCleanup(peer.close)
        if hello:
            peer.send(peer.client.hello)
            self.assertEqual(peer.next(), wire.Welcome())
        return peer

    def in_loop(self, function, *arguments):
        """What that returns, called between two callbacks of the loop."""
        called = threading.Event()
        result = []

        def call():
            result.append(function(*arguments))
            called.set()

        self.server.acceptor.event_loop.call_soon_threadsafe(call)
        self.assertTrue(called.wait(PATIENCE))
        return result[0]

    @property
    def figures(self):
        return self.server.services['1'].figures

    def only_channel(self):
        one, = self.in_loop(list, self.server.connections)
        self.assertIsInstance(one, channel.Channel)
        return one

    def until_stuck(self, one):
        """It waits for its peer, and every buffer between them is full."""
        looks = []

        def nothing_moves():
            looks.append(self.in_loop(lambda: (
                one.full or one._blobs.sending, self.figures.sent)))
            return looks[-1][0] and looks[-10:] == 10 * looks[-1:]

        until(nothing_moves, 'the channel is stuck')

    def nothing_is_cached(self):
        service = self.server.services['1']
        self.patch(service, load_cached=mock.Mock(
            side_effect=BlockingIOError))

    def store_blob(self, number, data):
        transaction = begin(self.storage)
        given = self.path('given')
        with open(given, 'wb') as file:
            file.write(data)
        self.storage.storeBlob(
            oid(number), z64, b'a blob', given, '', transaction)
        self.storage.tpc_vote(transaction)
        return self.storage.tpc_finish(transaction)

    def open_blobs(self):
        """The files of blobs that this process has open."""
        found = []
        for number in os.listdir('/proc/self/fd'):
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(f'/proc/self/fd/{number}')
                if name.startswith(self.path('blobs')):
                    found.append(name)
        return found
