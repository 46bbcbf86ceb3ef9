"""The frames of a commit channel, and which may come in which state.

Both sides use this module.  It touches no file, socket, thread or clock.

- A client has a `Client`.  It numbers transactions, pings and questions, makes
  their frames, and takes the server's frames apart, in their order.  It
  accepts a reply only in a state in which that reply may come.  It returns no
  messages before `moved` was called: until then, the ZEO connection may still
  bring older invalidations.
- The server's side is in `commitserver`.

Both sides have one state for each transaction::

              vote            voted           finish
    BEGUN ----------> VOTING --------> VOTED --------> FINISHING
     | ^                |                                  |
     | +--- conflicts --+--- error                         +--- done, error
     | |
     | +--- conflicts --+--- done, error
     |                  |
     +------------> IN ONE TRIP
           trip

A *trip* is a vote and a finish in one request, which get one answer.

`error` and `done` end a transaction.  So does an abort, which the client may
request in every state but FINISHING and IN ONE TRIP.  The transaction is then
ABORTING until the server confirms that; other replies to it were sent before,
and are ignored.

A server that stops says *goodbye*: a transaction that it has not answered by
then is not committed, and never will be.  Nothing comes after a goodbye.

A client whose channel has ended may *ask*, on its next channel, what became of
a commit: see `sessions.InDoubt`.

Errors, conflicts, and all operations of a transaction but stores are messages
in the encoding of ZEO, which this module does not decode.

The format, byte by byte, is in docs/internals/commitchannel.rst.
"""

import collections
import itertools
import struct
import typing
from collections.abc import Callable
from collections.abc import Sequence

from . import batch
from .framing import ANNOUNCEMENTS
from .framing import HEAD
from .framing import LENGTH
from .framing import LONGEST
from .framing import LONGEST_GREETING
from .framing import REFUSAL
from .framing import REFUSED
from .framing import WELCOME
from .framing import CallerError
from .framing import PeerError
from .framing import Refused
from .framing import Welcome
from .framing import as_text
from .framing import check
from .framing import make
from .sessions import commit_id
from .sessions import hello

#: A key of `info`, a call of ZEO: transactions are announced on the channel
#: from now on.
MOVED = 'fsyncstorage-moved'

# Kinds of frames, of the client and of the server.
(BEGIN, BEGIN_PLAIN, STORE, STORES, CALL, VOTE, FINISH, TRIP, ABORT, PING,
 ASK) = b'BNSMCVFTAPQ'
(VOTED, CONFLICTS, ERROR, DONE, ABORTED, INVALID, PONG, OUTCOME,
 GOODBYE) = b'vkedaipog'

# What became of a commit.
COMMITTED, NOT_COMMITTED, NOT_KNOWN = 1, 2, 3

#: Transactions that a client may have open at once.
MOST_OPEN = 100

# Most bytes of announcements that are returned together with the first one.
MOST_TOGETHER = 1 << 16

STORE_SHAPE = struct.Struct('>IBI8s8s')
DONE_SHAPE = struct.Struct('>IBI8sQQ')
TID_SHAPE = struct.Struct('>IBI8s')
OUTCOME_SHAPE = struct.Struct('>IBIB8s')


# States of a transaction, of a ping, and of a question.
BEGUN, VOTING, IS_VOTED, FINISHING, IN_ONE_TRIP, ABORTING, PINGING, ASKING = (
    'begun', 'voting', 'voted', 'finishing', 'in one trip', 'aborting',
    'a ping', 'a question')


# Replies and announcements

class Voted(typing.NamedTuple):
    number: int
    oids: list[bytes]


class Conflicts(typing.NamedTuple):
    number: int
    message: bytes


class Error(typing.NamedTuple):
    number: int
    message: bytes


class Done(typing.NamedTuple):
    number: int
    tid: bytes
    length: int
    size: int
    #: For a trip: the objects whose conflicts the server has resolved.
    oids: list[bytes] = []


class Aborted(typing.NamedTuple):
    number: int


class Invalid(typing.NamedTuple):
    tid: bytes
    oids: list[bytes]


class Pong(typing.NamedTuple):
    number: int
    tid: bytes


class Outcome(typing.NamedTuple):
    number: int
    outcome: int
    #: Zeros unless the transaction is committed.
    tid: bytes


class Goodbye(typing.NamedTuple):
    number: int = 0


def _taken_apart(oids: bytes) -> list[bytes]:
    if len(oids) % 8:
        raise PeerError(f'{len(oids)} bytes of oids')
    return [oids[at:at + 8] for at in range(0, len(oids), 8)]


Event = (Welcome | Refused | Voted | Conflicts | Error | Done | Aborted
         | Invalid | Pong | Outcome | Goodbye)

ANNOUNCING, GREETING, WAITING, OPEN, CLOSED = (
    'before its announcement', 'before its welcome',
    'before the other connection is done', 'open', 'refused')


class Client:
    """One channel, as its client sees it.

    The caller makes sure that only one thread at a time calls it.
    """

    def __init__(self, instance: bytes, ticket: bytes) -> None:
        #: To be sent first.
        self.hello = hello(instance, ticket)
        self._session = instance, ticket
        self.phase = ANNOUNCING
        self._has_moved = False
        self._buffer = bytearray()
        self._states: dict[int, str] = {}
        self._numbers = itertools.count(1)
        self._last_tid = b''

    def state(self, number: int) -> str | None:
        return self._states.get(number)

    @property
    def open(self) -> int:
        """Transactions, pings and questions that have not ended."""
        return len(self._states)

    @property
    def received(self) -> int:
        """Bytes that were received and not yet returned as messages."""
        return len(self._buffer)

    # Requests

    def begin(self, message: bytes, kind: int = BEGIN) -> tuple[int, bytes]:
        """The number of a new transaction, and the frame.  The message is a
        call of tpc_begin, or one in the format of `plainbegin`."""
        number = self._new_number()
        frame = make(HEAD, kind, number, rest=message)
        self._states[number] = BEGUN
        return number, frame

    def store(self, number: int, oid: bytes, serial: bytes,
              data: bytes) -> bytes:
        check(oid, serial)
        self._needs(BEGUN, number)
        return make(STORE_SHAPE, STORE, number, oid, serial, rest=data)

    def stores(self, number: int, stores: Sequence[batch.Store]) -> bytes:
        if len(stores) == 1:
            return self.store(number, *stores[0])
        self._needs(BEGUN, number)
        return make(HEAD, STORES, number, rest=batch.pack(stores))

    def call(self, number: int, message: bytes) -> bytes:
        self._needs(BEGUN, number)
        return make(HEAD, CALL, number, rest=message)

    def vote(self, number: int) -> bytes:
        self._needs(BEGUN, number)
        self._states[number] = VOTING
        return make(HEAD, VOTE, number)

    def finish(self, number: int) -> bytes:
        self._needs(IS_VOTED, number)
        self._states[number] = FINISHING
        return make(HEAD, FINISH, number)

    def trip(self, number: int) -> bytes:
        """The vote and the finish, as one request."""
        self._needs(BEGUN, number)
        self._states[number] = IN_ONE_TRIP
        return make(HEAD, TRIP, number)

    def is_finishing(self, number: int) -> bool:
        """Is it too late for an abort, and has no answer come yet?"""
        return self._states.get(number) in (FINISHING, IN_ONE_TRIP)

    def may_be_finished(self, number: int) -> bool:
        """Was its finish asked for?  True also if it has ended."""
        return self.is_finishing(number) or self._states.get(number) is None

    def abort(self, number: int) -> bytes | None:
        """None: it has ended, or is being aborted, or it is too late."""
        if (self.is_finishing(number)
                or self._states.get(number) in (None, ABORTING)):
            return None
        self._states[number] = ABORTING
        return make(HEAD, ABORT, number)

    def ping(self) -> tuple[int, bytes]:
        number = self._new_number()
        self._states[number] = PINGING
        return number, make(HEAD, PING, number)

    def commit_id(self, number: int) -> bytes:
        return commit_id(*self._session, number)

    def ask(self, in_doubt: bytes) -> tuple[int, bytes]:
        """Ask what became of this commit, made on an earlier channel."""
        number = self._new_number()
        self._states[number] = ASKING
        return number, make(HEAD, ASK, number, rest=in_doubt)

    def _new_number(self) -> int:
        while True:
            number = next(self._numbers) % (1 << 32)
            if number and number not in self._states:
                return number

    def _needs(self, state: str, number: int) -> None:
        if self._states.get(number) is not state:
            raise CallerError(f'a transaction that is'
                              f' {self._states.get(number)}, not {state}')

    # Input

    def moved(self) -> None:
        """The other connection has brought its last invalidation."""
        self._has_moved = True
        if self.phase is WAITING:
            self.phase = OPEN

    def fill(self, receive: Callable[[int, int], bytes], most: int,
             flags: int = 0) -> bool:
        """Add the bytes that `receive` returns; False at the end of the
        stream.

        No bytes are lost if the thread is interrupted: between receiving and
        adding them, the interpreter takes no step at which an interrupt could
        happen.
        """
        before = len(self._buffer)
        collections.deque(
            map(self._buffer.__iadd__, map(receive, (most,), (flags,))),
            maxlen=0)
        return len(self._buffer) > before

    def next_together(self) -> Sequence[Event]:
        """The next message; if it is an announcement, with the announcements
        directly after it.  Empty: no message has arrived yet."""
        event = self.next()
        if event is None:
            return ()
        if event.__class__ is Invalid:
            return [event, *self._further_invalid()]
        return event,

    def _further_invalid(self) -> list[Invalid]:
        """The announcements that are next, as `next` would return them, but
        faster.  Stop at MOST_TOGETHER, and at anything that is not as it
        should be: `next` will deal with the rest."""
        found: list[Invalid] = []
        start, size = 0, min(len(self._buffer), MOST_TOGETHER)
        with memoryview(self._buffer) as buffer:
            while start + TID_SHAPE.size <= size:
                length, kind, number, tid = TID_SHAPE.unpack_from(
                    buffer, start)
                first = start + TID_SHAPE.size
                end = start + LENGTH.size + length
                if (kind != INVALID or number or not first <= end <= size
                        or (end - first) % 8 or tid <= self._last_tid):
                    break
                oids = bytes(buffer[first:end])
                found.append(Invalid(
                    tid, [oids] if len(oids) == 8 else _taken_apart(oids)))
                self._last_tid = tid
                start = end
        del self._buffer[:start]
        return found

    def next(self) -> Event | None:
        """The next message, or None if it has not arrived yet."""
        while self.phase is not WAITING:
            if len(self._buffer) < LENGTH.size:
                return None
            length: int = LENGTH.unpack_from(self._buffer)[0]
            if length > (LONGEST if self.phase is OPEN else LONGEST_GREETING):
                raise PeerError(f'a reply of {length} bytes')
            end = LENGTH.size + length
            if len(self._buffer) < end:
                return None
            event = self._take(bytes(memoryview(self._buffer)[:end]))
            del self._buffer[:end]
            if event is not None:
                return event
        return None

    def _take(self, frame: bytes) -> Event | None:
        if self.phase is ANNOUNCING:
            if frame[LENGTH.size:] not in ANNOUNCEMENTS:
                raise PeerError(f'no ZEO server: it says {frame[4:24]!r}')
            self.phase = GREETING
            return None
        if len(frame) < HEAD.size:
            raise PeerError('a reply without a head')
        _, kind, number = HEAD.unpack_from(frame)
        try:
            phase, states, shape, has_rest, take = _REPLIES[kind]
        except KeyError:
            raise PeerError(f'a reply of kind {kind}') from None
        state = self._states.get(number) if number else None
        if phase is not self.phase or state not in states:
            raise PeerError(f'a reply of kind {kind}, {self.phase}, to what is'
                            f' {state}')
        more = len(frame) - shape.size
        if more < 0 or more and not has_rest:
            raise PeerError(f'a reply of kind {kind}, {more} bytes too long')
        fields = shape.unpack_from(frame)[3:]
        return take(self, number, frame[shape.size:], *fields)

    def _welcome(self, number: int, rest: bytes) -> Welcome:
        self.phase = OPEN if self._has_moved else WAITING
        return Welcome()

    def _refused(self, number: int, rest: bytes, reason: int) -> Refused:
        self.phase = CLOSED
        return Refused(reason, as_text(rest))

    def _voted(self, number: int, rest: bytes) -> Voted | None:
        oids = _taken_apart(rest)
        if self._states[number] is ABORTING:
            return None
        self._states[number] = IS_VOTED
        return Voted(number, oids)

    def _conflicts(self, number: int, rest: bytes) -> Conflicts | None:
        if self._states[number] is ABORTING:
            return None
        self._states[number] = BEGUN
        return Conflicts(number, rest)

    def _error(self, number: int, rest: bytes) -> Error | None:
        if self._states[number] is ABORTING:
            return None
        del self._states[number]
        return Error(number, rest)

    def _done(self, number: int, rest: bytes, tid: bytes, length: int,
              size: int) -> Done:
        oids = _taken_apart(rest)
        if oids and self._states[number] is FINISHING:
            raise PeerError('conflicts that were resolved behind a vote')
        self._rises(tid)
        del self._states[number]
        return Done(number, tid, length, size, oids)

    def _aborted(self, number: int, rest: bytes) -> Aborted:
        del self._states[number]
        return Aborted(number)

    def _invalid(self, number: int, rest: bytes, tid: bytes) -> Invalid:
        oids = _taken_apart(rest)
        self._rises(tid)
        return Invalid(tid, oids)

    def _pong(self, number: int, rest: bytes, tid: bytes) -> Pong:
        del self._states[number]
        return Pong(number, tid)

    def _outcome(self, number: int, rest: bytes, outcome: int,
                 tid: bytes) -> Outcome:
        if outcome not in (COMMITTED, NOT_COMMITTED, NOT_KNOWN):
            raise PeerError(f'an outcome {outcome}')
        del self._states[number]
        return Outcome(number, outcome, tid)

    def _goodbye(self, number: int, rest: bytes) -> Goodbye:
        return Goodbye()

    def _rises(self, tid: bytes) -> None:
        if tid <= self._last_tid:
            raise PeerError(f'{tid.hex()} behind {self._last_tid.hex()}')
        self._last_tid = tid


_NOTHING = None,

# For each kind of reply: the phase of the channel and the states of the
# transaction in which it may come, its shape, whether bytes may follow it, and
# its method.
_REPLIES: dict[int, tuple[
    str, tuple[str | None, ...], struct.Struct, bool,
    Callable[..., Event | None]]] = {
    WELCOME: (GREETING, _NOTHING, HEAD, False, Client._welcome),
    REFUSED: (GREETING, _NOTHING, REFUSAL, True, Client._refused),
    VOTED: (OPEN, (VOTING, ABORTING), HEAD, True, Client._voted),
    CONFLICTS: (OPEN, (VOTING, IN_ONE_TRIP, ABORTING), HEAD, True,
                Client._conflicts),
    ERROR: (OPEN, (VOTING, FINISHING, IN_ONE_TRIP, ABORTING), HEAD, True,
            Client._error),
    DONE: (OPEN, (FINISHING, IN_ONE_TRIP), DONE_SHAPE, True, Client._done),
    ABORTED: (OPEN, (ABORTING,), HEAD, False, Client._aborted),
    INVALID: (OPEN, _NOTHING, TID_SHAPE, True, Client._invalid),
    PONG: (OPEN, (PINGING,), TID_SHAPE, False, Client._pong),
    OUTCOME: (OPEN, (ASKING,), OUTCOME_SHAPE, False, Client._outcome),
    GOODBYE: (OPEN, _NOTHING, HEAD, False, Client._goodbye),
}
