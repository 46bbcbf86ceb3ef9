"""One client's byte stream: frames, handshake, calls and replies.

All of it happens in the event loop, and everything that leaves goes through
one outbox.  A frame is a length of four bytes and a message.  The first
message of each side names protocol and encoding; the others are calls, which
the session answers.

A peer that breaks the protocol is disconnected, and harms no other.  It must
not take long to register or to complete a frame, send anything that cannot be
understood, or leave its answers unread.

Left to others: decoding (decoding), the types of arguments (calls), what the
calls mean (session), what must not overtake what (outbox), how many
connections there are (door).
"""

import asyncio
import contextlib
import json
import socket
import time

from ZEO.shortrepr import short_repr

from ..wire import frames
from ..wire.frames import LENGTH
from ..wire.tcp import set_options
from . import answers
from . import calls
from . import decoding
from . import quiet
from .accounts import Account
from .clients import label_of
from .door import CLIENT
from .door import Full
from .incoming import LONG
from .incoming import Patience
from .oursession import OurSession
from .oursession import Unwelcome
from .outbox import Outbox
from .speech import ZeoSpeech
from .speech import frame
from .threads import attempt

logger = quiet.get_logger(__name__)

VERSION = b'5'

# Bytes that a frame may have before and after the client has registered.
SHORT_FRAME = 1 << 16
LONG_FRAME = 1 << 30

# Bytes that a peer may send until it has registered.
MOST_BEFORE = 1 << 16
# Most frames, and most seconds, that one client gets before it is the turn of
# others: a frame may take a few milliseconds to decode.
TURN = 64
LONGEST_TURN = 0.005
# Reads of one client that may be unanswered; then nothing more is read of it.
WINDOW = 256
# Bytes of replies that may wait for each other.
MOST_CORKED = 1 << 18
# Seconds that a closed connection may take to send what is left.
LINGER = 5
# Seconds without an answer of the other machine, after which the system ends a
# connection.
MACHINE_GONE = 30


def announcement(msgpack):
    """Its protocol and its encoding, in ZEO's words."""
    return (b'M' if msgpack else b'Z') + VERSION


def greeting(msgpack, as_stock):
    """What the server says first."""
    return frame(announcement(msgpack) + (b'' if as_stock else frames.SUFFIX))


def shut(own):
    """End a connection, or close a port.  Called in any thread: the loop, to
    which the socket belongs, finds it at its end."""
    with contextlib.suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)


class Connection(asyncio.Protocol):

    protocol_version = transport = None
    #: Makes what is said to the peer (speech).
    speech = None
    connected = closed = False
    #: A commit was answered: what waits to be announced may wait once more.
    gathers_once_more = False
    #: Reads that are not answered.
    unanswered = 0
    #: The message that is being answered; None: its sender does not wait.
    asked = None
    #: Messages that were processed; bytes received, and bytes sent.
    messages = received = sent = 0
    #: What may be called; the session sets more when it has registered.
    offered = calls.UNREGISTERED

    def __init__(self, listener, session, newcomer, own):
        """`own` is the socket itself.  (What a transport of uvloop shows as
        its socket cannot be shut.)"""
        self.loop = loop = listener.event_loop
        self.session = session
        self._newcomer, self._socket = newcomer, own
        self._announcement = announcement(listener.msgpack)
        self._greeting = listener.greeting
        self._traffic = session.server.traffic
        self._may_answer = session.server.may_answer and (
            session.server.may_answer_at_last)
        self._buffer = bytearray()
        self._registered = self._paused = self._work_is_near = False
        self._frame_patience = Patience(loop, self.cut_short)
        self._room = session.server.room
        self._waits_for_room = False
        self.account = Account(session.server.accounts, self)
        self._longest = SHORT_FRAME
        self._receive = self._handshake
        #: Frames that are about to leave together, in their order.
        self._outgoing = []
        #: Replies to the calls that came together leave together: calls are
        #: being processed, and so many bytes of replies are there.
        self._is_corked = False
        self._corked_bytes = 0
        self.outbox = Outbox(
            self._write, self._outgoing.append, self.account)
        self._when_writable = []
        self.outbox.emptied = self._call_the_waiting

    # What asyncio calls

    def connection_made(self, transport):
        self.transport = transport
        self.connected = True
        server = self.session.server
        self.session.log_label = label_of(transport)
        server.connections.add(self)
        newcomer, self._newcomer = self._newcomer, None
        self._patience = self.loop.call_at(newcomer.deadline, self.abort)
        set_options(transport.get_extra_info('socket'), MACHINE_GONE)
        server.door.replace(newcomer, self)
        if newcomer.leaves:
            self.abort()
        elif not newcomer.greeted:
            self._write(self._greeting)

    def data_received(self, data):
        self._traffic.received += len(data)
        self.received += len(data)
        if (not self._registered and self.received > MOST_BEFORE
                and self._receive != self._handshake):
            # Keep nothing of the data: there may be many such peers.
            self._disconnect(f'{self.received} bytes, and not registered')
            return
        self._buffer += data
        self._process(len(data))

    def _disconnect(self, reason):
        logger.error(
            '%s: disconnected: %.300s', self.session.log_label, reason)
        self.abort()

    def _process(self, came=0):
        """Process the input, as far as the peer takes the answers."""
        self._work_is_near = False
        self._is_corked = True
        taken, more = 0, False
        try:
            taken, more = self._take_frames()
        except Exception as error:
            self._disconnect(f'{type(error).__name__}: {error}')
        finally:
            self._is_corked = False
            if self._corked_bytes:
                self._send()
        if not self.closed:
            self._go_on_reading(taken, came, more)

    def _take_frames(self):
        """Return how many were taken, and whether the turn ended before all
        were."""
        buffer = self._buffer
        self._waits_for_room = False
        start = taken = 0
        end_of_turn = time.monotonic() + LONGEST_TURN
        more = False
        while len(buffer) - start >= LENGTH.size and self._may_take():
            more = taken == TURN or (
                taken and time.monotonic() > end_of_turn)
            if more:
                break
            length, = LENGTH.unpack_from(buffer, start)
            if length > self._longest:
                raise ValueError(f'a frame of {length} bytes')
            end = start + LENGTH.size + length
            if length > LONG:
                self._waits_for_room = not self._room.ask(self, length)
            if len(buffer) < end:
                break
            message = bytes(memoryview(buffer)[start + LENGTH.size:end])
            start = end
            self._receive(message)
            taken += 1
            if length > LONG:
                self._room.give_back(self)
            if self._corked_bytes > MOST_CORKED:
                self._send()
        del buffer[:start]
        self.messages += taken
        if not self._registered and self.received > MOST_BEFORE:
            raise ValueError(f'{self.received} bytes, and not registered')
        return taken, more

    def _may_take(self):
        return not (self.closed or self.account.full
                    or self.unanswered >= WINDOW)

    def _go_on_reading(self, taken, came, more=False):
        """Read on, or pause.  While we read, the peer must complete its frame
        in time."""
        if more and not self._work_is_near:
            self._work_is_near = True
            self.loop.call_soon(self.go_on)
        if more or not self._may_take() or self._waits_for_room:
            self._frame_patience.over()
            if not self._paused:
                self._paused = True
                self.transport.pause_reading()
            return
        if self._frame_patience.timer and (taken or not self._buffer):
            self._frame_patience.over()
        if self._buffer:
            self._frame_patience.came(came)
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def go_on(self):
        """Process the rest of the input, if there is room for it."""
        if not self.closed and self.connected:
            self._process()

    def pause_writing(self):
        self.account.paused()
        self._go_on_reading(0, 0)

    def resume_writing(self):
        for step in (self.account.resumed, self.session.wake,
                     self._call_the_waiting, self.go_on):
            attempt(step)

    def answered(self):
        """A read was answered."""
        self.unanswered -= 1
        if self._paused and not self._work_is_near:
            self._work_is_near = True
            self.loop.call_soon(self.go_on)

    # What Account, Room and Patience call

    def unsent(self):
        return self.transport.get_write_buffer_size()

    def cut_off(self):
        logger.error('%s: disconnected: it does not read',
                     self.session.log_label)
        self.abort()

    def cut_short(self):
        logger.error('%s: disconnected: a frame has begun and does not end',
                     self.session.log_label)
        self.abort()

    def when_writable(self, function):
        """Call it when there is room for more, or the connection is closed."""
        self._when_writable.append(function)
        self._call_the_waiting()

    def _call_the_waiting(self):
        if not self.closed and (self.account.full or len(self.outbox)):
            return
        waiting, self._when_writable = self._when_writable, []
        for function in waiting:
            attempt(function)

    def connection_lost(self, error):
        if error is not None:
            logger.info('%s: connection lost: %s', self.session.log_label,
                        error)
        self.connected = False
        self.closed = True
        self._end_patience()
        self._buffer.clear()
        self.account.close()
        try:
            self._call_the_waiting()
        finally:
            self.session.notify_disconnected()
            if not self._registered:
                self._keep_nothing()

    def _keep_nothing(self):
        """Free all that is kept for a peer that never became a client.  There
        may be thousands of them in a second, in reference cycles that would be
        collected much later."""
        vars(self).clear()
        self.closed = True

    def _end_patience(self):
        self._patience.cancel()
        self._frame_patience.over()
        self._room.give_back(self)

    # Handshake

    def _handshake(self, message):
        if message == b'ruok':
            self._write(frame(json.dumps(self.session.ruok()).encode()))
            self.close()
        elif message in (self._announcement, b'M' + VERSION):
            self.protocol_version = message
            self.speech = ZeoSpeech(message, self.session)
            self.decode = decoding.decoder(message[:1])
            self._receive = self._call
            self.session.notify_connected(self)
        elif frames.is_hello(message):
            try:
                self._meet(message)
            except Unwelcome as refusal:
                reason, text = refusal.args
                if reason == frames.OTHER_VERSION:
                    logger.warning('%s: a client of ours, refused: %s',
                                   self.session.log_label, text)
                self._write(frames.frame(
                    frames.Refused(0, reason, text.encode())))
                self.close()
        else:
            raise ValueError(f'a handshake {short_repr(message)}')

    def _meet(self, body):
        """A client of ours opens its stream."""
        server = self.session.server
        try:
            version = frames.agreed_version(body)
        except frames.NoCommonVersion as error:
            raise Unwelcome(frames.OTHER_VERSION, str(error)) from None
        hello = frames.taken(body)
        self.protocol_version = self._announcement
        # In the place of the session that waits for a stock client.
        self.session = OurSession(server, self, self.session)
        self.session.notify_connected(self)
        self.session.meet(hello, version)
        self._receive = self.session.receive

    def registered(self):
        """The client may now call everything else, and send long frames."""
        try:
            self.session.server.door.stay(self, CLIENT)
        except Full:
            logger.error('%s: it cannot register: no descriptors are left',
                         self.session.log_label)
            self.session.turn_away()
            return
        self.offered = self.session.OFFERED
        self._stay()
        self._longest = LONG_FRAME

    def _stay(self):
        self._patience.cancel()
        self._registered = True

    # Calls

    def _call(self, message):
        message_id, is_async, name, arguments = calls.parts(
            self.decode(message))
        if message_id == calls.KEEP_ALIVE:
            return
        self.carry_out(message_id, is_async, name, arguments)

    def carry_out(self, message_id, is_async, name, arguments):
        """A call of the peer, whose arguments may have any type."""
        if name not in self.offered:
            raise ValueError(f'a call of {name!r:.100}')
        self.asked = None if is_async else message_id
        try:
            self.offered[name].check(name, arguments)
        except TypeError as error:
            if is_async or self.offered is calls.UNREGISTERED:
                raise
            self.send_error(message_id, error)
            return
        try:
            if name in calls.OF_A_TRANSACTION:
                result = self.session.store(name, arguments)
            else:
                result = getattr(self.session, name)(*arguments)
        except Exception as error:
            if not isinstance(error, calls.REFUSALS):
                logger.error('%s: %s: %r', self.session.log_label, name, error,
                             exc_info=calls.traceback_of(error))
            if is_async:
                raise  # the peer waits for no answer
            self.send_error(message_id, error)
        else:
            if not is_async and not isinstance(result, answers.Later):
                self.send_reply(message_id, result)

    # Replies

    def send_reply(self, message_id, result):
        self.outbox.send(self.speech.reply(message_id, result))

    def send_error(self, message_id, error):
        self.outbox.send(self.speech.error(message_id, error))

    def say(self, method, *arguments):
        """Call a method of the client, which does not answer."""
        self.outbox.send(self.speech.call(method, *arguments))

    # Writing and closing

    def _write(self, data):
        """Send it, behind what waits to leave together with something."""
        self._outgoing.append(data)
        if self._is_corked:
            self._corked_bytes += len(data)
        else:
            self._send()

    def _send(self):
        data = b''.join(self._outgoing)
        self._outgoing.clear()
        self._corked_bytes = 0
        if not (data and self.connected):
            return
        if self._may_answer and not self._may_answer():
            self.abort()  # close the connection rather than answer
            return
        self._traffic.sent += len(data)
        self.sent += len(data)
        if self.account.full:
            self.account.sent(len(data))
        if self.connected:
            self.transport.write(data)

    def flush(self):
        """Send what waits to leave together with something else."""
        self.gathers_once_more = False
        self._send()

    def flush_if_old(self):
        """Flush, unless it may wait once more.  Return whether all has left.
        """
        if self.gathers_once_more:
            self.gathers_once_more = False
            return not self._outgoing
        self._send()
        return True

    def close(self):
        """Send what is there, and close; `connection_lost` follows."""
        if not self.closed:
            self.closed = True
            self._send()
            if self.transport is not None:
                self.transport.close()
                self.loop.call_later(LINGER, self.transport.abort)

    def shut(self):
        """End it at once.  Called in any thread."""
        shut(self._socket)

    def abort(self):
        """Close at once."""
        self.closed = True
        self.connected = False
        self._buffer.clear()
        if self.transport is not None:
            self.transport.abort()
