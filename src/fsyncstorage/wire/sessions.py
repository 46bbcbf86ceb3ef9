"""The names of sessions and of their commits: the hello of a commit channel,
and the question that a client asks when an answer was lost.

It touches no file, socket, thread or clock.
"""

import struct
import typing

from .framing import LENGTH
from .framing import CallerError
from .framing import PeerError
from .framing import other_version

MAGIC = b'\xf5COMMITS'
VERSION = 5
#: Bytes of the name by which a client finds its session again.
TICKET = 16

_HELLO = struct.Struct('>8sB16s16s')
_COMMIT_ID = struct.Struct('>16s16sI')
_IN_DOUBT = struct.Struct('>36s8s')


class Hello(typing.NamedTuple):
    version: int
    #: The server that the client wants, and its session; None in another
    #: version.
    instance: bytes | None
    ticket: bytes | None


def is_session(instance: object, ticket: object) -> bool:
    """Can a hello contain them?  A server may have announced anything."""
    return (isinstance(instance, bytes) and len(instance) == 16
            and isinstance(ticket, bytes) and len(ticket) == TICKET)


def hello(instance: bytes, ticket: bytes) -> bytes:
    """The first frame of a client."""
    if not is_session(instance, ticket):
        raise CallerError(f'no such session: {instance!r}, {ticket!r}')
    message = _HELLO.pack(MAGIC, VERSION, instance, ticket)
    return LENGTH.pack(len(message)) + message


def is_hello(message: bytes) -> bool:
    """Does a client's first message, without its length, ask for a channel
    of this kind?"""
    return message.startswith(MAGIC)


def read_hello(message: bytes) -> Hello:
    other = other_version(message, MAGIC, VERSION)
    if other is not None:
        return Hello(other, None, None)
    try:
        return Hello._make(_HELLO.unpack(message)[1:])
    except struct.error as error:
        raise PeerError(f'a damaged hello: {error}') from None


# The name of a commit, by which a client may ask for it later

class CommitId(typing.NamedTuple):
    """The server, the session that made the commit, and the number of the
    transaction in that session.

    Only the client and the server know the ticket, so no other peer can name
    the commit.
    """

    instance: bytes
    ticket: bytes
    number: int


class InDoubt(typing.NamedTuple):
    """A commit whose answer was lost, and the last tid that its client has
    heard of on the channel of that session.

    On a channel, tids arrive in ascending order.  So if the transaction is
    committed, its tid is later than that one.
    """

    id: bytes
    since: bytes


def commit_id(instance: bytes, ticket: bytes, number: int) -> bytes:
    return _COMMIT_ID.pack(instance, ticket, number)


def read_commit_id(id: bytes) -> CommitId:
    try:
        return CommitId._make(_COMMIT_ID.unpack(id))
    except struct.error as error:
        raise PeerError(f'a damaged id of a commit: {error}') from None


def in_doubt(id: bytes, since: bytes) -> bytes:
    """The contents of a question."""
    return _IN_DOUBT.pack(id, since)


def read_in_doubt(asked: bytes) -> InDoubt:
    try:
        return InDoubt._make(_IN_DOUBT.unpack(asked))
    except struct.error as error:
        raise PeerError(f'a damaged question: {error}') from None
