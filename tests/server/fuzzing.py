"""Frames that no honest client sends, made of a seed.

Half of them are frames of an honest conversation with something changed, as a
fault or a patient attacker changes them.  The others are made to do harm:
values of wrong types in each place of each call, pickles that call, announce
and nest, arrays that claim to be long.
"""

import itertools
import os
import pickle
import random
import struct

from ZEO.asyncio.marshal import encoder
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.server import calls
from fsyncstorage.wire import frames
from fsyncstorage.wire import values

from .test_server_decoding import STOCK
from .test_server_decoding import TRANSACTION
from .test_server_decoding import fits
from .test_server_hostile import A_BIG_MEMO
from .test_server_hostile import NO_HASH_ENDS
from .test_server_hostile import Calling
from .test_server_hostile import nested
from .zeowire import frame

# It takes long, and it is no question of frames.
LEFT_OUT = 'pack'

VALUES = (
    None, True, 0, -1, 1 << 62, TRANSACTION, 1.5, float('nan'), '', 'x', ' ',
    b'', b'x', z64, maxtid, b'\xff' * 8, (), (z64,), {}, {'a': 1}, [],
    [z64] * 3, b'x' * 5000, 'tid', 'x' * 2000, [[[[]]]], {'a': {'b': [{}]}},
)
EXTREMES = (b'\0\0\0\0', b'\xff\xff\xff\xff', b'\x7f\xff\xff\xff',
            b'\xff\xff\xff\x7f', b'\x00\x01\x00\x00')

BEGIN = (0, True, 'tpc_begin', (TRANSACTION, b'', b'', {}, None, ' '))
STORE = (0, True, 'storea', (z64, z64, b'data', TRANSACTION))
VOTE = (9, False, 'vote', (TRANSACTION,))
BLOB = (0, True, 'storeBlobStart', ()), (0, True, 'storeBlobChunk', (b'x',))


class Fuzzer:
    """What peers send, one after the other."""

    #: Of each connection.
    frames = 10

    def __init__(self, seed, encoding, canary):
        self.random = random.Random(seed)
        self.handshake = encoding
        self._encode = encoder(encoding)
        self._honest = [self._encode(*message) for message in STOCK
                        if message[2] != LEFT_OUT]
        bombs = [pickle.dumps((1, False, 'ping', (bomb,)), 3) for bomb in (
            Calling(os.system, f'touch {canary}'), Calling(open, canary, 'w'),
            Calling(eval, f'open({canary!r}, "w")'))]
        self._hostile = bombs + [
            A_BIG_MEMO, NO_HASH_ENDS, nested(5000) + b'.',
            *(b'\x80\x03(' + opcode * 5000 + b't.' for opcode in (
                b']', b'}', b')', b'N', b'(', b'K\0')),
            *(header * 5000 for header in (
                b'\x91', b'\x81\xa1a', b'\x80', b'\xdc\x0f\xff')),
            *(header + extreme for extreme in EXTREMES for header in (
                b'\xdd', b'\xdf', b'\xdb', b'\xc6', b'\xc9', b'B', b'X',
                b'\x80\x03Nr', b'\x80\x03j', b'\x8b')),
        ]

    # Conversations: what one connection sends, by its stage

    def conversation(self):
        stage = self.random.choice(self.STAGES)
        sent = b''.join(map(frame, getattr(self, stage)()))
        # The lengths of frames may be wrong, too.
        return self.changed(sent) if self.random.random() < 0.2 else sent

    STAGES = ('handshakes', 'unregistered', 'reader', 'reader', 'writer',
              'writer', 'writer', 'writer')

    def handshakes(self):
        """All but the first are behind something that was no handshake."""
        yield self.changed(self.handshake)
        for _ in range(self.frames - 1):
            yield self.hostile()

    def unregistered(self):
        yield self.handshake
        yield from self.hostiles()

    def reader(self):
        yield from self.registered(True)
        yield from self.hostiles()

    def writer(self):
        """In each state of a transaction."""
        yield from self.registered(False)
        steps = [BEGIN, STORE, VOTE]
        if self.random.random() < 0.3:
            steps[2:] = BLOB
        for step in steps[:self.random.randrange(len(steps) + 1)]:
            yield self._encode(*step)
        yield from self.hostiles()

    def registered(self, read_only):
        yield self.handshake
        yield self._encode(1, False, 'register', ('1', read_only))

    # Frames

    def hostiles(self):
        """What ends a connection comes last."""
        for _ in range(self.frames - 1):
            yield self.wrong_call(asked=True)
        yield self.hostile()

    def hostile(self):
        return self.random.choice((
            self.changed_honest, self.changed_honest, self.made,
            self.wrong_call, self.noise))()

    def made(self):
        content = self.random.choice(self._hostile)
        return content if self.random.random() < 0.7 else self.changed(content)

    def changed_honest(self):
        return self.changed(self.random.choice(self._honest))

    def noise(self):
        return self.random.randbytes(self.random.randrange(200))

    def wrong_call(self, asked=False):
        """A call with values that may be anything, or nearly right."""
        name = self.random.choice(_NAMES)
        kinds = calls.REGISTERED[name].kinds
        count = len(kinds) if self.random.random() < 0.8 else (
            self.random.randrange(6))
        arguments = [self.random.choice(VALUES) for _ in range(count)]
        if self.random.random() < 0.7:
            arguments = [
                next((value for value in self.random.sample(
                    VALUES, len(VALUES)) if fits(kind, value)), None)
                for kind in kinds]
        return self._encode(
            self.random.randrange(100),
            not asked and self.random.random() < 0.5, name, tuple(arguments))

    def changed(self, content):
        for _ in range(self.random.choice((1, 1, 1, 2, 5))):
            content = self.random.choice(self._changes)(self, content)
        return content

    def _flip(self, content):
        at = self.random.randrange(len(content) + 1)
        return content[:at] + self.random.randbytes(1) + content[at + 1:]

    def _cut(self, content):
        return content[:self.random.randrange(len(content) + 1)]

    def _leave_out(self, content):
        start, end = sorted(
            self.random.randrange(len(content) + 1) for _ in range(2))
        return content[:start] + content[end:]

    def _repeat(self, content):
        start = self.random.randrange(len(content) + 1)
        part = content[start:start + self.random.randrange(1, 20)]
        return content[:start] + part * self.random.randrange(
            2, 100) + content[start:]

    def _put_in(self, content):
        at = self.random.randrange(len(content) + 1)
        return content[:at] + self.random.choice(
            EXTREMES + tuple(self._hostile))[:300] + content[at:]

    def _overwrite(self, content):
        at = self.random.randrange(len(content) + 1)
        return content[:at] + self.random.choice(EXTREMES) + content[at + 4:]

    _changes = _flip, _flip, _cut, _leave_out, _repeat, _put_in, _overwrite


_NAMES = sorted(set(calls.REGISTERED) - {LEFT_OUT})


class _OursFuzzer(Fuzzer):
    """Frames of our own protocol, of which some are changed."""

    def __init__(self, seed, instance):
        self.random = random.Random(seed)
        self._hostile = [struct.pack('>IB', length, kind) for kind in b'LGBSx'
                         for length in (0, 4, 21, 37, 1 << 16, 0xffffffff)]
        self._instance = instance

    def conversation(self):
        return getattr(self, self.random.choice(self.STAGES))()

    def changed_frame(self, message):
        return self.changed(frames.frame(message))


class ReaderFuzzer(_OursFuzzer):
    """What comes on a reader, and as its preface and hello."""

    STAGES = 'hellos', 'requests', 'requests', 'requests'

    def __init__(self, seed, instance):
        super().__init__(seed, instance)
        self._hello = frames.PREFACE + frames.frame(frames.HelloOfAReader(
            0, frames.MAGIC, frames.LOWEST, frames.HIGHEST, instance, z64,
            b'1'))
        self._honest = [
            frames.frame(message) for tid in (z64, maxtid) for message in (
                frames.Load(1, z64, tid), frames.Load(2, tid, tid),
                frames.GetBlob(3, z64, tid, 0, 1 << 20),
                frames.GetBlob(4, z64, tid, 5, 10))]

    def hellos(self):
        return self.changed(self._hello) + self._some()

    def requests(self):
        return self._hello + self._some() + self.changed_honest()

    def _some(self):
        return b''.join(self.random.choices(self._honest, k=self.frames - 1))


class StreamFuzzer(_OursFuzzer):
    """What comes on a stream, and as its hello.

    Steps of some transactions are mixed with frames that are wrong: out of
    their place, changed, or of values that may be anything.  Then it goes, in
    the middle of a frame or not.
    """

    STAGES = 'hellos', *['transactions'] * 8
    #: Of transactions that are under way at the same time.
    places = 4
    #: Clients, whose later streams end the earlier.
    clients = 20

    def __init__(self, seed, instance):
        super().__init__(seed, instance)
        self._streams = itertools.count(1)

    def hello(self):
        client = self.random.randrange(self.clients).to_bytes(16, 'big')
        return frames.Hello(
            0, frames.MAGIC, frames.LOWEST, frames.HIGHEST, client,
            next(self._streams), self.random.choice((z64, maxtid, b'x' * 8)),
            self.random.choice((0, 0, 0, frames.TAKES_READ_ONLY, 0xff)),
            b'1', b'label', b'1.0')

    def hellos(self):
        return self.changed_frame(self.hello()) + b''.join(
            map(frames.frame, self.transaction(1)))

    def transactions(self):
        said = [frames.frame(self.hello())]
        self._numbers = itertools.count(1)
        under_way = {}
        for _ in range(self.random.randrange(60)):
            message = self._next_step(under_way)
            wrong = self.random.random() < 0.1
            said.append(self.wrong(message) if wrong
                        else frames.frame(message))
        if self.random.random() < 0.2:  # half a frame
            said.append(struct.pack('>IB', 1000, ord('S')))
        return b''.join(said)

    def _next_step(self, under_way):
        place = self.random.randrange(self.places)
        while True:
            for message in under_way.get(place, ()):
                return message
            under_way[place] = self.transaction(next(self._numbers))

    def transaction(self, number):
        """As a client does it."""
        yield frames.Begin(
            number, self.random.randbytes(16), z64, b' ', b'', b'', b'')
        for _ in range(self.random.randrange(4)):
            yield self.operation(number)
        if self.random.random() < 0.3:
            yield frames.Trip(number)
        else:
            yield frames.Vote(number)
            yield self.random.choice(
                (frames.Finish, frames.Finish, frames.Abort))(number)

    def operation(self, number):
        oid = self.random.randrange(4).to_bytes(8, 'big')
        data = self.random.choice((b'', b'data', b'x' * 20_000))
        return self.random.choice((
            frames.Store(number, oid, z64, data),
            frames.Store(number, oid, z64, data),
            frames.Stores(number, frames.many([(oid, z64, data)] * 3)),
            frames.Check(number, oid, z64), frames.Delete(number, oid, z64),
            frames.Undo(number, b'nothing'),
            frames.Restore(number, oid, b'\1' * 8, z64, 1, data),
            frames.BlobBegin(number), frames.BlobPiece(number, data),
            frames.BlobEnd(number, oid, z64, b'record'),
            frames.BlobByName(number, oid, z64, b'a.tmp-', b'record'),
            frames.Load(number + 1000, oid, maxtid),
            frames.GetBlob(number + 2000, oid, maxtid, 0, 9),
            frames.Ask(number + 3000, bytes(16), z64),
            frames.Ping(number + 4000)))

    def wrong(self, message):
        return self.random.choice((
            self._any_kind, self._wrong_call, self._wrong_call,
            self._wrong_begin, self.changed_frame, self.changed_frame,
        ))(message)

    def _any_kind(self, message):
        rest = self.random.randbytes(self.random.choice((0, 0, 0, 16, 30)))
        return struct.pack(
            '>IBI', 5 + len(rest), self.random.choice(b'HRBSXUOPEVVFFTQAAIvx'),
            message.number) + rest

    def _wrong_call(self, message):
        name = self.random.choice(_NAMES_OF_OURS)
        arguments = tuple(self.random.choice(VALUES)
                          for _ in calls.OF_OURS[name].kinds)
        return frames.frame(frames.Call(
            message.number, name.encode(), values.encoded(arguments)))

    def _wrong_begin(self, message):
        changes = self.random.choice((
            {'extension': values.encoded(self.random.choice(VALUES))},
            {'extension': self.random.choice(self._hostile)},
            {'tid': maxtid}, {'status': b'x'}, {'user': b'x' * 65_000}))
        return frames.frame(frames.Begin(
            next(self._numbers), bytes(16), z64, b' ', b'', b'',
            b'')._replace(**changes))


_NAMES_OF_OURS = sorted(set(calls.OF_OURS) - {LEFT_OUT})
