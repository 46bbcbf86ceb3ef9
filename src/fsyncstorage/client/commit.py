"""One transaction of a client: what it stores, its vote and its finish.

What it stores is gathered, and leaves together with the vote.  The first
pieces of a large transaction leave earlier: the thread that stores sends them,
and waits until the server has taken them, so memory stays bounded.  The server
hears of the transaction when its first piece leaves.

A finish is completed in the order of the stream (`complete`), by the thread
that reads there, also if the thread that asked for it has left.  If its answer
is lost with the stream, this thread asks on the next one what became of the
commit (`_what_became`):

- It is kept: by now, the cache and all connections have heard of its changes,
  as if another client had made them.  So only `f` is left to be called.
- It is not kept, and never will be: ClientDisconnected, and it can be retried.
- Nobody knows: OutcomeUnknown, which is not retried.
"""

import logging
import os
import time

from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import z64

from ..errors import OutcomeUnknown
from ..wire import frames
from ..wire import values
from .raised import exception
from .stream import Unanswered

logger = logging.getLogger(__name__)

# Bytes that are gathered before they leave, and bytes that are counted for a
# message in addition to its data.
GATHERED = 1 << 20
OVERHEAD = 100
# Bytes of stores that share a frame: what a server processes before it checks
# the time.
MOST_IN_A_FRAME = 1 << 15
# Bytes of a blob in one message.
PIECE_OF_A_BLOB = 1 << 16
# Seconds that it waits for others of this client before that is logged.
SILENT_WAIT = 1
# Bytes of objects that go into the cache when they are written.
KEPT = 4 << 20


class Transaction:

    #: That the stream gave it; None: nothing has left.
    number = None
    #: All that was to be sent has left.
    _is_whole = True
    #: Its tid, if it is committed.
    tid = None
    #: The oids whose conflicts the server has resolved in a trip; None: not
    #: known, because the answer was lost.
    resolved = ()
    #: The thread that has asked for it no longer waits.
    is_left = False
    #: What finishes it together with its vote; None: it goes in two trips.
    one_trip = None
    _is_told = False
    _f = None

    def __init__(self, client, stream, begin):
        """`begin` is a frames.Begin with the number 0."""
        self._client = client
        self.stream = stream
        self._begin = begin
        #: The last tid that the client knew.
        self._since = stream.last_tid
        self._messages = []
        self._size = 0
        #: oid -> data for the cache; None: not kept, or not known here.
        self.written = {}
        self._room = KEPT
        self.blobs = []  # (oid, path) for the cache

    @staticmethod
    def described(user, description, extension, tid, status):
        return frames.Begin(
            0, os.urandom(16), tid or z64, status.encode(), user, description,
            values.encoded(extension) if extension else b'')

    # What it stores

    def store(self, oid, serial, data):
        self._note(oid, data)
        self.add(frames.Store(0, oid, serial, data), len(data))

    def _note(self, oid, data):
        """The cache gets it with the commit, up to a limit."""
        if data is not None:
            self._room -= len(data)
            if self._room < 0:
                data = None
        self.written[oid] = data

    def add(self, message, size=0):
        self._messages.append(message)
        self._size += OVERHEAD + size
        if self._size >= GATHERED:
            self.stream.say(self._taken())
            self._is_whole = True

    def add_blob(self, oid, serial, record, file):
        """All of the file leaves now, in pieces; others send in between."""
        self._note(oid, record)
        self.add(frames.BlobBegin(0))
        self._say_gathered()
        while piece := file.read(PIECE_OF_A_BLOB):
            self.stream.say([frames.BlobPiece(self.number, piece)])
        self.add(frames.BlobEnd(0, oid, serial, record), len(record))

    def _say_gathered(self):
        self.stream.say(self._taken())
        self._is_whole = True

    def _taken(self):
        """What was gathered, with its number; the caller must send it now.

        If a part of it is lost here, by an interrupt, it can only be aborted:
        the server would commit the rest.
        """
        if not self._is_whole:
            raise StorageTransactionError(
                'a part of this transaction was lost: it can only be aborted')
        self._is_whole = False
        begin = ()
        if self.number is None:
            self.number = self._new_number()
            begin = self._begin._replace(number=self.number),
        messages, self._messages, self._size = self._messages, [], 0
        return [*begin, *self._numbered(messages)]

    def _new_number(self):
        number = self.stream.begin(SILENT_WAIT)
        if number is None:
            logger.warning(
                '%s: a commit waits until another one ends: %s are open, as'
                ' many as a server takes of a client', self._client.name,
                frames.MOST_OPEN)
            number = self.stream.begin()
        return number

    def _numbered(self, messages):
        """Stores that follow each other share a frame."""
        stores, size = [], 0
        for message in messages:
            is_store = message.__class__ is frames.Store
            more = len(message[-1]) + frames.OF_A_STORE if is_store else 0
            if stores and (not is_store or size + more > MOST_IN_A_FRAME):
                yield self._together(stores)
                stores, size = [], 0
            if is_store:
                stores.append(message)
                size += more
            else:
                yield message._replace(number=self.number)
        if stores:
            yield self._together(stores)

    def _together(self, stores):
        if len(stores) == 1:
            return stores[0]._replace(number=self.number)
        return frames.Stores(
            self.number, frames.many([store[1:] for store in stores]))

    # Its vote and its finish; each waits for the answer

    def vote(self):
        """Oids whose conflicts the server has resolved, or conflicts for the
        client to resolve, which are dictionaries."""
        before = self._taken()
        return self._voted(self.stream.ask(frames.Vote(self.number), before))

    def vote_and_finish(self, f):
        """The same; unless there are conflicts, it is committed then."""
        before = self._taken()
        return self._voted(self._asked_to_finish(frames.Trip, f, before))

    def finish(self, f):
        if self._messages:
            raise StorageTransactionError(
                'something was stored after the vote')
        answer = self._asked_to_finish(frames.Finish, f)
        if answer is not None and answer.__class__ is not frames.Done:
            raise exception(answer)

    def _voted(self, answer):
        self._is_whole = True
        if answer is None:  # it is kept, and the answer was lost
            return self.resolved or ()
        if answer.__class__ in (frames.Voted, frames.Done):
            return frames.split(answer.oids)
        if answer.__class__ is frames.Conflicts:
            conflicts = values.decoded(answer.conflicts, list)
            if set(map(type, conflicts)) != {dict}:
                raise frames.PeerError('conflicts that are none')
            return conflicts
        raise exception(answer)

    def _asked_to_finish(self, kind, f, before=()):
        """The answer; None: it was lost, and the transaction is kept."""
        self._f = f
        self.is_left = False  # again, after conflicts of an earlier trip
        try:
            try:
                return self.stream.ask(
                    kind(self.number), before, self._complete)
            except Unanswered as lost:
                self._what_became(lost)
                return None
        except TransientError as error:
            if self.tid is None:
                raise
            # After this one, an application would retry.
            raise StorageError(f'it is committed, as {self.tid.hex()}, and'
                               f' after that: {error!r}') from error
        except (OutcomeUnknown, frames.CallerError):
            raise
        except BaseException:  # the handler of a signal may raise anything
            if self.tid is None:
                logger.warning(
                    '%s: a thread was interrupted while its commit was under'
                    ' way: the server may keep it', self._client.name)
            raise
        finally:
            self.is_left = True

    # What its finish changes here, in the order of the stream

    def _complete(self, answer):
        """Return what `f` has raised, or None."""
        if answer.__class__ is not frames.Done:
            return None
        self.resolved = frames.split(answer.oids)
        for oid in self.resolved:  # the new states are not known here
            self.written[oid] = None
        failed = self._client.committed(self, answer)
        # Not before: if this thread is interrupted, the one that waits asks.
        self.tid = answer.tid
        return failed

    def tell(self, tid):
        """Call `f`, under the lock of the cache; return what it raises.

        If the thread has left before this, its connection does not know that
        it has committed, and may read on: so it is told of the objects, as it
        is of those of another client.
        """
        if self._is_told:
            return None
        self._is_told = True
        if self.is_left:
            self._client.tell(tid, list(self.written))
        try:
            self._f(tid)
        except Exception as error:
            # Before any transaction can begin at `tid`.
            self._client.forget_objects()
            return error
        return None

    # What became of it

    def _what_became(self, lost):
        """Return if it is kept; raise if it is not, or if nobody knows."""
        if self.tid is None and self.stream.said_goodbye:
            raise ClientDisconnected(str(lost)) from lost
        timeout = self._client.wait_timeout
        logger.warning(
            '%s: the answer to a commit was lost (%s): it waits, for up to'
            ' %g s, to ask whether it was kept', self._client.name, lost,
            timeout)
        ends = time.monotonic() + timeout
        stream, answer = self.stream, None
        while self.tid is None and answer is None:
            try:
                stream = self._client.next_stream(
                    stream, max(0, ends - time.monotonic()))
                answer = stream.ask(
                    frames.Ask(0, self._begin.id, self._since),
                    complete=self._learn,
                    within=max(0, ends - time.monotonic()))
            except ClientDisconnected as error:
                if time.monotonic() >= ends or self._client.is_closed:
                    if self.tid is None:
                        raise _unknown(error) from lost
        if self.tid is not None:
            return
        if (answer.__class__ is frames.Outcome
                and answer.word == frames.NOT_COMMITTED):
            raise ClientDisconnected(str(lost)) from lost
        raise _unknown(
            answer.reason.decode('utf-8', 'replace')
            if answer.__class__ is frames.Outcome else exception(answer)
        ) from lost

    def _learn(self, answer):
        if (answer.__class__ is frames.Outcome
                and answer.word == frames.COMMITTED and not self.is_left):
            # Its changes were announced before, as those of another client.
            self.resolved, self.tid = None, answer.tid
            return self._client.learned(self, answer.tid)
        return None

    def abort(self):
        """If the server knows of it, and it is not over."""
        if self.number is not None:
            self.stream.abort(self.number)


def _unknown(reason):
    return OutcomeUnknown(
        f'the connection was lost while this commit was under way, and nobody'
        f' can say whether it was kept ({reason}). Look for what it has'
        f' changed before you repeat it')
