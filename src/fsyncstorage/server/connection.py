"""One client's byte stream: frames, handshake, calls and replies.

All of it happens in the event loop, and what leaves goes through one outbox.
A frame is a length of four bytes and a message.  The first message of each
side names protocol and encoding; what follows are calls, answered by the
session.

A peer that does not keep to the protocol is disconnected, and harms nobody
else:

- before it has registered, its frames must be short;
- while it does not read what it is sent, nothing of it is read, and when too
  much has gathered it is disconnected;
- what it sends that cannot be understood ends its connection.

Left to others: decoding (decoding), the types of arguments (calls), what the
calls mean (session), what must not overtake what (outbox).
"""

import asyncio
import json
import logging
import struct

from ZEO.asyncio.marshal import encoder
from ZEO.asyncio.marshal import reduce_exception
from ZEO.asyncio.server import Delay
from ZEO.shortrepr import short_repr
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError

from .. import wire
from . import calls
from . import decoding
from .channel import Refused
from .outbox import Outbox

logger = logging.getLogger(__name__)

VERSION = b'5'

# What a frame may hold before and after the client has registered.
SHORT_FRAME = 1 << 16
LONG_FRAME = 1 << 30

# Bytes that may gather behind those that a client does not read.
MOST_UNREAD = 256 << 20
# Bytes of replies that may wait for each other.
MOST_CORKED = 1 << 18
# Seconds that a closed connection may take to send what is left.
LINGER = 5
# Seconds that a client may take for its handshake.
PATIENCE = 10

_LENGTH = struct.Struct('>I')

_EXPECTED = (ConflictError, POSKeyError)


def frame(message):
    return _LENGTH.pack(len(message)) + message


class Traffic:
    """Bytes in and out, of all connections."""

    received = sent = 0


class Connection(asyncio.Protocol):

    protocol_version = None
    transport = None
    connected = closed = False
    #: There is more to send than the peer takes at the moment.
    full = False
    #: What may be called; the session sets more when it has registered.
    offered = calls.UNREGISTERED

    def __init__(self, loop, addr, session, msgpack, traffic):
        self.loop = loop
        self.addr = addr
        self.session = session
        self._announcement = (b'M' if msgpack else b'Z') + VERSION
        self._traffic = traffic
        self._buffer = bytearray()
        self._longest = SHORT_FRAME
        self._receive = self._handshake
        #: Replies to the calls that came together leave together.
        self._corked = None
        self._corked_bytes = 0
        self._later = []
        self.outbox = Outbox(self._write, self._later.append)
        self._when_writable = []
        self.outbox.emptied = self._call_the_waiting
        self._successor = None

    # What asyncio calls

    def connection_made(self, transport):
        self.transport = transport
        self.connected = True
        self.session.server.connections.add(self)
        self._patience = self.loop.call_later(PATIENCE, self.abort)
        self._write(frame(self._announcement))

    def data_received(self, data):
        self._traffic.received += len(data)
        self._buffer += data
        self._process()

    def _process(self):
        """Answer what has come, as far as the answers are taken."""
        self._corked = []
        try:
            self._take_frames()
        except Exception as error:
            logger.error('%s: disconnected: %s: %s', self.session.log_label,
                         type(error).__name__, error)
            self.abort()
        finally:
            self._uncork()
        if self._successor is not None:
            self._hand_over(self._successor)

    def _take_frames(self):
        buffer = self._buffer
        start = 0
        while (len(buffer) - start >= _LENGTH.size
               and not self.closed and not self.full):
            length, = _LENGTH.unpack_from(buffer, start)
            if length > self._longest:
                raise ValueError(f'a frame of {length} bytes')
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            message = bytes(memoryview(buffer)[start + _LENGTH.size:end])
            start = end
            self._receive(message)
            if self._corked_bytes > MOST_CORKED:
                self._uncork()
                self._corked = []
        del buffer[:start]

    def pause_writing(self):
        # Who does not read asks for nothing more.
        self.full = True
        self.transport.pause_reading()

    def resume_writing(self):
        self.full = False
        if not self.closed:
            self.transport.resume_reading()
        self._call_the_waiting()
        if self._buffer and not self.closed:
            self._process()

    def when_writable(self, function):
        """Call it when there is room for more, or none will ever be."""
        self._when_writable.append(function)
        self._call_the_waiting()

    def _call_the_waiting(self):
        if not self.closed and (self.full or len(self.outbox)):
            return
        waiting, self._when_writable = self._when_writable, []
        for function in waiting:
            function()

    def eof_received(self):
        return False

    def connection_lost(self, error):
        if error is not None:
            logger.info('%s: connection lost: %s', self.session.log_label,
                        error)
        self.connected = False
        self.closed = True
        self._patience.cancel()
        self._buffer.clear()
        try:
            self._call_the_waiting()
        finally:
            self.session.notify_disconnected()

    # Handshake

    def _handshake(self, message):
        self._patience.cancel()
        if message == b'ruok':
            self._write(frame(json.dumps(self.session.ruok()).encode()))
            self.close()
        elif message in (self._announcement, b'M' + VERSION):
            self.protocol_version = message
            self.encode = encoder(message, True)
            self._decode = decoding.decoder(message[:1], registered=False)
            self._receive = self._call
            self.session.notify_connected(self)
        elif wire.is_hello(message):
            self._become_channel(message)
        else:
            raise ValueError(f'a handshake {short_repr(message)}')

    def _become_channel(self, hello):
        try:
            self._successor = self.session.server.open_channel(self, hello)
        except Refused as refusal:
            self._write(wire.refused(*refusal.args))
            self.close()
        else:
            self.closed = True  # here

    def _hand_over(self, channel):
        """From now on it is a read channel; so is what came with its hello."""
        self.transport.set_protocol(channel)
        channel.connection_made(self.transport)
        channel.data_received(self._buffer)

    def registered(self):
        """The client may call everything else now, with long frames."""
        self.offered = calls.REGISTERED
        self._decode = decoding.decoder(
            self.protocol_version[:1], registered=True)
        self._longest = LONG_FRAME

    # Calls

    def _call(self, message):
        message_id, is_async, name, arguments = calls.parts(
            self._decode(message))
        if message_id == calls.KEEP_ALIVE:
            return
        if name not in self.offered:
            raise ValueError(f'a call of {name!r:.100}')
        try:
            self.offered[name].check(name, arguments)
        except TypeError as error:
            if is_async or self.offered is calls.UNREGISTERED:
                raise
            self.send_error(message_id, error)
            return
        try:
            result = getattr(self.session, name)(*arguments)
        except Exception as error:
            if not isinstance(error, _EXPECTED):
                logger.exception('%s: %s', self.session.log_label, name)
            if is_async:
                raise  # nobody would hear of it
            self.send_error(message_id, error)
        else:
            if isinstance(result, Delay):
                if is_async:
                    raise ValueError(f'{name} needs somebody who waits for it')
                result.set_sender(message_id, self)
            elif not is_async:
                self.send_reply(message_id, result)

    # Replies

    def reply_frame(self, message_id, result):
        try:
            return frame(self.encode(message_id, 0, '.reply', result))
        except Exception:
            logger.exception('%s: a reply that cannot be encoded: %s',
                             self.session.log_label, short_repr(result))
            return self.error_frame(
                message_id, ValueError("Couldn't pickle response"))

    def error_frame(self, message_id, error):
        try:
            message = self.encode(
                message_id, 2, '.reply', reduce_exception(error))
        except Exception:  # it carries what cannot be encoded
            message = self.encode(
                message_id, 2, '.reply',
                reduce_exception(ValueError(short_repr(error))))
        return frame(message)

    def send_reply(self, message_id, result):
        self.outbox.send(self.reply_frame(message_id, result))

    def send_error(self, message_id, error):
        self.outbox.send(self.error_frame(message_id, error))

    def async_frame(self, method, *arguments):
        return frame(self.encode(0, True, method, arguments))

    def async_(self, method, *arguments):
        self.outbox.send(self.async_frame(method, *arguments))

    # Writing and closing

    def _write(self, data):
        if self._later:
            data = b''.join(self._later) + data
            self._later.clear()
        if self._corked is not None:
            self._corked.append(data)
            self._corked_bytes += len(data)
        elif self.connected:
            self._traffic.sent += len(data)
            if (self.full and MOST_UNREAD
                    < self.transport.get_write_buffer_size()):
                logger.error('%s: disconnected: it does not read',
                             self.session.log_label)
                self.abort()
                return
            self.transport.write(data)

    def flush(self):
        """Send what was left to leave with something else."""
        if self._later:
            self._write(b'')

    def _uncork(self):
        replies, self._corked = self._corked, None
        self._corked_bytes = 0
        if replies:
            self._write(b''.join(replies))

    def call_soon_threadsafe(self, function, *arguments):
        self.loop.call_soon_threadsafe(function, *arguments)

    def close(self):
        """Send what is there, and close; `connection_lost` follows."""
        if not self.closed:
            self.closed = True
            self.flush()
            self._uncork()
            if self.transport is not None:
                self.transport.close()
                self.loop.call_later(LINGER, self.transport.abort)

    def abort(self):
        """Close at once."""
        self.closed = True
        if self.transport is not None:
            self.transport.abort()
