"""The file of the client's cache is ZEO's, at every moment."""

import os
import pathlib
import random
from unittest import mock

from ZEO.cache import ZEC_HEADER_SIZE
from ZEO.cache import ClientCache
from ZODB.utils import p64

from fsyncstorage.client.cache import Cache
from fsyncstorage.client.gathered import Gathered

from ..often import often
from ..support import TestCase
from ..support import oid

SIZES = 300, 1_000, 5_000, 20_000
DATA = 0, 1, 5, 30, 100, 300, 4_500


class Both:
    """Our cache and ZEO's: whatever is done is done with both."""

    def __init__(self, path, size):
        self.ours = Cache(path and path + '.ours', size)
        self.theirs = ClientCache(path and path + '.theirs', size)

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

    level = 2

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
        for seed in range(often(12, 100)):
            choice = random.Random(seed)
            both = Both(self.path(str(seed)), choice.choice(SIZES))
            tid = 1
            for _ in range(choice.randrange(300)):
                tid = self.act(both, choice, tid)
                self.assertEqual(content(both.ours), content(both.theirs))
            both.close()

    def change_many(self, both, choice, tid):
        """What a transaction does, here or in another client."""
        numbers = choice.sample(range(60), choice.randrange(1, 40))
        updates = [(oid(number), choice.choice(
            (None, choice.randbytes(choice.choice(DATA)))),
            choice.random() < 0.1) for number in numbers]
        if choice.random() < 0.5:
            both.ours.invalidate_all([oid for oid, _, _ in updates], tid)
            both.ours.setLastTid(tid)
            updates = [(oid, None, False) for oid, _, _ in updates]
        else:
            both.ours.committed(tid, updates, self.told.append)
        for number, data, resolved in updates:
            both.theirs.invalidate(number, tid)
        for number, data, resolved in updates:
            if data and not resolved:
                both.theirs.store(number, tid, None, data)
        both.theirs.setLastTid(tid)

    def test_transactions_as_zeos(self):
        """One by one in ZEO's, at once in ours."""
        self.told = []
        for seed in range(often(8, 20)):
            choice = random.Random(seed)
            # Nothing has to go: it is not the same in both.
            both = Both(self.path(str(seed)), 1 << 20)
            for tid in range(1, choice.randrange(2, 30)):
                self.change_many(both, choice, p64(tid))
                self.assertEqual(content(both.ours), content(both.theirs))
                both.do('loadBefore', oid(choice.randrange(60)),
                        p64(choice.randrange(tid + 2)))
            both.close()
            self.assertEqual(*(
                pathlib.Path(self.path(f'{seed}.{name}')).read_bytes()
                for name in ('ours', 'theirs')))
        self.assertTrue(self.told)

    def test_transactions_in_a_temporary_file(self):
        """What is gathered ends before it is written.  Nobody reads the last
        tid from such a file."""
        self.told, ended = [], 0
        for seed in range(often(5, 20)):
            choice = random.Random(seed)
            both = Both(None, 1 << 20)
            for tid in range(1, choice.randrange(2, 60)):
                with mock.patch.object(
                        Gathered, 'end', autospec=True,
                        side_effect=Gathered.end) as end:
                    self.change_many(both, choice, p64(tid))
                ended += end.call_count
                if choice.random() < 0.2:  # this writes what was gathered
                    self.assertEqual(content(both.ours), content(both.theirs))
                    both.do('loadBefore', oid(choice.randrange(60)),
                            p64(choice.randrange(tid + 2)))
            self.assertEqual(*map(self.records_of, (both.ours, both.theirs)))
            both.close()
        self.assertTrue(ended)

    def records_of(self, cache):
        """All of its file but for the last tid."""
        cache.f.flush()
        size = os.fstat(cache.f.fileno()).st_size
        return os.pread(cache.f.fileno(), size, ZEC_HEADER_SIZE)

    def test_transactions_of_others_together(self):
        """As ZEO's, one after the other: each object ends at its own tid."""
        for seed in range(often(8, 20)):
            choice = random.Random(seed)
            both = Both(self.path(str(seed)), 1 << 20)
            for number in choice.sample(range(60), 40):
                both.add(False, oid(number), p64(1), b'%d' % number)
            changes = [
                (p64(tid), [oid(number) for number in choice.sample(
                    range(60), choice.randrange(9))])
                for tid in range(2, 30)]
            if seed % 2:
                both.ours.f  # all of it is written
            with mock.patch.object(os, 'pwrite', side_effect=os.pwrite) as end:
                both.ours.invalidate_each(changes)
            if seed % 2:
                end.assert_called_once()  # side by side
            both.ours.setLastTid(p64(29))
            for tid, oids in changes:
                for each in oids:
                    both.theirs.invalidate(each, tid)
                both.theirs.setLastTid(tid)
            self.assertEqual(content(both.ours), content(both.theirs))
            self.assertTrue(both.ours.noncurrent)
            both.close()
            self.assertEqual(*(
                pathlib.Path(self.path(f'{seed}.{name}')).read_bytes()
                for name in ('ours', 'theirs')))

    def test_transactions_in_a_small_cache(self):
        """Some of it is there, and nothing else, also for a stock client."""
        for seed in range(often(8, 40)):
            choice = random.Random(seed)
            path = self.path(str(seed))
            cache = Cache(path, choice.choice((2_000, 20_000, 60_000)))
            current, found = {}, 0
            for tid in range(1, 40):
                numbers = choice.sample(range(60), choice.randrange(1, 40))
                updates = [
                    (oid(number), choice.randbytes(choice.choice(DATA)), False)
                    for number in numbers]
                cache.committed(p64(tid), updates, lambda tid: None)
                current.update(
                    {oid: (data, p64(tid)) for oid, data, _ in updates})
                for each in list(cache.current):
                    here = cache.load(each)
                    if here:  # else another one was moved to its place
                        found += 1
                        self.assertEqual(here, current[each])
            self.assertGreater(found, 100)
            cache.close()
            theirs = ClientCache(path, cache.maxsize, rearrange=2)
            for each in list(theirs.current):
                self.assertEqual(theirs.load(each), current[each])
            theirs.close()

    def test_a_damaged_file_is_given_up(self):
        """Without an error: the invalidation has to be processed."""
        for name in 'another oid', 'short':
            with self.subTest(name):
                cache = Cache(self.path(name), 10_000)
                cache.setLastTid(p64(1))
                cache._add(oid(1), p64(1), b'one')
                cache._add(oid(2), p64(1), b'two')
                position = cache.current[oid(2)]
                with open(cache.f.fileno(), 'r+b', 0, closefd=False) as file:
                    if name == 'short':
                        file.truncate(position + 20)
                    else:
                        file.seek(position + 5)
                        file.write(b'another.')
                with self.assertLogs('fsyncstorage', 'WARNING') as logged:
                    cache.invalidate_all([oid(1), oid(2), oid(3)], p64(2))
                self.assertIn('the cache is cleared', logged.output[0])
                self.assertEqual(len(cache), 0)
                cache.setLastTid(p64(2))
                cache.close()

    def test_a_last_tid_that_is_none(self):
        """Of a server that sends anything: the file stays as it is."""
        cache = Cache(self.path('cache'), 10_000)
        cache._add(oid(1), p64(1), b'one')
        cache.setLastTid(p64(1))
        before, path = cache.tid, pathlib.Path(cache.path)
        file = path.read_bytes()
        for wrong in b'\xff', b'\xff' * 7, b'\xff' * 9, b'\xff' * 100, 'text':
            with self.subTest(wrong):
                with self.assertRaises((ValueError, TypeError)):
                    cache.setLastTid(wrong)
                self.assertTrue(path.read_bytes() == file)
                self.assertEqual(cache.tid, before)
        cache.close()
