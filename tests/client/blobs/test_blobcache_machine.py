"""The blob cache under kills, forks, and many processes at once.

`KillPoints` kills a process before each step that it takes on the disk, one
after the other.  `Life` goes through random lives against a model
(Hypothesis).  `Crowd` is many processes, whose files are counted all the time.
"""

import contextlib
import itertools
import math
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import threading
import traceback
import unittest
from unittest import mock

from hypothesis import HealthCheck
from hypothesis import stateful
from hypothesis import strategies
from ZODB.POSException import POSKeyError

from fsyncstorage.client.blobs import directory
from fsyncstorage.client.blobs import room
from fsyncstorage.client.blobs.blobcache import BlobCache

from ...generated import settings
from ...support import PATIENCE
from ...support import oid
from .caches import SERIAL
from .caches import BlobCacheTest
from .caches import Disk
from .caches import Server
from .caches import content

FORK = multiprocessing.get_context('fork')


def forked(function, meanwhile=lambda: None):
    """Call it in a child; return the status that the child ended with."""
    child = os.fork()
    if not child:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    meanwhile()
    return os.waitpid(child, 0)[1]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """Die before the step of this number, which is a system call."""

    CALLS = ('chmod', 'makedirs', 'open', 'pwrite', 'remove', 'rename',
             'truncate', 'utime')

    def __init__(self, number=math.inf):
        self.left = number
        for name in self.CALLS:
            setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, function):
        def counted(*args, **kw):
            self.step()
            return function(*args, **kw)

        return counted

    def step(self):
        if not self.left:
            die()
        self.left -= 1


class KillPoints(BlobCacheTest):

    level = 2
    limit = 10000
    #: Every so many steps one is killed; all of them at level 3.
    every = 3

    def setUp(self):
        super().setUp()
        for number in range(1, 6):
            self.server.put(number, 3000)
        self.server.put(6, 20000)
        self.server.put(7, 10)

    def kill_at_each_step(self, prepare, act):
        """`prepare` the directory; kill while another process does `act`."""
        with contextlib.closing(self.cache()) as cache:
            prepare(cache)
        before = self.path('before')
        shutil.copytree(self.home, before)
        for step in itertools.count(0, self.every):
            def act_and_die():
                steps = Steps()
                with contextlib.closing(self.cache()) as cache:
                    steps.left = step
                    act(cache)

            with self.subTest(step):
                with contextlib.closing(self.cache()) as witness:
                    status = forked(act_and_die)
                    self.check_after_kill()
                    self.load(witness, 7)
                    self.check_after_kill()
                self.check_after_start()
            shutil.rmtree(self.home)
            if not os.WIFSIGNALED(status):
                self.assertEqual(status, 0)
                break
            shutil.copytree(before, self.home)
        self.assertGreater(step, 8)

    def check_after_kill(self):
        """What is there is whole, and counted."""
        for name, size in self.disk.blobs().items():
            number, = (number for number in self.server.blobs
                       if self.name(number) == name)
            self.assertEqual(size, len(self.server.blobs[number]))
        self.assertLessEqual(self.disk.used(), self.limit)
        total = self.disk.total()
        if total is not None:
            self.assertEqual(total, self.disk.used())

    def check_after_start(self):
        with contextlib.closing(self.cache()) as cache:
            self.check()
            for number in 5, 4, 1:
                self.load(cache, number)
            self.assertEqual(self.check(), self.names(1, 4, 5, 7))

    def load_three(self, cache):
        for number in 1, 2, 3:
            self.load(cache, number)
        cache.load(oid(1), SERIAL)  # so that the order is corrected

    def test_eviction(self):
        self.kill_at_each_step(
            self.load_three, lambda cache: self.load(cache, 4))

    def test_unknown_size(self):
        self.server.knows_sizes = False
        self.kill_at_each_step(
            self.load_three, lambda cache: self.load(cache, 4))

    def test_commit(self):
        def commit(cache):
            path = self.path('upload')
            with open(path, 'wb') as file:
                file.write(self.server.blobs[4])
            cache.commit(oid(4), SERIAL, cache.stage(path))

        self.kill_at_each_step(self.load_three, commit)

    def test_guest(self):
        self.kill_at_each_step(
            self.load_three, lambda cache: self.read(cache, 6))

    def test_failure(self):
        def sending(download, piece):
            if download.offset >= 2000:
                raise POSKeyError('gone')

        def fail(cache):
            self.server.sending = sending
            with self.assertRaises(POSKeyError):
                self.load(cache, 4)

        self.kill_at_each_step(self.load_three, fail)


class KillPointsAll(KillPoints):

    level = 3
    every = 1


class KillOfAStart(BlobCacheTest):
    """A walk is begun again, and no file is forgotten."""

    level = 2

    numbers = range(1, 6)

    def setUp(self):
        super().setUp()
        for number in self.numbers:
            self.server.put(number, 1000)
        with contextlib.closing(self.cache()) as cache:
            for number in self.numbers:
                self.load(cache, number)

    def kill_at_each_step(self, expected):
        before = self.path('before')
        shutil.copytree(self.home, before)

        def start_and_die():
            Steps(step)
            self.cache().close()

        for step in itertools.count():
            status = forked(start_and_die)
            with self.subTest(step), contextlib.closing(self.cache()):
                self.assertEqual(self.check(), self.names(*expected))
            if not os.WIFSIGNALED(status):
                break
            shutil.rmtree(self.home)
            shutil.copytree(before, self.home)
        self.assertGreater(step, 6)

    def test_without_a_total(self):
        shutil.rmtree(self.disk.own)
        self.kill_at_each_step(self.numbers)

    def test_after_a_restart_of_the_machine(self):
        last = 2000000000
        for number in self.numbers:
            os.utime(os.path.join(self.home, self.name(number)),
                     (last, last if number == 3 else 1))
        self.patch(room, boot=lambda: b'another one')
        self.kill_at_each_step([1, 2, 4, 5])


class Deaths(BlobCacheTest):

    def setUp(self):
        super().setUp()
        self.server.put(1, 3500)
        self.server.put(2, 9000)

    def die_in_download(self, after=lambda: None, length=3500):
        def load_and_die():
            self.server.sending = sending
            self.load(self.cache(), 1)

        def sending(download, piece):
            if download.offset >= 2000:
                after()
                die()

        self.assertTrue(os.WIFSIGNALED(forked(load_and_die)))
        self.assertEqual(list(self.disk.parts().values()), [length])
        self.assertEqual(self.disk.total(), length)

    def test_who_is_there_goes_on_with_what_is_left(self):
        """Of a long blob, it is said how much is there."""
        for short, asked, said in (1000, 2000, 16), (1 << 20, 0, 0):
            self.short_is(short)
            cache = self.cache()
            self.die_in_download(length=3500 + said)
            self.load(cache, 1)
            self.assertEqual(self.server.asked, [(1, asked)])
            self.assertEqual(self.check(), self.names(1))
            self.server.asked.clear()
            os.remove(cache.load(oid(1), SERIAL))
            os.remove(self.disk.total_file)

    def test_the_next_need_takes_the_room_back(self):
        cache = self.cache()
        self.die_in_download()
        self.load(cache, 2)
        self.assertEqual(self.check(), self.names(2))

    def test_the_next_start_takes_it_back(self):
        self.die_in_download()
        cache = self.cache()
        self.assertEqual(self.check(), set())
        self.load(cache, 1)
        self.assertEqual(self.server.asked, [(1, 0)])

    def test_a_child_that_lives_on_holds_no_lock(self):
        reading, writing = os.pipe()

        def leave_a_child():
            if not os.fork():
                os.close(writing)
                os.read(reading, 1)  # until the test is over
                os._exit(0)

        cache = self.cache()
        self.die_in_download(after=leave_a_child)
        self.load(cache, 1)
        os.close(writing)
        os.close(reading)
        self.assertEqual(self.check(), self.names(1))

    def test_a_child_reads_on_what_arrives_at_its_parent(self):
        """It loads the blob itself."""
        self.short_is(1000)
        go_on = threading.Event()
        self.server.sending = lambda download, piece: (
            download.offset < 2000 or go_on.wait(PATIENCE))
        cache = self.cache()
        self.addCleanup(go_on.set)

        def child():
            self.server.sending = lambda *args: None
            assert file.read(5000) == self.server.blobs[1]

        with cache.open_arriving(oid(1), SERIAL) as file:
            self.assertEqual(forked(child, meanwhile=go_on.set), 0)
            self.assertEqual(file.read(), self.server.blobs[1])

    def test_a_child_uses_the_cache_of_its_parent(self):
        self.server.put(3, 20000)
        cache = self.cache()
        self.load(cache, 1)
        guest = cache.load(oid(3), SERIAL)

        def child():
            self.load(cache, 2)
            self.read(cache, 3)
            cache.close()

        self.assertEqual(forked(child), 0)
        # The child did not let go of what the parent holds.
        self.assertTrue(os.path.exists(guest))
        self.read(cache, 3)
        self.assertEqual(self.check(), self.names(2))
        self.load(cache, 1)
        self.assertEqual(self.check(), self.names(1))


class Clock:
    """Never shows a time twice, nor one that the file system would change."""

    def __init__(self):
        self._ticks = itertools.count(1)

    def time_ns(self):
        return (2 << 60) + 1000000 * next(self._ticks)


NUMBERS = strategies.integers(1, 12)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
class Life(stateful.RuleBasedStateMachine):
    """Two clients, and what the cache should contain, oldest first."""

    limit = 10000

    def __init__(self):
        super().__init__()
        self.scratch = tempfile.mkdtemp(prefix='fsyncstorage-')
        self.home = os.path.join(self.scratch, 'cache')
        self.disk = Disk(self.home)
        self.server = Server()
        for number in range(1, 13):
            self.server.put(number, number * 500)
        self.known = []     # numbers
        self.clock = Clock()
        self.stack = contextlib.ExitStack()
        for module in room, directory:
            self.stack.enter_context(
                mock.patch.object(module, 'time', self.clock))
        self.stack.enter_context(mock.patch.object(directory, 'FRESH', 0))
        self.caches = [self.open(), self.open()]

    def open(self):
        return BlobCache(self.home, self.limit, self.server.fetch)

    def teardown(self):
        for cache in self.caches:
            cache.close()
        self.stack.close()
        shutil.rmtree(self.scratch)

    def size(self, numbers):
        return sum(number * 500 for number in numbers)

    def now_known(self, number):
        if number in self.known:
            self.known.remove(number)
        while self.size([number, *self.known]) > self.limit:
            self.known.pop(0)
        self.known.append(number)

    @stateful.rule(which=strategies.booleans(), number=NUMBERS)
    def load(self, which, number):
        was_known = number in self.known
        self.server.asked.clear()
        self.now_known(number)
        with open(self.caches[which].load(oid(number), SERIAL), 'rb') as file:
            assert file.read() == self.server.blobs[number]
        assert bool(self.server.asked) == (not was_known)

    @stateful.rule(which=strategies.booleans(), number=NUMBERS)
    def open_(self, which, number):
        self.now_known(number)
        with self.caches[which].open(oid(number), SERIAL) as file:
            assert file.read() == self.server.blobs[number]

    @stateful.rule(which=strategies.booleans(), number=NUMBERS)
    def arrive(self, which, number):
        self.now_known(number)
        cache = self.caches[which]
        with cache.open_arriving(oid(number), SERIAL) as file:
            assert file.read() == self.server.blobs[number]

    @stateful.rule(which=strategies.booleans(), number=NUMBERS)
    def commit(self, which, number):
        cache = self.caches[which]
        path = os.path.join(self.scratch, 'upload')
        with open(path, 'wb') as file:
            file.write(self.server.blobs[number])
        cache.commit(oid(number), SERIAL, cache.stage(path))
        if number not in self.known:
            self.now_known(number)
        self.load(which, number)

    @stateful.rule(which=strategies.booleans(), number=NUMBERS,
                   sizes=strategies.booleans())
    def fail(self, which, number, sizes):
        """A download that takes its room, and comes to nothing."""
        def sending(download, piece):
            raise POSKeyError('gone')

        if number not in self.known:
            self.server.knows_sizes = sizes
            self.server.sending = sending
            with contextlib.suppress(POSKeyError):
                self.caches[which].load(oid(number), SERIAL)
            self.server.sending = lambda *args: None
            self.server.knows_sizes = True
            if sizes:
                self.now_known(number)
                self.known.pop()

    @stateful.rule(which=strategies.booleans())
    def restart(self, which):
        self.caches[which].close()
        self.caches[which] = self.open()

    @stateful.rule(which=strategies.booleans())
    def lose_total(self, which):
        os.remove(self.disk.total_file)
        self.restart(which)

    @stateful.invariant()
    def the_cache_is_as_the_model(self):
        expected = {
            f'{number}/0.{SERIAL.hex()}.blob': number * 500
            for number in self.known}
        assert self.disk.blobs() == expected
        assert self.disk.total() == self.size(self.known) <= self.limit
        assert not self.disk.own_files()


LifeTest = Life.TestCase
LifeTest.level = 2
LifeTest.settings = settings(
    Life.TestCase.settings, max_examples=7, stateful_step_count=30)


class LongLives(Life.TestCase):

    level = 3
    settings = settings(
        Life.TestCase.settings, max_examples=1000, stateful_step_count=50)


class Crowd(BlobCacheTest):

    level = 2
    limit = 1000000
    sizes = 2000, 60000     # from, to
    blobs = 300
    processes = 4
    loads = 40              # of each
    kills = 3

    def setUp(self):
        super().setUp()
        rng = random.Random(1)
        self.size_of = {number: rng.randrange(*self.sizes)
                        for number in range(self.blobs)}

    def fetch(self, oid, serial, download):
        number = int.from_bytes(oid, 'big')
        data = memoryview(content(number, self.size_of[number]))
        if number % 2:
            download.expect(len(data))
        while download.offset < len(data):
            download.write(data[download.offset:][:1 << 16])

    def read_at_random(self, seed):
        rng = random.Random(seed)
        with contextlib.closing(self.cache(fetch=self.fetch)) as cache:
            for _ in range(self.loads):
                number = rng.randrange(self.blobs)
                if rng.random() < 0.2:
                    cache.load(oid(number), SERIAL)
                with cache.open(oid(number), SERIAL) as file:
                    read = file.read()
                assert read == content(number, self.size_of[number]), number

    def commit_at_random(self, seed):
        rng = random.Random(seed)
        upload = self.path(f'upload-{seed}')
        with contextlib.closing(self.cache(fetch=self.fetch)) as cache:
            for count in range(self.loads):
                number = rng.randrange(self.blobs)
                with open(upload, 'wb') as file:
                    file.write(content(number, self.size_of[number]))
                cache.commit(oid(number), SERIAL, cache.stage(upload))

    def start(self, target, seed):
        process = FORK.Process(target=target, args=(seed,))
        process.start()
        return process

    def test_the_limit_holds_and_every_byte_is_right(self):
        self.cache().close()
        rng = random.Random(2)
        seeds = itertools.count(1)
        running = [self.start(self.read_at_random, next(seeds))
                   for _ in range(self.processes)]
        running.append(self.start(self.commit_at_random, next(seeds)))
        kills = self.kills
        most = 0
        while running:
            most = max(most, self.used())
            if kills and rng.random() < 0.02:
                kills -= 1
                victim = running.pop(rng.randrange(len(running)))
                victim.kill()
                victim.join()
                running.append(self.start(self.read_at_random, next(seeds)))
            for process in running[:]:
                process.join(0.01 / len(running))
                if process.exitcode is not None:
                    running.remove(process)
                    self.assertEqual(process.exitcode, 0)
        self.assertGreater(most, self.limit / 2)
        self.assertLessEqual(
            most, self.limit + self.processes * max(self.size_of.values()))
        # A part that became a blob while another process counted was counted
        # twice; the next count corrects that.
        self.assertGreaterEqual(
            self.disk.total(), sum(self.disk.blobs().values()))
        os.remove(self.disk.total_file)
        self.cache()
        self.check()
        self.assertLessEqual(self.disk.total(), self.limit)

    def used(self):
        """Bytes of all files.  A file is moved while they are counted."""
        found = {}
        for directory in os.scandir(self.home):
            if directory.name == 'tmp' or not directory.is_dir():
                continue
            parts = os.path.join(directory.path, 'parts')
            if os.path.exists(parts):
                directory = parts
            for file in os.scandir(directory):
                with contextlib.suppress(FileNotFoundError):
                    stat = file.stat()
                    found[stat.st_ino] = stat.st_size
        return sum(found.values())


class LargeCrowd(Crowd):

    level = 3
    limit = 50 << 20
    sizes = 100 << 10, 3 << 20
    blobs = 320             # 500 MB
    processes = 8
    loads = 1500
    kills = 50


def test_suite():
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    return unittest.TestSuite(map(load, (
        KillPoints, KillPointsAll, KillOfAStart, Deaths, LifeTest, LongLives,
        Crowd, LargeCrowd)))
