"""One connection to a member: HTTP by http.client, within a deadline.

http.client bounds each line, and each wait for the next bytes; a peer that
sends one byte now and then, or never ends, could hold a caller for ever.  So
each question has one deadline, for all that is sent and read, and a bound on
the bytes of its answer; both are looked at below http.client, at the socket.

A connection has one question at a time.  After any trouble but Said, and after
an interrupt, its owner closes it: nobody knows what comes on it next.  `abort`
may be called by another thread, and ends a wait at once.
"""

import contextlib
import http.client
import io
import select
import socket
import ssl
import time
import typing

from . import messages
from .messages import Message
from .messages import Question
from .trouble import Late
from .trouble import Lost
from .trouble import Said
from .trouble import of_tls

#: Bytes of the headers of an answer, and of an error in it.
HEADERS = 1 << 14
ERROR = 1 << 14

#: Bytes of a question that is sent as one.
PACKET = 1 << 16

_HEADERS = {'Content-Type': 'application/json'}


class Address(typing.NamedTuple):
    """Of a member, as it is written: http://host:port."""

    text: str
    host: str
    port: int
    tls: bool


class _Limited(io.RawIOBase):
    """What a socket says, up to a number of bytes and a point in time."""

    def __init__(self, wire: '_Wire') -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: typing.Any) -> int:
        return self._wire.receive(buffer)


class _Wire:
    """A socket, as http.client uses one."""

    def __init__(self, socket: socket.socket) -> None:
        self.socket = socket
        self.deadline = 0.0
        self.left = 0
        self._kept: list[bytes] = []

    def _patience(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError('it takes too long')
        return left

    def sendall(self, data: bytes) -> None:
        """Keep it for `flush`: a small question is one packet."""
        self._kept.append(data)

    def flush(self) -> None:
        kept, self._kept = self._kept, []
        if sum(map(len, kept)) <= PACKET:
            kept = [b''.join(kept)]
        try:
            for data in kept:
                self._send(data)
        except (ConnectionError, ssl.SSLEOFError):
            if isinstance(self.socket, ssl.SSLSocket):
                # It may have said why it left: our certificate.
                self.socket.settimeout(self._patience())
                self.socket.recv(1)
            raise

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self.socket.settimeout(self._patience())
            rest = rest[self.socket.send(rest):]

    def receive(self, buffer: typing.Any) -> int:
        self.socket.settimeout(self._patience())
        count = self.socket.recv_into(buffer)
        self.left -= count
        if self.left < 0:
            raise Lost('an answer that is too long')
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Limited(self))

    def close(self) -> None:
        """http.client may call it before it has read the last answer;
        `Connection.close` closes the socket."""


class Connection:

    def __init__(self, address: Address, tls: ssl.SSLContext | None,
                 deadline: float) -> None:
        """Connect."""
        with _translated():
            self._wire = _Wire(_connected(address, tls, deadline))
        self._http = http.client.HTTPConnection(address.host, address.port)
        self._http.auto_open = 0
        self._http.sock = typing.cast(socket.socket, self._wire)
        self._most = 0
        self._response: http.client.HTTPResponse | None = None

    @property
    def is_fresh(self) -> bool:
        """Nothing has come, and no end, while nobody asked."""
        poll = select.poll()
        poll.register(self._wire.socket, select.POLLIN)
        return not poll.poll(0)

    def send(self, question: Question, token: str | None,
             deadline: float) -> None:
        self._within(question.most, deadline)
        headers = dict(_HEADERS)
        if token is not None:
            headers['Authorization'] = token
        with _translated():
            self._http.request(
                'POST', question.path, question.text, headers)
            self._wire.flush()

    def answer(self, deadline: float) -> Message:
        """To what was sent.  Raise Said if it is an error of etcd."""
        self._wire.deadline = deadline
        with _translated():
            with self._http.getresponse() as response:
                return _judged(response.status, self._body(response))

    # An answer that goes on

    def listen(self, deadline: float) -> None:
        """The answer to what was sent is a stream of messages."""
        self._wire.deadline = deadline
        with _translated():
            response = self._response = self._http.getresponse()
            if response.status != 200:
                _judged(response.status, self._body(response))

    def next(self, deadline: float) -> Message:
        """The next one.  Raise Said if it is an error."""
        self._within(self._most, deadline)
        assert self._response is not None
        with _translated():
            line = self._response.readline(self._most + 1)
            if not line.endswith(b'\n'):
                raise Lost('a stream that has ended')
            found = messages.parse(line)
            if 'error' in found:
                raise _error(200, messages.message(found, 'error'))
            return messages.message(found, 'result')

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        """A length that is not true must not cost memory."""
        raw = response.read(self._most + 1)
        if not response.isclosed():
            raise Lost('an answer that is too long, or is cut off')
        return raw

    # Its end

    @property
    def is_open(self) -> bool:
        return self._http.sock is not None

    def abort(self) -> None:
        """Wake the thread that waits for it; that one closes it."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._wire.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._http.close()
        self._wire.socket.close()

    def _within(self, most: int, deadline: float) -> None:
        self._most = most
        self._wire.left = most + HEADERS
        self._wire.deadline = deadline


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
    except (http.client.HTTPException, ValueError) as error:
        # ValueError: a chunk of a negative length; a host's name that is none.
        raise Lost(
            f'an answer that is not HTTP: {type(error).__name__}') from error


def _connected(address: Address, tls: ssl.SSLContext | None,
               deadline: float) -> socket.socket:
    patience = max(0.001, deadline - time.monotonic())
    plain = socket.create_connection((address.host, address.port), patience)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            return plain
        return tls.wrap_socket(plain, server_hostname=address.host)
    except BaseException:
        plain.close()
        raise


def _judged(status: int, raw: bytes) -> Message:
    if status == 200:
        return messages.parse(raw)
    try:
        found = messages.parse(raw[:ERROR])
    except Lost:
        raise Said(status, 0, raw[:ERROR].decode('latin-1')) from None
    raise _error(status, found)


def _error(status: int, found: Message) -> Said:
    """The gateway of 3.5 has the words twice, and that of 3.6 once."""
    words = messages.text(found, 'message')
    if not words and type(found.get('error')) is str:
        words = found['error']
    code = next((messages.number(found, name)
                 for name in ('code', 'grpc_code') if name in found), 0)
    return Said(status, code, words)
