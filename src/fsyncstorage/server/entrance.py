"""Which transactions are in a storage at the same time, as far as memory goes.

A guest has a weight, and those inside have some room together.  The others
wait outside, in the order in which they came: one that is heavy is not passed
by lighter ones.  A guest that weighs more than there is room goes in when it
is alone; so without any room, there is one at a time.

No threads, no clock, no I/O here.
"""

import collections


class Entrance:

    def __init__(self, room):
        self._room = room
        self._inside = {}  # guest -> weight
        self._weight = 0   # of all inside
        self._outside = collections.OrderedDict()  # guest -> weight

    def ask(self, guest, weight):
        """May it go in now?  Else it is returned by `leave` later."""
        self._outside[guest] = weight
        return bool(self._admitted())

    def leave(self, guest):
        """It is not inside any more, and does not wait; return the guests
        that go in because of that."""
        self._outside.pop(guest, None)
        self._weight -= self._inside.pop(guest, 0)
        return self._admitted()

    def _admitted(self):
        guests = []
        while self._outside:
            guest, weight = next(iter(self._outside.items()))
            if self._inside and self._weight + weight > self._room:
                break
            del self._outside[guest]
            self._inside[guest] = weight
            self._weight += weight
            guests.append(guest)
        return guests
