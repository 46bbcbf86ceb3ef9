"""What the frames of all channels have in common.

A frame begins with the length of the rest, a kind and a number.  The first
frames of a server are the same on every channel: the announcement of ZEO, and
then a welcome or a refusal.
"""

import struct
import typing

# Kinds of frames with which a server opens a channel, or refuses to.
WELCOME, REFUSED = b'WR'

# Why a channel is refused.
(OTHER_VERSION, OTHER_INSTANCE, UNKNOWN_STORAGE, TOO_MANY,
 UNKNOWN_TICKET) = range(1, 6)

LONGEST = 1 << 30
#: The same before the channel is open.
LONGEST_GREETING = 1 << 16

# A server's first message to any peer: the encoding of ZEO's own protocol.
ANNOUNCEMENTS = b'Z5', b'M5'

LENGTH = struct.Struct('>I')
HEAD = struct.Struct('>IBI')
REFUSAL = struct.Struct('>IBIB')


class PeerError(Exception):
    """The other side breaks the protocol."""


class CallerError(ValueError):
    """The caller wants to send something that cannot be sent."""


def make(shape: struct.Struct, kind: int, number: int, *fields: int | bytes,
         rest: bytes = b'', behind: int = 0) -> bytes:
    """A frame without its last `behind` bytes, which the caller sends."""
    length = shape.size - LENGTH.size + len(rest) + behind
    if length > LONGEST:
        raise CallerError(f'a frame of {length} bytes')
    try:
        return shape.pack(length, kind, number, *fields) + rest
    except struct.error as error:
        raise CallerError(str(error)) from None


def check(*identifiers: bytes) -> None:
    """Oids and tids have 8 bytes: struct would pad or cut any other."""
    for each in identifiers:
        if each.__class__ is not bytes or len(each) != 8:
            raise CallerError(f'an oid or a tid is 8 bytes, not {each!r}')


def other_version(hello: bytes, magic: bytes, version: int) -> int | None:
    """The version of a hello, if it is another one.  Then the format of the
    bytes after it is unknown."""
    said = hello[len(magic):len(magic) + 1]
    return said[0] if said and said[0] != version else None


def as_text(encoded: bytes) -> str:
    return encoded.decode('utf-8', 'replace')


class Welcome(typing.NamedTuple):
    """The channel is open."""


class Refused(typing.NamedTuple):
    reason: int
    text: str


def welcome() -> bytes:
    return make(HEAD, WELCOME, 0)


def refused(reason: int, text: str) -> bytes:
    return make(REFUSAL, REFUSED, 0, reason, rest=text.encode())
