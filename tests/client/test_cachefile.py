"""The file of the client's cache: killed or cut off at any moment, damaged,
hostile, locked, on a disk that fails.

Whatever is in the file: what a cache finds there is true as of the last tid
that it finds there.
"""

import contextlib
import errno
import os
import pathlib
import random
import warnings
from unittest import mock

from zc.lockfile import LockError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.client import cachefile
from fsyncstorage.client.cache import UNTOLD
from fsyncstorage.client.cache import Cache
from fsyncstorage.client.cachefile import CacheFile

from ..crash.harness import events
from ..crash.harness import powercut
from ..crash.harness import tearing
from ..often import often
from ..support import TestCase
from ..support import in_a_child
from ..support import name_of_error
from ..support import oid
from . import caching
from .caching import Found
from .caching import Server

#: Some rounds of a ring in which each segment has a page.
SMALL = 0
LOGGER = 'fsyncstorage.client'


class FileTestCase(TestCase):

    def make(self, name='cache', size=SMALL):
        cache = Cache(self.path(name), size)
        self.addCleanup(cache.close)
        return cache

    def filled(self, seed=1, steps=60, name='cache'):
        server = Server(seed, lengths=(1, 30, 100, 300))
        cache = self.make(name)
        cache.set_last_tid(p64(server.last))
        for _ in range(steps):
            caching.act(cache, server)
        return server, cache

    def check_content(self, server, content):
        """What a cache finds there; return how much, and the last tid."""
        path = pathlib.Path(self.path('copy'))
        path.write_bytes(content)
        # (What is written into the copy is no matter.)
        with contextlib.closing(Cache(str(path), SMALL)) as copy:
            return caching.check_opened(copy, server), copy.last_tid


def cache_end(path):
    """The position behind the last record of a cache that is closed."""
    with contextlib.closing(Cache(path, SMALL)) as cache:
        return cache._file.end


@contextlib.contextmanager
def recorded():
    """The changes of the only file that is used meanwhile."""
    changes = []
    write, truncate, sync = os.pwrite, os.ftruncate, os.fsync

    def pwrite(descriptor, data, position):
        changes.append(events.Wrote(0, position, bytes(data)))
        return write(descriptor, data, position)

    def ftruncate(descriptor, size):
        changes.append(events.Truncated(0, size))
        truncate(descriptor, size)

    def fsync(descriptor):
        sync(descriptor)
        changes.append(events.Synced(0, len(changes)))

    with mock.patch.multiple(
            os, pwrite=pwrite, ftruncate=ftruncate, fsync=fsync):
        yield changes


class Cut(FileTestCase):

    level = 2

    def log_of(self, seed):
        """A server, and the file with what a cache did to it."""
        file = powercut.File()
        with recorded() as changes:
            server, cache = self.filled(seed, 100, f'{seed}')
            if seed % 2:
                # A second opening goes on in the same segment.
                cache.close()
                cache = self.make(f'{seed}')
                caching.connect(cache, server)
                for _ in range(50):
                    caching.act(cache, server)
            if seed % 3 == 0:
                cache.begin_anew(cache.last_tid)
                for _ in range(20):
                    caching.act(cache, server)
            cache.close()
        for index, change in enumerate(changes):
            if isinstance(change, events.Synced):
                file.synced(index)
            else:
                file.change(index, change)
        self.assertTrue(file.durable)
        return server, file

    def test_killed_at_any_byte(self):
        """Nothing is lost of what was written before the last record."""
        for seed in range(often(2, 4)):
            server, file = self.log_of(seed)
            model = tearing.Prefix(file)
            length, = model.options
            found, tids = [], []
            for left in range(0, length, often(331, 23)):
                some, tid = self.check_content(server, model.content([left]))
                found.append(some)
                tids.append(tid)
            self.assertGreater(sum(found) / len(found), 5)
            self.assertGreater(max(tids), p64(500))

    def test_the_power_is_cut(self):
        """Pages are there, or are not, in any order."""
        choice = random.Random(1)
        found = 0
        for seed in range(often(4, 40)):
            server, file = self.log_of(seed)
            for name, model in (tearing.MODELS | tearing.STALE).items():
                torn = model.tear(file)
                for _ in range(often(20, 200)):
                    some, _ = self.check_content(server, torn.content(
                        [self.draw(choice, options)
                         for options in torn.options]))
                    found += some
        self.assertGreater(found, 100)

    def draw(self, choice, options):
        """Mostly the last version is there."""
        return choice.choice((options - 1,) * 9 + (choice.randrange(options),))

    def test_how_far_it_is_behind(self):
        """Without any write of objects, too."""
        cache = self.make()
        server = Server(1)
        for tid in range(10 * UNTOLD):
            cache.set_last_tid(p64(tid))
            if not tid % 100:
                _, found = self.check_content(
                    server, pathlib.Path(cache.path).read_bytes())
                self.assertLess(tid - int.from_bytes(found, 'big'), UNTOLD)


class Damaged(FileTestCase):

    level = 2

    def test_bytes_that_change(self):
        """When it is opened, and while it is used."""
        for seed in range(often(60, 2_000)):
            choice = random.Random(seed)
            server, cache = self.filled(seed % 7, name=f'{seed}')
            path = pathlib.Path(cache.path)
            if choice.random() < 0.5:
                cache.close()
            with open(path, 'r+b') as file:
                for _ in range(choice.randrange(1, 9)):
                    file.seek(choice.randrange(os.path.getsize(path)))
                    file.write(choice.randbytes(choice.choice((1, 8, 2_000))))
            with mock.patch('logging.Logger.warning'):
                if cache._file is None:
                    with contextlib.suppress(ValueError):  # its first bytes
                        cache = self.make(f'{seed}')
                    caching.connect(cache, server)
                caching.check(cache, server)
                for _ in range(30):
                    caching.act(cache, server)
                cache.close()
            path.unlink()

    def test_one_segment(self):
        """It is lost with what is before it, and what is behind it is true."""
        found = []
        for content in b'', b'\xff' * 100, bytes(100), b'number':
            server, cache = self.filled(steps=200, name=f'{content[:1]}')
            cache.close()
            last = cache.last_tid
            place = (-(-cache_end(cache.path) // (1 << 12)) - 4) % 8
            if content == b'number':
                content = cachefile.HEAD.pack(
                    0, 0, b'S', 0, p64(place + (1 << 60)), z64, z64)
            with open(cache.path, 'r+b') as file:
                file.seek(cachefile.FILE_HEAD.size + (place << 12))
                file.write(content)
            cache = self.make(os.path.basename(cache.path))
            self.assertEqual(cache.last_tid, last)
            found.append(caching.check_opened(cache, server))
            cache.close()
        whole, *less = found
        self.assertGreater(min(less), 20)
        self.assertLess(max(less), 0.7 * whole)

    def test_an_earlier_round(self):
        """The disk has lost what was written since: it is noticed, though
        each record is as it was."""
        cache = self.make()
        path = pathlib.Path(cache.path)
        ring = cache._file.ring
        earlier = b''
        for tid in range(1, 1_000_000):
            # The same records in each round, but for their tids and data.
            is_first = cache._file.end % ring < 500
            cache.committed(p64(tid), [
                (oid(1 if is_first else 2), b'%9d' % tid * 10, False)],
                lambda tid: None)
            if is_first and cache._file.begin > 2 * ring:
                cache._flush()
                if earlier:
                    break
                earlier = path.read_bytes()
        place = cache._file._place(cache._current[oid(1)])
        for content in earlier, path.read_bytes():
            record = cachefile.HEAD.unpack_from(content, place)
            self.assertEqual((record[2], record[4]), (b'D', oid(1)))
        path.write_bytes(earlier)
        with self.assertLogs(LOGGER, 'WARNING') as logged:
            self.assertIsNone(cache.load_before(oid(1), maxtid))
        self.assertIn('the cache is cleared', logged.output[0])


class Full(FileTestCase):

    def test_segments_that_are_full_to_the_last_byte(self):
        """Or lack up to some bytes of a record."""
        for missing in range(2 * cachefile.HEAD.size):
            cache = self.make(f'{missing}')
            cache.set_last_tid(p64(1))
            for number in range(7):
                # A TOLD is before the first one.
                length = cache._file.longest - missing - (
                    0 if number else cachefile.HEAD.size)
                load, _ = cache.ask(oid(number), maxtid, cache.generation)
                load.reply = Found(p64(1), bytes(length), p64(1), None)
                cache.answered(load)
            self.assertEqual(cache._file._segment_end, 7 << 12)
            self.assertEqual(cache._file.end, (7 << 12) - missing)
            cache.close()
            self.assertEqual(len(self.make(f'{missing}')), 7)


class EarlierLives(FileTestCase):

    def test_what_is_left_behind_the_last_record(self):
        """The process was killed, or the power was cut, and a page was lost.
        The next client has written so many bytes as there were on it."""
        cache = self.make()
        path = pathlib.Path(cache.path)
        cache.set_last_tid(p64(5))
        cache._flush()
        lost = cache._file._place(cache._file.end)
        cache.set_last_tid(p64(6))
        load, _ = cache.ask(oid(1), maxtid, cache.generation)
        load.reply = Found(p64(6), b'x', p64(6), None)
        cache.answered(load)
        cache.close()
        content = bytearray(path.read_bytes())
        content[lost] ^= 1
        path.write_bytes(content)
        cache = self.make()
        self.assertEqual((cache.last_tid, len(cache)), (p64(5), 0))
        caching.tell(cache, [(p64(7), [oid(1)])])
        cache._flush()
        content[lost:] = path.read_bytes()[lost:]
        cache.close()
        # The revision is where it was, and checks.
        path.write_bytes(content)
        self.assertEqual(cachefile.HEAD.unpack_from(
            content, lost + cachefile.HEAD.size)[2], b'D')
        cache = self.make()
        self.assertEqual((cache.last_tid, len(cache)), (p64(7), 0))


    def test_a_cache_that_was_emptied(self):
        """And the disk has kept what was there before, in other segments: it
        does not count, nor does its last tid."""
        path = pathlib.Path(self.path('cache'))
        cache = self.make()
        cache.committed(p64(9), [(oid(1), b'x', False)], lambda tid: None)
        cache._flush()
        before = path.read_bytes()
        cache.begin_anew(p64(5))
        cache.committed(p64(6), [(oid(2), b'x', False)], lambda tid: None)
        cache.close()
        place = cachefile.FILE_HEAD.size + (1 << 12)
        path.write_bytes(before[:place] + path.read_bytes()[place:])
        cache = self.make()
        self.assertEqual((cache.last_tid, len(cache)), (p64(6), 1))
        self.assertTrue(cache.load_before(oid(2), maxtid))


class Hostile(FileTestCase):

    def write(self, *records, number=0):
        """A segment of these, each sound by itself."""
        file = CacheFile(self.path('cache'), SMALL)
        file._segment_end = number * file._segment
        file.empty(z64)
        for record in records:
            file.append(*record)
        file.write()
        file.close()

    def open(self):
        with contextlib.closing(self.make()) as cache:
            return len(cache), cache.last_tid

    def test_records_that_cannot_be(self):
        told = b'T', z64, p64(9), z64
        sound = b'D', oid(1), p64(5), z64, b'x'
        for record in (
                (b'D', oid(2), p64(10), z64),      # it was not told of
                (b'D', oid(2), p64(5), p64(10)),
                (b'D', oid(2), p64(5), p64(5)),    # it ends before it begins
                (b'D', oid(2), p64(5), p64(4)),
                (b'E', z64, p64(5), z64, b'1234567'),
                (b'T', z64, p64(8), z64),          # it goes back
                (b'X', z64, z64, z64)):
            with self.subTest(record):
                self.write(told, sound, record, (*sound[:1], oid(3),
                                                 *sound[2:]))
                self.assertEqual(self.open(), (1, p64(9)))

    def test_numbers_of_segments(self):
        for number in 1, 8, (1 << 36) - 1:
            self.write((b'T', z64, p64(9), z64), number=number)
            self.assertEqual(self.open(), (0, p64(9)))

    def test_positions_are_used_up(self):
        """Then it begins with the first one again."""
        self.write((b'T', z64, p64(9), z64), number=(1 << 36) - 2)
        with self.assertLogs(LOGGER, 'WARNING') as logged:
            server, cache = self.filled()
            for _ in range(100):
                caching.act(cache, server)
        self.assertIn('all its positions were used', logged.output[0])
        self.assertEqual(len(logged.output), 1)
        found = caching.check(cache, server)
        self.assertGreater(found, 0)
        cache.close()
        self.assertGreater(caching.check(self.make(), server), 0.7 * found)

    def test_heads_that_lie(self):
        """Of any length and number, with a check that is right."""
        segment = cachefile.SMALLEST_SEGMENT
        for length in 0, 1, 4_000, 4_096, 1 << 31, (1 << 32) - 1:
            for number in 0, 1, 8, 1 << 35, 1 << 36, (1 << 64) - 1:
                position = number * segment
                rest = cachefile._checked_head.pack(
                    0, b'S', length, p64(number), p64(7), z64)
                body = bytes(min(length, 4_000))
                check = cachefile.crc32(body, cachefile.crc32(
                    rest, position % cachefile.MODULUS))
                content = cachefile.FILE_HEAD.pack(
                    cachefile.NAME + cachefile.VERSION, segment)
                content += 8 * (check.to_bytes(4, 'big') + rest + body).ljust(
                    segment, b'\xff')[:segment]
                pathlib.Path(self.path('cache')).write_bytes(content)
                with mock.patch.object(os, 'pread', side_effect=os.pread) as \
                        read:
                    found, tid = self.open()
                self.assertEqual(found, 0)
                self.assertIn(tid, (z64, p64(7)))
                self.assertLessEqual(
                    max(call.args[1] for call in read.call_args_list), 1 << 20)
                self.assertLess(read.call_count, 100)


class Names(FileTestCase):

    def test_one_client_at_a_time(self):
        cache = self.make()
        with self.assertRaises(LockError) as raised:
            Cache(cache.path, SMALL)
        self.assertIn(cache.path, str(raised.exception))
        self.assertEqual(
            in_a_child(name_of_error, Cache, cache.path, SMALL), 'LockError')
        cache.close()
        self.make()

    def test_a_child_that_lives_on(self):
        """The lock is free when its parent closes the cache."""
        cache = self.make()
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)
            child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        os.close(read)
        try:
            cache.close()
            self.make()
        finally:
            os.close(write)
            os.waitpid(child, 0)

    def test_a_file_of_something_else(self):
        """It is left alone, and locked by nobody."""
        path = pathlib.Path(self.path('cache'))
        for content in b'ZEC3' + bytes(1_000), b'x', b'fsyncstorage':
            path.write_bytes(content)
            for _ in range(2):
                with self.assertRaises(ValueError) as raised:
                    Cache(str(path), SMALL)
                self.assertIn(str(path), str(raised.exception))
            self.assertEqual(path.read_bytes(), content)

    def test_another_size_and_another_version(self):
        """It begins empty."""
        for size in SMALL, 100_000, 200_000:
            cache = self.make(size=size)
            self.assertFalse(cache)
            cache.set_last_tid(p64(1))
            cache.close()
            self.assertLessEqual(
                os.path.getsize(cache.path), max(size, 33_000))
        with mock.patch.object(cachefile, 'VERSION', b'2\n'):
            self.assertFalse(self.make(size=200_000))

    def test_an_empty_file(self):
        """What a power cut may leave of a new one."""
        path = pathlib.Path(self.path('cache'))
        for content in b'', bytes(10_000):
            path.write_bytes(content)
            cache = self.make()
            self.assertFalse(cache)
            cache.close()

    def test_what_is_emptied_takes_no_room(self):
        """So it can be used on where the disk is full."""
        cache = self.make(size=1 << 20)
        for number in range(10):
            cache.committed(p64(number + 1), [
                (oid(number), bytes(50_000), False)], lambda tid: None)
        cache._flush()
        self.assertGreater(os.stat(cache.path).st_blocks * 512, 500_000)
        cache.begin_anew(p64(20))
        self.assertLess(os.stat(cache.path).st_blocks * 512, 50_000)

    def test_a_directory_that_is_not_there(self):
        with self.assertRaises(FileNotFoundError):
            Cache(self.path('none/cache'), SMALL)


class Failing:
    """The n-th call of a function, and so many behind it, raise an error."""

    def __init__(self, name, at, so_many, error):
        self._function = getattr(os, name)
        self._writes = name == 'pwrite'
        self._error = error
        self._left, self._so_many = at, so_many
        self.number = 0

    def __call__(self, *args):
        self.number += 1
        if self._left <= self.number < self._left + self._so_many:
            if self._error:
                raise OSError(self._error, os.strerror(self._error))
            if self._writes:
                return self._function(args[0], args[1][:-1], *args[2:])
            return b''
        return self._function(*args)

    @property
    def has_failed(self):
        return self.number >= self._left


class Faults(FileTestCase):

    level = 2

    def each_call(self, name, so_many, error):
        """Yield what is left behind a fault at each call of that function."""
        at = 0
        while True:
            at += often(3, 1)
            failing = Failing(name, at, so_many, error)
            path = f'{name} {so_many} {error} {at}'
            server, cache = self.filled(at, name=path)
            told = []
            with mock.patch.object(os, name, failing), \
                    mock.patch('logging.Logger.warning') as warning:
                for _ in range(60):
                    caching.act(cache, server)
                oids = caching.commit(cache, server, told.append)
                # Behind the end of a load and of a commit all is as always.
                self.assertEqual(told, [p64(server.last)])
                self.assertEqual(cache.last_tid, p64(server.last))
                caching.check(cache, server)
            if not failing.has_failed:
                self.assertFalse(warning.called)
                self.assertGreater(at, 1)
                return
            self.assertTrue(warning.called)
            yield server, cache, oids
            caching.check(cache, server)
            found = len(cache)
            cache.close()
            again = self.make(path)
            some = caching.check_opened(again, server)
            self.assertLessEqual(again.last_tid, cache.last_tid)
            self.assertGreaterEqual(some, found)
            again.close()

    def test_one(self):
        """The cache is emptied, and used on."""
        for name in 'pwrite', 'pread':
            for error in errno.EIO, errno.ENOSPC, 0:
                for server, cache, oids in self.each_call(name, 1, error):
                    self.assertIsNotNone(cache._file)
                    caching.commit(cache, server)
                    self.assertGreater(caching.check(cache, server), 0)

    def test_all_from_one_on(self):
        """Nothing is cached until it is opened again."""
        for error in errno.EIO, errno.ENOSPC, 0:
            for server, cache, oids in self.each_call('pwrite', 1_000, error):
                self.assertEqual(len(cache), 0)
                caching.commit(cache, server)
                caching.answer(cache, server, oids[0])
                self.assertEqual(caching.check(cache, server), 0)
                self.assertEqual(cache.stats()[2], 0)

    def test_it_cannot_be_emptied(self):
        """Not cut back either: the next one finds what is true."""
        server, cache = self.filled()
        fail = mock.Mock(side_effect=OSError(errno.EROFS, 'read only'))
        with mock.patch.object(os, 'pwrite', fail), \
                mock.patch.object(os, 'ftruncate', fail), \
                self.assertLogs(LOGGER, 'WARNING') as logged:
            cache.close()
        self.assertEqual(len(logged.output), 2)
        self.assertIn('nothing is cached until', logged.output[0])
        self.assertIn('read only', logged.output[1])
        again = self.make()
        self.assertGreater(caching.check(again, server), 0)

    def test_when_it_is_opened(self):
        server, cache = self.filled()
        cache.close()
        at = 0
        while True:
            at += 1
            failing = Failing('pread', at, 1, errno.EIO)
            content = pathlib.Path(cache.path).read_bytes()
            with mock.patch.object(os, 'pread', failing), mock.patch.object(
                    cachefile, 'SCAN_AHEAD', 6_000):
                if at == 1:
                    # Whose file it is, is not known.
                    self.assertRaises(OSError, self.make)
                    continue
                with mock.patch('logging.Logger.warning') as warning:
                    again = self.make()
                    self.assertEqual(warning.call_count, failing.has_failed)
            found = caching.check_opened(again, server)
            # It can be used: nothing is read from where something was before.
            caching.connect(again, server)
            for _ in range(3):
                caching.commit(again, server)
            with self.assertNoLogs(LOGGER, 'WARNING'):
                caching.check(again, server)
            again.close()
            if not failing.has_failed:
                self.assertGreater(found, 0)
                break
            self.assertEqual(found, 0)
            pathlib.Path(cache.path).write_bytes(content)
        self.assertGreater(at, 8)
