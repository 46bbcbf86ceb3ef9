"""Rubbish on commit channels: the others commit, and nothing is left of it.
Goes with `server/commitchannel.py`.

Each peer has a channel, and mixes the steps of some transactions with frames
that are wrong: out of their place, of wrong types, changed, or cut off.  Then
it goes away, or is disconnected.  Seeded: every run is the same.
"""

import collections
import contextlib
import itertools
import logging
import os
import random
import struct
import threading
from unittest import mock

from ZEO.asyncio.marshal import encoder
from ZODB.utils import z64

from fsyncstorage.server import calls
from fsyncstorage.wire import batch

from ..support import Thread
from ..support import oid
from ..support import owners
from ..support import until
from .fuzzing import VALUES
from .serving import Peer
from .serving import record
from .test_commitchannel import Channel
from .test_commitchannel import ChannelTestCase
from .test_commitchannel import raw

# Peers that are there at the same time.
AT_ONCE = 5

encode = encoder(b'Z5')


class Conversation:

    def __init__(self, seed):
        self.random = random.Random(seed)
        self._numbers = itertools.count(1)
        # A few transactions are under way: their numbers, and their steps.
        self._under_way = {}

    def frames(self):
        for _ in range(self.random.randrange(60)):
            place = self.random.randrange(4)
            frame = self.next_step(place)
            if self.random.random() < 0.9:
                yield frame
                continue
            number, _ = self._under_way[place]
            yield self.random.choice((
                self.any_kind, self.wrong_call, self.wrong_call,
                self.wrong_begin, lambda number: self.changed(frame)))(number)

    def next_step(self, place):
        """Of a transaction as a client does it."""
        if place in self._under_way:
            number, steps = self._under_way[place]
            for kind, rest in steps:
                return raw(kind, number, rest)
        number = next(self._numbers)
        self._under_way[place] = number, self.transaction()
        return self.next_step(place)

    def transaction(self):
        yield ord('B'), self.begin()
        for _ in range(self.random.randrange(4)):
            yield self.operation()
        if self.random.random() < 0.3:
            yield ord('T'), b''
        else:
            yield ord('V'), b''
            yield self.random.choice(b'FFFA'), b''

    def begin(self, **changes):
        arguments = dict(id=1, user=b'', description=b'', extension={},
                         tid=None, status=' ') | changes
        return encode(0, True, 'tpc_begin', tuple(arguments.values()))

    def operation(self):
        number = oid(self.random.randrange(4))
        if self.random.random() < 0.3:
            return ord('M'), batch.pack([
                (oid(self.random.randrange(4)), z64, self.random.choice(
                    (record(), b'', b'x' * 20_000)))
                for _ in range(self.random.randrange(1, 9))])
        if self.random.random() < 0.6:
            return ord('S'), number + z64 + self.random.choice(
                (record(), b'x' * 40_000))
        name, *arguments = self.random.choice((
            ('storeBlobStart',), ('storeBlobChunk', b'content'),
            ('storeBlobEnd', number, z64, record(), 1),
            ('checkCurrentSerialInTransaction', number, z64, 1),
            ('deleteObject', number, z64, 1), ('undoa', b'nothing', 1),
            ('restorea', number, b'\1' * 8, b'data', None, 1)))
        return ord('C'), encode(0, True, name, tuple(arguments))

    def any_kind(self, number):
        return raw(self.random.choice(b'BSCVVFFTQAAPx'), number,
                   self.random.randbytes(
                       self.random.choice((0, 0, 0, 16, 30))))

    def wrong_call(self, number):
        name = self.random.choice(sorted(calls.OF_A_TRANSACTION))
        count = len(calls.REGISTERED[name].kinds)
        return raw(ord('C'), number, encode(0, True, name, tuple(
            self.random.choice(VALUES) for _ in range(count))))

    def wrong_begin(self, number):
        name = self.random.choice(('user', 'extension', 'tid', 'status'))
        return raw(ord('B'), next(self._numbers), self.begin(
            **{name: self.random.choice(VALUES)}))

    def changed(self, frame):
        frame = bytearray(frame)
        for _ in range(self.random.randrange(1, 4)):
            # (Not its length: it would have to be waited for.)
            at = self.random.randrange(4, len(frame))
            frame[at] = self.random.randrange(256)
        return bytes(frame)


class Fuzz(ChannelTestCase):

    level = 2
    count = 200

    def setUp(self):
        super().setUp()
        self.channel.ping()
        # What is said of them would fill the screen.
        for name in ('fsyncstorage.server.connection', 'ZEO.StorageServer',
                     'fsyncstorage.server.commitchannel',
                     'fsyncstorage.server.service'):
            silence = mock.patch.object(
                logging.getLogger(name), 'disabled', True)
            silence.start()
            self.addCleanup(silence.stop)

    def commit(self):
        """By an honest client, on an object of its own."""
        transaction = self.channel.vote({100: record()}, self.serial)
        while not (event := self.channel.next()) == (transaction, []):
            self.assertNotEqual(event[0], transaction, event)
        self.serial = self.channel.finish(transaction)

    def test_peers(self):
        self.serial = z64
        self.commit()
        left = self.server.door._left
        over = threading.Event()

        def go_on():
            while not over.is_set():
                self.commit()

        with self.assertNoLogs('asyncio', 'ERROR'), self.assertNoLogs(
                'fsyncstorage.server.mailbox', 'ERROR'):
            honest = Thread(go_on)
            try:
                self.send()
            finally:
                over.set()
                honest.result()
            self.commit()
            until(lambda: self.server.door._left == left, 'they are gone')
        self.check_nothing_is_left()
        self.assertEqual(owners(self.storage._turns), 0)
        self.assertEqual(self.storage._begun, {})
        self.assertEqual(os.listdir(self.storage.temporaryDirectory()), [])

    def send(self):
        there = collections.deque()
        for seed in range(self.count):
            zeo = Peer(self.server.addr)
            channel = Channel(self.server, zeo)
            there.append((zeo, channel))
            conversation = b''.join(Conversation(seed).frames())
            with contextlib.suppress(ConnectionError):
                channel.send(conversation)
                if seed % 5 == 0:  # half a frame
                    channel.send(struct.pack('>IB', 1000, ord('S')))
            if len(there) == AT_ONCE:
                for each in there.popleft()[::self.random_order(seed)]:
                    each.close()
        for peer in there:
            for each in peer:
                each.close()

    def random_order(self, seed):
        """Which of its connections a peer closes first."""
        return 1 if seed % 2 else -1


class Long(Fuzz):

    level = 3
    count = 20_000
