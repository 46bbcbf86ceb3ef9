"""HTTP, within bounds: whoever asks costs no more than that.

One thread answers all, in an event loop of its own.  A connection has one
request, of `LONGEST` bytes at most, and is closed behind the answer.  There
are no more than `MOST` of them; those that come then wait with the system.
Each may take `PATIENCE` seconds in all, however slowly its bytes come or are
taken; while others wait, the oldest one has only `GRACE`.  So whoever hangs
holds neither a thread nor the place of others.

The thread rests `REST` times as long as it has used the processor, in portions
of a `MOMENT`, before it looks for more to do.  So all that ask, however many
they are and whatever they send, together get one part in twenty of a
processor.

Of a request, the first line is read, and the header Host: hosts says why.
Each answer tells browsers to take it as what it is, to keep it nowhere, to
show it in no page of others, and to load and send nothing because of it but
from and to its own address.
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
# Connections that may wait with the system.
BACKLOG = 128
# Seconds until the next try, when no connection can be accepted.
PAUSE = 1.0
# Seconds for which the end waits for the thread.
FAREWELL = 2.0
# Seconds of rest for each second of the processor.
REST = 19
# Seconds of the processor before which it does not rest: a rest takes some of
# it, too.
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
    """Rests before it looks for what to do (in the thread of a loop)."""

    def __init__(self, rest: Callable[[float], object]) -> None:
        super().__init__()
        self._rest = rest
        #: Of the time of the processor, what was rested for.
        self._used = 0.0  # by a thread that has not begun

    def select(self, timeout: float | None = None
               ) -> list[tuple[selectors.SelectorKey, int]]:
        used = time.thread_time() - self._used
        if used >= MOMENT:
            self._used += used
            self._rest(REST * used)
        return super().select(timeout)


def response(request: bytes, answer: Callable[[str], Answer | None],
             is_ours: Callable[[str, str], bool]) -> tuple[bytes, bytes]:
    """What answers a request: the head, and the body.

    `is_ours(host, path)`: may whoever asks for that call us so?
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
    """IPv4, where the host has such an address; else IPv6, and at `::` both,
    where the system can."""
    families = {family for family, *_ in socket.getaddrinfo(
        *address, type=socket.SOCK_STREAM)}
    if socket.AF_INET in families:
        return socket.create_server(address, backlog=BACKLOG)
    return socket.create_server(
        address, backlog=BACKLOG, family=socket.AF_INET6,
        dualstack_ipv6=socket.has_dualstack_ipv6())


class Answering:

    def __init__(self, address: tuple[str, int],
                 answer: Callable[[str], Answer | None]) -> None:
        """`answer(path)` is called in the thread; None: there is no such page.

        Raises OSError if the address cannot be had.
        """
        self._answer = answer
        self._ending = threading.Event()
        self._loop = asyncio.SelectorEventLoop(_Resting(self._ending.wait))
        try:
            self._listen(address)
        except BaseException:
            self._loop.close()
            raise

    def _listen(self, address: tuple[str, int]) -> None:
        self._socket = _listening(address)
        self._socket.setblocking(False)
        # Its connections do the same: the body follows the head at once.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._is_ours = hosts.those_of(address[0], self.address[0])
        #: From the oldest: the tasks, since when, and their connections.
        self._open: dict[asyncio.Task[None], tuple[float, socket.socket]] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._thread = threading.Thread(
            target=self._run, daemon=True,
            name=f'metrics at {self.address[0]} port {self.address[1]}')
        try:
            self._thread.start()
        except BaseException:
            self._socket.close()
            raise

    def each(self, seconds: float, call: Callable[[], object]) -> None:
        """Call it in the thread, now and again and again."""
        self._loop.call_soon_threadsafe(self._call, seconds, call)

    def close(self) -> None:
        """End the thread.  Whoever is asking gets no answer."""
        self._ending.set()
        with contextlib.suppress(RuntimeError):  # it has ended by an error
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
        assert self._accepting is not None
        self._accepting.cancel()

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
        """It is over, even if it was cancelled before it began."""
        _, connection = self._open.pop(task)
        connection.close()

    async def _make_room(self) -> None:
        """Wait until one is answered; or end the oldest, if that is late."""
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
            # Not in one piece: a body may be long, and is kept once for all
            # that ask for it.
            for piece in response(request, self._answer, self._is_ours):
                await self._loop.sock_sendall(connection, piece)
