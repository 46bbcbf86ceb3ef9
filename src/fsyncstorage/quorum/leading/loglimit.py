"""How large the log may be, and what waits for room in it.

The log has records, with the blobs that they name (`Held`, one of this writer
and one of what was there before).  It also has blobs that votes have *staged*
and no record names yet, including those of failed votes until they are
removed.

- A vote refuses what would not fit into a log that is trimmed as far as
  possible.
- A vote takes the room for all its blobs before it stages the first: two that
  have half of theirs would wait for each other.  While there is none, the vote
  stands in a queue, the *line*, and the first one is served first: otherwise
  small votes would pass a large one for ever.  It fails after
  `LONGEST_STILL` without anybody in the line having got room.
- While records and the blobs that they name reach the limit, commits wait, in
  the thread that would sync them.  They do not wait for staged blobs, because
  a client may take its time between vote and finish, nor do records that are
  no batch (a Trim, the swap of a pack).

So the log may have the limit, one batch and a few small records, plus staged
blobs up to the limit once more.

The size of what was there before this writer led is known when it was read
(held).  Until then this writer brings in no more than a quarter of the
limit: otherwise several writers, one after the other, might fill the engine.

Each waiter looks again after each `PAUSE`.  The lock is a leaf.
"""

import logging
import threading
import time
import typing
from collections.abc import Callable

from ZODB.POSException import StorageTransactionError

from ..history.record import Place
from . import held
from .held import Earlier

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


class _Waiting(typing.NamedTuple):
    """A vote in the line."""

    #: Bytes of blobs.
    size: int
    since: float


class LogLimit:

    def __init__(self, limit: int, own: held.Held, earlier: Earlier) -> None:
        """`own`: what this writer has brought into the log."""
        self.limit = limit
        self._own = own
        self.earlier = earlier
        #: What keeps the log from being trimmed, in words.
        self.reason = 'it was not trimmed yet'
        self._name = ''
        self._changed = threading.Lock()
        self._staged = 0
        #: Votes that wait, in their order of arrival.
        self._line: list[_Waiting] = []
        #: When a vote in the line was last given room.
        self._moved = 0.0
        #: Since when commits wait.
        self._commits_since: float | None = None
        #: Since when somebody waits, if that was logged.
        self._said_since: float | None = None

    def begin(self, name: str, place: Place) -> None:
        """`name`: whose log it is; `place`: of the record that has begun the
        epoch of this writer."""
        self._name = name
        self.earlier.begin(place)

    # Its size

    @property
    def size(self) -> int:
        return self.named + self._staged

    @property
    def named(self) -> int:
        """Bytes of records, and of the blobs that they name."""
        return self.earlier.held.size + self._own.size

    def named_before(self, first: int | None = None) -> set[bytes]:
        """The blobs that records before this one name; or all records."""
        return self.earlier.held.named(first) | self._own.named(first)

    def frees(self, first: int) -> bool:
        """Would the log be smaller without the records before this one?"""
        return self.earlier.held.frees(first) or self._own.frees(first)

    def trimmed(self, first: int) -> None:
        self.earlier.held.trim(first)
        self._own.trim(first)

    @property
    def garbage(self) -> int:
        return min(GARBAGE, self.limit // 4) if self.limit else GARBAGE

    # Is a trim needed?

    @property
    def is_near(self) -> bool:
        return (0 < self.limit <= 2 * self.size or bool(self._line)
                or self._commits_since is not None)

    @property
    def lacks_room(self) -> bool:
        """Somebody waits, or will wait, for room that trims can make."""
        with self._changed:
            wanted = self._line[0].size if self._line else 0
        return 0 < self.limit < self.named + max(wanted, 1)

    def _lacks(self, wanted: int, staged: int = 0) -> bool:
        own = self._own.size + staged + wanted
        return 0 < self.limit and (
            self.limit < own + self.earlier.held.size
            or not self.earlier.is_read and self.limit // 4 < own)

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
        vote = _Waiting(size, time.monotonic())
        with self._changed:
            self._line.append(vote)
        try:
            while not self._is_served(vote):
                go_on()
                if time.monotonic() >= LONGEST_STILL + max(
                        self._moved, vote.since):
                    raise StorageTransactionError(
                        f'{self._name}: no room for {size} bytes of blobs:'
                        f' {self.words}. Nothing of this transaction was'
                        ' stored: try again later')
                self._say()
                pause(PAUSE)
        except BaseException:
            with self._changed:
                self._line = [
                    each for each in self._line if each is not vote]
            raise
        finally:
            self._say()

    def _is_served(self, vote: _Waiting) -> bool:
        with self._changed:
            if self._line[0] is not vote or self._lacks(
                    vote.size, self._staged):
                return False
            del self._line[0]
            self._staged += vote.size
            self._moved = time.monotonic()
            return True

    def take_anyway(self, size: int) -> None:
        """Take room without asking, for a vote that must not wait."""
        with self._changed:
            self._staged += size

    def gives_back(self, size: int) -> None:
        """A record names these bytes now; or they were removed."""
        with self._changed:
            self._staged -= size

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
                self._say()
                pause(PAUSE)
        finally:
            self._commits_since = None
            self._say()

    # Waiting

    def _say(self) -> None:
        """Log a wait when it has taken long, and when nobody waits any more.
        """
        with self._changed:
            since, said = self._waits_since(), self._said_since
            if said is None and self._is_long(since):
                self._said_since = since
            elif said is not None and since is None:
                self._said_since = None
            else:
                return
        if said is None:
            logger.warning('%s: %s', self._name, self.words)
        else:
            logger.warning('%s: the log has room again, after %.1f s',
                           self._name, time.monotonic() - said)

    def _waits_since(self) -> float | None:
        """(`_changed` is held.)"""
        return min([each.since for each in self._line[:1]] + [
            each for each in (self._commits_since,) if each is not None],
            default=None)

    @staticmethod
    def _is_long(since: float | None) -> bool:
        return since is not None and (
            time.monotonic() - since > TROUBLE_AFTER)

    @property
    def seconds_of_commits(self) -> float:
        """How long commits have waited."""
        since = self._commits_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def trouble(self) -> str | None:
        """What waits, in words, if it has waited longer than usual."""
        with self._changed:
            is_long = self._is_long(self._waits_since())
        return self.words if is_long else None

    @property
    def words(self) -> str:
        who = ('commits wait' if self._commits_since is not None
               else 'votes with blobs wait')
        trouble = self.earlier.trouble
        if not self.earlier.is_read:
            what = ('what it had before this node led is read'
                    + (f' ({trouble})' if trouble else ''))
        elif self._commits_since is None and not self.lacks_room:
            what = 'others end'
        else:
            what = f'it is trimmed, and {self.reason}'
        return (f'the log is full: it has {self.named} bytes, and'
                f' {self._staged} of blobs that no commit names yet, and'
                f' log-limit is {self.limit}. So {who} until {what}')
