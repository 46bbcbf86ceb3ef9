"""The frames of a read channel: how they are made and taken apart.

(Other modules have the frames of a commit channel.  `commits` has those for
the client and for both sides, `commitserver` those for the server, `batch` and
`plainbegin` the contents of some frames, and `sessions` the names of sessions
and commits.  `framing` has what all channels share.  `handover` has the few
bytes that are exchanged where a data file is handed over.)

Both sides use this module.  It touches no file, socket, thread or clock: it
takes the bytes that were received, in any pieces, and returns the bytes to
send.

- A server has functions that make its replies, and `Requests` for its input.
- A client has a `Client`, which numbers its requests, and accepts a reply only
  for a request that waits for it.

There are two errors.  A `PeerError` is the peer's fault: nothing that arrives
later on the channel can be trusted.  A `CallerError` is the caller's fault: no
frame was made, and the channel is as before.

The format, byte by byte, is in docs/internals/wire.rst.
"""

import struct
import typing
from collections.abc import Callable

from ZODB.utils import z64

from .framing import ANNOUNCEMENTS
from .framing import HEAD
from .framing import LENGTH
from .framing import LONGEST
from .framing import LONGEST_GREETING
from .framing import OTHER_INSTANCE as OTHER_INSTANCE
from .framing import OTHER_VERSION as OTHER_VERSION
from .framing import REFUSAL
from .framing import REFUSED
from .framing import TOO_MANY as TOO_MANY
from .framing import UNKNOWN_STORAGE as UNKNOWN_STORAGE
from .framing import UNKNOWN_TICKET as UNKNOWN_TICKET
from .framing import WELCOME
from .framing import CallerError as CallerError
from .framing import PeerError as PeerError
from .framing import Refused as Refused
from .framing import Welcome as Welcome
from .framing import as_text
from .framing import check
from .framing import make
from .framing import other_version
from .framing import refused as refused
from .framing import welcome as welcome

MAGIC = b'\xf5CHANNEL'
VERSION = 2
#: Version of the calls about packs, which go over the ZEO connection.
PACKS = 1
#: Version of the call `alive`, which asks for a sign of life there.
ALIVE = 1

# Kinds of frames, of the client and of the server.
LOAD, BLOB = b'LB'
FOUND, NOTHING, MISSING, FAILED, SIZE, CHUNK = b'fnmesc'

LONGEST_NAME = 255
#: The mark of a client that has got none from the server.
NO_MARK = bytes(8)
LONGEST_BLOB = (1 << 64) - 1
#: Bytes that are sent of a blob that is longer than the client wants.
BEGIN = 1 << 16

_HELLO = struct.Struct('>8sB16s8s')

_LOAD = struct.Struct('>IBI8s8s')
_BLOB = struct.Struct('>IBI8s8sQQ')
_FOUND = struct.Struct('>IBI8s8s8s')
_AS_OF = struct.Struct('>IBI8s')
_FAILED = struct.Struct('>IBI8sB')
_SIZE = struct.Struct('>IBIQ')


class _Inbox:
    """Bytes that were received and not yet taken apart."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0  # where the first frame that was not taken begins

    def add(self, data: bytes | bytearray | memoryview) -> None:
        del self._buffer[:self._start]
        self._start = 0
        self._buffer += data

    @property
    def waiting(self) -> int:
        """How many bytes were received of frames that were not taken."""
        return len(self._buffer) - self._start

    def _length(self) -> int | None:
        """What the length field of the next frame says; None if not known."""
        if len(self._buffer) - self._start < LENGTH.size:
            return None
        length: int = LENGTH.unpack_from(self._buffer, self._start)[0]
        return length

    def _rest(self, shape: struct.Struct, end: int) -> bytes:
        """The bytes of a frame after the fields of its shape."""
        return bytes(memoryview(self._buffer)[self._start + shape.size:end])


# The hello

class Hello(typing.NamedTuple):
    version: int
    #: The server that the client wants; None in another version.
    instance: bytes | None
    #: The client whose channel it is: used for figures only.
    mark: bytes | None
    storage: str | None


def is_server(instance: object, mark: object) -> bool:
    """Can a hello contain them?  A server may have announced anything."""
    return (isinstance(instance, bytes) and len(instance) == 16
            and isinstance(mark, bytes) and len(mark) == len(NO_MARK))


def hello(instance: bytes, storage: str, mark: bytes = NO_MARK) -> bytes:
    """The first frame of a client."""
    name = storage.encode()
    if not is_server(instance, mark) or len(name) > LONGEST_NAME:
        raise CallerError(
            f'no such server: {instance!r}, {storage!r}, {mark!r}')
    message = _HELLO.pack(MAGIC, VERSION, instance, mark) + name
    return LENGTH.pack(len(message)) + message


def is_hello(message: bytes) -> bool:
    """Does a client's first message, without its length, ask for a channel?"""
    return message.startswith(MAGIC)


def read_hello(message: bytes) -> Hello:
    other = other_version(message, MAGIC, VERSION)
    if other is not None:
        return Hello(other, None, None, None)
    try:
        _, version, instance, mark = _HELLO.unpack_from(message)
        name = message[_HELLO.size:].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise PeerError(f'a damaged hello: {error}') from None
    return Hello(version, instance, mark, name)


# The server's side

class Load(typing.NamedTuple):
    number: int
    oid: bytes
    tid: bytes  # loadBefore


class Blob(typing.NamedTuple):
    number: int
    oid: bytes
    serial: bytes
    offset: int
    #: The client wants all bytes from the offset on, if there are at most this
    #: many; else only the first of them.
    most: int

    def answer(self, size: int) -> int:
        """How many bytes to send of a blob of this size."""
        left = size - self.offset
        return left if left <= self.most else min(left, BEGIN)


_REQUESTS: dict[int, tuple[struct.Struct, type[Load] | type[Blob]]] = {
    LOAD: (_LOAD, Load), BLOB: (_BLOB, Blob)}
_REQUEST_LENGTHS = {
    shape.size - LENGTH.size for shape, _ in _REQUESTS.values()}


class Requests(_Inbox):
    """What a server receives after the hello."""

    def next(self) -> Load | Blob | None:
        """The next request, or None if it has not completely arrived."""
        length = self._length()
        if length is None:
            return None
        if length not in _REQUEST_LENGTHS:
            raise PeerError(f'a request of {length} bytes')
        start = self._start
        end = start + LENGTH.size + length
        if len(self._buffer) < end:
            return None
        kind = self._buffer[start + LENGTH.size]
        shape, made = _REQUESTS.get(kind, (HEAD, None))
        if made is None or shape.size != end - start:
            raise PeerError(f'a request of kind {kind}, {length} bytes')
        self._start = end
        return made._make(shape.unpack_from(self._buffer, start)[2:])


def found(number: int, as_of: bytes, data: bytes, serial: bytes,
          end: bytes | None) -> bytes:
    """`end` is the tid of the next revision, or None."""
    end = end or z64
    check(as_of, serial, end)
    return make(_FOUND, FOUND, number, as_of, serial, end, rest=data)


def nothing(number: int, as_of: bytes) -> bytes:
    """The object exists, but did not exist before the tid of the request."""
    check(as_of)
    return make(_AS_OF, NOTHING, number, as_of)


def missing(number: int, as_of: bytes) -> bytes:
    """A POSKeyError."""
    check(as_of)
    return make(_AS_OF, MISSING, number, as_of)


def failed(number: int, as_of: bytes, error_type: str, text: str) -> bytes:
    """Any other error, its type by name."""
    check(as_of)
    name = error_type.encode()[:255]
    rest = name + text.encode('utf-8', 'backslashreplace')[:1000]
    return make(_FAILED, FAILED, number, as_of, len(name), rest=rest)


def size(number: int, size: int) -> bytes:
    """The size of the whole blob; the wanted bytes follow in chunks."""
    return make(_SIZE, SIZE, number, size)


def chunk(number: int, length: int) -> bytes:
    """The head of a chunk; `length` bytes of the blob follow."""
    return make(HEAD, CHUNK, number, behind=length)


# The client's side

class Found(typing.NamedTuple):
    number: int
    as_of: bytes
    data: bytes
    serial: bytes
    end: bytes | None


class Nothing(typing.NamedTuple):
    number: int
    as_of: bytes


class Missing(typing.NamedTuple):
    number: int
    as_of: bytes


class Failed(typing.NamedTuple):
    number: int
    as_of: bytes
    type: str
    text: str


class Size(typing.NamedTuple):
    number: int
    size: int


class Chunk(typing.NamedTuple):
    """Bytes that have arrived of a chunk: all of it, or a part."""
    number: int
    data: bytes


class End(typing.NamedTuple):
    """The blob is complete: the chunk before had its last byte."""
    number: int


Event = (Welcome | Refused | Found | Nothing | Missing | Failed | Size | Chunk
         | End)

ANNOUNCING, GREETING, OPEN, CLOSED = (
    'before its announcement', 'before its welcome', 'open', 'refused')


class Client(_Inbox):
    """One channel, as its client sees it.

    Requests may be made at any time.  They are sent after the hello, and
    answered when the channel is open.
    """

    def __init__(self, instance: bytes, storage: str,
                 mark: bytes = NO_MARK) -> None:
        super().__init__()
        #: To be sent first.
        self.hello = hello(instance, storage, mark)
        self._state = ANNOUNCING
        self._last_number = 0
        #: Unanswered requests: number -> Load, Blob, or missing bytes.
        self._open: dict[int, typing.Any] = {}
        self._ended: End | None = None
        self._coming = 0    # number of the request whose chunk is arriving
        #: Bytes of the chunk that were not returned yet.
        self.left = 0

    # Requests

    def load(self, oid: bytes, tid: bytes) -> tuple[int, bytes]:
        """The number and the bytes of a request."""
        check(oid, tid)
        number = self._new_number()
        request = make(_LOAD, LOAD, number, oid, tid)
        self._open[number] = Load(number, oid, tid)
        return number, request

    def blob(self, oid: bytes, serial: bytes, offset: int = 0,
             most: int = LONGEST_BLOB) -> tuple[int, bytes]:
        check(oid, serial)
        number = self._new_number()
        request = make(_BLOB, BLOB, number, oid, serial, offset, most)
        self._open[number] = Blob(number, oid, serial, offset, most)
        return number, request

    def _new_number(self) -> int:
        number = self._last_number
        while True:
            number = (number + 1) % (1 << 32)
            if number not in self._open:
                self._last_number = number
                return number

    # Replies

    def next(self) -> Event | None:
        """The server's next message, or None if it has not arrived yet."""
        if self._ended is not None:
            ended, self._ended = self._ended, None
            return ended
        if self.left:
            return self.came(self._part())
        length = self._length()
        if length is None:
            return None
        if length > (LONGEST if self._state is OPEN else LONGEST_GREETING):
            raise PeerError(f'a reply of {length} bytes')
        end = self._start + LENGTH.size + length
        if len(self._buffer) < end and not self._is_chunk():
            return None
        if self._state is ANNOUNCING:
            self._take_announcement(end)
            return self.next()
        event = self._take(end)
        self._start = min(end, len(self._buffer))
        return event

    def _is_chunk(self) -> bool:
        """Has a chunk begun?  It may be taken in parts."""
        return (self._state is OPEN and self.waiting >= HEAD.size
                and self._buffer[self._start + LENGTH.size] == CHUNK)

    def _take_announcement(self, end: int) -> None:
        announcement = self._rest(LENGTH, end)
        if announcement not in ANNOUNCEMENTS:
            raise PeerError(f'no ZEO server: it says {announcement[:20]!r}')
        self._state = GREETING
        self._start = end

    def _take(self, end: int) -> Event | None:
        if end - self._start < HEAD.size:
            raise PeerError('a reply without a head')
        _, kind, number = HEAD.unpack_from(self._buffer, self._start)
        request = self._open.get(number)
        try:
            state, asked, shape, has_rest, take = _REPLIES[kind]
        except KeyError:
            raise PeerError(f'a reply of kind {kind}') from None
        if state is not self._state or request.__class__ not in asked:
            raise PeerError(
                f'a reply of kind {kind} to {request}, {self._state}')
        more = end - self._start - shape.size
        if more < 0 or more and not has_rest:
            raise PeerError(f'a reply of kind {kind}, {more} bytes too long')
        fields = shape.unpack_from(self._buffer, self._start)[3:]
        return take(self, number, request, self._rest(shape, end), *fields)

    def _welcome(self, number: int, request: None, rest: bytes) -> Welcome:
        self._state = OPEN
        return Welcome()

    def _refused(self, number: int, request: None, rest: bytes,
                 reason: int) -> Refused:
        self._state = CLOSED
        return Refused(reason, as_text(rest))

    def _found(self, number: int, request: Load, data: bytes, as_of: bytes,
               serial: bytes, end: bytes) -> Found:
        del self._open[number]
        return Found(number, as_of, data, serial, None if end == z64 else end)

    def _nothing(self, number: int, request: Load, rest: bytes,
                 as_of: bytes) -> Nothing:
        del self._open[number]
        return Nothing(number, as_of)

    def _missing(self, number: int, request: Load | Blob, rest: bytes,
                 as_of: bytes) -> Missing:
        del self._open[number]
        return Missing(number, as_of)

    def _failed(self, number: int, request: Load | Blob, rest: bytes,
                as_of: bytes, length: int) -> Failed:
        del self._open[number]
        name, text = rest[:length], rest[length:]
        return Failed(number, as_of, as_text(name), as_text(text))

    def _size(self, number: int, request: Blob, rest: bytes,
              size: int) -> Size:
        if size < request.offset:
            raise PeerError(f'a blob of {size} bytes from {request.offset} on')
        self._expect(number, request.answer(size))
        return Size(number, size)

    def _chunk(self, number: int, expected: int, data: bytes) -> Chunk | None:
        length = LENGTH.unpack_from(self._buffer, self._start)[0] - (
            HEAD.size - LENGTH.size)
        if not 0 < length <= expected:
            raise PeerError(f'a chunk of {length} bytes of {expected}')
        self._coming, self.left = number, length
        return self.came(data)

    def _part(self) -> bytes:
        """The bytes of the current chunk that have arrived."""
        end = min(self._start + self.left, len(self._buffer))
        part = bytes(memoryview(self._buffer)[self._start:end])
        self._start = end
        return part

    def came(self, data: bytes) -> Chunk | None:
        """The Chunk for bytes of a blob, which were received without `add`."""
        if not data:
            return None
        number = self._coming
        self.left -= len(data)
        self._expect(number, self._open[number] - len(data))
        return Chunk(number, data)

    @property
    def coming(self) -> int:
        """How many of the next bytes to arrive belong to the current chunk."""
        return 0 if self.waiting else self.left

    def _expect(self, number: int, more: int) -> None:
        """Note that `more` bytes of a blob are still missing."""
        if more:
            self._open[number] = more
        else:
            del self._open[number]
            self._ended = End(number)


_NOBODY = type(None),

# For each kind of reply: the state in which it may arrive, the requests that
# it may answer (int: a blob that has begun, with bytes missing), its shape,
# whether bytes may follow it, and its method.
_REPLIES: dict[int, tuple[
    str, tuple[type, ...], struct.Struct, bool,
    Callable[..., Event | None]]] = {
    WELCOME: (GREETING, _NOBODY, HEAD, False, Client._welcome),
    REFUSED: (GREETING, _NOBODY, REFUSAL, True, Client._refused),
    FOUND: (OPEN, (Load,), _FOUND, True, Client._found),
    NOTHING: (OPEN, (Load,), _AS_OF, False, Client._nothing),
    MISSING: (OPEN, (Load, Blob), _AS_OF, False, Client._missing),
    FAILED: (OPEN, (Load, Blob), _FAILED, True, Client._failed),
    SIZE: (OPEN, (Blob,), _SIZE, False, Client._size),
    CHUNK: (OPEN, (int,), HEAD, True, Client._chunk),
}
