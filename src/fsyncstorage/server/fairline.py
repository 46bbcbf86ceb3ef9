"""A queue in front of some room, in which peers take turns.

What is inside shares the room by its weight; what weighs more than all of it
goes in when nothing else is inside.  So if the room is zero, one goes in at a
time.  The others wait.  Those of each peer keep the order in which they came:
a peer that has many delays the others by one at a time.  Those that came
`ahead` are before all of these.  Nothing passes the next one, however heavy
that is.

No threads, no clock, no I/O here.
"""

import collections


class FairLine:

    def __init__(self, size):
        self.size = size
        self._taken = 0
        self._inside = {}   # thing -> weight
        self.waiting = {}   # thing -> peer and weight
        self._ahead = {}    # those things, in order
        #: peer -> its things; the peer that has the next turn is first.
        self._lines = collections.OrderedDict()

    def come(self, thing, peer, weight=1, ahead=False):
        """May it go in now?  If not, `leave` returns it later."""
        if not self.waiting and (
                not self._inside or self._taken + weight <= self.size):
            self._inside[thing] = weight
            self._taken += weight
            return True
        self.waiting[thing] = peer, weight
        line = self._ahead if ahead else self._lines.setdefault(peer, {})
        line[thing] = None
        return False

    def leave(self, thing):
        """It is not inside any more, and does not wait; return those that go
        in because of that."""
        self._taken -= self._inside.pop(thing, 0)
        if thing in self.waiting:
            self._take_out(thing)
        admitted = []
        while self.waiting:
            line = self._ahead or next(iter(self._lines.values()))
            thing = next(iter(line))
            peer, weight = self.waiting[thing]
            if self._inside and self._taken + weight > self.size:
                break
            self._take_out(thing)
            if line is not self._ahead and line:
                self._lines.move_to_end(peer)
            self._inside[thing] = weight
            self._taken += weight
            admitted.append(thing)
        return admitted

    def _take_out(self, thing):
        peer, _ = self.waiting.pop(thing)
        if thing in self._ahead:
            del self._ahead[thing]
            return
        del self._lines[peer][thing]
        if not self._lines[peer]:
            del self._lines[peer]

    def clear(self):
        """Nothing waits any more."""
        self.waiting.clear()
        self._ahead.clear()
        self._lines.clear()
