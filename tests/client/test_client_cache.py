"""The file of the client's cache is ZEO's, at every moment."""

import random
import shutil

from ZEO.cache import ClientCache
from ZEO.cache import allocated_record_overhead
from ZODB.utils import p64

from fsyncstorage.client.cache import ONE_WRITE
from fsyncstorage.client.cache import Cache

from ..support import TestCase
from ..support import oid

SIZES = 300, 1_000, 5_000, 20_000
DATA = 0, 1, 5, 30, 100, 300, 4_500


class Both:
    """Our cache and ZEO's: whatever is done is done with both."""

    def __init__(self, path, size):
        self.ours = Cache(path + '.ours', size)
        self.theirs = ClientCache(path + '.theirs', size)

    def do(self, name, *args):
        found = [getattr(each, name)(*args)
                 for each in (self.ours, self.theirs)]
        assert found[0] == found[1], (name, args, found)

    def add(self, as_answer, oid, tid, data):
        """As the answer to a load, or as what was committed."""
        if as_answer:
            self.ours._add(oid, tid, data)
        else:
            self.ours.store(oid, tid, None, data)
        self.theirs.store(oid, tid, None, data)

    def close(self):
        self.do('close')


def content(cache):
    return (dict(cache.contents()), len(cache), cache.currentofs,
            {oid: dict(tids) for oid, tids in cache.noncurrent.items()})


class Same(TestCase):

    def act(self, both, choice, tid):
        """One thing that a client does; the last tid after it."""
        number = oid(choice.randrange(20))
        what = choice.random()
        if what < 0.5:
            if number not in both.ours.current:
                both.add(choice.random() < 0.5, number, p64(tid + 1),
                         choice.randbytes(choice.choice(DATA)))
        elif what < 0.6:
            both.do('store', number, p64(tid + 1), p64(tid + 2),
                    choice.randbytes(choice.randrange(60)))
        elif what < 0.8:
            both.do('invalidate', number,
                    p64(tid + 1) if choice.random() < 0.8 else None)
        elif what < 0.83:
            both.do('clear')
        elif what < 0.9:
            both.do('setLastTid', p64(tid + 2))
        else:
            both.do('loadBefore', number, p64(choice.randrange(tid + 2)))
        return tid + 2

    def test_as_zeos(self):
        for seed in range(100):
            choice = random.Random(seed)
            both = Both(self.path(str(seed)), choice.choice(SIZES))
            tid = 1
            for _ in range(choice.randrange(300)):
                tid = self.act(both, choice, tid)
                self.assertEqual(content(both.ours), content(both.theirs))
            both.close()

    def test_what_was_read_is_written_over(self):
        """The same object, as large as it was, comes to lie where it was."""
        for size in 100, 2 * ONE_WRITE:  # written together, and in ZEO's way
            cache = Cache(self.path(f'cache {size}'), size + size // 2)
            for tid in range(1, 10):
                data = bytes([tid]) * (size - allocated_record_overhead)
                cache.store(oid(0), p64(tid), None, data)
                self.assertTrue(cache.loadBefore(oid(0), p64(tid + 1))
                                == (data, p64(tid), None))
                cache.invalidate(oid(0), None)
            cache.close()

    def test_what_a_killed_process_leaves(self):
        """ZEO's own cache opens it, with what was there; all but the last."""
        choice = random.Random(1)
        cache = Cache(self.path('cache'), 100_000)
        cache.setLastTid(p64(1))
        stored = {}
        for number in range(900):
            data = choice.randbytes(choice.choice(DATA))
            stored[oid(number)] = data, p64(1), None
            cache._add(oid(number), p64(1), data)
            if number % 7 == 0:
                found = self.left_of(cache)
                for key, value in found.items():
                    self.assertEqual(value, stored[key])
        self.assertGreater(len(found), len(cache) / 2)
        cache.close()

    def left_of(self, cache):
        shutil.copy(self.path('cache'), self.path('copy'))
        # (Without the moving forward of what is read, at the cost of others.)
        copy = ClientCache(self.path('copy'), cache.maxsize, rearrange=2)
        found = {oid: copy.loadBefore(oid, p64(2))
                 for oid in list(copy.current)}
        copy.close()
        return found

    def test_a_file_of_zeos(self):
        theirs = ClientCache(self.path('cache'), 5_000)
        theirs.store(oid(1), p64(1), None, b'one')
        theirs.close()
        ours = Cache(self.path('cache'), 5_000)
        self.assertEqual(ours.loadBefore(oid(1), p64(9)),
                         (b'one', p64(1), None))
        ours.close()
