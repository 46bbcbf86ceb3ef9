"""HTTP with bounded cost, whatever a peer sends.

One thread answers all requests, in an event loop of its own.  A connection has
one request, of at most `LONGEST` bytes, and is closed after the answer.  At
most `MOST` connections are open; further ones wait in the backlog of the
system.  Each may take `PATIENCE` seconds in all, however slowly its bytes
arrive or are read; while others wait, the oldest one may take only `GRACE`
seconds.  So a peer that hangs blocks neither a thread nor the place of others.

The thread rests `REST` times as long as it has used the processor, as soon as
that is a `MOMENT`, before it looks for more to do.  So all peers together,
however many they are and whatever they send, get one twentieth of a processor.

Only the first line of a request is read, and the header Host: hosts says why.
Each answer tells browsers to use it only as its declared type, not to store
it, not to show it within pages of others, and to load from and send to nothing
but its own address.
"""

import asyncio
import contextlib
import http
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from . import hosts

logger = logging.getLogger(__name__)

MOST = 32
LONGEST = 1 << 13
PATIENCE = 10.0
GRACE = 1.0
# Connections that may wait in the backlog of the system.
BACKLOG = 128
# Seconds until the next try if no connection can be accepted.
PAUSE = 1.0
# Seconds that a close waits for the thread.
FAREWELL = 2.0
# Seconds of rest for each second of processor time.
REST = 19
# Seconds of processor time that must be used before a rest: a rest itself
# takes some processor time, too.
MOMENT = 0.001

_PIECE = 1 << 12

TEXT = 'text/plain; charset=utf-8'

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script';"
    " trusted-types 'none'")
_TO_BROWSERS = (
    'Cache-Control: no-store\r\n'
    f'Content-Security-Policy: {_POLICY}\r\n'
    'Cross-Origin-Resource-Policy: same-origin\r\n'
    'Referrer-Policy: no-referrer\r\n'
    'X-Content-Type-Options: nosniff\r\n')


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes


class _Resting(selectors.DefaultSelector):
    """Rests before it looks for what to do, in the thread of a loop."""

    def __init__(self, rest: Callable[[float], object]) -> None:
        super().__init__()
        self._rest = rest
        #: The processor time for which the thread has rested.
        self._used = 0.0  # the thread has not begun

    def select(self, timeout: float | None = None
               ) -> list[tuple[selectors.SelectorKey, int]]:
        used = time.thread_time() - self._used
        if used >= MOMENT:
            self._used += used
            self._rest(REST * used)
        return super().select(timeout)


def response(request: bytes, answer: Callable[[str], Answer | None],
             is_ours: Callable[[str, str], bool]) -> tuple[bytes, bytes]:
    """The answer to a request: the head, and the body.

    `is_ours(host, path)`: may a request for this path use this host name?
    """
    first, *headers = request.partition(b'\r\n\r\n')[0].split(b'\r\n')
    words = first.split(b' ')
    if len(words) != 3 or not words[2].startswith(b'HTTP/1.'):
        found = _failed(http.HTTPStatus.BAD_REQUEST)
    else:
        path = words[1].partition(b'?')[0].decode('latin-1')
        if not all(is_ours(named, path) for named in hosts.named_in(headers)):
            found = _STRANGER
        elif words[0] not in (b'GET', b'HEAD'):
            found = _failed(http.HTTPStatus.NOT_IMPLEMENTED)
        else:
            found = answer(path) or _failed(http.HTTPStatus.NOT_FOUND)
    head = (f'HTTP/1.0 {found.status:d} {http.HTTPStatus(found.status).phrase}'
            f'\r\nContent-Type: {found.content_type}'
            f'\r\nContent-Length: {len(found.body)}\r\n'
            f'{_TO_BROWSERS}\r\n').encode()
    return head, b'' if words[0] == b'HEAD' else found.body


def _failed(status: http.HTTPStatus) -> Answer:
    return Answer(status, TEXT, f'{status.phrase}\n'.encode())


_STRANGER = Answer(
    http.HTTPStatus.MISDIRECTED_REQUEST, TEXT,
    b'ask by localhost, by an address in numbers, or by the name that is'
    b' configured: this name may be that of a stranger\n')


def _listening(address: tuple[str, int]) -> socket.socket:
    """A listening socket: IPv4 if the host has such an address, else IPv6.

    At `::` it listens for both, if the system can do that.
    """
    families = {family for family, *_ in socket.getaddrinfo(
        *address, type=socket.SOCK_STREAM)}
    if socket.AF_INET in families:
        listening = socket.create_server(address, backlog=BACKLOG)
    else:
        listening = socket.create_server(
            address, backlog=BACKLOG, family=socket.AF_INET6,
            dualstack_ipv6=socket.has_dualstack_ipv6())
    listening.setblocking(False)
    # Its connections inherit this: the body follows the head at once.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class Answering:

    def __init__(self, address: tuple[str, int],
                 answer: Callable[[str], Answer | None]) -> None:
        """`answer(path)` is called in the thread; None: there is no such page.

        Raises OSError if it cannot listen at the address.
        """
        self._answer = answer
        self._ending = threading.Event()
        #: The oldest first: the tasks, when they began, and their connections.
        self._open: dict[asyncio.Task[None], tuple[float, socket.socket]] = {}
        with contextlib.ExitStack() as stack:
            self._socket = stack.enter_context(_listening(address))
            self.address: tuple[str, int] = self._socket.getsockname()[:2]
            self._is_ours = hosts.those_of(address[0], self.address[0])
            self._loop = stack.enter_context(contextlib.closing(
                asyncio.SelectorEventLoop(_Resting(self._ending.wait))))
            self._thread = threading.Thread(
                target=self._run, daemon=True,
                name='metrics at {} port {}'.format(*self.address))
            self._thread.start()
            stack.pop_all()

    def each(self, seconds: float, call: Callable[[], object]) -> None:
        """Call it in the thread: at once, and again every `seconds`."""
        self._loop.call_soon_threadsafe(self._call, seconds, call)

    def close(self) -> None:
        """End the thread.  Requests under way get no answer."""
        self._ending.set()
        with contextlib.suppress(RuntimeError):  # an error has ended it
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join(FAREWELL)
        if self._thread.is_alive():
            logger.warning(
                'metrics at %s port %s have not ended: a figure takes long',
                *self.address)

    def abandon(self) -> None:
        """Called in the child of a fork, where there is no such thread."""
        # Nothing else: the loop's selector belongs to the parent, too.
        self._socket.close()
        for _, connection in list(self._open.values()):
            connection.close()

    # In the thread

    def _run(self) -> None:
        with contextlib.closing(self._loop), self._socket:
            self._accepting = self._loop.create_task(self._accept_all())
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._accepting)

    def _call(self, seconds: float, call: Callable[[], object]) -> None:
        self._loop.call_later(seconds, self._call, seconds, call)
        call()

    def _end(self) -> None:
        # What is accepted just now is cancelled behind that, or it is lost.
        self._loop.remove_reader(self._socket)
        self._loop.call_soon(self._accepting.cancel)

    async def _accept_all(self) -> None:
        try:
            while True:
                await self._accept()
        finally:
            for task in self._open:
                task.cancel()
            if self._open:
                await asyncio.wait(self._open)

    async def _accept(self) -> None:
        try:
            connection, _ = await self._loop.sock_accept(self._socket)
        except OSError as error:  # no descriptor is left, for example
            logger.debug('no connection can be accepted: %s', error)
            await asyncio.sleep(PAUSE)
            return
        task = self._loop.create_task(self._serve(connection))
        self._open[task] = self._loop.time(), connection
        task.add_done_callback(self._forget)
        while len(self._open) >= MOST:
            await self._make_room()

    def _forget(self, task: asyncio.Task[None]) -> None:
        """The task has ended, even if it was cancelled before it began."""
        _, connection = self._open.pop(task)
        connection.close()

    async def _make_room(self) -> None:
        """Wait until one is answered; or end the oldest, if it is too slow."""
        oldest, (since, _) = next(iter(self._open.items()))
        left = max(0.0, since + GRACE - self._loop.time())
        answered, _ = await asyncio.wait(
            self._open, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not answered:
            oldest.cancel()
            await asyncio.wait([oldest])

    async def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._exchange(connection), PATIENCE)

    async def _exchange(self, connection: socket.socket) -> None:
        request = b''
        while b'\r\n\r\n' not in request and len(request) <= LONGEST:
            piece = await self._loop.sock_recv(connection, _PIECE)
            if not piece:
                return
            request += piece
        if len(request) <= LONGEST:
            # Head and body are not joined: that would copy the body, which
            # may be long and is shared by all who ask for it.
            for piece in response(request, self._answer, self._is_ours):
                await self._loop.sock_sendall(connection, piece)
