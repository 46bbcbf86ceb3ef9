"""The server's end of a commit channel: requests taken apart, replies made.

It touches no file, socket, thread or clock, and keeps no state: the server
knows from its ballots what may come next.  A message that does not have the
form of a request is a PeerError.
"""

import struct
import typing
from collections.abc import Callable
from collections.abc import Iterable

from . import batch
from . import plainbegin
from .commits import ABORT
from .commits import ABORTED
from .commits import ASK
from .commits import BEGIN
from .commits import BEGIN_PLAIN
from .commits import CALL
from .commits import CONFLICTS
from .commits import DONE
from .commits import DONE_SHAPE
from .commits import ERROR
from .commits import FINISH
from .commits import GOODBYE
from .commits import INVALID
from .commits import OUTCOME
from .commits import OUTCOME_SHAPE
from .commits import PING
from .commits import PONG
from .commits import STORE
from .commits import STORES
from .commits import TID_SHAPE
from .commits import TRIP
from .commits import VOTE
from .commits import VOTED
from .framing import HEAD
from .framing import PeerError
from .framing import check
from .framing import make

_HEAD = struct.Struct('>BI')
_STORE = struct.Struct('>BI8s8s')

#: Most bytes of a begin.  In the file, descriptions of transactions are
#: shorter; here, those of all open transactions are in memory.
MOST_OF_A_BEGIN = 1 << 18


class Begin(typing.NamedTuple):
    number: int
    message: bytes


class BeginPlain(typing.NamedTuple):
    number: int
    user: bytes
    description: bytes


class BeginTooLong(typing.NamedTuple):
    number: int
    size: int


class Store(typing.NamedTuple):
    number: int
    data: bytes
    oid: bytes
    serial: bytes


class Stores(typing.NamedTuple):
    number: int
    message: bytes  # see `batch`
    size: int


class Call(typing.NamedTuple):
    number: int
    message: bytes


class Vote(typing.NamedTuple):
    number: int


class Finish(typing.NamedTuple):
    number: int


class Trip(typing.NamedTuple):
    number: int


class Abort(typing.NamedTuple):
    number: int


class Ping(typing.NamedTuple):
    number: int


class Ask(typing.NamedTuple):
    number: int
    in_doubt: bytes


def _begin_plain(number: int, message: bytes) -> BeginPlain:
    return BeginPlain(number, *plainbegin.unpack(message))


def _stores(number: int, message: bytes) -> Stores:
    return Stores(number, message, batch.size(message))


Request = (Begin | BeginPlain | BeginTooLong | Store | Stores | Call | Vote
           | Finish | Trip | Abort | Ping | Ask)

# For each kind: its shape, whether bytes follow it, and what makes a Request.
_REQUESTS: dict[int, tuple[struct.Struct, bool, Callable[..., Request]]] = {
    BEGIN: (_HEAD, True, Begin),
    BEGIN_PLAIN: (_HEAD, True, _begin_plain),
    STORE: (_STORE, True, Store),
    STORES: (_HEAD, True, _stores),
    CALL: (_HEAD, True, Call),
    VOTE: (_HEAD, False, Vote),
    FINISH: (_HEAD, False, Finish),
    TRIP: (_HEAD, False, Trip),
    ABORT: (_HEAD, False, Abort),
    PING: (_HEAD, False, Ping),
    ASK: (_HEAD, True, Ask),
}


def request(message: bytes) -> Request:
    """The request in a client's message, which is given without its length."""
    try:
        shape, has_rest, made = _REQUESTS[message[0]]
    except (IndexError, KeyError):
        raise PeerError(f'a request {message[:1]!r}') from None
    if len(message) < shape.size or (
            len(message) > shape.size and not has_rest):
        raise PeerError(
            f'a request {message[:1]!r} of {len(message)} bytes')
    _, number, *fields = shape.unpack_from(message)
    if not number:
        raise PeerError(f'a request {message[:1]!r} without a number')
    if has_rest:
        size = len(message) - shape.size
        if size > MOST_OF_A_BEGIN and message[0] in (BEGIN, BEGIN_PLAIN):
            # (It is neither copied nor decoded.)
            return BeginTooLong(number, size)
        fields.insert(0, message[shape.size:])
    return made(number, *fields)


def voted(number: int, oids: Iterable[bytes]) -> bytes:
    """`oids` are the objects whose conflicts were resolved."""
    return make(HEAD, VOTED, number, rest=joined(oids))


def conflicts(number: int, message: bytes) -> bytes:
    """The client resolves them, stores again, and votes again."""
    return make(HEAD, CONFLICTS, number, rest=message)


def error(number: int, message: bytes) -> bytes:
    """The transaction has failed, and has ended."""
    return make(HEAD, ERROR, number, rest=message)


def done(number: int, tid: bytes, length: int, size: int,
         resolved: bytes = b'') -> bytes:
    """`length` and `size` are those of the storage.  `resolved`, only for a
    trip, has the joined oids whose conflicts were resolved."""
    check(tid)
    return make(DONE_SHAPE, DONE, number, tid, length, size, rest=resolved)


def aborted(number: int) -> bytes:
    return make(HEAD, ABORTED, number)


def invalid(tid: bytes, oids: Iterable[bytes]) -> bytes:
    """A transaction of another client has changed these objects."""
    check(tid)
    return make(TID_SHAPE, INVALID, 0, tid, rest=joined(oids))


def pong(number: int, tid: bytes) -> bytes:
    """`tid` is the last tid that was announced."""
    check(tid)
    return make(TID_SHAPE, PONG, number, tid)


def outcome(number: int, outcome: int, tid: bytes) -> bytes:
    check(tid)
    return make(OUTCOME_SHAPE, OUTCOME, number, outcome, tid)


def goodbye() -> bytes:
    """The last frame.  A transaction without an answer is not committed, and
    never will be."""
    return make(HEAD, GOODBYE, 0)


def joined(oids: Iterable[bytes]) -> bytes:
    oids = list(oids)
    check(*oids)
    return b''.join(oids)
