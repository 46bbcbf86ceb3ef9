"""The frames of the one protocol between our client and our server.

Both ends use this module.  It touches no file, socket, thread or clock: it
makes bytes of messages, and messages of bytes.

A frame is a length, a kind, a number, and the fields of its kind.  Each kind
is a named tuple here, and has one row in the table at the end: so a message is
made by `frame(Store(7, oid, serial, data))`, and `taken` returns an equal one.
The number names what a client has asked for: a transaction, a load, a call.
A message that nobody has asked for has the number 0.

There are two errors.  A `PeerError` is the peer's fault: nothing that arrives
later can be trusted.  A `CallerError` is the caller's fault: no frame was
made.

Left to others: values of any type within a frame (values), which reply may
come when (order).  The format, byte by byte, is in docs/internals/wire.rst.
"""

import struct
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from ZODB.utils import z64

LENGTH = struct.Struct('>I')
#: Bytes of the longest frame, and of one before the session is open.
LONGEST = 1 << 30
LONGEST_BEFORE = 1 << 16

#: Versions of the protocol that this module speaks: the lowest, the highest.
LOWEST, HIGHEST = 1, 1

#: Zeros in the place of a tid that is not known.
NO_TID = z64

# Why a hello is refused.
(OTHER_VERSION, OTHER_INSTANCE, UNKNOWN_STORAGE, TOO_MANY, READ_ONLY,
 SUPERSEDED) = range(1, 7)

# What became of a commit.
COMMITTED, NOT_COMMITTED, UNKNOWN = 1, 2, 3

#: Transactions that a client may have open at once.
MOST_OPEN = 100
#: Bytes of a begin.  The descriptions of all open transactions are in memory.
MOST_OF_A_BEGIN = 1 << 18
#: Bytes of many stores: a server takes all of them in one step.
MOST_OF_STORES = 65_000
#: Bytes that a store takes among many, in addition to its data.
OF_A_STORE = 20
#: Bytes that are sent of a blob that is longer than its client wants.
BEGIN_OF_A_BLOB = 1 << 16
LONGEST_BLOB = (1 << 64) - 1


#: One of the named tuples below.
Message: TypeAlias = Any


class PeerError(Exception):
    """The other side breaks the protocol."""


class NoCommonVersion(Exception):
    """The two sides speak no version in common.  Its text is for both."""


class CallerError(ValueError):
    """The caller wants to send something that cannot be sent."""


# The first message of each side.  The number of each is 0.

#: Flags of a hello: the client will not write; or only if it has to take a
#: server that lets nobody write.
WILL_NOT_WRITE, TAKES_READ_ONLY = 1, 2


class Hello(NamedTuple):
    """A client opens its stream."""
    number: int
    magic: bytes
    lowest: int  # version
    highest: int
    #: 16 random bytes, new for each opening of a client's storage.
    client: bytes
    #: Of the stream: it rises, and ends the earlier streams of this client.
    stream: int
    #: Of the client's cache; zeros: it is empty.
    tid: bytes
    flags: int
    storage: bytes
    label: bytes
    #: The version of the client's software.
    release: bytes


class Preface(NamedTuple):
    """The first bytes of a reader, before TLS: by them a server knows it, and
    hands it to a process that reads.  Its hello follows."""
    number: int
    magic: bytes


class HelloOfAReader(NamedTuple):
    """A client opens a connection on which it only reads."""
    number: int
    magic: bytes
    lowest: int
    highest: int
    #: Of the server that has taken its stream.
    instance: bytes
    #: Names the client, for the operator's figures; zeros: nobody.
    mark: bytes
    storage: bytes


class Welcome(NamedTuple):
    number: int
    version: int
    #: 16 random bytes, new for each start of a server.
    instance: bytes
    #: The last tid that was announced: the state of the server.
    tid: bytes
    #: A dictionary (values): what the storage is and can do.  A reader gets
    #: nothing.
    about: bytes


class Refused(NamedTuple):
    number: int
    reason: int
    text: bytes


# A transaction

class Begin(NamedTuple):
    number: int
    #: By which the client may ask later what became of it.
    id: bytes
    #: Given by the client; zeros: the server gives it.
    tid: bytes
    status: bytes
    user: bytes
    description: bytes
    #: A dictionary (values), or nothing.
    extension: bytes


class Store(NamedTuple):
    number: int
    oid: bytes
    #: That it replaces; zeros: it is a new object.
    serial: bytes
    data: bytes


class Stores(NamedTuple):
    number: int
    #: See `many` and `each_store`.
    stores: bytes


class Restore(NamedTuple):
    """A record of a copied transaction."""
    number: int
    oid: bytes
    serial: bytes
    #: Of the transaction whose data it repeats; zeros: of none.
    source: bytes
    #: 1: data follow; 0: the object's creation was undone.
    has_data: int
    data: bytes


class Delete(NamedTuple):
    number: int
    oid: bytes
    serial: bytes


class Check(NamedTuple):
    """The object must still have this serial."""
    number: int
    oid: bytes
    serial: bytes


class Undo(NamedTuple):
    number: int
    #: Of the transaction to undo, as the undo log has it.
    transaction: bytes


class BlobBegin(NamedTuple):
    number: int


class BlobPiece(NamedTuple):
    number: int
    data: bytes


class BlobEnd(NamedTuple):
    number: int
    oid: bytes
    serial: bytes
    record: bytes


class BlobByName(NamedTuple):
    """The blob is a file in a directory that client and server share."""
    number: int
    oid: bytes
    serial: bytes
    name: bytes
    record: bytes


class Vote(NamedTuple):
    number: int


class Finish(NamedTuple):
    number: int


class Trip(NamedTuple):
    """A vote that is finished at once."""
    number: int


class Abort(NamedTuple):
    number: int


class Voted(NamedTuple):
    number: int
    #: The objects whose conflicts the server has resolved.
    oids: bytes


class Conflicts(NamedTuple):
    """The client resolves them, stores these objects again, and votes again.
    """
    number: int
    conflicts: bytes  # values


class Done(NamedTuple):
    number: int
    tid: bytes
    #: Of the storage: objects and bytes.
    length: int
    size: int
    #: After a trip: the objects whose conflicts the server has resolved.
    oids: bytes


class Aborted(NamedTuple):
    number: int


# Whatever else a client may ask for, with the answers

class Load(NamedTuple):
    """The revision that was current before this tid."""
    number: int
    oid: bytes
    tid: bytes


class Found(NamedTuple):
    number: int
    #: The last tid that was announced before the object was looked up.
    as_of: bytes
    serial: bytes
    #: Of the next revision; zeros: there is none.
    end: bytes
    data: bytes


class Nothing(NamedTuple):
    """The object exists, and did not exist before that tid."""
    number: int
    as_of: bytes


class Missing(NamedTuple):
    """A POSKeyError."""
    number: int
    as_of: bytes


class Elsewhere(NamedTuple):
    """A reader cannot say: the client has to ask on its stream."""
    number: int


class GetBlob(NamedTuple):
    number: int
    oid: bytes
    serial: bytes
    offset: int
    #: The client wants all bytes from the offset on, if there are at most this
    #: many; else only the first of them.
    most: int

    def answer(self, size: int) -> int:
        """How many bytes are sent of a blob of this size."""
        left = size - self.offset
        return left if left <= self.most else min(left, BEGIN_OF_A_BLOB)


class BlobSize(NamedTuple):
    """Of the whole blob; the bytes that were asked for follow in chunks."""
    number: int
    size: int


class BlobChunk(NamedTuple):
    number: int
    data: bytes


class Call(NamedTuple):
    number: int
    name: bytes
    arguments: bytes  # a tuple (values)


class Result(NamedTuple):
    number: int
    result: bytes  # values


class Error(NamedTuple):
    """Of a call, a load or a blob; a transaction has ended with it."""
    number: int
    #: Of its class, with the module.
    name: bytes
    arguments: bytes  # a tuple (values)


class Ask(NamedTuple):
    """What became of a commit?"""
    number: int
    id: bytes
    #: The last tid that the client knew when it began.
    since: bytes


class Outcome(NamedTuple):
    number: int
    word: int
    tid: bytes
    reason: bytes


class Ping(NamedTuple):
    number: int


class Pong(NamedTuple):
    """All transactions up to this tid were announced before."""
    number: int
    tid: bytes


# What a server says unasked.  The number of each is 0.

class Invalid(NamedTuple):
    """A transaction of another client has changed these objects."""
    number: int
    tid: bytes
    oids: bytes


class Sizes(NamedTuple):
    """The storage has another size now, by a pack.  A client that reads the
    file of the server looks whether it is still that one."""
    number: int
    length: int
    size: int


class Goodbye(NamedTuple):
    """The server stops.  A transaction without an answer is not committed, and
    never will be."""
    number: int


class _Row(NamedTuple):
    #: The length, the kind, the number, and the fields of a fixed size.
    shape: struct.Struct
    #: The same without the length.
    behind: struct.Struct
    letter: int
    message: type[Any]
    #: How many fields follow that have a length of two bytes each.
    counted: int
    #: The last field is all the rest of the frame.
    has_rest: bool
    #: Bytes of the longest frame.
    longest: int
    #: The places of the fields that are bytes of a fixed size, and its sizes.
    places: tuple[int, ...]
    sizes: tuple[int, ...]


def _row(letter: str, message: type, fields: str = '', counted: int = 0,
         rest: bool = True, longest: int = LONGEST) -> _Row:
    shape = struct.Struct('>IBI' + fields)
    found = [(at, len(value)) for at, value in enumerate(
        shape.unpack(bytes(shape.size))[2:]) if isinstance(value, bytes)]
    return _Row(
        shape, struct.Struct('>BI' + fields), ord(letter), message, counted,
        rest, longest, tuple(at for at, _ in found),
        tuple(size for _, size in found))


MAGIC = b'\xf5FSYNC\r\n'

_ROWS = [
    _row('H', Hello, '8sBB16sI8sB', counted=3, rest=False,
         longest=LONGEST_BEFORE),
    _row('Y', Preface, '8s', rest=False, longest=LONGEST_BEFORE),
    _row('R', HelloOfAReader, '8sBB16s8s', counted=1, rest=False,
         longest=LONGEST_BEFORE),
    _row('B', Begin, '16s8sc', counted=2, longest=MOST_OF_A_BEGIN),
    _row('S', Store, '8s8s'),
    _row('M', Stores, longest=MOST_OF_STORES),
    _row('X', Restore, '8s8s8sB'),
    _row('D', Delete, '8s8s', rest=False),
    _row('K', Check, '8s8s', rest=False),
    _row('U', Undo, longest=1000),
    _row('O', BlobBegin, rest=False),
    _row('P', BlobPiece),
    _row('E', BlobEnd, '8s8s'),
    _row('N', BlobByName, '8s8s', counted=1),
    _row('V', Vote, rest=False),
    _row('F', Finish, rest=False),
    _row('T', Trip, rest=False),
    _row('A', Abort, rest=False),
    _row('L', Load, '8s8s', rest=False),
    _row('G', GetBlob, '8s8sQQ', rest=False),
    _row('C', Call, counted=1),
    _row('Q', Ask, '16s8s', rest=False),
    _row('I', Ping, rest=False),
    _row('W', Welcome, 'B16s8s'),
    _row('Z', Refused, 'B', longest=LONGEST_BEFORE),
    _row('v', Voted),
    _row('k', Conflicts),
    _row('d', Done, '8sQQ'),
    _row('a', Aborted, rest=False),
    _row('f', Found, '8s8s8s'),
    _row('n', Nothing, '8s', rest=False),
    _row('m', Missing, '8s', rest=False),
    _row('w', Elsewhere, rest=False),
    _row('s', BlobSize, 'Q', rest=False),
    _row('c', BlobChunk),
    _row('r', Result),
    _row('e', Error, counted=1),
    _row('o', Outcome, 'B8s'),
    _row('p', Pong, '8s', rest=False),
    _row('i', Invalid, '8s'),
    _row('z', Sizes, 'QQ', rest=False),
    _row('g', Goodbye, rest=False),
]
_BY_MESSAGE = {row.message: row for row in _ROWS}
_BY_LETTER = {row.letter: row for row in _ROWS}

_COUNT = struct.Struct('>H')


def frame(message: Message) -> bytes:
    row = _BY_MESSAGE[message.__class__]
    fields, rest = list(message), b''
    if row.has_rest:
        rest = fields.pop()
    if row.counted:
        texts = fields[-row.counted:]
        fields = fields[:-row.counted]
        rest = b''.join([*map(_counted, texts), rest])
    length = row.behind.size + len(rest)
    if length > row.longest:
        raise CallerError(f'{message.__class__.__name__} of {length} bytes,'
                          f' which may have {row.longest}')
    for at, size in zip(row.places, row.sizes):
        if len(fields[at]) != size:  # struct would cut or fill it
            raise CallerError(f'{size} bytes in {message!r:.200}')
    try:
        return row.shape.pack(
            length, row.letter, *fields) + rest
    except struct.error as error:
        raise CallerError(f'{message!r:.200}: {error}') from None


def _counted(text: bytes) -> bytes:
    try:
        return _COUNT.pack(len(text)) + text
    except struct.error:
        raise CallerError(f'a text of {len(text)} bytes') from None


def taken(body: bytes) -> Message:
    """The message of a frame, which is given without its length."""
    row = _BY_LETTER.get(body[0]) if body else None
    if row is None:
        raise PeerError(f'a frame of the kind {body[:1]!r}')
    end = row.behind.size
    if len(body) < end or len(body) > row.longest:
        raise PeerError(_of(row, body))
    fields = row.behind.unpack_from(body)[1:]
    if row.counted:
        texts = []
        for _ in range(row.counted):
            begin = end + _COUNT.size
            if begin > len(body):
                raise PeerError(_of(row, body))
            end = begin + _COUNT.unpack_from(body, begin - _COUNT.size)[0]
            texts.append(body[begin:end])
        fields += *texts,
    if end > len(body) or end < len(body) and not row.has_rest:
        raise PeerError(_of(row, body))
    if row.has_rest:
        fields += body[end:],
    return row.message._make(fields)


def _of(row: _Row, body: bytes) -> str:
    return f'{row.message.__name__} of {len(body)} bytes'


class Inbox:
    """Bytes that were received, in any pieces, and not taken apart yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._begin = 0  # of the first frame that was not taken
        #: Bytes that the next frame may have.
        self.longest = LONGEST_BEFORE

    def add(self, data: bytes) -> None:
        del self._buffer[:self._begin]
        self._begin = 0
        self._buffer += data

    def rest(self) -> bytes:
        """What was not taken apart: somebody else does that."""
        return bytes(memoryview(self._buffer)[self._begin:])

    def next(self) -> Message | None:
        """The next message, or None if it has not completely arrived."""
        body = self.next_body()
        return None if body is None else taken(body)

    def next_body(self) -> bytes | None:
        begin = self._begin + LENGTH.size
        if begin > len(self._buffer):
            return None
        length, = LENGTH.unpack_from(self._buffer, self._begin)
        if length > self.longest:
            raise PeerError(f'a frame of {length} bytes')
        end = begin + length
        if end > len(self._buffer):
            return None
        self._begin = end
        return bytes(memoryview(self._buffer)[begin:end])


# The two lists that frames have

def split(oids: bytes) -> list[bytes]:
    """A list of oids from the bytes of all of them."""
    if not oids:
        return []
    if len(oids) == 8:
        return [oids]
    if len(oids) % 8:
        raise PeerError(f'{len(oids)} bytes of oids')
    return [oids[at:at + 8] for at in range(0, len(oids), 8)]


def joined(oids: Iterable[bytes]) -> bytes:
    oids = list(oids)
    for oid in oids:
        if oid.__class__ is not bytes or len(oid) != 8:
            raise CallerError(f'an oid is 8 bytes, not {oid!r:.100}')
    return b''.join(oids)


_NUMBER = struct.Struct('>I')
_IDS = struct.Struct('8s8s')


def many(stores: Iterable[tuple[bytes, bytes, bytes]]) -> bytes:
    """The bytes of several stores: each an oid, a serial and data.

    One frame for each would cost both sides more than all else that they do
    with a small record.
    """
    oids, serials, data = zip(*stores)
    joined(oids), joined(serials)  # as a check
    return b''.join([
        _NUMBER.pack(len(data)), _lengths(len(data)).pack(*map(len, data)),
        *map(_IDS.pack, oids, serials), *data])


def number_of_stores(stores: bytes) -> int:
    """How many they are; PeerError if it is not what `many` makes."""
    if len(stores) >= _NUMBER.size:
        number: int = _NUMBER.unpack_from(stores)[0]
        size = len(stores) - _NUMBER.size - number * OF_A_STORE
        if number and size >= 0 and size == sum(
                _lengths(number).unpack_from(stores, _NUMBER.size)):
            return number
    raise PeerError(f'no stores, but {len(stores)} bytes')


def each_store(stores: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield oid, serial and data of each."""
    number = number_of_stores(stores)
    lengths = _lengths(number)
    at = _NUMBER.size + lengths.size
    begin = at + number * _IDS.size
    for (oid, serial), length in zip(
            _IDS.iter_unpack(stores[at:begin]),
            lengths.unpack_from(stores, _NUMBER.size)):
        yield oid, serial, stores[begin:begin + length]
        begin += length


def _lengths(number: int) -> struct.Struct:
    return struct.Struct(f'>{number}I')


# How the two ends find each other

#: What a server of ours adds to the announcement of its ZEO protocol.  ZEO's
#: clients take the smaller of this version and their own newest, as texts.
SUFFIX = b'+fsync1'


#: What a reader sends first; a server looks at so many bytes of it.
PREFACE = frame(Preface(0, MAGIC))
KNOWN_BY = 5


def is_preface(begin: bytes) -> bool:
    """Does a connection that begins with these bytes want to read?"""
    return begin[:KNOWN_BY] == PREFACE[:KNOWN_BY]


def is_greeting(body: bytes) -> bool:
    """Is it what a ZEO server says first?  Whether it is one of ours:
    `body.endswith(SUFFIX)`."""
    return body[:1] in (b'Z', b'M') and len(body) < 100


def is_hello(body: bytes) -> bool:
    """Does a client's first message open a stream?"""
    return body[5:5 + len(MAGIC)] == MAGIC and body[:1] == b'H'


def common_version(lowest: int, highest: int) -> int | None:
    """The highest version that both sides speak; None: there is none."""
    version = min(highest, HIGHEST)
    return version if version >= max(lowest, LOWEST) else None


def agreed_version(body: bytes) -> int:
    """The one in which this hello is to be answered; or NoCommonVersion."""
    lowest, highest = hello_versions(body)
    version = common_version(lowest, highest)
    if version is None:
        raise NoCommonVersion(
            f'this server speaks the versions {LOWEST} to {HIGHEST} of the'
            f' protocol, and the client {lowest} to {highest}')
    return version


def hello_versions(body: bytes) -> tuple[int, int]:
    """The versions of a hello, also of one whose other fields have another
    form; PeerError if it has none."""
    at = 5 + len(MAGIC)
    if len(body) < at + 2:
        raise PeerError('a hello without versions')
    return body[at], body[at + 1]
