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

from fsyncstorage.commit.policies import DEFAULT_READER_THREADS
from fsyncstorage.server import accounts
from fsyncstorage.server import ballot
from fsyncstorage.server import incoming
from fsyncstorage.server import workers
from fsyncstorage.wire import frames
from fsyncstorage.wire import values

from ...client.talking import ByHand
from ...client.talking import hello
from ...support import oid
from .. import zeowire
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
BOUND = (accounts.MOST_OF_ALL + incoming.ROOM + ballot.IN_MEMORY_OF_ALL
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

    def reader(self):
        return self._welcomed(frames.PREFACE + frames.frame(
            frames.HelloOfAReader(
                0, frames.MAGIC, frames.LOWEST, frames.HIGHEST, self.instance,
                z64, b'1')))

    def stream(self):
        return self._welcomed(frames.frame(hello()))

    def _welcomed(self, first):
        one = self.connect()
        one.sendall(first)
        peer = ByHand(one)
        peer.next_body()  # the greeting
        if not isinstance(peer.next(), frames.Welcome):
            raise ConnectionError
        return one

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


# A reader of a client of ours

def said(message, number):
    """The same, so often, with numbers."""
    return b''.join(frames.frame(message._replace(number=1 + each))
                    for each in range(number))


def reader_loads_unread(enemy):
    for one in enemy.many(8, enemy.reader):
        with contextlib.suppress(OSError):
            enemy.say(one, said(frames.Load(0, oid(LARGE), maxtid), 250), 1)
    enemy.stay(5)


def reader_flood(enemy):
    enemy.say(enemy.reader(), said(
        frames.Load(0, oid(SMALL), maxtid), 20000), 3)
    enemy.stay(1)


def past_the_end(enemy):
    """Of a blob: each is an error that is logged."""
    for open_one in enemy.reader, enemy.stream:
        enemy.say(open_one(), said(
            frames.GetBlob(0, oid(BLOB), enemy.serials[BLOB], 1 << 40, 1),
            5000), 3)
    enemy.stay(1)


def reader_blobs_unread(enemy):
    whole = frames.GetBlob(
        0, oid(BLOB), enemy.serials[BLOB], 0, frames.LONGEST_BLOB)
    for one in enemy.many(50, enemy.reader):
        with contextlib.suppress(OSError):
            enemy.say(one, said(whole, 100), 1)
    enemy.stay(3)


def many_readers(enemy):
    enemy.many(1200, enemy.reader)
    enemy.stay(2)


def half_requests(enemy):
    for one in enemy.many(100, enemy.reader):
        one.sendall(frames.frame(frames.Load(1, oid(SMALL), maxtid))[:-1])
    enemy.stay(2)


# A stream

def stream_unread(enemy):
    """Much of each question, whose answers are not read."""
    for message in (
            frames.Load(0, oid(LARGE), maxtid),
            frames.GetBlob(0, oid(BLOB), enemy.serials[BLOB], 0,
                           frames.LONGEST_BLOB),
            frames.Ping(0), frames.Vote(0), frames.Ask(0, bytes(16), z64),
            frames.Call(0, b'undoLog', values.encoded((0, -(1 << 40)))),
            frames.Call(0, b'iterator_start', values.encoded((None, None)))):
        for one in enemy.many(3, enemy.stream):
            with contextlib.suppress(OSError):
                enemy.say(one, said(message, 2000), 0.3)
    enemy.stay(3)


def stream_transactions(enemy):
    """As many as may be open at once, each with much that is not voted."""
    for one in enemy.many(20, enemy.stream):
        with contextlib.suppress(OSError):
            for number in range(1, 1 + frames.MOST_OPEN):
                enemy.say(one, b''.join(map(frames.frame, (
                    frames.Begin(number, bytes(16), z64, b' ', b'',
                                 bytes(60_000), b''),
                    frames.Store(number, oid(9), z64, bytes(900 << 10)),
                    frames.BlobBegin(number),
                    frames.BlobPiece(number, bytes(100_000))))), 1)
    enemy.stay(3)


def later_hellos(enemy):
    """One client whose streams end each other."""
    client = bytes(16)
    for number in range(1, 200):
        with contextlib.suppress(OSError):
            enemy.connect().sendall(frames.frame(hello(client, number)))


BEFORE = [idle, handshake_only, announced_and_not_sent, early_frames,
          wrong_register, rubbish]
AFTER = [loads_unread, half_frames, floods, open_transactions, half_blobs,
         conflicts, reader_loads_unread, reader_flood, past_the_end,
         reader_blobs_unread, many_readers, half_requests, stream_unread,
         stream_transactions, later_hellos]
ATTACKS = {attack.__name__: attack for attack in BEFORE + AFTER}
