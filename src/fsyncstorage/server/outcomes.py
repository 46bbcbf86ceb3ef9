"""What became of a commit: answers for clients that have lost one.

A commit is named by its session's ticket and its number on the channel of that
session.  Its outcome is one of three:

    COMMITTED       it is published, with this tid
    NOT_COMMITTED   a promise: it never will be
    NOT_KNOWN       nobody here can say

NOT_COMMITTED can be promised only for a session that has ended: nothing more
of it is processed.  So a question about a session that is still there ends it
first.

A `Record` has the outcomes of one session.  MOST_OPEN of them are enough: a
client asks only for a transaction whose answer it has not processed.  Such a
transaction is open to the client, and it has at most MOST_OPEN open at a time;
answers are processed in the order in which they are given, so those that are
not processed are the last ones.

Of sessions that have ended, `MOST_ENDED` records are kept, each for `KEPT_FOR`
seconds.  A peer that connects again and again pushes out the records of
others: it turns their answers into NOT_KNOWN, and never into a wrong one.

All of it belongs to the event loop.
"""

import collections
import time

from ZODB.utils import z64

from ..wire import commits

MOST_ENDED = 1000
KEPT_FOR = 600

# An outcome: the number, and the tid or zeros.
_NUMBER = 4
_SIZE = _NUMBER + 8


class Record:
    """What became of the last finishes of one session."""

    __slots__ = '_outcomes', '_count', '_finishing', 'ended_at'

    def __init__(self):
        # The last MOST_OPEN; the oldest one is overwritten.  (A list of pairs
        # would take four times as much, for each client.)
        self._outcomes = bytearray()
        self._count = 0
        #: Since the session has ended: number -> those that wait for it.
        self._finishing = {}
        #: None: the session is there.
        self.ended_at = None

    def note(self, number, tid):
        """It is published; or its finish has failed, if there is no tid."""
        at = self._count % commits.MOST_OPEN * _SIZE
        self._outcomes[at:at + _SIZE] = (
            number.to_bytes(_NUMBER, 'big') + (tid or z64))
        self._count += 1
        for tell in self._finishing.pop(number, ()):
            tell(*self._outcome(number))

    def end(self, finishing, now):
        """The session has ended; only these of its transactions go on."""
        self._finishing = {number: [] for number in finishing}
        self.ended_at = now

    def ask(self, number, tell):
        """Call `tell(outcome, tid)`, perhaps before this returns."""
        waiting = self._finishing.get(number)
        if waiting is not None:
            waiting.append(tell)
        else:
            tell(*self._outcome(number))

    def _outcome(self, number):
        wanted = number.to_bytes(_NUMBER, 'big')
        # The last one of this number: a client may use it again.
        for last in range(self._count - 1,
                          max(self._count - commits.MOST_OPEN, 0) - 1, -1):
            at = last % commits.MOST_OPEN * _SIZE
            if self._outcomes.startswith(wanted, at):
                tid = bytes(self._outcomes[at + _NUMBER:at + _SIZE])
                # A finish that failed may be on the disk all the same.
                return ((commits.NOT_KNOWN, z64) if tid == z64
                        else (commits.COMMITTED, tid))
        return commits.NOT_COMMITTED, z64


class Outcomes:
    """The records of all sessions of a server that have or had a channel."""

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._channels = {}  # ticket -> the channel of a session
        self._ended = collections.OrderedDict()  # ticket -> Record

    def begin(self, ticket, channel):
        self._channels[ticket] = channel

    def end(self, ticket, record, finishing):
        """The channel of a session has ended."""
        del self._channels[ticket]
        record.end(finishing, self._clock())
        self._ended[ticket] = record
        self._forget()

    def ask(self, ticket, number, tell):
        """Call `tell(outcome, tid)`, perhaps before this returns."""
        channel = self._channels.get(ticket)
        if channel is not None:
            channel.end()
        self._forget()
        record = self._ended.get(ticket)
        if record is None:
            tell(commits.NOT_KNOWN, z64)
        else:
            record.ask(number, tell)

    def _forget(self):
        too_old = self._clock() - KEPT_FOR
        while self._ended:
            oldest = next(iter(self._ended.values()))
            if (len(self._ended) <= MOST_ENDED
                    and oldest.ended_at > too_old):
                break
            self._ended.popitem(last=False)
