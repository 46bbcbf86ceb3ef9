"""When a ballot reached which step, and what it waited for in between; and the
line of the log about a commit that was slow (`slow-commit-log` of a storage).

This costs a commit four readings of a clock.  Everything here belongs to the
owner of the ballot at the time: the loop, or, while a thread finishes it, that
thread.
"""

import time

from ZODB.utils import oid_repr

from . import quiet

logger = quiet.get_logger(__name__)

#: So many of its objects are named.
MOST_NAMED = 5

# What a ballot waits for before it is voted.
ROOM, OBJECTS, PUBLISHING, CLIENT = (
    'room', 'its objects', 'another to be published',
    'its client to resolve conflicts')


class Timed:
    """Part of a ballot."""

    #: When its vote was first asked for; when it was voted; when its finish
    #: was asked for; and when it was in the file.
    asked_at = held_since = finish_at = appended_at = None
    #: What it waits for now, and since when.
    waits_for = _waits_since = None
    #: What it waited for -> seconds; None: it never waited.
    waited = None

    def waits(self, what):
        if self.waits_for is not None:
            self.goes_on()
        self.waits_for, self._waits_since = what, time.monotonic()

    def goes_on(self):
        """It no longer waits."""
        what, self.waits_for = self.waits_for, None
        if self.waited is None:
            self.waited = {}
        self.waited[what] = (self.waited.get(what, 0.0)
                             + time.monotonic() - self._waits_since)

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


def say_slow(ballot, tid, seconds, now):
    """It was committed, and took so long."""
    took = ', '.join(f'{what} {duration:.3f} s'
                     for what, duration in ballot.phases(now))
    objects = ', '.join(map(oid_repr, ballot.oids[:MOST_NAMED]))
    more = ', ...' if len(ballot.oids) > MOST_NAMED else ''
    logger.warning(
        '%s: the commit %s took %.3f s: %s; of %s objects: %s%s',
        ballot.client.log_label, tid.hex(), seconds, took, len(ballot.oids),
        objects, more)
