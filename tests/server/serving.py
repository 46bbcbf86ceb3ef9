"""A server in a thread, and clients that speak its protocol by hand.

A stock client hides what these tests are about: in which order messages come,
what is answered when, what a client that vanishes leaves behind.
"""

import collections
import contextlib
import os
import socket

import persistent.mapping
from BTrees.Length import Length
from ZODB.broken import find_global
from ZODB.serialize import ObjectReader
from ZODB.serialize import ObjectWriter
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.server.server import Server
from fsyncstorage.wire.frames import SUFFIX

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import oid
from . import zeowire


class ErrorReply(Exception):
    """The server answered with an error, of the class of that name."""

    def __init__(self, name, arguments):
        super().__init__(name, arguments)
        self.name = name


class Peer:
    """A connection; each method does one thing that a client can do."""

    def __init__(self, address, storage='1'):
        self.invalidations = []     # (tid, oids)
        self.tids = []              # all that it was told, in order
        self.replies = {}           # message id -> (flags, result)
        self._messages = collections.deque()
        self._inbox = zeowire.Inbox()
        self._last_id = 0
        self._finishing = set()     # message ids
        self.socket = socket.create_connection(address, PATIENCE)
        try:
            self._register(storage)
        except BaseException:
            self.socket.close()
            raise

    def _register(self, storage):
        greeting, = self._read()
        assert greeting == zeowire.HANDSHAKE + SUFFIX
        self.socket.sendall(zeowire.frame(zeowire.HANDSHAKE))
        self.tids.append(self.call('register', storage, False))

    # Calls

    def post(self, name, *arguments):
        """Call a method that does not answer."""
        self.socket.sendall(zeowire.call(0, name, *arguments, no_reply=True))

    def ask(self, name, *arguments):
        self._last_id += 1
        self.socket.sendall(zeowire.call(self._last_id, name, *arguments))
        return self._last_id

    def answer(self, message_id):
        while message_id not in self.replies:
            self._take_next()
        flags, result = self.replies.pop(message_id)
        if flags:
            error, arguments = result
            raise ErrorReply(error.rpartition('.')[2], arguments)
        return result

    def call(self, name, *arguments):
        return self.answer(self.ask(name, *arguments))

    def ping(self):
        """What was sent before has been read; what came of it at once, too."""
        self.call('ping')

    def wait_for_invalidations(self, number):
        while len(self.invalidations) < number:
            self._take_next()

    def wait_for_end(self):
        """Return when the server has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while True:
                self._take_next()

    def _take_next(self):
        while not self._messages:
            self._messages.extend(map(zeowire.read, self._read()))
        message_id, flags, name, arguments = self._messages.popleft()
        if name == '.reply':
            self.replies[message_id] = flags, arguments
            if message_id in self._finishing and not flags:
                self.tids.append(arguments)
        elif name == 'invalidateTransaction':
            self.invalidations.append(arguments)
            self.tids.append(arguments[0])

    def _read(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError('the server closed the connection')
        return self._inbox.add(data)

    def close(self):
        self.socket.close()

    # Transactions; one at a time, of this id

    id = 7

    def begin(self):
        self.post('tpc_begin', self.id, b'', b'', {}, None, ' ')

    def store(self, number, data, serial=z64):
        self.post('storea', oid(number), serial, data, self.id)

    def ask_vote(self, records, serial=z64):
        """A transaction up to the question whether it can be committed."""
        self.begin()
        for number, data in records.items():
            self.store(number, data, serial)
        return self.ask('vote', self.id)

    def vote(self, records, serial=z64):
        return self.answer(self.ask_vote(records, serial))

    def ask_finish(self):
        message_id = self.ask('tpc_finish', self.id)
        self._finishing.add(message_id)
        return message_id

    def finish(self):
        return self.answer(self.ask_finish())

    def abort(self):
        self.call('tpc_abort', self.id)

    def commit(self, records, serial=z64):
        self.vote(records, serial)
        return self.finish()

    def load(self, number):
        """The data and the tid of the current state."""
        return self.call('loadBefore', oid(number), maxtid)[:2]

    # Blobs

    def send_blob(self, number, content, serial=z64):
        self.begin_blob(content)
        self.post('storeBlobEnd', oid(number), serial, record(), self.id)

    def begin_blob(self, content):
        self.post('storeBlobStart')
        self.post('storeBlobChunk', content)


def record(value=None):
    """The record of a persistent object."""
    return ObjectWriter().serialize(
        persistent.mapping.PersistentMapping(value=value))


def counter(value):
    """The record of an object that resolves conflicts."""
    return ObjectWriter().serialize(Length(value))


def state_of(data):
    return ObjectReader(
        factory=lambda connection, *name: find_global(*name)).getState(data)


class Served(TestCase):
    """With servers in threads, which end when the test does."""

    def serve(self, storage=None, address=('127.0.0.1', 0), **options):
        if storage is None:
            storage = self.open()
        server = Server(address, {'1': storage}, **options)
        thread = Thread(server.loop)
        self.addCleanup(thread.result)
        self.addCleanup(server.close)
        return server

    def connect(self, server):
        peer = Peer(server.addr)
        self.addCleanup(peer.close)
        return peer


class ServedFromControlledDisk(Served):
    """With one server, whose storage syncs as the test wants it to."""

    def setUp(self):
        super().setUp()
        self.disk = self.controlled_disk()
        self.storage = self.open()
        self.server = self.serve(self.storage)
        self.committer = self.server.services['1'].committer


def open_files():
    return len(os.listdir('/dev/fd'))
