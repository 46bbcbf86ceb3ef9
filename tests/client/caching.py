"""A server's history, a cache that hears of it, and whether what the cache has
is true."""

import bisect
import random
from typing import NamedTuple

from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64

from ..support import oid

#: Lengths of data; some are larger than what is read at once.
LENGTHS = 1, 5, 30, 100, 100, 300, 300, 5_000


class Found(NamedTuple):
    """What a cache needs of frames.Found."""

    as_of: bytes
    data: bytes
    serial: bytes
    end: bytes | None


class Server:
    """Transactions have the tids 10, 20, ..."""

    def __init__(self, seed, objects=20, lengths=LENGTHS):
        self.choice = random.Random(seed)
        self.oids = [oid(number) for number in range(objects)]
        self.last = 10
        self.data = {}      # (oid, number of the tid) -> data
        self.changes = {}   # oid -> [number of a tid], ascending
        self.loads = []     # that it has answered, but the cache has not heard
        self._lengths = lengths
        self._change(self.oids)

    def _change(self, oids):
        for each in oids:
            self.changes.setdefault(each, []).append(self.last)
            self.data[each, self.last] = self.choice.randbytes(
                self.choice.choice(self._lengths))

    def commit(self, most=10):
        """Return the tid and the oids of a transaction."""
        oids = self.choice.sample(
            self.oids, self.choice.randrange(1, min(most, len(self.oids))))
        self.last += 10
        self._change(oids)
        return p64(self.last), oids

    def revision(self, each, before=maxtid):
        """As of now; None: there was no object."""
        changes = self.changes[each]
        place = bisect.bisect_left(changes, u64(before))
        if not place:
            return None
        serial = changes[place - 1]
        end = p64(changes[place]) if place < len(changes) else None
        return Found(p64(self.last), self.data[each, serial], p64(serial), end)

    def current(self, each, last_tid):
        """The serial as of that tid."""
        changes = self.changes[each]
        return p64(changes[bisect.bisect(changes, u64(last_tid)) - 1])


def connect(cache, server):
    """A cache that was opened again hears of what has come since."""
    server.loads.clear()
    cache.new_generation()
    since = {}
    for each, changes in server.changes.items():
        for tid in changes:
            if p64(tid) > cache.last_tid:
                since.setdefault(p64(tid), []).append(each)
    cache.invalidate(sorted(since.items()))
    cache.set_last_tid(p64(server.last))


def tell(cache, transactions):
    """Others have committed these."""
    cache.invalidate(transactions)
    cache.set_last_tid(transactions[-1][0])


def commit(cache, server, f=lambda tid: None):
    tid, oids = server.commit()
    cache.committed(tid, [
        (each, server.data[each, server.last], False) for each in oids], f)
    return oids


def answer(cache, server, each, before=maxtid):
    """A load is asked and answered."""
    if ask(cache, server, each, before):
        cache.answered(server.loads.pop())


def ask(cache, server, each, before=maxtid):
    """Return whether no thread is asking for it already."""
    load, last_tid = cache.ask(each, before, cache.generation)
    if last_tid is None:
        load.reply = server.revision(each, before)
        server.loads.append(load)
    return last_tid is None


def act(cache, server):
    """Something that happens to a client."""
    choice = server.choice
    what = choice.random()
    if what < 0.3:
        commit(cache, server)
    elif what < 0.5:
        tell(cache, [server.commit() for _ in range(choice.randrange(1, 4))])
    elif what < 0.7:
        answer(cache, server, choice.choice(server.oids))
    elif what < 0.75:
        ask(cache, server, choice.choice(server.oids))
    elif what < 0.8 and server.loads:
        cache.answered(server.loads.pop(choice.randrange(len(server.loads))))
    elif what < 0.9:
        answer(cache, server, choice.choice(server.oids),
               p64(choice.randrange(1, server.last + 10)))
    elif what < 0.99:
        check_one(cache, server, choice.choice(server.oids),
                  p64(choice.randrange(1, server.last + 10)))
    else:
        cache.drop(choice.sample(server.oids, 2))


def check_one(cache, server, each, before):
    """Return what is found: it is true as of the last tid.  (No client asks
    for what may have come later.)"""
    before = min(before, p64(u64(cache.last_tid) + 1))
    found = cache.load_before(each, before)
    if found is None:
        return None
    data, serial, end = found
    there = server.revision(each, before)
    assert (data, serial) == (there.data, there.serial), (each, before)
    if end is None:
        assert serial == server.current(each, cache.last_tid), (each, serial)
    else:
        assert end == there.end, (each, before, end)
    return found


def check(cache, server):
    """All that can be found is true; return how many revisions were found."""
    return len(list(found_in(cache, server)))


def check_opened(cache, server):
    """The same for a cache that was told of nothing: not of an end either."""
    found = list(found_in(cache, server))
    assert all(end is None or end <= cache.last_tid for _, _, end in found)
    return len(found)


def found_in(cache, server):
    for each in server.oids:
        for tid in server.changes[each]:
            found = check_one(cache, server, each, p64(tid + 1))
            if found and found[1] == p64(tid):
                yield found
