"""How large the log may be, and what waits for room in it.

The log has records, with the blobs that they name (`Held`, one of this writer
and one of what was there before).  It also has blobs that votes have *staged*
and no record names yet, including those of failed votes until they are
removed.

- A vote refuses a transaction that is larger than the limit.  It also refuses
  blobs for which there would be no room in a log that is trimmed as far as
  possible: less than `GRAIN` of such a log stays (held).
- A vote takes the room for its blobs before it stages them, all at once: two
  votes that have half of theirs would wait for each other.  While there is no
  room, the vote stands in a queue, the *line*.  Room is given to the first one
  in the line, so that smaller votes do not pass a large one for ever.  In the
  line a vote holds no object, and no thread of its server.  It fails when it
  has waited for `LONGEST_STILL` while the line did not move: no vote in it was
  given room.
- While records and the blobs that they name reach the limit, commits wait, in
  the thread that would sync them, until the log is trimmed.  They do not wait
  for staged blobs, because a client may take its time between vote and finish.
  Readers do not wait, and neither do records that are no batch (a Trim, the
  swap of a pack).

So the log may have the limit, one batch and a few small records, plus staged
blobs up to the limit once more.  The engine needs room for more than that.

The size of what was there before this writer led is known when it was read
(earlier).  Until then this writer brings in no more than a quarter of the
limit.  The reading does not take long; and without this rule several writers,
one after the other, might fill the engine.

Each waiter looks again after each `PAUSE`.  The lock is a leaf.  An interrupt
of the main thread may lose room until the next start.
"""

import collections
import logging
import threading
import time
import typing
from collections.abc import Callable

from ZODB.POSException import StorageTransactionError

from ..log.notes import Author
from . import held
from .earlier import Earlier

logger = logging.getLogger(__name__)

#: Seconds from one look to the next; seconds after which a wait is reported.
PAUSE, TROUBLE_AFTER = 0.05, 1.0
#: Seconds for which a vote waits in a line that does not move: longer than a
#: node may stay in one place before it is left behind (trimming).
LONGEST_STILL = 60.0
#: Bytes that may be removed, and not named, before the engine is told to free
#: them; less where the limit is small.
GARBAGE = 64 << 20


class Trims(typing.NamedTuple):
    """How the node that writes limits the size of the log."""

    #: The node whose place is noted.
    node: bytes
    #: The limit in bytes; 0: there is none.
    limit: int = 0
    #: Whether, at the limit, a node that is behind is left behind.  Otherwise
    #: commits wait for it.
    drops: bool = False
    #: Of the notes of this node, if there is one already.
    author: Author | None = None


class _Wanted:
    """The room that a vote asks for, in bytes of blobs.  It is decided once
    whether the room is given or refused."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.since = time.monotonic()
        self.is_given = False
        #: Why it was refused.
        self.refused: str | None = None


class LogLimit:

    def __init__(self, limit: int, own: held.Held, earlier: Earlier) -> None:
        """`own`: what this writer has brought into the log."""
        self.limit = limit
        self._own = own
        self._earlier = earlier
        #: What keeps the log from being trimmed, in words.
        self.reason = 'it was not trimmed yet'
        self._name = ''
        self._changed = threading.Lock()
        self._staged = 0
        #: Votes that wait, in their order of arrival.
        self._line: collections.OrderedDict[_Wanted, None] = (
            collections.OrderedDict())
        #: When a vote in the line was last given room.
        self._moved = 0.0
        #: Since when commits wait.
        self._commits_since: float | None = None
        #: Since when somebody waits, if that was logged.
        self._said_since: float | None = None

    def begin(self, name: str) -> None:
        """`name`: whose log it is."""
        self._name = name

    # Its size

    @property
    def size(self) -> int:
        return self.named + self._staged

    @property
    def named(self) -> int:
        """Bytes of records, and of the blobs that they name."""
        return self._earlier.held.size + self._own.size

    def named_before(self, first: int) -> set[bytes]:
        """The blobs that records before this one name."""
        return self._earlier.held.named(first) | self._own.named(first)

    def frees(self, first: int) -> bool:
        """Would the log be smaller without the records before this one?"""
        return self._earlier.held.frees(first) or self._own.frees(first)

    def trimmed(self, first: int) -> None:
        self._earlier.held.trim(first)
        self._own.trim(first)
        self._serve()

    @property
    def garbage(self) -> int:
        return min(GARBAGE, self.limit // 4) if self.limit else GARBAGE

    # Is a trim needed?

    @property
    def is_near(self) -> bool:
        return 0 < self.limit <= 2 * self.size or self._is_waited_for

    @property
    def lacks_room(self) -> bool:
        """Somebody waits, or will wait, for room that trims can make."""
        with self._changed:
            wanted = self._first.size if self._line else 0
        return 0 < self.limit < self.named + max(wanted, 1)

    def _lacks(self, wanted: int, staged: int = 0) -> bool:
        own = self._own.size + staged + wanted
        return 0 < self.limit and (
            self.limit < own + self._earlier.held.size
            or not self._earlier.is_read and self.limit // 4 < own)

    # A vote

    def check(self, size: int) -> None:
        """Raise if a transaction of `size` bytes can never fit into the log.
        """
        if 0 < self.limit < size:
            self._refuse(f'a transaction of {size} bytes does')

    def check_blobs(self, size: int) -> None:
        """The same for the blobs of a transaction, whose room is taken
        first."""
        if 0 < self.limit < size + held.GRAIN:
            self._refuse(f'blobs of {size} bytes, in one transaction, do')

    def _refuse(self, what: str) -> typing.NoReturn:
        raise StorageTransactionError(
            f'{what} not fit into the log of the other nodes, as log-limit is'
            f' {self.limit}: make several transactions of it, or set log-limit'
            ' higher on each node. Nothing of it was stored')

    def take(self, size: int, go_on: Callable[[], object],
             pause: Callable[[float], object]) -> None:
        """Wait for room, and take it; the caller gives it back.

        `go_on` raises to end the wait.  Raise StorageTransactionError if there
        was no room for too long.
        """
        wanted = _Wanted(size)
        with self._changed:
            self._line[wanted] = None
        self._serve()
        try:
            while not wanted.is_given and wanted.refused is None:
                go_on()
                self._look()
                pause(PAUSE)
        except BaseException:
            self._leave(wanted)
            raise
        finally:
            self._say()
        if wanted.refused is not None:
            raise StorageTransactionError(f'{self._name}: {wanted.refused}')

    def _leave(self, wanted: _Wanted) -> None:
        """The room is not wanted any more, and was not used."""
        with self._changed:
            self._line.pop(wanted, None)
            if wanted.is_given:
                self._staged -= wanted.size
        self._serve()

    def take_anyway(self, size: int) -> None:
        """Take room without asking, for a vote that must not wait."""
        with self._changed:
            self._staged += size

    def gives_back(self, size: int) -> None:
        """A record names these bytes now; or they were removed."""
        with self._changed:
            self._staged -= size
        self._serve()

    def _serve(self) -> None:
        with self._changed:
            self._serve_line()

    def _serve_line(self) -> None:
        """Give room to the next ones, as far as there is some.  (`_changed`
        is held.)"""
        while self._line:
            first = self._first
            if self._lacks(first.size, self._staged):
                break
            del self._line[first]
            self._staged += first.size
            first.is_given = True
            self._moved = time.monotonic()

    @property
    def _first(self) -> _Wanted:
        return next(iter(self._line))

    # A sync

    def wait_to_sync(self, go_on: Callable[[], object],
                     pause: Callable[[float], object]) -> None:
        """Return when there is room; `go_on` raises to end the wait."""
        if not self._lacks(1):
            return
        try:
            self._commits_since = time.monotonic()
            while self._lacks(1):
                go_on()
                self._look()
                pause(PAUSE)
        finally:
            self._commits_since = None
            self._say()

    # Waiting

    def _look(self) -> None:
        """Each waiter calls it: lets those fail that have waited too long."""
        words = self.words
        with self._changed:
            self._serve_line()
            # (When one has failed, there may be room for the next one.)
            while self._line and time.monotonic() >= LONGEST_STILL + max(
                    self._moved, self._first.since):
                first = self._first
                del self._line[first]
                first.refused = (
                    f'no room for {first.size} bytes of blobs: {words}.'
                    ' Nothing of this transaction was stored: try again later')
                self._serve_line()
        self._say()

    def _say(self) -> None:
        trouble, is_over = self.trouble, not self._is_waited_for
        with self._changed:
            since = self._said_since
            if since is None and trouble is not None:
                self._said_since = self._waits_since() or time.monotonic()
            elif since is not None and is_over:
                self._said_since = None
            else:
                return
        if since is None:
            logger.warning('%s: %s', self._name, trouble)
        else:
            logger.warning('%s: the log has room again, after %.1f s',
                           self._name, time.monotonic() - since)

    @property
    def _is_waited_for(self) -> bool:
        return bool(self._line) or self._commits_since is not None

    def _waits_since(self) -> float | None:
        """(`_changed` is held.)"""
        since = [] if self._commits_since is None else [self._commits_since]
        if self._line:
            since.append(self._first.since)
        return min(since, default=None)

    @property
    def seconds(self) -> float:
        """How long somebody has waited."""
        with self._changed:
            since = self._waits_since()
        return 0.0 if since is None else time.monotonic() - since

    @property
    def seconds_of_commits(self) -> float:
        """How long commits have waited."""
        since = self._commits_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def trouble(self) -> str | None:
        """What waits, in words, if it has waited longer than usual."""
        return self.words if self.seconds > TROUBLE_AFTER else None

    @property
    def words(self) -> str:
        who = ('commits wait' if self._commits_since is not None
               else 'votes with blobs wait')
        trouble = self._earlier.trouble
        if not self._earlier.is_read:
            what = ('what it had before this node led is read'
                    + (f' ({trouble})' if trouble else ''))
        elif self._commits_since is None and not self.lacks_room:
            what = 'others end'
        else:
            what = f'it is trimmed, and {self.reason}'
        return (f'the log is full: it has {self.named} bytes, and'
                f' {self._staged} of blobs that no commit names yet, and'
                f' log-limit is {self.limit}. So {who} until {what}')
