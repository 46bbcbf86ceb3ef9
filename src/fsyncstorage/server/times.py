"""When a ballot reached which step, and what it waited for in between.

This costs a commit two readings of a clock: when its vote is asked for, and
when it is voted.  Where slow commits are logged, it costs two more.  Waits are
noted in any case, as they are rare.  Everything here belongs to the owner of
the ballot at the time: the loop, or, while a thread finishes it, that thread.
"""

import time

# What a ballot waits for before it is voted.
ROOM, LOG, OBJECTS, PUBLISHING, CLIENT = (
    'room', 'room in the log', 'its objects', 'another to be published',
    'its client to resolve conflicts')


class Timed:
    """Part of a ballot."""

    #: When its vote was first asked for; when it was voted.  Where slow
    #: commits are logged: when its finish was asked for, and when it was in
    #: the file.
    asked_at = held_since = finish_at = appended_at = None
    #: What it waits for now, since when, and a function that returns the
    #: transaction for which it waits.
    waits_for = _waits_since = _tell_behind = None
    #: What it waited for -> seconds; None: it never waited.
    waited = None
    #: The transaction for which it waited last, as commitlog shows it; None:
    #: that is not known.
    behind = None

    def waits(self, what, behind=None):
        """`behind()` returns the transaction for which it waits.  It is called
        when the ballot goes on, and so that transaction has ended."""
        if self.waits_for is not None:
            self.goes_on()
        self.waits_for, self._waits_since = what, time.monotonic()
        self._tell_behind = behind

    def goes_on(self):
        """It no longer waits."""
        what, self.waits_for = self.waits_for, None
        if self.waited is None:
            self.waited = {}
        self.waited[what] = (self.waited.get(what, 0.0)
                             + time.monotonic() - self._waits_since)
        tell, self._tell_behind = self._tell_behind, None
        if tell is not None:
            self.behind = tell()

    def phases(self, now):
        """The phases of the commit and their seconds, in order.  `now` is the
        end of the last one: the client is about to be told."""
        waited = self.waited or {}
        yield from ((f'waited for {what}', seconds)
                    for what, seconds in waited.items())
        yield 'voted', (self.held_since - self.asked_at
                        - sum(waited.values()))
        yield 'held until its client finished it', (
            self.finish_at - self.held_since)
        appended_at = self.appended_at
        if appended_at is None:  # published before `appended_at` was noted
            yield 'written and synced', now - self.finish_at
        else:
            yield 'written', appended_at - self.finish_at
            yield 'synced', now - appended_at
