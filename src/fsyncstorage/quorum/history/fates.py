"""What became of commits, according to the log.

A client that has lost its server in the middle of a commit asks the next one
by the id of that commit, which begins with the instance of the lost server.  A
node that follows the log collects the ids in it, so that its server can answer
when the node leads:

    a tid         it is in the log: committed
    None          a promise: it is not in the log, and never will be
    LookupError   this node cannot know

*What can be promised.*  The instance must be that of an epoch that has ended:
then nothing more of it gets into the log.  And the client names a tid that is
before its commit: the last one that it had heard of, on the channel on which
the answer would have arrived, in the order of the tids.  So if an id is not
here, its commit is not in the log, provided that everything after that tid was
collected, and nothing of it was forgotten.  A node need not have followed
since the epoch began.

*Bounds.*  Of each session, the last `REMEMBERED` commits are kept: all commits
whose answer a client has not heard are among these (server.outcomes says why).
At most `MOST_SESSIONS` sessions are kept, those with the latest commits.  What
is forgotten raises the tid after which a promise can be given: a "no" becomes
"not known", and never a wrong answer.

The thread that follows calls `applied`.  When it has ended and its node leads,
any thread may call `of`.
"""

import collections

from .fold import Apply
from .record import IDENTITY
from .record import NOBODY
from .record import OID
from .record import Commit
from .record import Data
from .record import Epoch

REMEMBERED = 101
MOST_SESSIONS = 5000
#: The most commits of a batch that is not whole; a writer puts fewer into one.
MOST_PENDING = 100_000
#: How many epochs are remembered, with their instances.
MOST_EPOCHS = 100

# An id ends with the number of the commit in its session.
_NUMBER = 4
_SIZE = _NUMBER + OID


class _Session:
    """The last commits of one session, each a number and a tid."""

    __slots__ = '_commits', 'forgotten'

    def __init__(self) -> None:
        # (A list of pairs would take ten times as much.)
        self._commits = bytearray()
        #: The greatest tid that is no longer here.
        self.forgotten = bytes(OID)

    def add(self, number: bytes, tid: bytes) -> None:
        commits = self._commits
        if len(commits) == REMEMBERED * _SIZE:
            self.forgotten = bytes(commits[_NUMBER:_SIZE])
            del commits[:_SIZE]
        commits += number + tid

    def tid_of(self, number: bytes) -> bytes | None:
        """The tid of the last commit of this number: a client may use a
        number again."""
        commits = self._commits
        for at in range(len(commits) - _SIZE, -1, -_SIZE):
            if commits.startswith(number, at):
                return bytes(commits[at + _NUMBER:at + _SIZE])
        return None

    @property
    def last_tid(self) -> bytes:
        return bytes(self._commits[-OID:])


class Fates:

    def __init__(self, server: bytes, named: bytes) -> None:
        """Collect what is after a state, given its `server` and `named`."""
        #: After this tid, nothing is missing here.
        self._since = named
        #: The servers of the epochs that are known, the present one included.
        self._servers: collections.deque[bytes] = collections.deque(
            [server], MOST_EPOCHS)
        # By the id of the session; the one with the latest commit is last.
        self._sessions: collections.OrderedDict[bytes, _Session]
        self._sessions = collections.OrderedDict()
        #: The commits of a batch that is not whole.
        self._pending: collections.deque[Commit] = collections.deque(
            maxlen=MOST_PENDING)

    # For the thread that follows

    def applied(self, applied: Apply) -> None:
        state, record = applied
        body = record.body
        if isinstance(body, Epoch):
            self._pending.clear()  # of the batch that it gives up
            self._servers.append(body.server)
        elif isinstance(body, Data):
            self._pending += body.commits
            if state.incomplete is None:
                self._note_pending()

    def _note_pending(self) -> None:
        pending = self._pending
        if len(pending) == MOST_PENDING:
            self._forget(pending[0].tid)  # there may have been more before it
        for commit in pending:
            self._note(commit)
        pending.clear()

    def _note(self, commit: Commit) -> None:
        name = commit.id[:-_NUMBER]
        session = self._sessions.setdefault(name, _Session())
        session.add(commit.id[-_NUMBER:], commit.tid)
        self._sessions.move_to_end(name)
        if len(self._sessions) > MOST_SESSIONS:
            _, oldest = self._sessions.popitem(last=False)
            self._forget(oldest.last_tid)

    def _forget(self, tid: bytes) -> None:
        self._since = max(self._since, tid)

    # When the node leads: all epochs that are known here have ended

    def of(self, id: bytes, since: bytes) -> bytes | None:
        """The tid of a commit, which would be after `since`; None: it will
        never be committed.  LookupError: nobody here can know."""
        session = self._sessions.get(id[:-_NUMBER])
        missing = self._since
        if session is not None:
            tid = session.tid_of(id[-_NUMBER:])
            if tid is not None and tid >= since:
                return tid
            missing = max(missing, session.forgotten)
        server = id[:IDENTITY]
        if server == NOBODY or server not in self._servers or since < missing:
            raise LookupError(
                'it is of a server that this log does not name, or too old')
        return None
