"""The client's cache when its file fails, or a change of it is interrupted.
Goes with `client/cache.py`.

Whatever happens, what can be found in it is true as of its last tid, and what
a process that is killed at that moment leaves is true for ZEO's cache, too.
"""

import contextlib
import errno
import io
import os
import random
import shutil
from unittest import mock

from ZEO.cache import ClientCache
from ZODB.utils import p64

from fsyncstorage.client import cache as module
from fsyncstorage.client.cache import ONE_WRITE
from fsyncstorage.client.cache import Cache

from ..commit.test_interrupts import Interrupter
from ..often import often
from ..support import TestCase
from ..support import oid
from .connected import ConnectedTestCase
from .connected import commit

SIZE = 60_000
DATA = 4 * (0, 5, 100, 100, 300) + (ONE_WRITE,)  # the last one is large


class Disk:
    """The file of a cache; `step` is called before each change of it."""

    def __init__(self, cache, path, step):
        self._step = step
        cache._file.close()
        cache._file = _File(path, step)

    @contextlib.contextmanager
    def __call__(self):
        with mock.patch.object(os, 'pwrite', self._before(os.pwrite)), \
                mock.patch.object(os, 'fsync', self._before(os.fsync)):
            yield

    def _before(self, function):
        def called(*args):
            self._step()
            return function(*args)

        return called


class _File(io.FileIO):

    def __init__(self, path, step):
        super().__init__(path, 'r+')
        self._step = step

    def write(self, data):
        self._step()
        return super().write(data)

    def truncate(self, *args):
        self._step()
        return super().truncate(*args)


class Failing:
    """Steps of a disk: from the n-th one on, so many fail."""

    def __init__(self, at, so_many=1):
        self._at, self._so_many = at, so_many
        self.number = 0

    @property
    def has_failed(self):
        return self.number >= self._at

    def end(self):
        self._so_many = 0

    def __call__(self):
        self.number += 1
        if self._at <= self.number < self._at + self._so_many:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Interrupting(Interrupter):
    """Also at the lines of ZEO's cache."""

    def _is_ours(self, file_name):
        return (super()._is_ours(file_name)
                or file_name.endswith(os.path.join('ZEO', 'cache.py')))


class CacheTestCase(TestCase):

    def setUp(self):
        super().setUp()
        self.copies = 0
        self.cache = None
        self.told = []
        self.addCleanup(self.close)

    def filled(self, seed=1):
        """A cache in which some objects have to go, and what was stored."""
        self.close()
        choice = random.Random(seed)
        cache = self.cache = Cache(self.path('cache'), SIZE)
        self.truth = {}  # oid -> tid -> data
        for tid in range(1, 9):
            self.commit(cache, choice, tid)
        self.assertGreater(len(cache), 40)
        cache.f  # all of it is written
        return cache, choice

    def commit(self, cache, choice, tid):
        updates = [
            (oid(number), choice.randbytes(choice.choice(DATA)), False)
            for number in choice.sample(range(60), 40)]
        for each, data, _ in updates:
            self.truth.setdefault(each, {})[p64(tid)] = data
        cache.committed(p64(tid), updates, self.told.append)

    def check(self, cache):
        """What is in it is true, as of its last tid or later."""
        found = 0
        for each in list(cache.current):
            here = cache.load(each)
            if here is None:
                continue  # another one was moved to its place
            data, tid = here
            self.assertEqual(data, self.truth[each][tid])
            self.assertFalse(
                [later for later in self.truth[each]
                 if tid < later <= cache.getLastTid()], (each, tid))
            found += 1
        return found

    def check_file(self):
        """What would be there if the process were killed now."""
        self.copies += 1
        path = self.path(f'copy {self.copies}')
        shutil.copy(self.path('cache'), path)
        with contextlib.closing(
                ClientCache(path, SIZE, rearrange=2)) as theirs:
            found = self.check(theirs)
        os.remove(path)
        return found

    def close(self):
        if self.cache is not None:
            self.cache.close()
            os.remove(self.path('cache'))
            self.cache = None


CHANGES = {
    'a commit': lambda test, cache, choice: test.commit(cache, choice, 9),
    'an invalidation': lambda test, cache, choice: (
        test.truth[oid(1)].setdefault(p64(9), b'of another client'),
        cache.invalidate(oid(1), p64(9)), cache.setLastTid(p64(9))),
    'invalidations': lambda test, cache, choice: (
        [test.truth[each].setdefault(p64(9), b'of another client')
         for each in sorted(test.truth)[::2]],
        cache.invalidate_all(sorted(test.truth)[::2], p64(9)),
        cache.setLastTid(p64(9))),
    'an answer that is large': lambda test, cache, choice: (
        test.truth.setdefault(oid(99), {}).setdefault(
            p64(8), b'9' * 2 * ONE_WRITE),
        cache._add(oid(99), p64(8), b'9' * 2 * ONE_WRITE)),
    'emptying': lambda test, cache, choice: cache.begin_anew(p64(9)),
}


class Faults(CacheTestCase):

    level = 2

    def each_change(self, so_many, check):
        for name, change in CHANGES.items():
            at = 0
            while True:
                at += 1
                with self.subTest(name, at=at):
                    cache, choice = self.filled()
                    failing = Failing(at, so_many)
                    with Disk(cache, self.path('cache'), failing)(), \
                            self.assertNoLogs('ZEO', 'CRITICAL'):
                        change(self, cache, choice)
                    has_failed = failing.has_failed
                    failing.end()
                    check(name, cache, choice)
                if not has_failed:
                    self.assertGreater(at, 1)
                    break

    def check_goes_on(self, so_many):
        with self.assertLogs(module.logger, 'WARNING') as logged:
            self.each_change(so_many, self.check_one)
        return ''.join(logged.output)

    def check_one(self, name, cache, choice):
        self.check(cache)
        last = 8 if name == 'an answer that is large' else 9
        self.assertEqual(cache.getLastTid(), p64(last))
        self.check_file()
        for tid in 10, 11:
            self.commit(cache, choice, tid)
            self.assertEqual(self.told[-1], p64(tid))
            self.assertEqual(cache.getLastTid(), p64(tid))
        found = self.check(cache)
        self.assertEqual(found == 0, isinstance(cache._file, io.BytesIO))

    def test_a_write_that_fails(self):
        """The cache is emptied, and used on; nothing is raised."""
        self.assertIn('the cache is cleared', self.check_goes_on(1))

    def test_emptying_fails_behind_it(self):
        """Nothing is kept, and nothing is raised."""
        said = self.check_goes_on(1_000)
        self.assertIn('nothing is cached until', said)
        self.assertNotIn('cannot be emptied: OSError', said)  # but its words

    def test_a_write_of_a_part(self):
        """Of the headers that are changed together."""
        cache, choice = self.filled()
        write = os.pwrite
        with mock.patch.object(
                os, 'pwrite', lambda descriptor, data, position: write(
                    descriptor, data[:-1], position)), self.assertLogs(
                module.logger, 'WARNING') as logged:
            CHANGES['invalidations'](self, cache, choice)
        self.assertIn('not all of it was written', logged.output[0])
        self.assertEqual(len(cache), 0)
        self.check_file()

    def test_the_last_tid_survives_that_the_cache_is_emptied(self):
        """ZEO would read it from the file, where it is not yet."""
        cache, choice = self.filled()
        cache._add(oid(99), p64(8), b'not written yet')
        with mock.patch.object(os, 'pwrite', side_effect=OSError), \
                self.assertLogs(module.logger, 'WARNING'):
            cache.setLastTid(p64(9))
        self.assertEqual(cache.getLastTid(), p64(9))

    def test_what_is_stored_behind_it_does_not_look_empty(self):
        """Or it would not be verified."""
        cache, choice = self.filled()
        cache._add(oid(99), p64(8), b'not written yet')
        with mock.patch.object(os, 'pwrite', side_effect=OSError), \
                self.assertLogs(module.logger, 'WARNING'):
            cache.store(oid(98), p64(8), None, b'9' * 2 * ONE_WRITE)
        self.assertIn(oid(98), cache.current)
        self.assertTrue(cache)


class Killed(CacheTestCase):

    def test_at_each_write(self):
        for name, change in CHANGES.items():
            with self.subTest(name):
                cache, choice = self.filled()
                found = []
                with Disk(cache, self.path('cache'), self.step(found))():
                    change(self, cache, choice)
                self.assertGreater(len(found), 1)
                self.assertGreater(max(found), 10)

    def step(self, found):
        def copied():
            # (ZEO's cache syncs the copy, which is no step.)
            with mock.patch.object(os, 'fsync'):
                found.append(self.check_file())

        return copied


class Interrupted(CacheTestCase):

    level = 2

    def test_at_many_lines(self):
        """At each of the first ones, and at some of those behind them."""
        for name, change in CHANGES.items():
            at = 0
            while True:
                at += 1 if at < 10 else often(191, 41)
                cache, choice = self.filled()
                interrupter = Interrupting(at)
                with self.subTest(name, at=at):
                    try:
                        with interrupter, mock.patch.object(
                                module.logger, 'warning'):
                            change(self, cache, choice)
                    except KeyboardInterrupt:
                        pass
                    self.check(cache)
                    self.check_file()
                    # As the end of the channel does.
                    cache.begin_anew(p64(9))
                    self.commit(cache, choice, 10)
                    self.check(cache)
                if not interrupter.fired:
                    self.assertGreater(at, 10)
                    break


class Connected(ConnectedTestCase):

    def test_the_cache_cannot_be_emptied_when_the_channel_ends(self):
        """The client connects again, and reads what is there."""
        client = self.connect()
        first = commit(client, {1: b'one'})
        stream = client._server._stream
        stream.is_broken = True
        with mock.patch.object(
                ClientCache, 'clear', side_effect=OSError(
                    errno.EIO, os.strerror(errno.EIO))), self.assertLogs(
                module.logger, 'WARNING'):
            self.cut_off(client)
        self.assertEqual(self.load(client, 1)[0], b'one')
        last = commit(client, {1: b'two'}, first)
        self.assertEqual(self.load(client, 1)[:2], (b'two', last))
        self.assertEqual(client.lastTransaction(), last)
