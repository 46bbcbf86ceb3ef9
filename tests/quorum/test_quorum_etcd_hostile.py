"""The log on etcd, whose members send anything at all.  Goes with
`quorum/etcd/http2.py`, but for the answers that are framed well.
"""

import random
import threading
import tracemalloc
import unittest

import hpack
from hyperframe.frame import ContinuationFrame
from hyperframe.frame import DataFrame
from hyperframe.frame import GoAwayFrame
from hyperframe.frame import HeadersFrame
from hyperframe.frame import PingFrame
from hyperframe.frame import PriorityFrame
from hyperframe.frame import RstStreamFrame
from hyperframe.frame import SettingsFrame
from hyperframe.frame import WindowUpdateFrame

from fsyncstorage.quorum.etcd import http2
from fsyncstorage.quorum.etcd.http2 import Lost
from fsyncstorage.quorum.log.interface import Unanswered

from ..often import often
from .etcdmessages import PREFIX
from .etcdmessages import delimited
from .etcdmessages import framed
from .etcdmessages import varint
from .gateway import WATCH
from .gateway import GatewaysCase
from .logcontract import START
from .logcontract import A
from .logcontract import place
from .samples import LOG

#: What is sent at once, in the place of HTTP/2, by what is wrong with it.
NO_HTTP = {
    'nothing': b'',
    'no HTTP': b'SSH-2.0-OpenSSH_9.2\r\n',
    'another version of it': b'HTTP/1.1 400 Bad Request\r\n\r\n',
    'a huge frame': b'\xff' * 100_000,
    'TLS': bytes.fromhex('15030100020246'),
    'a part of a frame': SettingsFrame(0).serialize()[:5],
    'no settings at first': PingFrame(0, b'12345678').serialize(),
}


def headers(stream, *pairs, end=False, raw=None):
    flags = ['END_HEADERS', 'END_STREAM'] if end else ['END_HEADERS']
    return HeadersFrame(
        stream, hpack.Encoder().encode(pairs) if raw is None else raw,
        flags=flags).serialize()


def settings(**values):
    return SettingsFrame(0, {
        getattr(SettingsFrame, name): value
        for name, value in values.items()}).serialize()


OK = (':status', '200'), ('content-type', 'application/grpc')
GOOD = ('grpc-status', '0'),
BODY = framed(b'')


def whole(stream, begin=OK, body=BODY, end=GOOD):
    return (headers(stream, *begin) + DataFrame(stream, body).serialize()
            + headers(stream, *end, end=True))


#: Frames in the place of an answer, for a stream.
FRAMES = {
    'data without headers':
        lambda n: DataFrame(n, BODY, flags=['END_STREAM']).serialize(),
    'headers that are broken off': lambda n: (
        HeadersFrame(n, b'').serialize() + PingFrame(0, bytes(8)).serialize()),
    'a window that is too large':
        lambda n: settings(INITIAL_WINDOW_SIZE=1 << 31),
    'a window that grows too large':
        lambda n: 3 * WindowUpdateFrame(0, (1 << 31) - 1).serialize(),
    'a stream that is reset': lambda n: RstStreamFrame(n, 7).serialize(),
    'an end of the connection':
        lambda n: GoAwayFrame(0, n, 11, b'too_many_pings').serialize(),
    'headers that are no HPACK': lambda n: headers(n, raw=b'\x80'),
    'headers that grow': lambda n: headers(
        n, raw=b'\x40\1a\x7f\xa1\x1e' + b'b' * 4000 + b'\xbe' * 10_000),
    'a long status': lambda n: whole(n, [(':status', '2' * 5000)]),
    'another place': lambda n: whole(
        n, [(':status', '302'), ('location', 'http://127.0.0.1:1/')]),
    'a status that is none': lambda n: whole(n, end=[('grpc-status', '-1')]),
    'a huge status': lambda n: whole(n, end=[('grpc-status', '9' * 4000)]),
    'no message': lambda n: whole(n, body=b''),
    'two messages': lambda n: whole(n, body=BODY * 2),
    'less than its length': lambda n: whole(n, body=PREFIX.pack(0, 20) + b'x'),
    'a huge length': lambda n: whole(n, body=b'\0\xff\xff\xff\xffxx'),
    'what is compressed': lambda n: whole(n, body=b'\1\0\0\0\0'),
}


def message(*fields):
    """Of pairs: a number, and what is under it."""
    return b''.join(
        varint(number << 3) + varint(value) if type(value) is int
        else delimited(number, value) for number, value in fields)


#: Answers that are framed well, to any question.
ANSWERS = [
    b'\xff' * 20, b'\x0a', b'\x0a\x05abc', b'\x0b', b'\x0c', b'\x0d\0',
    b'\x09',
    b'\x10' + b'\xff' * 11, b'\x10' + b'\xff' * 9 + b'\x7f', b'\0\0',
    message((2, 7)), message((2, b'\xff')), message(*[(2, b'')] * 9000),
    message((2, message((1, 7)))), message((2, message((1, b'\xff\xfe')))),
    message((2, message((1, b'a'), (1, b'b')))),
    message((3, b'')), message((3, 7)), message(*[(3, b'')] * 3),
    message(*[(3, message((2, b'')))] * 3),
    message(*[(3, message((1, 7)))] * 3),
    message(*[(3, message((1, message((2, message((5, 7)))))))] * 3),
    message((1, 7), (2, 2)), message((2, 1), (2, 1)),
    message((1, message((3, b'')))), message((1, message((3, 1 << 63)))),
    message((1, b'\xff')), message(*[(9, b'')] * 30_000),
]


class HostileCase(GatewaysCase):

    patience = 1.5

    def setUp(self):
        super().setUp()
        self.log = self.another()
        self.log.create(LOG)
        self.log.append(START, place(1), b'1')

    def all_send(self, instead):
        for gateway in self.gateways.members:
            gateway.instead = instead

    def frames_are_sent(self, frames, ends=True):
        """In the place of an answer."""
        def instead(handler, request):
            handler.is_over = True
            handler.send_raw(frames(handler.stream))
            if not ends:
                handler.wait_for_the_end()
            return True

        self.all_send(instead)

    def body_is_sent(self, raw):
        def instead(handler, request):
            handler.send_body(raw)
            return True

        self.all_send(instead)

    def speaks_at_first(self, speak):
        """On connections that are not there yet."""
        for gateway in self.gateways.members:
            gateway.at_first = speak
        for member in self.log.cluster.members:
            member.discard_idle()

    def is_well(self):
        self.all_send(None)
        self.assertEqual(self.log.read(1), [b'1'])

    def calls(self):
        """Those that take an answer apart, each in another way."""
        yield 'ends',
        yield 'ends', 1
        yield 'read', 1
        yield 'append', place(1), place(2), b'2'
        yield 'hold', A, 60
        yield 'notes',
        yield 'all_staged',
        yield 'staged', A, 0
        yield 'trim', 1

    def unanswered(self, name, *args):
        with self.assertRaises(Unanswered):
            getattr(self.log, name)(*args)


class Bounds(unittest.TestCase):

    def test_headers_as_long_as_they_may_be(self):
        front = hpack.Encoder().encode(OK) + b'\0\1x\x7f'
        for more, refused in (0, False), (1, True):
            length = http2.MOST_HEADERS - len(front) - 2 + more
            rest = length - 127  # of HPACK's number, in groups of seven bits
            block = (front + bytes([rest & 127 | 128, rest >> 7])
                     + b'v' * length)
            self.assertEqual(len(block), http2.MOST_HEADERS + more)
            connection = http2.Http2()
            answer = connection.ask(b'')
            connection.receive(settings() + HeadersFrame(
                1, block[:1000]).serialize())
            rest = ContinuationFrame(
                1, block[1000:], flags=['END_HEADERS']).serialize()
            if refused:
                with self.assertRaisesRegex(Lost, 'too long'):
                    connection.receive(rest)
            else:
                connection.receive(rest)
                self.assertEqual(answer.headers[b'x'], b'v' * length)


class AtOnce(HostileCase):

    level = 2

    def test_a_question_before_the_answer(self):
        """HTTP/2 wants to have it answered, and the member waits for that."""
        pongs = []

        def instead(handler, request):
            handler.send_raw(PingFrame(0, b'12345678').serialize())
            pongs.append(handler.connection.recv(1 << 16))

        self.all_send(instead)
        self.assertEqual(self.log.read(1), [b'1'])
        self.assertIn(b'12345678', pongs[0])

    def test_what_is_no_http_2(self):
        for name, raw in NO_HTTP.items():
            with self.subTest(name):
                self.speaks_at_first(lambda handler: handler.send_raw(raw))
                for call in self.calls():
                    self.unanswered(*call)
                self.unanswered('wait', 2, 0)
                self.speaks_at_first(None)
                self.is_well()

    def test_frames_that_are_no_answer(self):
        for name, frames in FRAMES.items():
            with self.subTest(name):
                self.frames_are_sent(frames)
                for call in self.calls():
                    self.unanswered(*call)
                self.unanswered('wait', 2, 0)
                self.is_well()

    def test_what_is_no_answer_of_etcd(self):
        for answer in ANSWERS:
            with self.subTest(answer[:30]):
                self.body_is_sent(framed(answer))
                for call in self.calls():
                    try:
                        getattr(self.log, call[0])(*call[1:])
                    except Unanswered:
                        pass
                self.is_well()

    def test_bytes_that_have_changed(self):
        """Nothing but Unanswered comes of it, or what a member may say."""
        chance = random.Random(24)
        raw = settings(MAX_FRAME_SIZE=1 << 14) + whole(1, body=framed(message(
            (1, message((3, 7))), (2, message((1, b'key'), (5, b'value'))))))

        def speak(handler):
            wrong = bytearray(raw)
            for _ in range(chance.randint(1, 3)):
                wrong[chance.randrange(len(wrong))] = chance.randrange(256)
            handler.connection.recv(1 << 16)
            handler.send_raw(bytes(wrong))

        for _ in range(200):
            self.speaks_at_first(speak)
            try:
                self.log.read(1, 0)
            except Unanswered:
                pass
        self.speaks_at_first(None)
        self.is_well()


class InTime(HostileCase):
    """One that waits, or sends a byte now and then."""

    def test_silence(self):
        for name, frames in (
                ('nothing', lambda n: b''), ('half', lambda n: b'\0\0'),
                ('headers', lambda n: headers(n, *OK)),
                ('no end', lambda n: (
                    headers(n, *OK) + DataFrame(n, BODY).serialize()))):
            with self.subTest(name):
                self.frames_are_sent(frames, ends=False)
                self.unanswered('ends')
                self.is_well()

    def test_a_byte_now_and_then(self):
        over = threading.Event()

        def instead(handler, request):
            handler.is_over = True
            raw = headers(handler.stream, *OK) + DataFrame(
                handler.stream, bytes(10_000)).serialize()
            for at in range(len(raw)):
                handler.send_raw(raw[at:at + 1])
                over.wait(0.01)
            return True

        self.all_send(instead)
        self.unanswered('ends')
        over.set()
        self.is_well()

    def test_one_that_reads_nothing(self):
        """A large question does not get into it."""
        def keep(request, address):
            self.addCleanup(request.close)

        for gateway in self.gateways.members:
            gateway.server.process_request = keep
        log = self.another()
        with self.assertRaises(Unanswered):
            log.stage(A, 0, bytes(1 << 20))


#: What has no end: how it begins, and each next one, for a stream.
ENDLESS = [
    ('data', OK, lambda n: DataFrame(n, bytes(10_000))),
    ('headers in pieces', None, lambda n: ContinuationFrame(n, bytes(100))),
    ('empty data', OK, lambda n: DataFrame(n, b'')),
    ('padding', OK, lambda n: DataFrame(
        n, b'', pad_length=250, flags=['PADDED'])),
    ('pings', (), lambda n: PingFrame(0, bytes(8))),
    ('settings', (), lambda n: SettingsFrame(0)),
    ('windows', (), lambda n: WindowUpdateFrame(n, 1)),
    ('priorities', (), lambda n: PriorityFrame(n)),
    ('headers', (), lambda n: HeadersFrame(
        n, hpack.Encoder().encode([(':status', '103')]),
        flags=['END_HEADERS'])),
]


class InMemory(HostileCase):
    """What never ends is cut off."""

    level = 2

    def endless(self, begin, more):
        def instead(handler, request):
            handler.is_over = True
            handler.send_raw(begin(handler.stream))
            while True:
                handler.send_raw(100 * more(handler.stream))

        self.all_send(instead)

    def test_an_answer_without_end(self):
        for name, begin, more in ENDLESS[:often(2, len(ENDLESS))]:
            with self.subTest(name):
                self.endless(
                    lambda n: HeadersFrame(n, b'').serialize()
                    if begin is None else b'' if not begin
                    else headers(n, *begin),
                    lambda n: more(n).serialize())
                tracemalloc.start()
                try:
                    for call in ('ends',), ('read', 1), ('wait', 2, 60):
                        self.unanswered(*call)
                    _, peak = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
                self.assertLess(peak, 32 << 20)
                self.is_well()

    def test_a_stream_of_notices_without_end(self):
        """None of them is what is waited for: its time comes to an end."""
        def instead(handler, request):
            if handler.path != WATCH:
                return False
            handler.is_over = True
            handler.begin_stream()
            handler.send_chunk({'created': True})
            while True:
                handler.send_raw(
                    DataFrame(handler.stream, BODY).serialize())

        self.all_send(instead)
        self.log.wait(2, 0.2)
        self.is_well()
