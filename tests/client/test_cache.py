"""The client's cache: what it has is true, and what was kept is there.

Also when calls come from several threads, from a fork, or from a finaliser,
and when a server sends anything.
"""

import contextlib
import os
from unittest import mock

from hypothesis import strategies as st
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.client import cache as module
from fsyncstorage.client.cache import Cache

from ..commit.test_interrupts import Interrupter
from ..generated import given
from ..generated import settings
from ..often import often
from ..support import TestCase
from ..support import Thread
from ..support import oid
from . import caching
from .caching import Found
from .caching import Server

#: The smallest, and one for all that is put there.
SMALL, LARGE = 0, 10 << 20


class CacheTestCase(TestCase):

    def make(self, name='cache', size=LARGE):
        cache = Cache(name and self.path(name), size)
        self.addCleanup(cache.close)
        return cache

    def opened_again(self, cache):
        cache.close()
        return self.make(os.path.basename(cache.path), cache.size)


class Histories(CacheTestCase):

    level = 2

    def run(self, result=None):
        """The file is never found to be damaged."""
        with self.assertNoLogs('fsyncstorage.client', 'WARNING'):
            return super().run(result)

    @settings(max_examples=often(40, 400))
    @given(seed=st.integers(0, 1 << 32), size=st.sampled_from((SMALL, LARGE)),
           steps=st.integers(1, 300), named=st.booleans())
    def test_what_is_found_is_true(self, seed, size, steps, named):
        server = Server(seed)
        with contextlib.ExitStack() as stack:
            path = self.path('cache') if named else None
            cache = Cache(path, size)
            stack.callback(lambda: cache.close())
            cache.set_last_tid(p64(server.last))
            for _ in range(steps):
                caching.act(cache, server)
                if named and server.choice.random() < 0.03:
                    before = cache.last_tid, caching.check(cache, server)
                    cache.close()
                    cache = Cache(path, size)
                    if size == LARGE:
                        self.assertEqual(before, (
                            cache.last_tid, caching.check(cache, server)))
                    caching.connect(cache, server)
            caching.check(cache, server)
        if named:
            os.remove(path)

    def test_rounds(self):
        """Those that are read stay, and the others go, in order."""
        server = Server(1, objects=2000, lengths=(1, 50, 300))
        cache = self.make(size=100_000)
        cache.set_last_tid(p64(server.last))
        read = server.oids[0]
        caching.answer(cache, server, read)
        for _ in range(often(20, 200)):
            for each in server.oids[1:]:
                caching.answer(cache, server, each)
                self.assertTrue(caching.check_one(cache, server, each, maxtid))
                self.assertTrue(cache.load_before(read, maxtid))
            self.assertGreater(len(cache), 200)
            self.assertFalse(cache.load_before(server.oids[1], maxtid))
            tid = p64(server.last)
            server.last += 10
            server._change(server.oids[1:])
            caching.tell(cache, [(p64(server.last), server.oids[1:])])
            self.assertGreater(cache.last_tid, tid)
        _, evictions, used = cache.stats()
        self.assertGreater(evictions, 10_000)
        self.assertLessEqual(used, 100_000 * 9 // 8)  # with what is in memory
        self.assertLessEqual(os.path.getsize(cache.path), 100_000)
        found = caching.check(cache, server)
        self.assertGreater(
            caching.check(self.opened_again(cache), server), 0.8 * found)

    def test_nothing_is_kept_for_rounds(self):
        """What was kept before, if anything was, is overwritten by what is
        told."""
        for kept in 0, 2:
            server = Server(6)
            cache = self.make(f'{kept}', SMALL)
            cache.set_last_tid(p64(server.last))
            for each in server.oids[:kept]:
                caching.answer(cache, server, each, p64(server.last + 1))
            while cache._file.begin < 5_000:
                cache.set_last_tid(p64(server.last))
                server.last += 10
            caching.check(cache, server)
            self.assertEqual(len(cache), 0)
            self.assertTrue(caching.commit(cache, server))
            self.assertGreater(caching.check(cache, server), 0)

    def test_large_objects(self):
        """Up to an eighth of the file."""
        cache = self.make(size=1 << 20)
        cache.set_last_tid(p64(1))
        for number in range(100):
            for length in 100_000, 131_000:
                cache.committed(p64(number + 2), [
                    (oid(number), b'%d' % number * 100_000, False),
                    ], lambda tid: None)
        self.assertFalse(cache.load_before(oid(99), maxtid))
        cache.committed(p64(200), [
            (oid(1), bytes(130_900), False), (oid(2), b'x', False),
            (oid(3), bytes(131_050), False)], lambda tid: None)
        self.assertEqual(
            cache.load_before(oid(1), maxtid),
            (bytes(130_900), p64(200), None))
        self.assertTrue(cache.load_before(oid(2), maxtid))
        self.assertFalse(cache.load_before(oid(3), maxtid))

    def test_many_oids(self):
        """More than an ENDED has room for, or a segment."""
        for size, objects in (LARGE, 3_000), (SMALL, 600):
            server = Server(3, objects=objects, lengths=(1,))
            cache = self.make(f'{size}', size)
            cache.set_last_tid(p64(server.last))
            for each in server.oids:
                caching.answer(cache, server, each)
            server.last += 10
            server._change(server.oids)
            caching.tell(cache, [(p64(server.last), server.oids)])
            self.assertEqual(caching.check(cache, server), objects)
            self.assertEqual(
                caching.check(self.opened_again(cache), server), objects)


class Commits(CacheTestCase):

    def test_what_is_kept(self):
        """Not what the server resolved, and what was undone."""
        cache = self.make()
        cache.committed(p64(1), [
            (oid(1), b'one', False), (oid(2), b'two', True),
            (oid(3), None, False)], lambda tid: None)
        self.assertEqual(
            [cache.load_before(oid(number), maxtid) for number in (1, 2, 3)],
            [(b'one', p64(1), None), None, None])
        self.assertEqual(cache.load_before(oid(1), p64(1)), None)
        cache.committed(
            p64(2), [(oid(1), None, True)], lambda tid: None)
        self.assertEqual(cache.load_before(oid(1), maxtid), None)
        self.assertEqual(
            cache.load_before(oid(1), p64(2)), (b'one', p64(1), p64(2)))
        self.assertEqual(cache.stats()[:2], (2, 0))

    def test_others_see_the_tid_when_f_was_called(self):
        cache = self.make()
        seen = []

        def f(tid):
            seen.append(tid)
            seen.append(Thread(lambda: seen.append(cache.last_tid)))
            self.assertTrue(seen[1].is_alive())

        cache.committed(p64(5), [], f)
        seen.pop(1).join()
        self.assertEqual(seen, [p64(5), p64(5)])

    def test_an_invalidation_of_the_same_transaction(self):
        """Nothing is found that ended where it began."""
        for order in (5, 4), (4, 5):
            cache = self.make(None)
            cache.committed(p64(3), [(oid(1), b'a', False)], lambda tid: None)
            cache.committed(p64(5), [(oid(1), b'b', False)], lambda tid: None)
            for tid in order:
                cache.invalidate([(p64(tid), [oid(1)])])
            for before in range(8):
                found = cache.load_before(oid(1), p64(before))
                self.assertIn(found, (None, (b'a', p64(3), p64(5))))
            self.assertTrue(cache.load_before(oid(1), p64(5)))


class Tids(CacheTestCase):

    def test_a_tid_that_is_none(self):
        """Of a server that sends anything: nothing changes."""
        cache = self.make()
        cache.committed(p64(1), [(oid(1), b'x', False)], lambda tid: None)
        for wrong in b'\xff', b'\xff' * 7, b'\xff' * 9, b'', 'textlike':
            for method in cache.set_last_tid, cache.begin_anew, (
                    lambda tid: cache.committed(tid, [], self.fail)):
                with self.subTest(wrong), self.assertRaises(ValueError):
                    method(wrong)
        self.assertEqual(cache.last_tid, p64(1))
        self.assertEqual(len(self.opened_again(cache)), 1)

    def test_it_does_not_go_back(self):
        cache = self.make()
        cache.set_last_tid(p64(5))
        cache.set_last_tid(p64(5))
        for method in cache.set_last_tid, (
                lambda tid: cache.committed(tid, [], self.fail)):
            self.assertRaises(ValueError, method, p64(4))
        self.assertEqual(cache.last_tid, p64(5))

    def test_oids_that_are_none(self):
        cache = self.make()
        for wrong in b'', b'1234567', b'123456789':
            with self.assertLogs(module.logger, 'WARNING') as logged, \
                    self.assertRaises((TypeError, ValueError)):
                cache.committed(p64(1), [
                    (oid(1), b'x', False), (wrong, b'x', False)],
                    lambda tid: None)
            self.assertIn('the cache is cleared', logged.output[0])
            self.assertEqual(len(cache), 0)

    def test_it_begins_anew(self):
        """At an earlier tid."""
        cache = self.make()
        cache.committed(p64(5), [(oid(1), b'x', False)], lambda tid: None)
        load, _ = cache.ask(oid(2), maxtid, cache.generation)
        cache.begin_anew(p64(3))
        load.reply = Found(p64(5), b'y', p64(3), None)
        cache.answered(load)
        self.assertEqual((cache.last_tid, len(cache)), (p64(3), 0))
        cache = self.opened_again(cache)
        self.assertEqual((cache.last_tid, len(cache)), (p64(3), 0))
        cache.begin_anew(z64)
        self.assertFalse(cache)


class Interrupted(CacheTestCase):

    level = 2

    def filled(self, name):
        server = Server(4, lengths=(1, 100, 300))
        cache = self.make(name, SMALL)
        cache.set_last_tid(p64(server.last))
        for _ in range(50):
            caching.act(cache, server)
        return server, cache

    def test_at_many_lines(self):
        """What is there is true, and it can be used on."""
        changes = {
            'commit': caching.commit,
            'tell': lambda cache, server: caching.tell(
                cache, [server.commit(), server.commit()]),
            'answer': lambda cache, server: [
                caching.answer(cache, server, each) for each in server.oids],
            'read': caching.check,
            'drop': lambda cache, server: cache.drop(server.oids),
            'begin anew': lambda cache, server: cache.begin_anew(
                p64(server.last)),
        }
        for name, change in changes.items():
            at, fired = 0, True
            while fired:
                at += often(7, 1) if at < 200 else often(151, 7)
                fired = self.interrupted(f'{name} {at}', change, at)

    def interrupted(self, name, change, at):
        server, cache = self.filled(name)
        interrupter = Interrupter(at)
        with mock.patch.object(module.logger, 'warning'):
            with contextlib.suppress(KeyboardInterrupt), interrupter:
                change(cache, server)
        caching.check(cache, server)
        caching.connect(cache, server)
        caching.commit(cache, server)
        self.assertGreater(caching.check(cache, server), 0)
        cache = self.opened_again(cache)
        self.assertGreater(caching.check(cache, server), 0)
        cache.close()
        return interrupter.fired

    def test_a_finaliser_uses_it_meanwhile(self):
        """In the same thread, between any two lines of a change."""
        changes = {
            'commit': caching.commit,
            'answer': lambda cache, server: [
                caching.answer(cache, server, each) for each in server.oids],
        }
        for name, change in changes.items():
            at, fired = 0, True
            while fired:
                at += often(5, 1)
                server, cache = self.filled(f'{name} {at}')
                inner = Finaliser(at, cache, server)
                with mock.patch.object(module.logger, 'warning'), inner:
                    change(cache, server)
                self.assertEqual(cache.last_tid, p64(server.last))
                caching.check(cache, server)
                cache = self.opened_again(cache)
                caching.check(cache, server)
                cache.close()
                fired = inner.fired


class Finaliser(Interrupter):
    """Commits of others are told in the place of an interrupt, while the file
    is written."""

    def __init__(self, at, cache, server):
        super().__init__(at)
        self._act = lambda: caching.tell(cache, [server.commit()])

    def _is_ours(self, file_name):
        return file_name.endswith('cachefile.py')

    def _trace(self, frame, event, arg):
        try:
            return super()._trace(frame, event, arg)
        except KeyboardInterrupt:
            self._act()
            return self._trace
