"""What the operator allows the log to have, and who waits for room in it.

The log has records, with the blobs that they name (`Held`, of this writer and
of what was there before), and blobs that votes have *staged* and no record
names yet; also those of votes that failed, until they are removed.

- A transaction that is larger than the limit is refused by its vote.
- A vote takes the room of its blobs before it stages them, all at once: two
  that have half of theirs would wait for each other.  While there is none, it
  waits, but not for long, and then fails: it holds a thread of its server,
  and its objects, and what it waits for may be another vote, or the blobs of
  the last record, which stay until another one follows.
- While records and the blobs that they name have as much as the limit, commits
  wait, in the thread that would sync them, until it is trimmed.  They do not
  wait for what is staged: a client may take its time between vote and finish.
  Readers do not wait, and what is no batch (a Trim, the swap of a pack) does
  not either.

So the log may have the limit, one batch and a few small records; and once more
the limit, of what is staged.  The engine needs room for more than that.
"""

import logging
import threading
import time
import typing
from collections.abc import Callable

from ZODB.POSException import StorageTransactionError

from .held import Held

logger = logging.getLogger(__name__)

#: Seconds from one look to the next; of a wait that is worth a word.
PAUSE, TROUBLE_AFTER = 0.05, 1.0
#: Seconds that a vote waits for the room of its blobs.
LONGEST_WAIT_OF_A_VOTE = 10.0
#: Bytes that are removed, and not named, before the engine is to let go of
#: them; less where the limit is small.
GARBAGE = 64 << 20


class Trims(typing.NamedTuple):
    """What the node that writes is to do about the size of the log."""

    #: Whose place is noted.
    node: bytes
    #: Bytes; 0: there is no limit.
    limit: int = 0
    #: Whether the node that is behind is left behind at the limit.  Otherwise
    #: commits wait for it.
    drops: bool = False


class _Wait(typing.NamedTuple):
    """Of one thread."""

    since: float
    size: int


class LogLimit:

    def __init__(self, limit: int, own: Held, earlier: Held) -> None:
        """`own`: what this writer has brought into the log."""
        self.limit = limit
        self._own = own
        self._earlier = earlier
        #: What keeps the log from being trimmed, in words.
        self.reason = 'it was not trimmed yet'
        self._name = ''
        self._changed = threading.Lock()
        self._staged = 0
        self._waits: list[_Wait] = []
        self._is_said = False

    def begin(self, name: str) -> None:
        """`name`: whose log it is."""
        self._name = name

    # What it has

    @property
    def size(self) -> int:
        return self.named + self._staged

    @property
    def named(self) -> int:
        """Of records, and of the blobs that they name."""
        return self._earlier.size + self._own.size

    def named_before(self, first: int) -> set[bytes]:
        """The blobs that records before this one name."""
        return self._earlier.named(first) | self._own.named(first)

    def trimmed(self, first: int) -> None:
        self._earlier.trim(first)
        self._own.trim(first)

    @property
    def garbage(self) -> int:
        return min(GARBAGE, self.limit // 4) if self.limit else GARBAGE

    # What is wanted of trims

    @property
    def is_near(self) -> bool:
        return 0 < self.limit <= 2 * self.size or bool(self._waits)

    @property
    def lacks_room(self) -> bool:
        """Somebody waits, or will, for what trims can remove."""
        with self._changed:
            wanted = max([1, *(each.size for each in self._waits)])
        return self._lacks(wanted)

    def _lacks(self, wanted: int, staged: int = 0) -> bool:
        return 0 < self.limit < self.named + staged + wanted

    # A vote

    def check(self, size: int) -> None:
        """Raise if a transaction of so many bytes never fits into the log."""
        if 0 < self.limit < size:
            raise StorageTransactionError(
                f'a transaction of {size} bytes does not fit into the log of'
                f' the other nodes, as log-limit is {self.limit}: make several'
                ' of it, or set log-limit higher on each node. Nothing of it'
                ' was stored')

    def wait_to_stage(self, size: int, go_on: Callable[[], object],
                      pause: Callable[[float], object]) -> None:
        """Return when there is room for so many bytes of blobs, which it then
        has; `gives_back` ends that."""
        ends = time.monotonic() + LONGEST_WAIT_OF_A_VOTE

        def go_on_for_a_while() -> None:
            go_on()
            if time.monotonic() > ends:
                raise StorageTransactionError(
                    f'no room in the log of the other nodes for {size} bytes'
                    f' of blobs: {self.words}. Nothing of this transaction was'
                    ' stored: try again later')

        self._wait(lambda: self._takes(size), size, go_on_for_a_while, pause)

    def _takes(self, size: int) -> bool:
        with self._changed:
            if self._lacks(size, self._staged):
                return False
            self._staged += size
            return True

    def takes_anyway(self, size: int) -> None:
        """The same for one that nobody must wait for."""
        with self._changed:
            self._staged += size

    def gives_back(self, size: int) -> None:
        """A record names them; or they are removed."""
        with self._changed:
            self._staged -= size

    # A sync

    def wait_to_sync(self, go_on: Callable[[], object],
                     pause: Callable[[float], object]) -> None:
        """Return when there is room."""
        self._wait(lambda: not self._lacks(1), 1, go_on, pause)

    # Waiting

    def _wait(self, is_there: Callable[[], bool], size: int,
              go_on: Callable[[], object],
              pause: Callable[[float], object]) -> None:
        """`go_on` raises to end it."""
        if is_there():
            return
        own = _Wait(time.monotonic(), size)
        with self._changed:
            self._waits.append(own)
        try:
            while not is_there():
                go_on()
                self._say_if_long()
                pause(PAUSE)
        finally:
            self._waits_no_more(own)

    def _say_if_long(self) -> None:
        trouble = self.trouble
        if trouble is not None and not self._is_said:
            self._is_said = True
            logger.warning('%s: %s', self._name, trouble)

    def _waits_no_more(self, own: _Wait) -> None:
        with self._changed:
            self._waits.remove(own)
            if self._waits or not self._is_said:
                return
            self._is_said = False
        logger.warning('%s: the log has room again, after %.1f s',
                       self._name, time.monotonic() - own.since)

    @property
    def seconds(self) -> float:
        """For how long somebody waits."""
        with self._changed:
            since = min((each.since for each in self._waits), default=None)
        return 0.0 if since is None else time.monotonic() - since

    @property
    def trouble(self) -> str | None:
        """In words, if somebody waits for longer than usual."""
        return self.words if self.seconds > TROUBLE_AFTER else None

    @property
    def words(self) -> str:
        who = 'commits wait' if self._lacks(1) else 'votes with blobs wait'
        return (f'the log is full, and {who} until it is trimmed: it has'
                f' {self.named} bytes, and {self._staged} of blobs that no'
                f' commit names yet, log-limit is {self.limit}, and'
                f' {self.reason}')
