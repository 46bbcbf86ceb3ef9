"""One connection to a member: calls of gRPC, within a deadline.

A call of gRPC is a request of HTTP/2 (`http2`) on a socket (`bounded`).  Each
call has one deadline, for all that is sent and read, and a limit for the bytes
that arrive.

A connection has one question at a time.  After any trouble except Said, and
after an interrupt, its owner closes it, because nobody knows what arrives on
it next.  Another thread may call `abort`, which ends a wait at once.

A member may send something while nobody asks (a ping, to check that we are
alive or how far we are).  It is answered together with the next question.
"""

import contextlib
import socket
import ssl
import time
import typing
import urllib.parse

from . import http2
from .bounded import PACKET
from .bounded import Bounded
from .http2 import Answer
from .http2 import Http2
from .messages import PREFIX
from .messages import Question
from .protobuf import Message
from .trouble import Foreign
from .trouble import Late
from .trouble import Lost
from .trouble import Said
from .trouble import of_tls

#: Bytes of an answer besides its message: headers, and frames about the
#: connection.  The frames around the message need a fraction of its size, too.
AROUND = 1 << 14


class Address(typing.NamedTuple):
    """The address of a member, as it is written: http://host:port."""

    text: str
    host: str
    port: int
    tls: bool


class Connection:

    def __init__(self, address: Address, tls: ssl.SSLContext | None,
                 deadline: float) -> None:
        """Connect."""
        with _translated():
            self._socket = Bounded(_connected(address, tls, deadline))
        self._http = Http2()
        self._asked: tuple[Question, Answer] | None = None
        self._has_spoken = self._is_cut = False
        self._headers = (
            (b':method', b'POST'),
            (b':scheme', b'https' if address.tls else b'http'),
            (b':authority', address.text.encode().split(b'/')[2]),
            (b'content-type', b'application/grpc'), (b'te', b'trailers'))

    @property
    def is_fresh(self) -> bool:
        """The connection has not ended while nobody asked."""
        self._socket.within(AROUND, 0)
        try:
            with _translated():
                while (data := self._socket.receive_at_once()) is not None:
                    self._take(data)
        except Lost:
            return False
        return not self._http.is_over

    # A question

    def send(self, question: Question, token: str | None,
             deadline: float) -> None:
        self._within(question, deadline)
        more = () if token is None else ((b'token', token.encode()),)
        with _translated():
            answer = self._http.ask(http2.packed(
                (b':path', question.path), *self._headers, *more))
            self._asked = question, answer
            self._send(memoryview(question.body), answer)

    def _send(self, rest: memoryview, answer: Answer) -> None:
        """Send as flow control allows.  If the answer ends before all is sent,
        the rest is not sent."""
        kept = 0
        while rest and not answer.has_ended:
            room = self._http.room
            if room <= 0:
                self._flush()
                self._receive()
                continue
            some, rest = rest[:room], rest[room:]
            self._http.put(some, ends=not rest)
            kept += len(some)
            if kept >= PACKET:
                self._flush()
                kept = 0
        self._is_cut = bool(rest)
        self._flush()

    def answer(self, deadline: float) -> Message:
        """The answer to what was sent.  Raise Said for an error of etcd."""
        question, answer = self._what_was_asked()
        self._socket.deadline = deadline
        with _translated():
            while not answer.has_ended:
                self._receive()
        self._asked = None
        _check(answer)
        found = _next(question, answer)
        if found is None or answer.body:
            raise Lost('an answer that is not one message')
        return found

    # An answer that is a stream

    def listen(self, deadline: float) -> None:
        """Begin to read the answer to what was sent: a stream of messages."""
        _, answer = self._what_was_asked()
        self._socket.deadline = deadline
        with _translated():
            while not answer.has_begun:
                self._receive()
        if answer.has_ended:
            _check(answer)

    def next(self, deadline: float) -> Message:
        """The next message of the stream.  Raise Said for an error of etcd."""
        question, answer = self._what_was_asked()
        self._within(question, deadline)
        while (found := _next(question, answer)) is None:
            if answer.has_ended:
                _check(answer)
                raise Lost('a stream that has ended')
            with _translated():
                self._receive()
        return found

    # The bytes

    def _what_was_asked(self) -> tuple[Question, Answer]:
        assert self._asked is not None
        return self._asked

    def _within(self, question: Question, deadline: float) -> None:
        most = question.most
        self._socket.within(most + most // 16 + AROUND, deadline)

    def _receive(self) -> None:
        """Receive some bytes; answer what HTTP/2 wants to have answered."""
        self._take(self._socket.receive())
        self._flush()

    def _flush(self) -> None:
        data = self._http.to_send()
        if data:
            self._socket.send(data)

    def _take(self, data: bytes) -> None:
        if not data:
            raise Lost('the connection has ended')
        if not self._has_spoken and data.startswith(b'HTTP/'):
            raise Foreign('it speaks HTTP/1 only: this is no etcd, or not its'
                          ' client URL')
        self._has_spoken = True
        self._http.receive(data)

    # Its end

    @property
    def is_open(self) -> bool:
        """All questions are answered, and another one can be asked."""
        return self._asked is None and not self._is_cut

    def abort(self) -> None:
        """Wake the thread that waits for it, which then closes it."""
        self._socket.abort()

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def _translated() -> typing.Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise of_tls(error) from error
    except TimeoutError:
        raise Late('it does not answer in time') from None
    except OSError as error:
        raise Lost(f'no connection: {error}') from error
    except ValueError as error:
        raise Lost(f'a host that has no such name: {error}') from error


def _connected(address: Address, tls: ssl.SSLContext | None,
               deadline: float) -> socket.socket:
    patience = max(0.001, deadline - time.monotonic())
    plain = socket.create_connection((address.host, address.port), patience)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            return plain
        try:
            return tls.wrap_socket(plain, server_hostname=address.host)
        except (ssl.SSLEOFError, ConnectionError) as error:
            raise Lost(
                'the connection has ended before it spoke TLS. An address'
                ' without TLS begins with http://') from error
    except BaseException:
        plain.close()
        raise


def _check(answer: Answer) -> None:
    """Check how the answer has ended.  Raise Said for an error of etcd."""
    status = answer.headers.get(b':status')
    if status != b'200':
        raise Lost(f'an answer of HTTP, with status {_number(status)}')
    code = _number(answer.headers.get(b'grpc-status'))
    if code:
        words = answer.headers.get(b'grpc-message', b'')
        raise Said(code, urllib.parse.unquote_to_bytes(words).decode(
            errors='replace'))


def _number(raw: bytes | None) -> int:
    """Parse a short number."""
    if raw is None or not raw.isdigit() or len(raw) > 3:
        raise Lost('an answer with no status')
    return int(raw)


def _next(question: Question, answer: Answer) -> Message | None:
    """The next message of the answer, if all of it has arrived."""
    body = answer.body
    if len(body) < PREFIX.size:
        return None
    compressed, length = PREFIX.unpack_from(body)
    if compressed or length > question.most:
        raise Lost('an answer that is compressed, or too long')
    end = PREFIX.size + length
    if len(body) < end:
        return None
    raw = bytes(body[PREFIX.size:end])
    del body[:end]
    return Message(raw, question.fields)
