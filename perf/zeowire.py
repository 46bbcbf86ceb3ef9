"""The part of ZEO's protocol 5 that is needed to commit one small object.

No sockets here.  A message is four bytes of length and a pickle of a message
id, flags, a name and arguments.  Only the serial of the object and a number in
it differ from commit to commit: the messages are pickled once, with gaps for
the two.
"""

import pickle
import struct

from persistent.mapping import PersistentMapping

HANDSHAKE = b'Z5'

#: Message ids; the server sends them back with its replies.
CALL, VOTE, FINISH = 1, 2, 3

_LENGTH = struct.Struct('>I')

#: What stands in the gaps while the messages are pickled.
_SERIAL, _NUMBER = b'<serial>', b'<number>'

#: The server accepts the same id for all transactions of a client.
_TRANSACTION = 1
_FILLING = 'x' * 110


def frame(message):
    return _LENGTH.pack(len(message)) + message


def call(message_id, name, *arguments, no_reply=False):
    """A message that calls a method of the server."""
    return frame(pickle.dumps((message_id, no_reply, name, arguments), 3))


FINISH_MESSAGE = call(FINISH, 'tpc_finish', _TRANSACTION)


class Vote:
    """All messages of a commit, up to the vote: they are sent together.

    The object is a PersistentMapping of about 200 bytes that has `number`.
    """

    def __init__(self, oid):
        record = pickle.dumps(PersistentMapping, 3) + pickle.dumps(
            {'data': {'number': _NUMBER, 'filling': _FILLING}}, 3)
        messages = b''.join([
            call(0, 'tpc_begin', _TRANSACTION, b'', b'', {}, None, ' ',
                 no_reply=True),
            call(0, 'storea', oid, _SERIAL, record, _TRANSACTION,
                 no_reply=True),
            call(VOTE, 'vote', _TRANSACTION),
        ])
        self._start, rest = messages.split(_SERIAL)
        self._middle, self._end = rest.split(_NUMBER)

    def messages(self, serial, number):
        return b''.join([
            self._start, serial, self._middle, number.to_bytes(8, 'big'),
            self._end])


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
