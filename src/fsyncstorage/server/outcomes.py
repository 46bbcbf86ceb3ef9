"""What became of a commit: answers for clients that have lost one.

A commit is named by its session's ticket and its number on the channel of that
session.  Its outcome is one of three:

    COMMITTED       it is published, with this tid
    NOT_COMMITTED   a promise: it never will be
    NOT_KNOWN       nobody here can say

NOT_COMMITTED can be promised only for a session that has ended: nothing more
of it is processed.  So a question about a session that is still there ends it
first.

A `Record` has the last outcomes of one session, `REMEMBERED` of them.  That is
enough: a client asks only for a transaction whose answer it has not processed.
It has at most MOST_OPEN open at a time, and the one more whose answer it is
just processing; answers are processed in the order in which they are given.

A client that asks for an older one all the same must not get a wrong no.  So a
number that has no outcome is promised only if none so great was overwritten,
or if its transaction was open, and not finishing, when the session ended.

A question about a commit that is still being finished waits.  Of those for one
commit only the newest waits: a client that asks again has left the earlier
one.

Of sessions that have ended, `MOST_ENDED` records are kept, each for `KEPT_FOR`
seconds.  A peer that connects again and again pushes out the records of
others: it turns their answers into NOT_KNOWN, and never into a wrong one.

All of it belongs to the event loop.
"""

import array
import collections
import time

from ZODB.utils import z64

from ..wire import commits

REMEMBERED = commits.MOST_OPEN + 1
MOST_ENDED = 5000
KEPT_FOR = 600

# An outcome: the number, and the tid or zeros.
_NUMBER = 4
_SIZE = _NUMBER + 8


class Question:
    """Called with its outcome and tid: the first answer is told, if the one
    that asks is still there."""

    __slots__ = '_tell',

    def __init__(self, tell):
        self._tell = tell

    def __call__(self, outcome, tid):
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(outcome, tid)

    def drop(self):
        """Keep nothing of the one that asks."""
        self._tell = None


class Record:
    """What became of the last finishes of one session."""

    __slots__ = ('_outcomes', '_count', '_overwritten', '_aborted',
                 '_finishing', 'ended_at')

    def __init__(self):
        # The last ones; the oldest one is overwritten.  (A list of pairs would
        # take four times as much, for each client.)
        self._outcomes = bytearray()
        self._count = 0
        #: The greatest number that was overwritten.
        self._overwritten = 0
        #: Numbers of those that the end of the session has aborted.
        self._aborted = array.array('I')
        #: Since the session has ended: number -> the question that waits.
        self._finishing = {}
        #: None: the session is there.
        self.ended_at = None

    def note(self, number, tid, again=False):
        """It is published; or its finish has failed, if there is no tid.

        `again`: this finish was noted before.
        """
        place = self._place_of(number) if again else None
        if place is None:
            place = self._next_place()
        self._outcomes[place:place + _SIZE] = (
            number.to_bytes(_NUMBER, 'big') + (tid or z64))
        question = self._finishing.pop(number, None)
        if question is not None:
            question(*self._outcome(number))

    def _next_place(self):
        place = self._count % REMEMBERED * _SIZE
        if self._count >= REMEMBERED:
            self._overwritten = max(self._overwritten, int.from_bytes(
                self._outcomes[place:place + _NUMBER], 'big'))
        self._count += 1
        return place

    def end(self, aborted, finishing, now):
        """The session has ended; only those that are finishing go on."""
        self._aborted.extend(aborted)
        self._finishing = dict.fromkeys(finishing)
        self.ended_at = now

    def ask(self, number, question):
        """Answer it, perhaps before this returns."""
        if number in self._finishing:
            earlier = self._finishing[number]
            self._finishing[number] = question
            if earlier is not None:
                earlier(commits.NOT_KNOWN, z64)
        else:
            question(*self._outcome(number))

    def _outcome(self, number):
        if number in self._aborted:
            return commits.NOT_COMMITTED, z64
        place = self._place_of(number)
        if place is not None:
            tid = bytes(self._outcomes[place + _NUMBER:place + _SIZE])
            # A finish that failed may be on the disk all the same.
            return ((commits.NOT_KNOWN, z64) if tid == z64
                    else (commits.COMMITTED, tid))
        if number > self._overwritten:
            return commits.NOT_COMMITTED, z64
        return commits.NOT_KNOWN, z64

    def _place_of(self, number):
        """The last one of this number: a client may use it again."""
        wanted = number.to_bytes(_NUMBER, 'big')
        for last in range(self._count - 1,
                          max(self._count - REMEMBERED, 0) - 1, -1):
            place = last % REMEMBERED * _SIZE
            if self._outcomes.startswith(wanted, place):
                return place
        return None


class Outcomes:
    """The records of all sessions of a server that have or had a channel."""

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._channels = {}  # ticket -> the channel of a session
        self._ended = collections.OrderedDict()  # ticket -> Record

    def begin(self, ticket, channel):
        self._channels[ticket] = channel

    def end(self, ticket, record, aborted, finishing):
        """The channel of a session has ended."""
        del self._channels[ticket]
        record.end(aborted, finishing, self._clock())
        self._ended[ticket] = record
        self._forget()

    def ask(self, ticket, number, question):
        """Answer it, perhaps before this returns."""
        channel = self._channels.get(ticket)
        if channel is not None:
            channel.end()
        self._forget()
        record = self._ended.get(ticket)
        if record is None:
            question(commits.NOT_KNOWN, z64)
        else:
            record.ask(number, question)

    def _forget(self):
        too_old = self._clock() - KEPT_FOR
        while self._ended:
            oldest = next(iter(self._ended.values()))
            if (len(self._ended) <= MOST_ENDED
                    and oldest.ended_at > too_old):
                break
            self._ended.popitem(last=False)
