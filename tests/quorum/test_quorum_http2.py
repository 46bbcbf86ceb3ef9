"""HTTP/2, as a client of gRPC speaks it: what is taken, and what is not.

Frames are made by the packages hyperframe and hpack.  (With h2 as the other
side it is tried in all tests of the log on etcd.)
"""

import unittest
from unittest import mock

import hpack
from hyperframe.frame import ContinuationFrame
from hyperframe.frame import DataFrame
from hyperframe.frame import Frame
from hyperframe.frame import GoAwayFrame
from hyperframe.frame import HeadersFrame
from hyperframe.frame import PingFrame
from hyperframe.frame import PriorityFrame
from hyperframe.frame import PushPromiseFrame
from hyperframe.frame import RstStreamFrame
from hyperframe.frame import SettingsFrame
from hyperframe.frame import WindowUpdateFrame

from fsyncstorage.quorum.etcd import http2
from fsyncstorage.quorum.etcd.http2 import Http2
from fsyncstorage.quorum.etcd.http2 import packed
from fsyncstorage.quorum.etcd.trouble import Lost

OK = (':status', '200'), ('content-type', 'application/grpc')
GOOD = ('grpc-status', '0'),
#: The stream of the first question.
N = 1


def raw(*frames):
    return b''.join(each.serialize() if isinstance(each, Frame) else each
                    for each in frames)


def any_frame(kind, flags, stream, rest):
    """Which may be none."""
    return len(rest).to_bytes(3, 'big') + bytes([kind, flags]) + (
        stream.to_bytes(4, 'big') + rest)


def block(*headers):
    return hpack.Encoder().encode(headers)


def headers(*pairs, end=False, stream=N):
    return HeadersFrame(stream, block(*pairs), flags=[
        'END_HEADERS', *['END_STREAM'] * end])


def settings(**values):
    return SettingsFrame(0, {getattr(SettingsFrame, name): value
                             for name, value in values.items()})


class Http2Case(unittest.TestCase):

    def asked(self):
        """A connection that has asked, and begun to be answered."""
        http = Http2()
        http.ask(packed((b':path', b'/')))
        http.receive(raw(settings()))
        http.to_send()
        return http

    def sent(self, http):
        """The frames that are to be sent."""
        found, left = [], http.to_send()
        while left:
            frame, length = Frame.parse_frame_header(memoryview(left[:9]))
            frame.parse_body(memoryview(left[9:9 + length]))
            found.append(frame)
            left = left[9 + length:]
        return found


#: What a server may not send, in place of an answer.
WRONG = {
    'a frame that is too long': any_frame(0, 0, N, bytes((1 << 14) + 1))[:9],
    'data without headers': raw(DataFrame(N, b'x')),
    'data of another stream': raw(headers(*OK), DataFrame(3, b'x')),
    'data of no stream': raw(headers(*OK), any_frame(0, 0, 0, b'x')),
    'data behind the end': raw(headers(*OK, end=True), DataFrame(N, b'x')),
    'headers of another stream': raw(headers(*OK, stream=3)),
    'headers in the middle': raw(headers(*OK), headers(*GOOD)),
    'headers behind the end': raw(
        headers(*OK, end=True), headers(*GOOD, end=True)),
    'a continuation of nothing': raw(headers(*OK), ContinuationFrame(N, b'')),
    'headers that are not continued': raw(
        HeadersFrame(N, b''), PingFrame(0, bytes(8))),
    'a continuation of another': raw(
        HeadersFrame(N, b''), ContinuationFrame(3, b'')),
    'headers that are too long': raw(HeadersFrame(N, bytes(10_000)), *[
        ContinuationFrame(N, bytes(10_000))] * 2),
    'a promise': raw(PushPromiseFrame(N, 2, block((':path', '/')), flags=[
        'END_HEADERS'])),
    'settings of a wrong length': any_frame(4, 0, 0, b'hello'),
    'an answer to settings that has some': any_frame(4, 1, 0, bytes(6)),
    'settings of a stream': any_frame(4, 0, N, b''),
    'a first room that is too large': raw(
        settings(INITIAL_WINDOW_SIZE=1 << 31)),
    'frames that may be too small': raw(settings(MAX_FRAME_SIZE=1000)),
    'frames that may be too large': raw(settings(MAX_FRAME_SIZE=1 << 24)),
    'room for nothing': any_frame(8, 0, 0, bytes(4)),
    'too much room': raw(*2 * [WindowUpdateFrame(0, (1 << 31) - 1)]),
    'too much room for the stream': raw(
        *2 * [WindowUpdateFrame(N, (1 << 31) - 1)]),
    'room for a stream that is not there': raw(WindowUpdateFrame(3, 1)),
    'room of a wrong length': any_frame(8, 0, 0, bytes(5)),
    'a ping of a wrong length': any_frame(6, 0, 0, b'x'),
    'a ping of a stream': any_frame(6, 0, N, bytes(8)),
    'a reset of the answer': raw(RstStreamFrame(N, 8)),
    'a reset of nothing': any_frame(3, 0, 0, bytes(4)),
    'a reset of a stream that is not there': raw(RstStreamFrame(3, 8)),
    'a reset of a wrong length': any_frame(3, 0, N, b''),
    'an end with an error': raw(GoAwayFrame(0, N, 11)),
    'an end before this answer': raw(GoAwayFrame(0, 0, 0)),
    'an end of a wrong length': any_frame(7, 0, 0, bytes(7)),
    'padding longer than the frame': raw(
        headers(*OK), any_frame(0, 8, N, b'\x01')),
    'padding that is nowhere': raw(headers(*OK), any_frame(0, 8, N, b'')),
    'no HPACK': any_frame(1, 4, N, b'\x80'),
    'an index of nothing': any_frame(1, 4, N, b'\xff\xff\xff\xff\x0f'),
    'a table, which we did not allow': any_frame(1, 4, N, b'\x3f\xe1\x1f'),
    'what is in a table, which there is not': any_frame(
        1, 4, N, b'\x40\x01a\x01b\xbe'),
    'a wrong Huffman code': any_frame(1, 4, N, b'\0\x81\xff\x81\xff'),
    'a header that is cut off': any_frame(1, 4, N, b'\0\x7f'),
    'headers that grow': any_frame(1, 4, N, b'\x82' * 16_000),
}


class Refused(Http2Case):

    def test_what_a_server_may_not_send(self):
        for name, data in WRONG.items():
            with self.subTest(name), self.assertRaises(Lost):
                self.asked().receive(data)

    def test_anything_before_its_settings(self):
        for data in (raw(PingFrame(0, bytes(8))), raw(headers(*OK)),
                     any_frame(4, 1, 0, b''), any_frame(99, 0, 0, b'')):
            http = Http2()
            http.ask(packed((b':path', b'/')))
            with self.assertRaises(Lost):
                http.receive(data)

    def test_an_answer_before_a_question(self):
        for data in raw(headers(*OK)), raw(RstStreamFrame(N, 8)), raw(
                WindowUpdateFrame(N, 1)):
            http = Http2()
            with self.assertRaises(Lost):
                http.receive(raw(settings()) + data)

    def test_as_many_questions_as_there_can_be(self):
        http = self.asked()
        http._stream = (1 << 31) - 3
        http.ask(b'')
        with self.assertRaises(Lost):
            http.ask(b'')


class Taken(Http2Case):

    def test_an_answer_in_any_pieces(self):
        padded = DataFrame(N, b'body', pad_length=7, flags=['PADDED'])
        both = block(*OK)
        begin = HeadersFrame(
            N, both[:1], pad_length=3, exclusive=True, depends_on=5,
            stream_weight=7, flags=['PADDED', 'PRIORITY'])
        data = raw(
            headers((':status', '103'), ('link', 'a')), begin,
            ContinuationFrame(N, both[1:2]),
            ContinuationFrame(N, both[2:], flags=['END_HEADERS']), padded,
            PriorityFrame(N, depends_on=3), DataFrame(N, b''),
            any_frame(99, 255, N, b'?'),
            DataFrame(N, b', and more'), headers(*GOOD, end=True))
        for size in 1, 2, 7, 1000:
            http = self.asked()
            for at in range(0, len(data), size):
                self.assertFalse(http.answer.has_ended)
                http.receive(data[at:at + size])
            self.assertTrue(http.answer.has_ended)
            self.assertEqual(bytes(http.answer.body), b'body, and more')
            self.assertEqual(http.answer.headers, {
                b':status': b'200', b'content-type': b'application/grpc',
                b'grpc-status': b'0'})

    def test_one_question_after_the_other(self):
        http = self.asked()
        for stream in range(1, 9, 2):
            self.assertFalse(http.answer.has_ended)
            http.receive(raw(headers(*OK, *GOOD, end=True, stream=stream)))
            # What is late about it does no harm.
            http.receive(raw(
                RstStreamFrame(stream, 0), WindowUpdateFrame(stream, 1)))
            http.ask(b'')

    def test_what_wants_an_answer(self):
        http = self.asked()
        http.receive(raw(PingFrame(0, b'whatever'), settings(), PingFrame(
            0, b'returned', flags=['ACK']), SettingsFrame(0, flags=['ACK'])))
        ping, answer = self.sent(http)
        self.assertEqual(
            (type(ping), ping.opaque_data, set(ping.flags)),
            (PingFrame, b'whatever', {'ACK'}))
        self.assertEqual(
            (type(answer), set(answer.flags)), (SettingsFrame, {'ACK'}))

    def test_an_end_that_is_announced(self):
        """This answer still comes; no more can be asked."""
        for last in N, (1 << 31) - 1:
            http = self.asked()
            http.receive(raw(GoAwayFrame(0, last, 0)))
            self.assertTrue(http.is_over)
            http.receive(raw(headers(*OK, *GOOD, end=True)))
            self.assertTrue(http.answer.has_ended)


class Room(Http2Case):

    def put(self, http, count):
        http.put(memoryview(bytes(count)), ends=False)

    def test_it_is_what_was_given(self):
        http = self.asked()
        self.assertEqual(http.room, 1 << 14)
        for _ in range(3):
            self.put(http, 1 << 14)
        self.assertEqual(http.room, (1 << 14) - 1)
        self.put(http, (1 << 14) - 1)
        self.assertEqual(http.room, 0)
        http.receive(raw(WindowUpdateFrame(N, 100)))
        self.assertEqual(http.room, 0)
        http.receive(raw(WindowUpdateFrame(0, 50)))
        self.assertEqual(http.room, 50)
        self.put(http, 50)
        http.receive(raw(WindowUpdateFrame(0, 1000)))
        self.assertEqual(http.room, 50)

    def test_settings_change_it(self):
        """Also that of a stream under way, which may then owe some."""
        http = self.asked()
        self.put(http, 100)
        http.receive(raw(settings(INITIAL_WINDOW_SIZE=1000)))
        self.assertEqual(http.room, 900)
        http.receive(raw(settings(INITIAL_WINDOW_SIZE=0)))
        self.assertEqual(http.room, -100)
        http.receive(raw(settings(
            INITIAL_WINDOW_SIZE=1 << 20, MAX_FRAME_SIZE=1 << 20)))
        self.assertEqual(http.room, (1 << 16) - 1 - 100)

    def test_the_next_question_has_its_own(self):
        http = self.asked()
        self.put(http, 1 << 14)
        http.receive(raw(
            headers(*OK, *GOOD, end=True), settings(INITIAL_WINDOW_SIZE=70),
            WindowUpdateFrame(N, 1000)))
        http.ask(b'')
        self.assertEqual(http.room, 70)

    def test_what_comes_is_given_back(self):
        """For the connection and the stream, with the padding."""
        with mock.patch.object(http2, '_MORE_AFTER', 1000):
            http = self.asked()
            http.receive(raw(headers(*OK), DataFrame(N, bytes(990))))
            self.assertEqual(self.sent(http), [])
            http.receive(raw(DataFrame(
                N, b'', pad_length=20, flags=['PADDED'])))
            self.assertEqual(
                [(each.stream_id, each.window_increment)
                 for each in self.sent(http)], [(0, 1011), (N, 1011)])


class Sent(Http2Case):

    def test_the_beginning(self):
        http = Http2()
        http.ask(packed((b':path', b'/'), (b'token', b'secret')))
        http.put(memoryview(b'body'), ends=True)
        data = http.to_send()
        preface = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
        self.assertTrue(data.startswith(preface))
        with mock.patch.object(http, 'to_send', return_value=data[
                len(preface):]):
            given, room, asked, body = self.sent(http)
        self.assertEqual(given.settings, {
            SettingsFrame.HEADER_TABLE_SIZE: 0, SettingsFrame.ENABLE_PUSH: 0,
            SettingsFrame.INITIAL_WINDOW_SIZE: 1 << 30,
            SettingsFrame.MAX_HEADER_LIST_SIZE: 1 << 14})
        self.assertEqual(room.window_increment, (1 << 30) - (1 << 16) + 1)
        found = hpack.Decoder().decode(asked.data)
        self.assertEqual(found, [(':path', '/'), ('token', 'secret')])
        # No table keeps it, here or on the way.
        self.assertFalse(found[1].indexable)
        self.assertEqual(set(asked.flags), {'END_HEADERS'})
        self.assertEqual((body.data, set(body.flags)), (
            b'body', {'END_STREAM'}))
        self.assertEqual(http.to_send(), b'')
