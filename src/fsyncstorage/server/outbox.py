"""The order in which messages leave a connection.

A stock client keeps what it loaded in a cache, and takes it for current until
an invalidation arrives.  So for each connection (I-C, the contract):

- If a load was begun before a transaction was announced, its answer leaves
  before the invalidation; else the client would keep the old state for good.
- Nothing else overtakes anything.

Announcements that are made while a load is unanswered are held until it is
answered.  A load that begins while something is held is answered after that.

No I/O, no threads: the loop calls, and `write` takes the bytes.
"""

import collections


class _Place:
    """A place in the line, for an answer that is still to come."""

    __slots__ = ('answer',)

    def __init__(self):
        self.answer = None


class Outbox:

    #: Called when nothing is held any more.
    emptied = staticmethod(lambda: None)

    def __init__(self, write, write_later, account):
        self._write = write
        self._write_later = write_later
        self._account = account
        self._line = collections.deque()
        #: Loads that were begun when nothing was held.
        self._free_loads = 0

    def __len__(self):
        return len(self._line)

    def send(self, message):
        """Send a message that changes nothing in a cache."""
        if self._line:
            self._hold(message)
        else:
            self._write(message)

    def _hold(self, message):
        self._line.append(message)
        self._account.keep_back(message)

    def announce(self, message, at_once=True):
        """Send invalidations, or the outcome of the client's own commit."""
        if self._line or self._free_loads:
            self._hold(message)
        elif at_once:
            self._write(message)
        else:
            self._write_later(message)

    def begin_load(self):
        """Return the `place` for `finish_load`."""
        if self._line:
            return self.reserve()
        self._free_loads += 1
        return None

    def finish_load(self, place, message):
        if place is None:
            self._write(message)
            self._free_loads -= 1
            self._flush()
        else:
            self.fill(place, message)

    def reserve(self):
        """Return a place in the line, after all that is held now."""
        place = _Place()
        self._line.append(place)
        return place

    def fill(self, place, message):
        place.answer = message
        self._account.keep_back(message)
        self._flush()

    def _flush(self):
        line = self._line
        while line and not self._free_loads:
            message = line[0]
            if isinstance(message, _Place):
                message = message.answer
                if message is None:
                    break
            line.popleft()
            self._account.let_go(message)
            self._write(message)
            if not line:
                self.emptied()
