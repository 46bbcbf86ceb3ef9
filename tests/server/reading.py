"""What tests of readers share: a reader by hand."""

import contextlib
import itertools
import os
import socket

from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.server import oursession
from fsyncstorage.server import reader
from fsyncstorage.wire import frames

from ..support import PATIENCE
from ..support import oid
from ..support import until
from .oneserver import OneServerTestCase
from .oneserver import client_context


class Reading:
    """A connection of a client of ours on which it only reads, by hand."""

    def __init__(self, server, storage='1', instance=None, tls=False,
                 versions=(frames.LOWEST, frames.HIGHEST)):
        self.hello = frames.frame(frames.HelloOfAReader(
            0, frames.MAGIC, *versions, instance or server.instance,
            bytes(oursession.MARK), storage.encode()))
        self._numbers = itertools.count(1)
        self._inbox = frames.Inbox()
        self._inbox.longest = frames.LONGEST
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

    def meet(self):
        """Say the hello, and return what the server answers."""
        self.send(self.hello)
        return self.after_greeting()

    def after_greeting(self):
        assert frames.is_greeting(self._next_body())
        return self.next()

    def next(self):
        """The next message; EOFError when the server has closed."""
        return frames.taken(self._next_body())

    def _next_body(self):
        while (body := self._inbox.next_body()) is None:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                data = b''
            if not data:
                raise EOFError
            self._inbox.add(data)
        return body

    def rest(self):
        """All messages until the server closes."""
        messages = []
        with contextlib.suppress(EOFError):
            while True:
                messages.append(self.next())
        return messages

    def ask(self, message):
        number = next(self._numbers)
        self.send(frames.frame(message._replace(number=number)))
        return number

    def ask_to_load(self, number, tid=maxtid):
        return self.ask(frames.Load(0, oid(number), tid))

    def load(self, number, tid=maxtid):
        self.ask_to_load(number, tid)
        return self.next()

    def ask_for_blob(self, number, serial, offset=0,
                     most=frames.LONGEST_BLOB):
        return self.ask(frames.GetBlob(0, oid(number), serial, offset, most))

    def blob(self, number, serial, offset=0, most=frames.LONGEST_BLOB):
        """Its size, and the bytes that came."""
        self.ask_for_blob(number, serial, offset, most)
        size = self.next().size
        left = frames.GetBlob(0, z64, z64, offset, most).answer(size)
        data = b''
        while len(data) < left:
            data += self.next().data
        return size, data


class ReaderTestCase(OneServerTestCase):

    def peer(self, hello=True, **options):
        peer = Reading(self.server, tls=self.tls, **options)
        self.addCleanup(peer.close)
        if hello:
            self.assertIsInstance(peer.meet(), frames.Welcome)
        return peer

    def only_reader(self):
        one, = self.in_loop(list, self.server.connections)
        self.assertIsInstance(one.session, reader.Reader)
        return one

    def until_stuck(self, one):
        """It waits for its peer, and every buffer between them is full."""
        looks = []

        def nothing_moves():
            looks.append(self.in_loop(lambda: (
                one.account.full, self.figures.sent)))
            return looks[-1][0] and looks[-10:] == 10 * looks[-1:]

        until(nothing_moves, 'the reader is stuck')

    def open_blobs(self):
        """The files of blobs that this process has open."""
        found = []
        for number in os.listdir('/proc/self/fd'):
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(f'/proc/self/fd/{number}')
                if name.startswith(self.path('blobs')):
                    found.append(name)
        return found
