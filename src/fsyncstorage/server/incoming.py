"""Frames that have begun: memory for long ones, and time for each.

A frame is kept in memory until all of it has arrived.  A client that has
registered may send long frames, but all unfinished frames above `LONG` share
`ROOM` bytes.  For a frame that finds no room, the connection is not read until
its turn comes; a frame that is alone may be longer than `ROOM`.  A peer keeps
its room for `ROOM_SECONDS` seconds, and longer only while no other peer waits.
That is shorter than a client of ours lets a server be silent: one that waits
cannot get a sign of life, since its pings are not read.

A frame must be complete within `PER_FRAME` seconds; it gets the same time
again whenever `PROGRESS` bytes have arrived in that time.
"""

from .fairline import FairLine

LONG = 1 << 16
ROOM = 256 << 20
ROOM_SECONDS = 20

PER_FRAME = 10
PROGRESS = 1 << 16


class Room:
    """The memory for the long frames of a server."""

    def __init__(self, loop):
        self._loop = loop
        self._line = FairLine(ROOM)
        self._since = {}   # peer -> when it got room; the oldest first
        self._timer = None

    def ask(self, peer, length):
        """Is there room?  Else `peer.go_on()` will be called when there is.

        A peer asks for one frame at a time, and may ask again.
        """
        if peer in self._since:
            return True
        if peer in self._line.waiting or not self._line.come(
                peer, peer, length):
            self._watch_the_oldest()
            return False
        self._since[peer] = self._loop.time()
        return True

    def give_back(self, peer):
        """Give room back, or stop waiting.  May be called repeatedly."""
        self._since.pop(peer, None)
        for admitted in self._line.leave(peer):
            self._since[admitted] = self._loop.time()
            self._loop.call_soon(admitted.go_on)
        self._watch_the_oldest()

    def _watch_the_oldest(self):
        """While others wait, one after the other has its time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line.waiting:
            oldest, since = next(iter(self._since.items()))
            self._timer = self._loop.call_at(
                since + ROOM_SECONDS, self._end_turn, oldest)

    def _end_turn(self, oldest):
        oldest.cut_short()
        self.give_back(oldest)


class Patience:
    """The time for a frame of one peer: `end` is called if it runs out."""

    def __init__(self, loop, end):
        self._loop = loop
        self._end = end
        #: None: no frame has begun.
        self.timer = None
        self._came = 0

    def came(self, size):
        """This many bytes have arrived, of a frame that is not complete."""
        self._came += size
        if self.timer is None:
            self.timer = self._loop.call_later(PER_FRAME, self._look)

    def _look(self):
        self.timer = None
        if self._came < PROGRESS:
            self._end()
        else:
            self._came = 0
            self.came(0)

    def over(self):
        """The frame is complete, or we do not read: stop the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._came = 0
