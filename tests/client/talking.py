"""A client of ours that speaks by hand, one message at a time."""

import itertools
import os
import socket
import ssl

from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.wire import frames

from ..server.oneserver import client_context
from ..server.serving import Served
from ..support import PATIENCE
from ..support import oid


def hello(client=None, stream=1, tid=z64, flags=0, storage=b'1',
          versions=(frames.LOWEST, frames.HIGHEST)):
    return frames.Hello(
        0, frames.MAGIC, *versions, client or os.urandom(16), stream, tid,
        flags, storage, b'a label', b'1.0')


def connected(address):
    """A socket; the address may be a path."""
    made = socket.socket(
        socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    made.settimeout(PATIENCE)
    made.connect(address)
    return made


class Closed(ConnectionError, EOFError):
    """The other end has closed the connection, and said nothing more."""


class ByHand:
    """An end of a connection of our protocol."""

    def __init__(self, connection):
        self.socket = connection
        self.close = connection.close
        self._inbox = frames.Inbox()
        self._inbox.longest = frames.LONGEST
        self._numbers = itertools.count(1)

    def say(self, *messages):
        self.socket.sendall(b''.join(map(frames.frame, messages)))

    def next(self):
        return frames.taken(self.next_body())

    def next_body(self):
        while (body := self._inbox.next_body()) is None:
            try:
                data = self.socket.recv(1 << 16)
            except (ConnectionError, ssl.SSLError):
                data = b''
            if not data:
                raise Closed
            self._inbox.add(data)
        return body


class Talker(ByHand):
    """A connection; each method does one thing that a client can do."""

    def __init__(self, address, first=None, tls=False):
        connection = connected(address)
        if tls:
            connection = client_context().wrap_socket(connection)
        super().__init__(connection)
        self.unasked = []
        try:
            self.greeting = self.next_body()
            self.say(first or hello())
            self.welcome = self.next()
        except BaseException:
            self.close()
            raise

    def number(self):
        return next(self._numbers)

    def answer(self, number):
        while (message := self.next()).number != number:
            self.unasked.append(message)
        return message

    def ask(self, message):
        number = self.number()
        self.say(message._replace(number=number))
        return self.answer(number)

    def ask_to_load(self, number, tid=maxtid):
        asked = self.number()
        self.say(frames.Load(asked, oid(number), tid))
        return asked

    def load(self, number, tid=maxtid):
        return self.answer(self.ask_to_load(number, tid))

    # Transactions

    def begin(self, id=None, **fields):
        number = self.number()
        given = dict(tid=z64, status=b' ', user=b'', description=b'',
                     extension=b'')
        self.say(frames.Begin(
            number=number, id=id or os.urandom(16), **{**given, **fields}))
        return number

    def stored(self, records, serial=z64, **more):
        number = self.begin(**more)
        for name, data in records.items():
            self.say(frames.Store(number, oid(name), serial, data))
        return number

    def vote(self, number):
        self.say(frames.Vote(number))
        return self.answer(number)

    def finish(self, number):
        self.say(frames.Finish(number))
        return self.answer(number)

    def trip(self, number):
        self.say(frames.Trip(number))
        return self.answer(number)

    def commit(self, records, serial=z64, **more):
        done = self.trip(self.stored(records, serial, **more))
        assert isinstance(done, frames.Done), done
        return done.tid


class Talking(Served):

    def talk(self, server, first=None):
        talker = Talker(server.addr, first)
        self.addCleanup(talker.close)
        return talker
