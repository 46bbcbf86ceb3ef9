"""One transaction over the commit channel.

Its messages are gathered, and leave together with the vote.  The first pieces
of a large transaction leave earlier: the thread that stores sends them, and
waits until the server has taken them, so memory stays bounded.

The server hears of the transaction when its first piece leaves.  A
transaction belongs to one thread at a time.  If a piece is lost here (by an
interrupt, or because data cannot be encoded), the transaction can only be
aborted: the server would commit the rest of it.
"""

from ZEO.asyncio.client import exc_factories
from ZEO.asyncio.marshal import decoder
from ZEO.asyncio.marshal import encoder
from ZEO.Exceptions import ServerException
from ZODB.POSException import StorageTransactionError

from ..errors import LeaderChanged
from ..errors import NotFinishedInTime
from ..errors import SyncFailed
from ..wire import batch
from ..wire import commits
from ..wire import plainbegin
from ..wire.sessions import in_doubt
from .outgoing import GATHERED
from .outgoing import OVERHEAD

# ZEO does not know these errors.  An application may look for OutcomeUnknown,
# or try again.
OURS = {f'{each.__module__}.{each.__qualname__}': each
        for each in (SyncFailed, NotFinishedInTime, LeaderChanged)}

# Bytes of stores that share a frame: what a server processes before it checks
# the time.
MOST_IN_A_FRAME = 1 << 15


class Committing:

    #: The number that the stream gave it; None: nothing has left.
    number = None
    #: What its finish changes here; None: no finish was asked for.
    finishing = None
    #: Its connection was lost, and it has waited for the next one.
    has_waited = False
    #: What finishes it together with its vote; None: it goes in two trips.
    trip = None
    #: Encodes calls; None: there was no call yet.
    _encode = None
    #: All messages that were taken to be sent have left.
    _is_whole = True
    #: Its last request is answered.
    _is_answered = True

    def __init__(self, stream, *description):
        """`description` are the arguments of tpc_begin, the id first."""
        stream.check()
        self.stream = stream
        self._description = description
        self._messages = []  # (method, arguments), or iterators of such
        self._size = 0

    def add(self, method, args):
        size = OVERHEAD
        for each in args:
            if each.__class__ is bytes:
                size += len(each)
        self._messages.append((method, args))
        self._size += size
        if self._size >= GATHERED:
            self.stream.send(self._taken())
            self._is_whole = True

    def add_iterator(self, messages):
        """Send messages that are too large to be held in memory."""
        frames, size = [self._taken()], 0
        for method, args in messages:
            frames += self._frames([(method, args)])
            size += len(frames[-1])
            if size >= GATHERED:
                self.stream.send(b''.join(frames))
                frames, size = [], 0
        self.stream.send(b''.join(frames))
        self._is_whole = True

    def _taken(self):
        """The frames of what was gathered; the caller must send them now."""
        self.stream.check()
        if not self._is_whole:
            raise StorageTransactionError(
                'a part of this transaction was lost: it can only be aborted')
        self._is_whole = False
        begin = b''
        if self.number is None:
            begin = self.stream.begin(self, *self._begin())
        messages, self._messages, self._size = self._messages, [], 0
        return begin + b''.join(self._frames(messages))

    def _begin(self):
        """The message that begins it, and the kind of its frame."""
        _, user, description, extension, tid, status = self._description
        if (user.__class__ is description.__class__ is bytes
                and len(user) <= plainbegin.LONGEST_USER
                and not extension and tid is None and status == ' '):
            return plainbegin.pack(user, description), commits.BEGIN_PLAIN
        return self._message('tpc_begin', self._description), commits.BEGIN

    def _frames(self, messages):
        """Yield frames.  Stores that follow each other share a frame."""
        stores, size = [], 0
        for method, args in messages:
            is_store = method == 'storea' and (
                args[0].__class__ is args[1].__class__ is args[2].__class__
                is bytes)
            more = len(args[2]) + batch.OVERHEAD if is_store else 0
            if stores and (not is_store or size + more > MOST_IN_A_FRAME):
                yield self.stream.stores(self.number, stores)
                stores, size = [], 0
            if is_store:
                stores.append(args[:3])
                size += more
            else:
                yield self.stream.call(
                    self.number, self._message(method, args))
        if stores:
            yield self.stream.stores(self.number, stores)

    def _message(self, method, args):
        if self._encode is None:
            # Not thread-safe: each transaction has its own.
            self._encode = encoder(self.stream.encoding)
        return self._encode(0, True, method, args)

    # Each of these waits for its answer.  `complete` is called with the Done,
    # in the order of the stream.

    def vote(self):
        """Return what ZEO's vote returns: oids or conflicts."""
        before = self._taken()
        return self._voted(self.stream.vote(self.number, before))

    def finish(self, complete):
        event = self._asked(self.stream.finish, complete)
        if event.__class__ is not commits.Done:
            raise self._error(event)

    def vote_and_finish(self, complete):
        """Return what ZEO's vote returns: if these are conflicts, this must be
        called again."""
        before = self._taken()
        return self._voted(self._asked(self.stream.trip, before, complete))

    def _asked(self, ask, *args):
        self._is_answered = False
        event = ask(self.number, *args)
        self._is_answered = True
        return event

    def _voted(self, event):
        self._is_whole = True
        if event.__class__ in (commits.Voted, commits.Done):
            return event.oids
        if event.__class__ is commits.Conflicts:
            return self._decoded(event)
        raise self._error(event)

    @property
    def is_kept(self):
        return self.finishing is not None and self.finishing.tid is not None

    @property
    def may_be_kept(self):
        """Its finish may have left, and its thread has no answer."""
        return (not self._is_answered
                and self.stream.may_be_finished(self.number))

    @property
    def in_doubt(self):
        """The question to ask if its answer was lost, and the stream is over.
        """
        return in_doubt(
            self.stream.commit_id(self.number), self.stream.last_tid)

    def abort(self):
        """Abort it, if the server knows of it, and it is not over.

        Nobody waits for the answer: later requests are answered later.
        """
        self.stream.check()
        if self.number is not None:
            self.stream.abort(self.number)

    def _decoded(self, event):
        _, _, _, result = decoder(self.stream.encoding)(event.message)
        return result

    def _error(self, event):
        """The exception that ZEO would make of this reply."""
        name, arguments = self._decoded(event)
        if name in OURS:
            return OURS[name](_text(arguments))
        factory = exc_factories.get(name)
        if factory is None:
            return ServerException(name, arguments)
        return factory(name, arguments)


def _text(arguments):
    """The text of an error; a server may send anything."""
    return (arguments[0] if arguments.__class__ in (tuple, list)
            and len(arguments) == 1 and arguments[0].__class__ is str else '')
