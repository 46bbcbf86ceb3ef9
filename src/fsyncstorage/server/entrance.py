"""Which transactions are in a storage at the same time, as far as memory goes.

A transaction is a *guest* here.  A guest has a weight, and the guests inside
share some room.  The others wait outside: their peers take turns, with one
guest each.  No other guest passes the next one, however heavy it is.  A guest
that weighs more than the whole room goes in when nobody else is inside; so if
the room is zero, guests go in one at a time.

No threads, no clock, no I/O here.
"""

from .fairline import FairLine


class Entrance:

    def __init__(self, room):
        self.room = room
        self._inside = {}  # guest -> weight
        self._weight = 0   # of all inside
        self._outside = FairLine()
        self._weights = {}  # of those outside

    def ask(self, guest, weight, peer=None):
        """May it go in now?  If not, `leave` returns it later."""
        if not self._outside and self._has_room(weight):
            self._let_in(guest, weight)
            return True
        self._outside.add(guest, peer)
        self._weights[guest] = weight
        return False

    def leave(self, guest):
        """It is not inside any more, and does not wait; return the guests
        that go in because of that."""
        self._outside.discard(guest)
        self._weights.pop(guest, None)
        self._weight -= self._inside.pop(guest, 0)
        return self._admitted()

    def _admitted(self):
        guests = []
        while self._outside and self._has_room(
                self._weights[self._outside.first()]):
            guest = self._outside.pop()
            self._let_in(guest, self._weights.pop(guest))
            guests.append(guest)
        return guests

    def _has_room(self, weight):
        return not self._inside or self._weight + weight <= self.room

    def _let_in(self, guest, weight):
        self._inside[guest] = weight
        self._weight += weight
