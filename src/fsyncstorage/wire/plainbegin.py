"""The begin of a transaction that has only a user and a description.

Most are like that.  To encode a call for it, and to decode and check the call,
would cost both sides more than everything else that they do to begin one.  The
format is::

    length of the user, 2 bytes; the user; the description

It touches no file, socket, thread or clock.
"""

import struct

from .framing import PeerError

#: Bytes of a user.
LONGEST_USER = (1 << 16) - 1

_LENGTH = struct.Struct('>H')


def pack(user: bytes, description: bytes) -> bytes:
    return _LENGTH.pack(len(user)) + user + description


def unpack(message: bytes) -> tuple[bytes, bytes]:
    """The user and the description."""
    try:
        length, = _LENGTH.unpack_from(message)
    except struct.error as error:
        raise PeerError(f'a damaged begin: {error}') from None
    behind = _LENGTH.size + length
    if behind > len(message):
        raise PeerError(f'a user of {length} bytes, which are not there')
    return message[_LENGTH.size:behind], message[behind:]
