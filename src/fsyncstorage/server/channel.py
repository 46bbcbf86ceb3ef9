"""A read channel: a client of ours loads objects and blobs, and nothing else.

It begins as any connection does, with the server's announcement.  A hello in
place of the client's handshake makes it a channel: the transport gets another
protocol object, which speaks the frames of `wire`.  The channel promises:

- The answer to a load names the tid for which the answer is true.  Replies may
  come in another order than requests, and keep no order with the invalidations
  on the client's other connection: the client relies on that tid alone.
- A cached record is answered at once, any other by the reader threads.
  Replies to requests that came together leave together.
- Blobs are sent one after the other, in pieces, with replies between them.  A
  blob that turns out shorter than announced ends the channel.
- Nothing waits for a channel: the server stops reading from a client that does
  not read its answers or has too many requests unanswered, and disconnects one
  that breaks the protocol or stops in the middle of a frame.

All of it runs in the event loop.  Left to others: the frames (wire), the files
of blobs (blobsender).
"""

import asyncio
import functools
from typing import Any

from ZEO.shortrepr import short_repr
from ZODB.POSException import POSKeyError

from .. import wire
from . import calls
from . import quiet
from .accounts import Account
from .blobsender import BlobSender
from .clients import Tally
from .frames import Patience
from .threads import attempt

logger = quiet.get_logger(__name__)

MOST_CHANNELS = 1000
# Requests of one channel that may be unanswered; then it is not read.
WINDOW = 256
# Requests of one channel that are taken before others have their turn.
TURN = 64
# Bytes of replies that are gathered before they are sent.
GATHERED = 1 << 16


class Unwelcome(Exception):
    """The channel is not opened.  Its arguments are reason and text."""


def refuse_unless_meant(server, hello, version, protocol):
    """Refuse a hello of another version, or for another server."""
    if hello.version != version:
        raise Unwelcome(
            wire.OTHER_VERSION,
            f'this server speaks version {version} of {protocol}, not'
            f' {hello.version}')
    if hello.instance != server.instance:
        raise Unwelcome(
            wire.OTHER_INSTANCE, 'the server was restarted: reconnect')


def admit(server, message):
    """Return the service that a hello asks for, and the tally of its client;
    or raise `Unwelcome`."""
    hello = wire.read_hello(message)
    refuse_unless_meant(server, hello, wire.VERSION, 'the channel protocol')
    if hello.storage not in server.services:
        raise Unwelcome(wire.UNKNOWN_STORAGE,
                      f'no storage {short_repr(hello.storage)} is served here')
    open_channels = sum(
        service.figures.channels for service in server.services.values())
    if open_channels >= MOST_CHANNELS:
        raise Unwelcome(wire.TOO_MANY,
                      f'{open_channels} channels are open, which is the limit')
    # (A new Tally is for a client that has gone: nobody will read it.)
    return (server.services[hello.storage],
            server.tallies.get(hello.mark) or Tally())


class Channel(asyncio.Protocol):

    closed = False
    #: There is more to send than the peer takes at the moment.
    full = False
    #: What makes the frames.
    speech: Any = wire

    def __init__(self, loop, label, service, accounts, forget, tally,
                 may_answer=None):
        self._loop = loop
        self.log_label = label
        self._service = service
        self._figures = service.figures
        #: Of the client whose channel it is (clients.Tally).
        self._tally = tally
        self._forget = forget
        self.account = Account(accounts, self)
        self.readers = service.readers.line(self.account)
        self._requests = self.speech.Requests()
        self._blobs = BlobSender(self, loop, service)
        self._may_answer = may_answer
        self._replies = []
        self._gathered = 0  # bytes of them
        self._unanswered = 0
        self._paused = False
        self._work_is_near = False
        self._frame_patience = Patience(loop, self.abort)

    # What asyncio calls

    def connection_made(self, transport):
        self.transport = transport
        self._figures.channels += 1
        self._blobs.connected(transport)
        self.reply(self.speech.welcome())
        self.flush()

    def data_received(self, data):
        self._figures.received += len(data)
        self._tally.received += len(data)
        self._requests.add(data)
        self.work()

    def pause_writing(self):
        self.full = True
        self.look()

    def resume_writing(self):
        self.full = False
        for step in self._blobs.wake, self.look, self.work:
            attempt(step)

    def connection_lost(self, error):
        self.closed = True
        self._figures.channels -= 1
        self._frame_patience.over()
        self._replies.clear()
        self._blobs.close()
        self.readers.close()
        self.account.close()
        self._forget(self)

    # What waits for the peer

    def look(self):
        """Go on, after any change of what can be written."""
        if self.full or self._blobs.sending:
            self.account.paused()
        else:
            attempt(self.account.resumed)
            self.readers.wake()

    def unsent(self):
        return self.transport.get_write_buffer_size() + self._gathered

    def cut_off(self):
        logger.error('%s: a channel is closed: its client does not read',
                     self.log_label)
        self.abort()

    # Taking requests

    def work(self):
        """Answer what may be answered now."""
        self._work_is_near = False
        if self.closed:
            return
        try:
            taken = self._take_some()
        except self.speech.PeerError as error:
            logger.error('%s: a channel is closed: %s', self.log_label, error)
            self.abort()
            return
        self.flush()
        more = taken == TURN
        if more:
            self.work_soon()
        self._read(self._may_take() and not more)
        if taken or self._paused:
            self._frame_patience.over()
        if self._requests.waiting and not self._paused:
            self._frame_patience.came(0)

    def work_soon(self):
        if not self._work_is_near:
            self._work_is_near = True
            self._loop.call_soon(self.work)

    def _take_some(self):
        """Return how many requests were taken."""
        for taken in range(TURN):
            request = self._requests.next() if self._may_take() else None
            if request is None:
                return taken
            self._take(request)
        return TURN

    def _may_take(self):
        return (self._unanswered < WINDOW
                and not self.full and not self._blobs.sending)

    def _read(self, wanted):
        if not wanted:
            self._paused = True
            self.transport.pause_reading()
        elif self._paused:
            self._paused = False
            self.transport.resume_reading()

    # Answering them

    def _take(self, request):
        self._figures.requests += 1
        self._tally.messages += 1
        if request.__class__ is self.speech.Load:
            self._load(*request)
        else:
            self._unanswered += 1
            self._blobs.add(request)

    def _load(self, number, oid, tid):
        service = self._service
        service.stats.loads += 1
        self._tally.loads += 1
        as_of = service.last_tid  # before the lookup
        if service.load_cached:
            try:
                found = service.load_cached(oid, tid)
                self._figures.loads_from_memory += 1
                self._found(number, as_of, found)
                return
            except BlockingIOError:
                pass  # it is on the disk
            except Exception as error:
                self.fail(number, as_of, error)
                return
        self._figures.loads_from_disk += 1
        self._unanswered += 1
        self.readers.submit(
            functools.partial(self._looked_up, number, as_of),
            service.storage.loadBefore, oid, tid)

    def _looked_up(self, number, as_of, result, error):
        if self.closed:
            return
        if error is not None:
            self.fail(number, as_of, error)
        else:
            self._found(number, as_of, result)
        self.answered()

    def _found(self, number, as_of, result):
        if result is None:
            self.reply(self.speech.nothing(number, as_of))
            return
        try:
            self.reply(self.speech.found(number, as_of, *result))
        except self.speech.CallerError as error:  # too large
            self.fail(number, as_of, error)

    def fail(self, number, as_of, error):
        if isinstance(error, POSKeyError):
            self.reply(self.speech.missing(number, as_of))
        else:
            logger.error('%s: a request of a channel failed: %r',
                         self.log_label, error,
                         exc_info=calls.traceback_of(error))
            kind = type(error)
            self.reply(self.speech.failed(
                number, as_of, f'{kind.__module__}.{kind.__qualname__}',
                str(error)))

    def answered(self):
        """A request that could not be answered at once is answered now."""
        self._unanswered -= 1
        self.work_soon()

    def reply(self, frame):
        if self.account.full:
            self.account.sent(len(frame))
        self._replies.append(frame)
        self._gathered += len(frame)
        if self._gathered > GATHERED:
            self.flush()

    def flush(self):
        if self._replies and not self._blobs.sending:
            self.write(b''.join(self._replies))
            self._replies.clear()
            self._gathered = 0

    def write(self, data):
        may_answer = self._may_answer
        if may_answer is not None and not may_answer():
            self.abort()
        elif not self.closed:
            self.sent(len(data))
            self.transport.write(data)

    def sent(self, count):
        self._figures.sent += count
        self._tally.sent += count

    # The end

    def abort(self):
        """Close at once: the client repeats unanswered requests elsewhere."""
        self.closed = True
        self._replies.clear()
        self._blobs.close()
        self.readers.close()
        self.transport.abort()

    close = abort
