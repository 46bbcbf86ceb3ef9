"""Ends a connection on which the server says nothing, and owes an answer.

If a server's process hangs, or its machine has gone, its connections stay
open: a thread that waits for an answer would wait for ever.  So this checks a
connection again and again, in the event loop.  When nothing was heard at
`ASKED_AFTER` checks in a row, the server is asked for a sign of life; at
`DEAD_AFTER` checks it is taken for dead, and the connection is given up.  That
is between nine tenths and all of the time that a server may be silent, counted
from when something was last heard.

Checks are counted, and not the time, which goes on for a client that was
itself frozen, or whose machine slept.  A check that is late shows that this
has happened: if nothing was heard by then, the server is asked anew, and has
its time again.

Anything with these three methods can be checked; they must not wait:

is_silent()            Was nothing heard since the last call?
ask_for_a_sign()       Ask the server for something that it answers at once.
give_up(reason)        End the connection; with a `Silent`.
"""

import logging
import time

logger = logging.getLogger(__name__)

#: Checks within the time that a server may be silent.
LOOKS = 10
#: Checks in a row at which nothing was heard, before each of the two steps.
ASKED_AFTER, DEAD_AFTER = 2, 9


#: A check counts as late only from this many seconds on: a machine may be
#: busy.
LATE = 1
#: A clock that goes on while the machine sleeps, where there is one.
CLOCK = getattr(time, 'CLOCK_BOOTTIME', time.CLOCK_MONOTONIC)


class Silent(Exception):
    """Why a connection was given up: the server may still be there."""


class Liveness:

    def __init__(self, loop, seconds, connection, name,
                 clock=lambda: time.clock_gettime(CLOCK)):
        """`seconds` is how long a server may be silent; None: for ever."""
        self._loop = loop
        self._seconds = seconds
        self._connection = connection
        self._name = name
        self._clock = clock
        self._in_vain = 0
        self._timer = None
        if seconds is not None:
            self._look_later()

    def _look_later(self):
        every = self._seconds / LOOKS
        self._late = self._clock() + every + max(every, LATE)
        self._timer = self._loop.call_later(every, self._look)

    def _look(self):
        if not self._connection.is_silent():
            self._in_vain = 0
        elif self._clock() < self._late:
            self._in_vain += 1
        else:
            self._in_vain = ASKED_AFTER
        if self._in_vain == DEAD_AFTER:
            self._give_up()
            return
        self._look_later()
        if self._in_vain == ASKED_AFTER:
            self._connection.ask_for_a_sign()

    def _give_up(self):
        self._timer = None
        reason = Silent(f'nothing was heard from {self._name} for'
                        f' {self._seconds:g} s, though it owes an answer')
        logger.warning('%s: the connection is ended', reason)
        self._connection.give_up(reason)

    def end(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
