"""What became of a commit: answers for clients that did not get the first one.

A commit is named by its session's ticket and its number on the channel of that
session.  Its outcome is one of three:

    COMMITTED       it is published, with this tid
    NOT_COMMITTED   a promise: it never will be
    NOT_KNOWN       this server cannot say

NOT_COMMITTED can be promised only for a session that has ended, because then
nothing more of it is processed.  So a question about a session that is still
there ends that session first.

A `Record` has the last `REMEMBERED` outcomes of one session.  That is enough,
because a client asks only about a transaction whose answer it has not
processed.  It has at most MOST_OPEN of them open at a time, plus the one whose
answer it is just processing; it processes answers in the order in which they
are given.

If a client asks about an older commit nevertheless, it must not get a wrong
NOT_COMMITTED.  So that is promised for a number without an outcome only if the
number is greater than all that were overwritten, or if its transaction was
open, and not finishing, when the session ended.

A question about a commit that is still finishing waits.  If there are several
questions about one commit, only the newest waits: a client that asks again no
longer waits for the earlier answer.

The records of the last `MOST_ENDED` sessions that have ended are kept, each
for `KEPT_FOR` seconds.  A peer that connects again and again pushes out the
records of others: so it turns their answers into NOT_KNOWN, but never into
wrong ones.

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

# Bytes of an outcome: the number, and the tid or zeros.
_NUMBER = 4
_SIZE = _NUMBER + 8


class Question:
    """Called with the outcome and the tid.  Passes on the first answer only,
    and none if the asking client has gone."""

    __slots__ = '_tell',

    def __init__(self, tell):
        self._tell = tell

    def __call__(self, outcome, tid):
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(outcome, tid)

    def drop(self):
        """The client that asks has gone: keep nothing of it."""
        self._tell = None


class Record:
    """What became of the last finishes of one session."""

    __slots__ = ('_outcomes', '_count', '_overwritten', '_aborted',
                 '_finishing', 'ended_at')

    def __init__(self):
        # A ring of the last outcomes.  (A list of pairs would take four times
        # as much memory, for each client.)
        self._outcomes = bytearray()
        self._count = 0
        #: The greatest number that was overwritten.
        self._overwritten = 0
        #: Numbers of transactions that the end of the session has aborted.
        self._aborted = array.array('I')
        #: Since the session has ended: number -> the question that waits.
        self._finishing = {}
        #: None: the session is there.
        self.ended_at = None

    def note(self, number, tid, again=False):
        """It is published; if `tid` is None, its finish has failed.

        `again` is true if an outcome of this finish was noted before.
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
        """The session has ended; only its finishing transactions go on."""
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
        """Of the last outcome of this number; a client may reuse numbers."""
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
