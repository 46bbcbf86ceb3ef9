"""The lease of a node: a thread that gets it, and keeps it.

The thread does nothing else, so that nothing delays it.  It has a log of its
own, from the start of the node to its end: the log knows by it whether the
*term* of a lease is the same.

Its result is `tenure`, which is replaced as a whole:

- None: this node does not have the lease, or no longer has it.  The thread
  asks for it again and again while `wanted` is set.  A lease that this node
  gets or has while it is not wanted is given back.
- A Tenure: this node has the lease, in this term.  The time of the lease is
  counted from before the request, by a clock that goes on while the machine
  sleeps, and nine tenths of it are believed (`until`).  So the lease expires
  here before another node can have it.  It may expire and be renewed: in the
  same term nobody else had it.

If the log says that another node has the lease, or gives it in another term,
the lease is *lost*: another node may have led.  It is lost, too, when this
node should give way (presence), which is asked before each renewal, whatever
the node is doing: its other threads may wait for a disk that hangs.  Then it
is not requested any more, until `seek`; and it is given back, at once, or by
the primary, which ends its connections first.

Two processes never have the same name in the log, because each adds random
bytes to the name of its node.  So two nodes that were given one name by
mistake do not take the lease from each other in turns.
"""

import logging
import os
import threading
import time
import typing
from collections.abc import Callable

from ...commit.wakeable import WakeableThread
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.interface import clock

logger = logging.getLogger(__name__)

#: The part of a lease that is believed.
BELIEVED = 0.9
#: Parts of the lease: how often it is renewed, how often it is requested, and
#: the pause after no answer.
RENEWED_EVERY, ASKED_EVERY, AGAIN_AFTER = 1 / 5, 1 / 20, 1 / 50
#: The most seconds for which `close` waits until the lease is given back.
LONGEST_FAREWELL = 2.0


def name_of_process(node: str) -> bytes:
    """The name under which this process holds the lease."""
    return f'{node} {os.urandom(8).hex()}'.encode()


class Tenure(typing.NamedTuple):
    term: int
    #: Up to this time of the clock it is believed.
    until: float


class Holding:

    def __init__(self, log: Log, holder: bytes, seconds: float,
                 changed: Callable[[], object] = lambda: None,
                 works_since: Callable[[float], bool] = lambda moment: True,
                 why_give_way: Callable[[], str | None] = lambda: None,
                 clock: Callable[[], float] = clock) -> None:
        """`changed` is called in the thread when the lease was got or lost; it
        must only notify another thread.  `works_since` says whether the disk
        has worked since a moment of `time.monotonic`, `why_give_way` why
        another node should have the lease."""
        self.log = log
        self.holder = holder
        self._length = seconds
        self._changed = changed
        self._works_since = works_since
        self._why_give_way = why_give_way
        #: Since when the lease is free, as far as we have seen it.
        self._free_since: float | None = None
        self._clock = clock
        self.tenure: Tenure | None = None
        #: Why it was lost since the last `seek`, or None.
        self.lost: str | None = None
        self.wanted = False
        #: Clients are answered by it: so only `close` gives it back.
        self.serves = False
        #: Why the log does not answer, or None.
        self.trouble: str | None = None
        self._due = 0.0
        #: The log may have given it, or may still give it.
        self._may_have_it = False
        self._is_started = self._is_leaving = False
        self._has_left = threading.Event()
        self._thread = WakeableThread(
            f'lease of {holder.decode()}', self._work, self._seconds)

    def start(self) -> None:
        self._is_started = True
        self._thread.start()

    def seek(self, fit: bool = True) -> None:
        """From now on it is wanted, if the node could lead; any earlier tenure
        is forgotten."""
        self.tenure, self.lost, self.wanted = None, None, fit
        self._thread.wake()

    def ask_if(self, fit: bool) -> None:
        """A node without the lease asks for it only if it could lead."""
        if fit is not self.wanted and self.tenure is None:
            self.wanted = fit
            self._thread.wake()

    def give_up(self) -> None:
        """This node cannot lead: give the lease back, and do not ask for it
        until `seek`."""
        self.tenure, self.wanted = None, False
        self._thread.wake()

    @property
    def is_believed(self) -> bool:
        """Does this node have the lease, as far as its clock can tell?"""
        tenure = self.tenure
        return (tenure is not None and self.wanted
                and self._clock() < tenure.until)

    @property
    def seconds_left(self) -> float:
        tenure = self.tenure
        return 0.0 if tenure is None else max(
            0.0, tenure.until - self._clock())

    def close(self) -> None:
        """Believe in the lease no longer, and give it back.  May be repeated.

        If the log does not answer, others have to wait until it expires.
        """
        self.wanted = False
        self._is_leaving = True
        if self._is_started:
            self._thread.wake()
            self._has_left.wait(LONGEST_FAREWELL)
        self.log.stop()
        self._thread.close()
        self.log.close()

    # In the thread

    def _seconds(self) -> float | None:
        return max(0.0, self._due - self._clock()) if self.wanted else None

    def _work(self) -> None:
        if self.wanted and self._clock() >= self._due:
            self._renew_or_ask()
        if self._may_have_it and not self.wanted and (
                self._is_leaving or not self.serves):
            self._give_back()
        if self._is_leaving:
            self._has_left.set()

    def _renew_or_ask(self) -> None:
        reason = None if self.tenure is None else self._why_give_way()
        if reason is not None:
            self._lose(reason)
        else:
            self._ask()

    def _ask(self) -> None:
        asked = self._clock()
        self._due = asked + AGAIN_AFTER * self._length
        self._may_have_it = True
        try:
            term = self._hold()
        except Unanswered as error:
            self.trouble = str(error) or 'no answer'
            return
        self.trouble = None
        self._may_have_it = bool(term)
        self._due = asked + self._length * (
            RENEWED_EVERY if term else ASKED_EVERY)
        self._is_told(term, asked)

    def _hold(self) -> int:
        before, self._free_since = self._free_since, None

        def may_take() -> bool:
            """Only a node whose disk has worked since the lease is free: the
            one that had it may have given it back because of its disk, and
            ours may be behind the same wire."""
            self._free_since = before or time.monotonic()
            return self._works_since(self._free_since)

        return self.log.hold(self.holder, self._length, may_take)

    def _is_told(self, term: int, asked: float) -> None:
        before = self.tenure
        if before is not None and before.term != term:
            self._lose('another node has the lease' if not term else
                       'it got the lease in another term: another node may'
                       ' have had it in between')
        elif term and self.wanted:
            self.tenure = Tenure(term, asked + BELIEVED * self._length)
            if before is None:
                self._changed()

    def _lose(self, reason: str) -> None:
        self.lost, self.wanted = reason, False
        self.tenure = None
        self._changed()

    def _give_back(self) -> None:
        self.tenure, self._may_have_it = None, False
        try:
            self.log.let_go(self.holder)
        except Unanswered as error:
            logger.warning(
                'the lease could not be given back (%s): others have to wait'
                ' until it is over', error)
