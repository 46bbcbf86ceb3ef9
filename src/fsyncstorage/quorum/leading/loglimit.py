"""How large the log is, and what that holds up.

`Size` counts the bytes of records, and of the staged blobs that they name, up
to where the log was trimmed.  A writer has one, of what it brings into the
log; what was there before it led is counted by reading it (trimming).

`LogLimit` has what the operator allows.  A transaction that is larger than all
of it is refused by its vote.  While the log has as much, commits wait, in the
thread that would sync them, until it is trimmed; readers do not, and what is
no batch (a Trim, the swap of a pack) does not either.  So the log may become
larger than its limit by one batch and a few small records.

`Size.add` is called by one thread, `trim` by another one.
"""

import collections
import logging
import time
import typing
from collections.abc import Callable

from ZODB.POSException import StorageTransactionError

from ..history.record import MOST
from ..history.record import Body
from ..history.record import Data

logger = logging.getLogger(__name__)

#: Bytes from one mark to the next: of so many, a trim may be unaware.
GRAIN = MOST
#: Seconds from one look to the next; of a wait that is worth a word.
PAUSE, TROUBLE_AFTER = 0.05, 1.0


class Trims(typing.NamedTuple):
    """What the node that writes is to do about the size of the log."""

    #: Whose place is noted.
    node: bytes
    #: Bytes; 0: there is no limit.
    limit: int = 0
    #: Whether the node that is behind is left behind at the limit.  Otherwise
    #: commits wait for it.
    drops: bool = False


class Size:

    def __init__(self) -> None:
        #: The number of the first record that was added.
        self.first: int | None = None
        self._added = self._marked = self._trimmed = 0
        #: Numbers of records, with the bytes that were added up to each.
        self._marks: collections.deque[tuple[int, int]] = collections.deque()

    def add(self, sequence: int, count: int) -> None:
        """The next record, of this number, has so many."""
        if self.first is None:
            self.first = sequence
        self._added += count
        if self._added - self._marked >= GRAIN:
            self._marked = self._added
            self._marks.append((sequence, self._added))

    def trim(self, first: int) -> None:
        """What is before this record was removed."""
        while self._marks and self._marks[0][0] < first:
            self._trimmed = self._marks.popleft()[1]

    @property
    def bytes(self) -> int:
        return self._added - self._trimmed


def weight(raw: bytes, body: Body) -> int:
    """The bytes that the log has of a record: its own, and those of the blobs
    that were staged for it."""
    blobs = body.blobs if isinstance(body, Data) else ()
    return len(raw) + sum(blob.size for blob in blobs if not blob.shared)


class LogLimit:

    def __init__(self, limit: int, own: Size) -> None:
        """`own`: the size of what this writer has brought into the log."""
        self.limit = limit
        self._own = own
        #: Of what was there before.
        self.earlier = Size()
        #: What keeps the log from being trimmed, in words.
        self.reason = 'it was not trimmed yet'
        self._name = ''
        self._since: float | None = None
        self._is_said = False

    def begin(self, name: str) -> None:
        """`name`: whose log it is."""
        self._name = name

    @property
    def size(self) -> int:
        return self.earlier.bytes + self._own.bytes

    @property
    def first_of_ours(self) -> int:
        """The number of the first record of this writer, which leads."""
        assert self._own.first is not None
        return self._own.first

    @property
    def is_full(self) -> bool:
        return 0 < self.limit <= self.size

    @property
    def is_near(self) -> bool:
        return 0 < self.limit <= 2 * self.size

    def trimmed(self, first: int) -> None:
        self.earlier.trim(first)
        self._own.trim(first)

    # A vote

    def check(self, size: int) -> None:
        """Raise if a transaction of so many bytes never fits into the log."""
        if 0 < self.limit < size:
            raise StorageTransactionError(
                f'a transaction of {size} bytes does not fit into the log of'
                f' the other nodes, as log-limit is {self.limit}: make several'
                ' of it, or set log-limit higher on each node. Nothing of it'
                ' was stored')

    # A sync

    def wait(self, go_on: Callable[[], object],
             pause: Callable[[float], object]) -> None:
        """Return when there is room.

        `go_on` sees to it that there will be; it raises to end the wait.
        """
        try:
            while self.is_full:
                go_on()
                if self._since is None:
                    self._since = time.monotonic()
                self._say_if_long()
                pause(PAUSE)
        finally:
            if self._is_said:
                logger.warning('%s: the log has room again, after %.1f s',
                               self._name, self.seconds)
            self._since, self._is_said = None, False

    def _say_if_long(self) -> None:
        trouble = self.trouble
        if trouble is not None and not self._is_said:
            self._is_said = True
            logger.warning('%s: %s', self._name, trouble)

    @property
    def seconds(self) -> float:
        """For how long somebody waits."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def trouble(self) -> str | None:
        """In words, if somebody waits for longer than usual."""
        return self.words if self.seconds > TROUBLE_AFTER else None

    @property
    def words(self) -> str:
        return (f'the log is full, and commits wait until it is trimmed: it'
                f' has {self.size} bytes, log-limit is {self.limit}, and'
                f' {self.reason}')
