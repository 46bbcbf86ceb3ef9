"""A queue in which peers take turns.

The entries of each peer keep the order in which they were added.  A peer that
has many entries delays the others by one entry at a time.  Entries that were
added `ahead` are before all of these.

No threads, no clock, no I/O here.
"""

import collections


class FairLine:

    def __init__(self, most=0):
        #: For the owner: how many entries may be under way, and how many are.
        self.most, self.under_way = most, 0
        self._ahead = collections.OrderedDict()
        #: peer -> its entries; the peer that has the next turn is first.
        self._lines = collections.OrderedDict()
        self._peers = {}  # entry -> peer

    def __len__(self):
        return len(self._ahead) + len(self._peers)

    def __contains__(self, thing):
        return thing in self._ahead or thing in self._peers

    def add(self, thing, peer):
        self._peers[thing] = peer
        self._lines.setdefault(
            peer, collections.OrderedDict())[thing] = None

    def add_ahead(self, thing):
        self._ahead[thing] = None

    def first(self):
        """The next entry, which stays in the queue."""
        line = self._ahead or next(iter(self._lines.values()))
        return next(iter(line))

    def pop(self):
        """Remove and return the next entry; its peer goes to the end."""
        thing = self.first()
        peer = self._peers.get(thing)
        ahead = thing in self._ahead
        self.discard(thing)
        if not ahead and peer in self._lines:
            self._lines.move_to_end(peer)
        return thing

    def discard(self, thing):
        self._ahead.pop(thing, None)
        if thing in self._peers:
            peer = self._peers.pop(thing)
            del self._lines[peer][thing]
            if not self._lines[peer]:
                del self._lines[peer]

    def clear(self):
        self._ahead.clear()
        self._lines.clear()
        self._peers.clear()
