"""When a ballot came to which step, and what it waited for meanwhile.

A commit costs no more than it did: one reading of a clock at its vote.  Where
slow commits are logged, there are two more, and the waits are noted anyway:
they are rare.  All of it belongs to whoever owns the ballot at that moment,
the loop or, from the call of its finish to its end, the thread that finishes
it.
"""

import time

# What a ballot waits for before its vote.
ROOM, LOG, OBJECTS, PUBLISHING = (
    'room', 'room in the log', 'its objects', 'another to be published')


class Timed:
    """Part of a ballot."""

    #: When its vote was asked for, first; when it was voted.  Where slow
    #: commits are logged: when its finish was asked for, and when it was in
    #: the file.
    asked_at = held_since = finish_at = appended_at = None
    #: What it waits for now, since when, and what says behind which one.
    waits_for = _waits_since = _tell_behind = None
    #: What it waited for -> seconds; None: it did not.
    waited = None
    #: Behind which transaction it waited last, as commitlog shows it; None:
    #: that is not known.
    behind = None

    def waits(self, what, behind=None):
        """`behind()` says behind which one it waited: when it goes on, that
        one is over."""
        if self.waits_for is not None:
            self.goes_on()
        self.waits_for, self._waits_since = what, time.monotonic()
        self._tell_behind = behind

    def goes_on(self):
        """It waits no more."""
        what, self.waits_for = self.waits_for, None
        if self.waited is None:
            self.waited = {}
        self.waited[what] = (self.waited.get(what, 0.0)
                             + time.monotonic() - self._waits_since)
        tell, self._tell_behind = self._tell_behind, None
        if tell is not None:
            self.behind = tell()

    def phases(self, now):
        """What took how long, in the order of a commit; about `now`, its
        client is told."""
        waited = self.waited or {}
        yield from ((f'waited for {what}', seconds)
                    for what, seconds in waited.items())
        yield 'voted', (self.held_since - self.asked_at
                        - sum(waited.values()))
        yield 'held until its client finished it', (
            self.finish_at - self.held_since)
        appended_at = self.appended_at
        if appended_at is None:  # it was published before that was noted
            yield 'written and synced', now - self.finish_at
        else:
            yield 'written', appended_at - self.finish_at
            yield 'synced', now - appended_at
