"""What a client has asked for, and which replies may come.

Each request that gets an answer has a number, and each number a state.  Of a
transaction:

              Vote            Voted           Finish
    BEGUN ----------> VOTING --------> VOTED --------> FINISHING
     | ^                |                                  |
     | +-- Conflicts ---+--- Error                         +--- Done, Error
     | |
     | +-- Conflicts ---+--- Done, Error
     | Trip             |
     +------------> TRIPPING

Done and Error end it.  So does Abort, which a client may send in each state
but FINISHING and TRIPPING; then the transaction is ABORTING until the server
says Aborted, and other replies to it, which were on their way, are dropped.

Of anything else, one reply is the answer; but a blob comes in chunks.

No sockets, threads or clocks: the caller makes sure that one thread at a time
is in here.
"""

import itertools
from typing import Any

from . import frames
from .frames import CallerError
from .frames import Message
from .frames import PeerError

BEGUN, VOTING, VOTED, FINISHING, TRIPPING, ABORTING = (
    'begun', 'voting', 'voted', 'finishing', 'finishing with its vote',
    'aborting')
LOADING, CALLING, ASKING, PINGING, FETCHING = (
    'a load', 'a call', 'a question', 'a ping', 'a blob')

#: What a client says of a transaction: its state before, and then.
STEPS: dict[type, tuple[tuple[str, ...], str]] = {
    frames.Vote: ((BEGUN,), VOTING),
    frames.Finish: ((VOTED,), FINISHING),
    frames.Trip: ((BEGUN,), TRIPPING),
    frames.Abort: ((BEGUN, VOTING, VOTED), ABORTING),
}
#: What else a client asks.
QUESTIONS: dict[type, str] = {
    frames.Load: LOADING,
    frames.Call: CALLING,
    frames.Ask: ASKING,
    frames.Ping: PINGING,
    frames.GetBlob: FETCHING,
}
#: Replies: the states in which each may come, and what follows; None: it ends
#: what was asked.
REPLIES: dict[type, tuple[tuple[str, ...], str | None]] = {
    frames.Voted: ((VOTING, ABORTING), VOTED),
    frames.Conflicts: ((VOTING, TRIPPING, ABORTING), BEGUN),
    frames.Done: ((FINISHING, TRIPPING), None),
    frames.Aborted: ((ABORTING,), None),
    frames.Found: ((LOADING,), None),
    frames.Nothing: ((LOADING,), None),
    frames.Missing: ((LOADING, FETCHING), None),
    frames.Elsewhere: ((LOADING, FETCHING), None),
    frames.Result: ((CALLING,), None),
    frames.Outcome: ((ASKING,), None),
    frames.Pong: ((PINGING,), None),
    frames.BlobSize: ((FETCHING,), FETCHING),
    frames.BlobChunk: ((FETCHING,), FETCHING),
    frames.Error: ((VOTING, FINISHING, TRIPPING, ABORTING, LOADING, CALLING,
                    ASKING, FETCHING), None),
}
#: What comes unasked.
UNASKED = frames.Invalid, frames.Sizes, frames.Goodbye

# Dropped, as the transaction is being aborted.
_DROPPED = frames.Voted, frames.Conflicts, frames.Error


class Order:

    def __init__(self, last_tid: bytes) -> None:
        self._states: dict[int, str] = {}
        self._numbers = itertools.count(1)
        # Number of a blob -> what was asked, or bytes to come.
        self._missing: dict[int, Any] = {}
        #: How many are open.
        self.transactions = 0
        #: The last that was announced, or given to a commit.
        self.last_tid = last_tid

    def state(self, number: int) -> str | None:
        return self._states.get(number)

    # What is asked

    def begins(self) -> int:
        """The number of a new transaction."""
        number = self._new()
        self._states[number] = BEGUN
        self.transactions += 1
        return number

    def numbered(self, message: Message) -> Message:
        """The message, with a new number; nothing is asked for yet."""
        return message._replace(number=self._new())

    def asks(self, message: Message) -> Message:
        """The message, with a new number, which is asked for."""
        message = self.numbered(message)
        self.says(message)
        return message

    def says(self, message: Message) -> None:
        """A question, or something about a transaction; CallerError if that is
        out of place."""
        question = QUESTIONS.get(message.__class__)
        if question is not None:
            self._states[message.number] = question
            if question is FETCHING:
                self._missing[message.number] = message
            return
        state = self._states.get(message.number)
        before, then = STEPS.get(message.__class__, ((BEGUN,), BEGUN))
        if state not in before:
            raise CallerError(f'{message.__class__.__name__} of a transaction'
                              f' that is {state or "over"}')
        self._states[message.number] = then

    def may_abort(self, number: int) -> bool:
        return self._states.get(number) in STEPS[frames.Abort][0]

    def _new(self) -> int:
        while True:
            number = next(self._numbers) % (1 << 32)
            if number and number not in self._states:
                return number

    # What is answered

    def take(self, message: Message) -> Message | None:
        """The message, if it may come now; None: it is dropped.  PeerError if
        it may not come."""
        kind = message.__class__
        if not message.number and kind in UNASKED:
            if kind is frames.Invalid:
                self._rises(message.tid)
            return message
        states, then = REPLIES.get(kind, ((), None))
        state = self._states.get(message.number)
        if state not in states:
            raise PeerError(f'{kind.__name__} for what is {state or "over"}')
        if state is ABORTING and kind in _DROPPED:
            return None
        if kind is frames.Done:
            if message.oids and state is FINISHING:
                raise PeerError('conflicts that were resolved behind a vote')
            self._rises(message.tid)
        elif state is FETCHING:
            then = self._fetched(message)
        if then is None:
            del self._states[message.number]
            if state in _OF_A_TRANSACTION:
                self.transactions -= 1
        else:
            self._states[message.number] = then
        return message

    def _rises(self, tid: bytes) -> None:
        if tid <= self.last_tid:
            raise PeerError(f'{tid.hex()} behind {self.last_tid.hex()}')
        self.last_tid = tid

    def _fetched(self, message: Message) -> str | None:
        """FETCHING, or None if this is the last piece of a blob."""
        number, kind = message.number, message.__class__
        missing = self._missing.pop(number)
        has_size = missing.__class__ is int
        if kind is frames.BlobSize:
            if has_size or message.size < missing.offset:
                raise PeerError(f'a blob of {message.size} bytes')
            missing = missing.answer(message.size)
        elif kind is frames.BlobChunk:
            if not has_size or not 0 < len(message.data) <= missing:
                raise PeerError(f'{len(message.data)} bytes of a blob')
            missing -= len(message.data)
        elif kind is frames.Elsewhere and has_size:
            raise PeerError('a blob that has begun, and is elsewhere')
        else:
            return None
        if not missing:
            return None
        self._missing[number] = missing
        return FETCHING


_OF_A_TRANSACTION = {BEGUN, VOTING, VOTED, FINISHING, TRIPPING, ABORTING}
