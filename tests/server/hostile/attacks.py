"""What a peer can do to a server, at each stage of a connection.

Each attack is a function of an `Enemy`, which says where the server is, and is
called again and again until time is up.  What the server ends meanwhile, or
refuses, is what it should.
"""

import contextlib
import fractions
import pickle
import socket
import struct
import threading
import time

from BTrees.Length import Length
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage import wire
from fsyncstorage.commit.policies import DEFAULT_READER_THREADS
from fsyncstorage.server import accounts
from fsyncstorage.server import ballot
from fsyncstorage.server import frames
from fsyncstorage.server import workers
from perf import zeowire

from ...support import oid
from ..serving import ErrorReply
from ..serving import Peer
from ..serving import counter

# The objects that are there before.
SMALL, LARGE, BLOB = 1, 2, 3
LARGE_SIZE = 16 << 20

# Bytes of memory that the server may take for all of them: what they do not
# read, their long frames, their open transactions, two answers for each reader
# thread (each is there twice while it becomes a frame), and what connections
# cost.
BOUND = (accounts.MOST_OF_ALL + frames.ROOM + ballot.IN_MEMORY_OF_ALL
         + ballot.MEMORY_ONLY_OF_ALL
         + workers.AT_HAND * DEFAULT_READER_THREADS * 2 * LARGE_SIZE
         + (64 << 20))

_LENGTH = struct.Struct('>I')


class Enemy:

    def __init__(self, address, instance, serials, seconds):
        self.address = address
        self.instance = instance
        self.serials = serials
        # From now on: a process takes its time to begin.
        self._end = time.monotonic() + seconds
        self._sockets = []

    @property
    def has_time(self):
        return time.monotonic() < self._end

    def connect(self):
        one = socket.create_connection(self.address, 5)
        self._sockets.append(one)
        return one

    def many(self, number, open_one=None):
        """So many connections, as far as they are let in."""
        opened = []
        while len(opened) < number and self.has_time:
            try:
                opened.append((open_one or self.connect)())
            except OSError:
                time.sleep(0.01)
        return opened

    def handshake(self):
        one = self.connect()
        one.sendall(zeowire.frame(zeowire.HANDSHAKE))
        return one

    def registered(self):
        one = self.handshake()
        one.sendall(zeowire.call(1, 'register', '1', False))
        inbox = zeowire.Inbox()
        received = 0
        while received < 2:  # the announcement and the answer
            data = one.recv(1 << 16)
            if not data:
                raise ConnectionError
            received += len(list(inbox.add(data)))
        return one

    def channel(self):
        one = self.connect()
        client = wire.Client(self.instance, '1')
        one.sendall(client.hello)
        while not isinstance(client.next(), wire.Welcome):
            data = one.recv(1 << 16)
            if not data:
                raise ConnectionError
            client.add(data)
        return one, client

    def stay(self, seconds=1):
        end = time.monotonic() + seconds
        while self.has_time and time.monotonic() < end:
            time.sleep(0.05)

    def say(self, one, data, seconds=5):
        """As much of it as is taken; what comes is not read."""
        one.settimeout(0.1)
        data = memoryview(data)
        end = time.monotonic() + seconds
        while data and self.has_time and time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                data = data[one.send(data[:1 << 18]):]

    def leave(self):
        for one in self._sockets:
            one.close()
        self._sockets.clear()


def run(names, *arguments):
    """Some attacks, in a process of their own."""
    for name in names:
        threading.Thread(
            target=_repeat, args=(ATTACKS[name], Enemy(*arguments))).start()


def _repeat(attack, enemy):
    while enemy.has_time:
        with contextlib.suppress(OSError, ErrorReply, EOFError):
            attack(enemy)
        enemy.leave()


# Before the handshake, and before `register`

def idle(enemy):
    """Thousands of connections that do nothing."""
    enemy.many(3000)
    enemy.stay(3)


def handshake_only(enemy):
    enemy.many(300, enemy.handshake)
    enemy.stay(3)


def announced_and_not_sent(enemy):
    for one in enemy.many(300, enemy.handshake):
        with contextlib.suppress(OSError):
            one.sendall(_LENGTH.pack(60000) + b'x')
    enemy.stay(3)


def early_frames(enemy):
    """As much as is taken, of frames that are short enough."""
    for one in enemy.many(200, enemy.handshake):
        with contextlib.suppress(OSError):
            one.sendall(_LENGTH.pack(65000) + b'x' * 64000)
    enemy.stay(2)


def wrong_register(enemy):
    one = enemy.handshake()
    enemy.say(one, zeowire.call(1, 'register', 'none', False) * 10000, 1)


def rubbish(enemy):
    for one in enemy.many(100):
        with contextlib.suppress(OSError):
            one.sendall(b'\xff' * 1000)


# A reader

def loads_unread(enemy):
    """Large objects, through reader threads or not; the answers are not read.
    """
    for call in (('loadSerial', oid(LARGE), enemy.serials[LARGE]),
                 ('loadBefore', oid(LARGE), maxtid)):
        for one in enemy.many(4, enemy.registered):
            with contextlib.suppress(OSError):
                enemy.say(one, b''.join(
                    zeowire.call(number, *call)
                    for number in range(2, 200)), 0.3)
    enemy.stay(5)


def half_frames(enemy):
    """Three of 300 MB that have begun, and many small ones."""
    for one in enemy.many(3, enemy.registered):
        with contextlib.suppress(OSError):
            enemy.say(one, _LENGTH.pack(300 << 20) + b'x' * (100 << 20), 3)
    for one in enemy.many(50, enemy.registered):
        with contextlib.suppress(OSError):
            enemy.say(one, _LENGTH.pack(1 << 20) + b'x' * (1 << 19), 1)
    enemy.stay(3)


def floods(enemy):
    """Much of each call, whose answers are not read."""
    for call in (('new_oids', 100), ('ping',), ('undoLog', 0, -(1 << 40)),
                 ('history', oid(SMALL), 1 << 40),
                 ('iterator_start', None, None),
                 ('sendBlob', oid(BLOB), enemy.serials[BLOB]),
                 ('sendBlob', oid(SMALL), enemy.serials[SMALL]),
                 ('vote', 5)):
        with contextlib.suppress(OSError):
            enemy.say(enemy.registered(), b''.join(
                zeowire.call(number, *call)
                for number in range(2, 10002)), 0.3)
    enemy.stay(1)


# A writer

def open_transactions(enemy):
    for one in enemy.many(100, enemy.registered):
        with contextlib.suppress(OSError):
            enemy.say(one, zeowire.call(
                0, 'tpc_begin', 1, b'', b'', {}, None, ' ', no_reply=True)
                + zeowire.call(0, 'storea', oid(9), z64, b'x' * (900 << 10),
                               1, no_reply=True), 1)
    enemy.stay(3)


def half_blobs(enemy):
    for one in enemy.many(50, enemy.registered):
        with contextlib.suppress(OSError):
            enemy.say(one, zeowire.call(
                0, 'tpc_begin', 1, b'', b'', {}, None, ' ', no_reply=True)
                + zeowire.call(0, 'storeBlobStart', no_reply=True)
                + zeowire.call(0, 'storeBlobChunk', b'x' * 100000,
                               no_reply=True) * 5, 1)
    enemy.stay(2)


class Calling:
    """Its pickle makes a call."""

    def __init__(self, *call):
        self._call = call

    def __reduce__(self):
        function, *arguments = self._call
        return function, tuple(arguments)


def conflicts(enemy):
    """Their states take long, or much memory."""
    with contextlib.closing(Peer(enemy.address)) as peer:
        new, = peer.call('new_oids', 1)
        number = int.from_bytes(new, 'big')
        first = peer.commit({number: counter(0)})
        peer.commit({number: counter(1)}, first)
        for state in (
                Calling(fractions.Fraction, '1e300000000'),
                Calling(list, Calling(bytes, 2 * 10**8)),
                Calling(bytes, 100 << 20)):
            data = pickle.dumps((Length, None), 3) + pickle.dumps(state, 3)
            with contextlib.suppress(ErrorReply):
                peer.vote({number: data}, first)
                peer.abort()


# A channel

def channel_loads_unread(enemy):
    for one, client in enemy.many(8, enemy.channel):
        with contextlib.suppress(OSError):
            enemy.say(one, b''.join(
                client.load(oid(LARGE), maxtid)[1] for _ in range(250)), 1)
    enemy.stay(5)


def channel_flood(enemy):
    one, client = enemy.channel()
    enemy.say(one, b''.join(
        client.load(oid(SMALL), maxtid)[1] for _ in range(20000)), 3)
    enemy.stay(1)


def past_the_end(enemy):
    """Of a blob: each is an error that is logged."""
    one, client = enemy.channel()
    enemy.say(one, b''.join(
        client.blob(oid(BLOB), enemy.serials[BLOB], 1 << 40)[1]
        for _ in range(5000)), 3)
    enemy.stay(1)


def channel_blobs_unread(enemy):
    for one, client in enemy.many(50, enemy.channel):
        with contextlib.suppress(OSError):
            enemy.say(one, b''.join(
                client.blob(oid(BLOB), enemy.serials[BLOB])[1]
                for _ in range(100)), 1)
    enemy.stay(3)


def many_channels(enemy):
    enemy.many(1200, enemy.channel)
    enemy.stay(2)


def half_requests(enemy):
    for one, client in enemy.many(100, enemy.channel):
        one.sendall(client.load(oid(SMALL), maxtid)[1][:-1])
    enemy.stay(2)


BEFORE = [idle, handshake_only, announced_and_not_sent, early_frames,
          wrong_register, rubbish]
AFTER = [loads_unread, half_frames, floods, open_transactions, half_blobs,
         conflicts, channel_loads_unread, channel_flood, past_the_end,
         channel_blobs_unread, many_channels, half_requests]
ATTACKS = {attack.__name__: attack for attack in BEFORE + AFTER}
