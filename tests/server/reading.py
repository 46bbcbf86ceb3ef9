"""What tests of readers share: a reader by hand."""

import contextlib
import os

from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.server import oursession
from fsyncstorage.wire import frames

from ..client.talking import ByHand
from ..client.talking import connected
from ..support import oid
from .oneserver import OneServerTestCase
from .oneserver import client_context


class Reading(ByHand):
    """A connection of a client of ours on which it only reads, by hand."""

    def __init__(self, server, storage='1', instance=None, tls=False,
                 versions=(frames.LOWEST, frames.HIGHEST),
                 preface=frames.PREFACE):
        self.hello = frames.frame(frames.HelloOfAReader(
            0, frames.MAGIC, *versions, instance or server.instance,
            bytes(oursession.MARK), storage.encode()))
        connection = connected(server.acceptor.addr)
        connection.sendall(preface)
        if tls:
            connection = client_context().wrap_socket(connection)
        super().__init__(connection)
        self.send = connection.sendall

    def meet(self):
        """Say the hello, and return what the server answers."""
        self.send(self.hello)
        return self.after_greeting()

    def after_greeting(self):
        assert frames.is_greeting(self.next_body())
        return self.next()

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

    readers = 1

    def peer(self, hello=True, **options):
        peer = Reading(self.server, tls=self.tls, **options)
        self.addCleanup(peer.close)
        if hello:
            self.assertIsInstance(peer.meet(), frames.Welcome)
        return peer

    def open_readers(self):
        return self.in_loop(lambda: len(self.server.readers._readers))

    def process(self):
        """The pid of the only process that reads."""
        process, = self.in_loop(list, self.server.readers._processes)
        return process._child.pid

    def open_blobs(self):
        """The files of blobs that the process has open."""
        found, directory = [], f'/proc/{self.process()}/fd'
        for number in os.listdir(directory):
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(f'{directory}/{number}')
                if name.startswith(self.path('blobs')) and (
                        not name.endswith('.layout')):
                    found.append(name)
        return found
