"""Ends a connection on which the server says nothing, and owes an answer.

A server of which the process hangs, or the machine is gone, does not close its
connections: whoever waits there would wait for ever.  So this looks at a
connection again and again, in the event loop.  When nothing was heard at
`ASKED_AFTER` looks, one behind the other, the server is asked for a sign of
life; at `DEAD_AFTER` looks it is taken for dead, and the connection is given
up.  That is between nine tenths of the time that a server may be silent, and
all of it, behind the last thing that was heard.

Looks are counted, and not the time, which goes on for a client that was itself
frozen, or whose machine slept.  A look that comes late tells that it was: if
nothing was heard by then, the server is asked anew, and has its time again.

What may be looked at is anything with these three methods, which do not wait:

is_silent()            Was nothing heard since this was asked last?
ask_for_a_sign()       Ask the server for something that it answers at once.
give_up(reason)        End the connection; with a `Silent`.
"""

import logging
import time

logger = logging.getLogger(__name__)

#: Looks within the time that a server may be silent.
LOOKS = 10
#: Looks in vain.
ASKED_AFTER, DEAD_AFTER = 2, 9


#: Seconds by which a look is late at least: a machine may be busy.
LATE = 1
#: It goes on while the machine sleeps, where there is such a clock.
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
