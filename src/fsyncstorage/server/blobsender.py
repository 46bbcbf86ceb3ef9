"""The blobs that a read channel sends: one after the other, in pieces.

The loop never waits for the disk: a reader thread opens the file and reads
each piece.  A small blob is read in the step that opens it, and leaves with
the answer.  Where the event loop and the transport support `sendfile`, the
operating system then sends the piece from its cache; elsewhere the loop writes
the bytes that were read.

The lengths of the blob and of each piece are announced before their bytes.  If
the file then ends early or cannot be read, there is no way to report the error
to the client: the channel is closed.
"""

import asyncio
import collections
import logging
import os

from . import quiet
from .workers import Dropped

logger = quiet.get_logger(__name__)

# With smaller pieces the switches between threads cost more than the sending.
SENT_AT_ONCE = 1 << 20
# If the client asks for at most this many bytes, they leave with the answer.
SMALL = 1 << 16


class BlobSender:

    #: The system sends a piece: nothing else may be written.
    sending = False

    def __init__(self, channel, loop, service):
        self._channel = channel
        self._loop = loop
        self._service = service
        self._requests = collections.deque()
        self._task = None
        self._woken = None

    def connected(self, transport):
        self._transport = transport
        self._system_sends = (
            isinstance(self._loop, asyncio.SelectorEventLoop)
            and transport.get_extra_info('sslcontext') is None)
        if self._system_sends:
            # With a limit of 0, `full` says whether anything is left to
            # write.  All of it has to leave before `sendfile` begins.
            transport.set_write_buffer_limits(0)

    def add(self, request):
        self._requests.append(request)
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def wake(self):
        """There is room for more, or the channel is closed."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def close(self):
        self._requests.clear()
        if self.sending:
            # Before the transport closes; else the loop would keep its socket.
            self._task.cancel()
        self.wake()

    async def _run(self):
        try:
            while self._requests:
                await self._answer(self._requests.popleft())
        except Exception as error:
            left = isinstance(error, ConnectionError)
            logger.log(logging.INFO if left else logging.ERROR,
                       '%s: a blob was not sent, its channel ends: %r',
                       self._channel.log_label, error,
                       exc_info=None if left else error)
            self._channel.abort()
        finally:
            self._task = None

    async def _answer(self, request):
        channel = self._channel
        as_of = self._service.last_tid
        try:
            file, size, end, rest = await self._in_reader(
                _open, self._service.storage, request)
        except Exception as error:
            channel.fail(request.number, as_of, error)
        else:
            with file:
                if rest:
                    await self._room()
                channel.reply(channel.speech.size(request.number, size))
                if rest:
                    channel.reply(channel.speech.chunk(
                        request.number, len(rest)) + rest)
                else:
                    for position in range(request.offset, end, SENT_AT_ONCE):
                        await self._send(request.number, file, position,
                                         min(SENT_AT_ONCE, end - position))
        channel.answered()

    async def _send(self, number, file, position, length):
        piece = await self._in_reader(_read, file, length, position)
        self._channel.flush()
        await self._room()
        head = self._channel.speech.chunk(number, length)
        if self._system_sends:
            await self._let_the_system_send(head, file, position, piece)
        else:
            self._channel.write(head + piece)
        self._channel.work()

    async def _let_the_system_send(self, head, file, position, piece):
        self.sending = True
        self._channel.look()
        try:
            self._channel.write(head)
            await self._room()
            sent = await self._loop.sendfile(
                self._transport, file, position, len(piece), fallback=False)
        except asyncio.SendfileNotAvailableError:  # not from this file system
            self._system_sends = False
            self._channel.write(piece)
        else:
            self._channel.sent(sent)
            if sent < len(piece):
                raise EOFError(f'{file.name} has become shorter')
        finally:
            self.sending = False
            self._channel.look()

    async def _in_reader(self, function, *arguments):
        future = self._loop.create_future()

        def done(result, error):
            if error is None:
                future.set_result(result)
            elif isinstance(error, Dropped):
                future.cancel()
            else:
                future.set_exception(error)

        if not self._channel.readers.submit(done, function, *arguments):
            raise asyncio.CancelledError  # the server closes
        return await future

    async def _room(self):
        """Return when there is room for more; raise CancelledError if the
        channel closes."""
        while self._channel.full and not self._channel.closed:
            self._woken = self._loop.create_future()
            await self._woken
        if self._channel.closed:
            raise asyncio.CancelledError


def _open(storage, request):
    """Return a blob's file and size, the end of what the client asked for, and
    the bytes up to there if they are few."""
    file = open(storage.loadBlob(request.oid, request.serial), 'rb',
                buffering=0)
    try:
        size = os.fstat(file.fileno()).st_size
        if size < request.offset:
            raise ValueError(
                f'a blob of {size} bytes has no offset {request.offset}')
        wanted = request.answer(size)
        rest = _read(file, wanted, request.offset) if wanted <= SMALL else b''
    except BaseException:
        file.close()
        raise
    return file, size, request.offset + wanted, rest


def _read(file, length, position):
    piece = os.pread(file.fileno(), length, position)
    if len(piece) < length:
        raise EOFError(f'{file.name} has become shorter')
    return piece
