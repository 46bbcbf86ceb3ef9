"""The part of ZEO's protocol 5 that a peer needs; no sockets here.

A message is four bytes of length and a pickle of a message id, flags, a name
and arguments.
"""

import pickle
import struct

HANDSHAKE = b'Z5'

#: Message ids; the server sends them back with its replies.
CALL, VOTE, FINISH = 1, 2, 3

_LENGTH = struct.Struct('>I')

#: The server accepts the same id for all transactions of a client.
_TRANSACTION = 1


def frame(message):
    return _LENGTH.pack(len(message)) + message


def call(message_id, name, *arguments, no_reply=False):
    """A message that calls a method of the server."""
    return frame(pickle.dumps((message_id, no_reply, name, arguments), 3))


FINISH_MESSAGE = call(FINISH, 'tpc_finish', _TRANSACTION)


class Inbox:
    """Takes the bytes that came, in any pieces; returns whole messages."""

    def __init__(self):
        self._rest = b''

    def add(self, data):
        """Return the messages that are complete, without their lengths."""
        data = self._rest + data
        start, found = 0, []
        while len(data) >= start + 4:
            length, = _LENGTH.unpack_from(data, start)
            end = start + 4 + length
            if len(data) < end:
                break
            found.append(data[start + 4:end])
            start = end
        self._rest = data[start:]
        return found


def read(message):
    """A tuple: id, flags (not zero: it is an exception), name, arguments."""
    return pickle.loads(message)
