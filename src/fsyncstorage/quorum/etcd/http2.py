"""HTTP/2 (RFC 9113), as much of it as a client of gRPC needs.

It turns questions into bytes to send, and takes the bytes that arrive.  It has
no socket, thread or clock.  Whatever a server must not send raises Lost.

A connection has one stream at a time, nothing is pushed, and neither side
keeps a table of headers.  So each block of headers can be decoded
independently (by the package hpack), and equal blocks are decoded once.

The package h2 does all that, and more.  But it takes 0.4 ms of processor time
for each question, while a commit waits.
"""

import functools
import struct
from collections.abc import Iterable

from hpack import Decoder
from hpack import Encoder
from hpack import HPACKError
from hpack import NeverIndexedHeaderTuple

from .trouble import Lost

_PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'

# A frame begins with its length, the kind in the last byte; flags; the stream.
_FRONT = struct.Struct('>IBI')
(_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS, _PUSH, _PING, _GO_AWAY,
 _WINDOW, _CONTINUATION) = range(10)
# Flags.  (For settings and pings, the first flag marks the answer.)
_END, _ANSWER, _WHOLE, _PADDED, _WITH_PRIORITY = 1, 1, 4, 8, 32

# Settings.
_SETTING = struct.Struct('>HI')
_TABLE, _PUSHES, _FIRST_ROOM, _LARGEST, _LIST = 1, 2, 4, 5, 6

_NUMBER = struct.Struct('>I')
_LIMIT = (1 << 31) - 1

#: The largest frame, until a side announces something else.  (We do not.)
LARGEST = 1 << 14
#: Bytes that one stream, and all streams together, may bring at first.
_ROOM = (1 << 16) - 1
#: What we allow instead: each question has its own limit.
_OURS = 1 << 30
_MORE_AFTER = 1 << 24
#: The most bytes of a block of headers.
MOST_HEADERS = 1 << 14


class Answer:
    """What has arrived of one answer."""

    def __init__(self) -> None:
        #: The headers at its begin, and those at its end.
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.has_begun = self.has_ended = False


class Http2:

    def __init__(self) -> None:
        settings = b''.join(_SETTING.pack(*each) for each in (
            (_TABLE, 0), (_PUSHES, 0), (_FIRST_ROOM, _OURS),
            (_LIST, MOST_HEADERS)))
        self._to_send: list[bytes | memoryview] = [
            _PREFACE, _frame(_SETTINGS, 0, 0, settings),
            _frame(_WINDOW, 0, 0, _NUMBER.pack(_OURS - _ROOM))]
        self._received = bytearray()
        self._stream = -1
        # Bytes that may be sent: on all streams, on this one, on the next one
        # at first, and in one frame.
        self._room = self._room_of_stream = self._first_room = _ROOM
        self._largest = LARGEST
        # Bytes that have arrived since we last allowed more.
        self._taken = 0
        #: Headers that are not whole, and the flags that they began with.
        self._block: tuple[bytearray, int] | None = None
        self._is_settled = False
        self.answer = Answer()
        self.answer.has_ended = True
        #: No more questions can be asked.
        self.is_over = False

    # What is sent

    def to_send(self) -> bytes:
        """All bytes that are to be sent now."""
        sent = b''.join(self._to_send)
        self._to_send.clear()
        return sent

    def ask(self, headers: bytes) -> Answer:
        """Begin a question, after the one before is answered."""
        self._stream += 2
        if self._stream > _LIMIT:
            raise Lost('there were as many questions as a connection may have')
        self._room_of_stream = self._first_room
        self._send(_HEADERS, _WHOLE, headers, self._stream)
        self.answer = Answer()
        return self.answer

    @property
    def room(self) -> int:
        """How many bytes of the question can be put now; none if this is not
        above zero."""
        return min(self._largest, self._room, self._room_of_stream)

    def put(self, some: memoryview, ends: bool) -> None:
        self._to_send += (
            _front(_DATA, ends * _END, self._stream, len(some)), some)
        self._room -= len(some)
        self._room_of_stream -= len(some)

    def _send(self, kind: int, flags: int, rest: bytes, stream: int = 0
              ) -> None:
        self._to_send.append(_frame(kind, flags, stream, rest))

    # What arrives

    def receive(self, data: bytes) -> None:
        received, at = self._received, 0
        received += data
        while len(received) - at >= _FRONT.size:
            both, flags, stream = _FRONT.unpack_from(received, at)
            length, kind = both >> 8, both & 255
            if length > LARGEST:
                raise Lost('a frame of HTTP/2 that is too long, or none')
            begin = at + _FRONT.size
            if len(received) - begin < length:
                break
            at = begin + length
            self._take(kind, flags, stream & _LIMIT, bytes(received[begin:at]))
        del received[:at]

    def _take(self, kind: int, flags: int, stream: int, rest: bytes) -> None:
        if not self._is_settled and (kind, flags & _ANSWER) != (_SETTINGS, 0):
            _refuse('other frames before the settings')
        if (kind == _CONTINUATION) != (self._block is not None):
            _refuse('headers that are not continued, or others that are')
        self._is_settled = True
        if kind in (_SETTINGS, _PING, _GO_AWAY) and stream != 0:
            _refuse('a frame of the connection on a stream')
        if kind in (_DATA, _HEADERS, _CONTINUATION) and (
                stream != self._stream or self.answer.has_ended):
            _refuse('an answer that nobody asked for')
        if kind in (_RESET, _WINDOW) and stream > max(0, self._stream):
            _refuse('a stream that is not there')
        take = _TAKE.get(kind)
        if take is not None:
            take(self, flags, stream, rest)

    def _take_data(self, flags: int, stream: int, rest: bytes) -> None:
        if not self.answer.has_begun:
            _refuse('an answer without headers')
        self.answer.body += _without_padding(flags, rest)
        self.answer.has_ended = bool(flags & _END)
        self._taken += len(rest)
        if self._taken >= _MORE_AFTER:
            more, self._taken = _NUMBER.pack(self._taken), 0
            for number in 0, stream:
                self._send(_WINDOW, 0, more, number)

    def _take_headers(self, flags: int, stream: int, rest: bytes) -> None:
        rest = _without_padding(flags, rest)
        if flags & _WITH_PRIORITY:
            rest = rest[5:]
        self._block = bytearray(), flags
        self._take_continuation(flags, stream, rest)

    def _take_continuation(self, flags: int, stream: int, rest: bytes) -> None:
        assert self._block is not None
        block, first_flags = self._block
        block += rest
        if len(block) > MOST_HEADERS:
            _refuse('headers that are too long')
        if flags & _WHOLE:
            self._block = None
            self._take_block(bytes(block), bool(first_flags & _END))

    def _take_block(self, block: bytes, ends: bool) -> None:
        answer, found = self.answer, _unpacked(block)
        if answer.has_begun and not ends:
            _refuse('headers in the middle of an answer')
        if not ends and found.get(b':status', b'')[:1] == b'1':
            return  # the answer is still to come
        answer.headers.update(found)
        answer.has_begun, answer.has_ended = True, ends

    def _take_reset(self, flags: int, stream: int, rest: bytes) -> None:
        number = _number(rest)
        if stream == 0:
            _refuse('a reset of the connection')
        if stream == self._stream and not self.answer.has_ended:
            raise Lost(f'it breaks off its answer (error {number} of HTTP/2)')

    def _take_settings(self, flags: int, stream: int, rest: bytes) -> None:
        if len(rest) % _SETTING.size or flags & _ANSWER and rest:
            _refuse('settings of a wrong length')
        if flags & _ANSWER:
            return
        for name, value in _SETTING.iter_unpack(rest):
            if name == _FIRST_ROOM:
                self._room_of_stream = _with_more(
                    self._room_of_stream, value - self._first_room)
                self._first_room = _with_more(0, value)
            elif name == _LARGEST:
                if not LARGEST <= value < 1 << 24:
                    _refuse('a wrong setting')
                self._largest = value
        self._send(_SETTINGS, _ANSWER, b'')

    def _take_push(self, flags: int, stream: int, rest: bytes) -> None:
        _refuse('an answer that nobody asked for')

    def _take_ping(self, flags: int, stream: int, rest: bytes) -> None:
        if len(rest) != 8:
            _refuse('a ping of a wrong length')
        if not flags & _ANSWER:
            self._send(_PING, _ANSWER, rest)

    def _take_go_away(self, flags: int, stream: int, rest: bytes) -> None:
        self.is_over = True
        last, error = _number(rest[:4]) & _LIMIT, _number(rest[4:8])
        if not self.answer.has_ended and (error or last < self._stream):
            raise Lost(f'it ends the connection (error {error} of HTTP/2)')

    def _take_window(self, flags: int, stream: int, rest: bytes) -> None:
        more = _number(rest) & _LIMIT
        if not more:
            _refuse('no more room')
        if stream == 0:
            self._room = _with_more(self._room, more)
        elif stream == self._stream:
            self._room_of_stream = _with_more(self._room_of_stream, more)


#: By the kind of a frame; other kinds are ignored.
_TAKE = {
    _DATA: Http2._take_data, _HEADERS: Http2._take_headers,
    _RESET: Http2._take_reset, _SETTINGS: Http2._take_settings,
    _PUSH: Http2._take_push, _PING: Http2._take_ping,
    _GO_AWAY: Http2._take_go_away, _WINDOW: Http2._take_window,
    _CONTINUATION: Http2._take_continuation,
}


def _front(kind: int, flags: int, stream: int, length: int) -> bytes:
    return _FRONT.pack(length << 8 | kind, flags, stream)


def _frame(kind: int, flags: int, stream: int, rest: bytes) -> bytes:
    return _front(kind, flags, stream, len(rest)) + rest


def _refuse(what: str) -> None:
    raise Lost(f'what HTTP/2 does not allow: {what}')


def _without_padding(flags: int, rest: bytes) -> bytes:
    if not flags & _PADDED:
        return rest
    if not rest or rest[0] >= len(rest):
        _refuse('padding that is longer than the frame')
    return rest[1:len(rest) - rest[0]]


def _number(rest: bytes) -> int:
    if len(rest) != _NUMBER.size:
        _refuse('a frame of a wrong length')
    number: int
    number, = _NUMBER.unpack(rest)
    return number


def _with_more(room: int, more: int) -> int:
    if room + more > _LIMIT:
        _refuse('too much room')
    return room + more


# Headers

@functools.lru_cache(64)
def packed(*headers: tuple[bytes, bytes]) -> bytes:
    return bytes(Encoder().encode(
        [NeverIndexedHeaderTuple(*each) for each in headers]))


@functools.lru_cache(16)
def _unpacked(block: bytes) -> dict[bytes, bytes]:
    decoder = Decoder(max_header_list_size=4 * MOST_HEADERS)
    decoder.max_allowed_table_size = decoder.header_table_size = 0
    try:
        found: Iterable[tuple[bytes, bytes]] = decoder.decode(block, raw=True)
    except HPACKError as error:
        raise Lost(f'headers that are none: {type(error).__name__}') from None
    return dict(found)
