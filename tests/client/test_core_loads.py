"""A client's load by the core in C is what its twins in Python do.

Each server here is a script: what it answers, and what happens to the client
before.  Goes with `core/load.c`, `exchange.c` and `cache.c`.
"""

import os
import random
import signal
import socket
import struct
import threading
import unittest
from types import SimpleNamespace
from unittest import mock

from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage import core
from fsyncstorage.client import reads
from fsyncstorage.client.cache import Cache
from fsyncstorage.client.failover import Opened
from fsyncstorage.client.readers import Lost
from fsyncstorage.format import UNCERTAIN
from fsyncstorage.histogram import Histogram
from fsyncstorage.wire import frames

from ..often import often
from ..support import TestCase
from ..support import Thread
from ..support import oid
from ..support import until

REQUEST = 25
LAST = 1000
OBJECTS = 100


class Client:
    """What the core sees of a client, whose server is `answer(request)`."""

    def __init__(self, test, path, size, answer, count):
        """`count`: of readers that are open, at most 2."""
        self._cache = Cache(path, size)
        test.addCleanup(self._cache.close)
        self._cache.set_last_tid(p64(LAST))
        self._local = None
        self._load_times = Histogram()
        self._answer = answer
        self._test = test
        #: Of the stream.
        self.ended = []
        self._reads = reads.Reads(
            'client', self._cache, SimpleNamespace(
                end=self.ended.append, ask=self._ask),
            2, None, None, None, None)
        test.addCleanup(self._reads.close)
        readers = self._reads._readers
        for each in [readers.take() for _ in range(count)]:
            readers.give_back(each)

    def opened(self, *_):
        near, far = socket.socketpair()
        self._test.addCleanup(far.close)
        serving = Thread(self._serve, far)
        self._test.addCleanup(serving.result)
        self._test.addCleanup(near.close)
        return Opened(None, near, frames.Inbox(), None)

    def _serve(self, far):
        with far:
            while len(request := far.recv(REQUEST, socket.MSG_WAITALL)) > 4:
                answer = self._answer(frames.taken(request[4:]))
                if answer is None:
                    break
                try:
                    far.sendall(answer)
                except OSError:  # the client has gone
                    break

    def _ask(self, message):
        """The stream is slower, and knows no more."""
        raise ClientDisconnected('over the stream')

    def load(self, oid, tid, is_by_core=True):
        found = core.load(self, oid, tid) if is_by_core else UNCERTAIN
        if found is not UNCERTAIN:
            return found, True
        return (self._cache.load_before(oid, tid)
                or self._reads.load_before(oid, tid)), False


@unittest.skipUnless(core.IN_USE == 'C', 'the core was not built')
class LoadsTestCase(TestCase):

    def client(self, answer, size=1 << 20, path=None, readers=1):
        made = []
        self.patch(reads, opened=lambda *_: made[0].opened())
        # (It opens a reader while it is made.)
        client = Client.__new__(Client)
        made.append(client)
        client.__init__(self, path, size, answer, readers)
        return client


class Answers(LoadsTestCase):

    def answered(self, *bodies, asked=1):
        """What the core finds, and how often the server is asked."""
        requests = []

        def answer(request):
            requests.append(request)
            return b''.join(
                body if isinstance(body, bytes)
                else body(request.number) if callable(body)
                else frames.frame(body._replace(number=request.number))
                for body in bodies)

        self.made = client = self.client(answer)
        found = core.load(client, oid(1), maxtid)
        self.assertEqual(
            [(each.oid, each.tid) for each in requests],
            [(oid(1), maxtid)] * asked)
        self.assertEqual(client._cache.pending._loads, {})
        return found

    def is_free(self):
        return len(self.made._reads._readers._free)

    def test_what_is_current(self):
        """It is found by the next load in the cache."""
        for size in 0, 1, 1 << 14, (1 << 14) - 33, 100_000, 3_000_001:
            data = os.urandom(size)
            found = self.answered(frames.Found(
                0, p64(LAST), p64(2), z64, data))
            self.assertEqual(found, (data, p64(2), None))
            self.assertEqual(self.is_free(), 1)
            self.assertEqual(self.made._load_times.count, 1)
            if size <= self.made._cache._file.longest:
                self.assertEqual(
                    core.load(self.made, oid(1), maxtid), found)
                self.assertEqual(self.made._cache.stats()[0], 1)

    def test_what_was_current(self):
        self.assertEqual(
            self.answered(frames.Found(0, p64(LAST), p64(2), p64(3), b'x')),
            (b'x', p64(2), p64(3)))
        self.assertEqual(
            self.made._cache.load_before(oid(1), p64(3)),
            (b'x', p64(2), p64(3)))

    def test_that_there_was_none(self):
        self.assertIsNone(self.answered(frames.Nothing(0, p64(LAST))))
        self.assertEqual((self.is_free(), len(self.made._cache)), (1, 0))

    def test_what_a_reader_cannot_say(self):
        """Its answer is taken: the stream is asked, and no reader again."""
        for reply, expected in (
                (frames.Found(0, p64(LAST), p64(2), z64, b'x'),
                 (b'x', p64(2), None)),
                (frames.Nothing(0, p64(LAST)), None),
                (frames.Missing(0, p64(LAST)), POSKeyError),
                (frames.Error(0, b'builtins.OSError', b''), Exception),
                (frames.Nothing(0, p64(LAST - 1)), Lost)):
            asked = mock.Mock(return_value=reply)
            self.patch(Client, _ask=asked)
            with self.subTest(reply):
                if isinstance(expected, type):
                    with self.assertRaises(expected):
                        self.answered(frames.Elsewhere(0))
                else:
                    self.assertEqual(
                        self.answered(frames.Elsewhere(0)), expected)
                asked.assert_called_once()
                self.assertEqual(self.made._cache.pending._loads, {})
                self.assertEqual(self.is_free(), 1)
                self.assertEqual(
                    self.made._cache.load_before(oid(1), maxtid),
                    expected if isinstance(reply, frames.Found) else None)

    def test_a_server_that_is_behind(self):
        """Its stream ends."""
        with self.assertRaises(Lost):
            self.answered(frames.Found(0, p64(LAST - 1), p64(2), z64, b'x'))
        self.assertEqual((len(self.made.ended), len(self.made._cache)), (1, 0))

    def test_what_is_wrong(self):
        """The reader is not used again."""
        found = frames.frame(frames.Found(
            1 << 31, p64(LAST), p64(2), z64, b'to another request'))
        for wrong in (b'\xff\xff\xff\xff', b'\x40\0\0\1', b'\0\0\0\0', found,
                      b'\0\0\0\1x', b'\0\0\0\1xyz',
                      # What no reader says to a load, or has another length.
                      frames.Missing(0, z64), frames.Error(0, b'name', b''),
                      *(lambda number, kind=kind, rest=rest: struct.pack(
                          '>IcI', 5 + rest, kind, number) + bytes(rest)
                        for kind, rest in [
                            (b'f', 0), (b'f', 23), (b'n', 0), (b'n', 7),
                            (b'n', 9), (b'w', 1)])):
            self.assertIs(self.answered(wrong), UNCERTAIN)
            self.assertEqual(self.is_free(), 0)
        self.answered(
            frames.Found(0, p64(LAST), p64(2), z64, b''), b'too much')
        self.assertEqual(self.is_free(), 0)

    def test_an_end(self):
        for begin in b'', b'\0\0', b'\0\0\0\x09abc':
            near, far = socket.socketpair()
            client = self.client(lambda request: None)
            with near, far:
                client._reads._readers._free[0].descriptor = near.fileno()
                far.sendall(begin)
                far.shutdown(socket.SHUT_WR)
                self.assertIs(core.load(client, oid(1), maxtid), UNCERTAIN)
            self.assertEqual(client._cache.pending._loads, {})
            self.assertEqual(client._reads._readers._free, [])

    def test_what_is_no_load(self):
        client = self.client(lambda request: None)
        for bad in ((client, b'', z64), (client, z64, None), (client, z64),
                    (None, z64, z64)):
            self.assertRaises(
                (TypeError, ValueError, AttributeError), core.load, *bad)

    def test_two_threads(self):
        """The second one waits for the answer to the first."""
        threads = []

        def answer(request):
            if request.oid == oid(1):
                threads.append(Thread(client.load, request.oid, request.tid))
                load, = client._cache.pending._loads[request.oid]
                until(lambda: load.done, 'it waits')
            return frames.frame(frames.Found(
                request.number, p64(LAST), p64(2), z64, b'x'))

        client = self.client(answer, readers=2)
        client.load(oid(2), maxtid)  # so the file has place for the next one
        for found, _ in client.load(oid(1), maxtid), threads[0].result():
            self.assertEqual(found, (b'x', p64(2), None))
        self.assertEqual(len(threads), 1)

    def test_a_thread_that_waits_for_a_reader(self):
        """It gets the one that a load by the core gives back."""
        threads = []

        def answer(request):
            if request.oid == oid(1):
                threads.append(Thread(client.load, oid(2), maxtid))
                until(lambda: readers._waiting, 'it waits')
            return frames.frame(frames.Found(
                request.number, p64(LAST), p64(2), z64, b'x'))

        client = self.client(answer, readers=2)
        readers = client._reads._readers
        kept = readers.take()
        client.load(oid(1), maxtid)
        self.assertEqual(threads[0].result()[0], (b'x', p64(2), None))
        readers.give_back(kept)

    def test_a_stream_that_ends_meanwhile(self):
        """Its readers end, too, also this one, whose answer has come."""
        def answer(request):
            client._reads._readers._is_closed = True
            return frames.frame(frames.Found(
                request.number, p64(LAST), p64(2), z64, b'x'))

        client = self.client(answer)
        core.load(client, oid(1), maxtid)
        self.assertEqual(client._reads._readers._free, [])
        self.assertEqual(client._reads._readers._open, set())

    def test_a_finaliser(self):
        """It loads in the middle of a change, in the same thread."""
        client = self.client(lambda request: frames.frame(frames.Found(
            request.number, p64(LAST), p64(2), z64, b'x')))
        for number in 1, 2:
            client.load(oid(number), maxtid)
        file = client._cache._file

        def interrupted(*args):
            del file.append
            self.assertTrue(client.load(oid(3), maxtid)[1])
            return file.append(*args)

        file.append = interrupted
        client._cache.invalidate([(p64(LAST + 1), [oid(1)])])
        self.assertEqual(len(client._cache), 0)

    def test_a_signal(self):
        """What its handler raises ends the load, and the reader."""
        interrupted = []

        def handle(*_):
            if not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt()

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(
            signal.SIGUSR1, handle))
        asked = threading.Event()

        def answer(request):
            asked.set()
            # More than once: one that comes before it waits is not noticed.
            while not ended.wait(0.01):
                signal.pthread_kill(
                    threading.main_thread().ident, signal.SIGUSR1)

        ended = threading.Event()
        client = self.client(answer)
        with self.assertRaises(KeyboardInterrupt):
            core.load(client, oid(1), maxtid)
        ended.set()
        self.assertTrue(asked.is_set())
        self.assertEqual(client._cache.pending._loads, {})
        self.assertEqual(client._reads._readers._free, [])


class Damaged(LoadsTestCase):

    def test_a_file_in_which_a_byte_is_wrong(self):
        """What is there is found, or left to the twin, which gives it up."""
        choice = random.Random(self.id())
        client = self.client(None, path=self.path('cache'))
        cache, file = client._cache, client._cache._file
        cache.committed(p64(LAST + 1), [
            (oid(number), choice.randbytes(
                choice.choice([1, 100, 4050, 4060, 9000])), False)
            for number in range(100)], lambda tid: None)
        for is_in_file in range(2):
            for number in range(100):
                found = core.load(client, oid(number), maxtid)
                self.assertEqual(found, cache.load_before(oid(number), maxtid))
                self.assertIs(
                    core.load(client, oid(number), p64(LAST + 1)), UNCERTAIN)
            file.write()
        with open(self.path('cache'), 'r+b') as raw:
            for number in range(100):
                data, _, _ = core.load(client, oid(number), maxtid)
                at = 32 + cache._current.get(oid(number)) + choice.randrange(
                    37 + len(data))
                right = os.pread(raw.fileno(), 1, at)
                os.pwrite(raw.fileno(), bytes([right[0] ^ 4]), at)
                self.assertIs(
                    core.load(client, oid(number), maxtid), UNCERTAIN)
                os.pwrite(raw.fileno(), right, at)
        cache._current[oid(1)] = cache._current.get(oid(2))
        self.assertIs(core.load(client, oid(1), maxtid), UNCERTAIN)


class Histories(LoadsTestCase):
    """The same happens to two clients, of which one has the core."""

    def test_as_the_twins(self):
        for _ in range(often(6, 300)):
            seed = random.random()
            (of_core, by_core), (of_twin, none) = (
                self.history(seed, is_by_core) for is_by_core in (True, False))
            self.assertEqual([
                number for number, (one, other) in enumerate(
                    zip(of_core, of_twin, strict=True)) if one != other], [])
            self.assertFalse(none)
            self.assertGreater(by_core, 300)

    def history(self, seed, is_by_core):
        """All that is found, then the content of the file; and how much of it
        was found by the core."""
        choice = random.Random(seed)
        path = self.path(f'{seed}-{is_by_core}')
        client = self.client(
            lambda request: self.answer(client._cache, request),
            choice.choice([40_000, 1_000_000]), path)
        self.changes = choice.choice([0.02, 0.1, 0.2])
        seen, by_core = [], 0
        for _ in range(1000):
            number = choice.randrange(OBJECTS)
            last = u64(client._cache.last_tid)
            tid = choice.choice([maxtid, p64(last + 1), p64(
                last - choice.randrange(300))])
            self.step(choice, client, oid(number))
            try:
                found, is_of_core = client.load(oid(number), tid, is_by_core)
            except (ClientDisconnected, Lost, POSKeyError) as error:
                found, is_of_core = type(error), False
            self.happens()
            by_core += is_of_core
            seen.append((found, client._cache.last_tid, len(client._cache)))
            self.assertEqual(client._cache.pending._loads, {})
        seen.append(client.ended)
        client._cache.close()
        with open(path, 'rb') as file:
            return [*seen, file.read()], by_core

    def step(self, choice, client, name):
        """Prepare what is answered next, and what happens before."""
        cache = client._cache
        last = u64(cache.last_tid)
        serial = last - choice.randrange(-1, 200)
        end = choice.choice([
            0, 0, 0, 0, serial + choice.randrange(1, 100)])
        found = frames.Found(
            0, z64, p64(serial), p64(end),
            choice.randbytes(
                choice.choice([0, 10, 10, 10, 500, 500, 2000, 6000])))
        self.answer_is = choice.choices([
            found, frames.Missing(0, z64), frames.Elsewhere(0),
            b'\0\0\0\1x'], [40, 1, 1, 1])[0]
        self.ahead = choice.choice([0, 5, 5, 5, -1])
        what = choice.random()
        actions = []

        def change():
            tid = p64(u64(cache.last_tid) + choice.randrange(1, 20))
            cache.invalidate([(tid, choice.choice([
                [name], [name, oid(choice.randrange(OBJECTS))], []]))])
            cache.set_last_tid(tid)

        if what < self.changes:
            actions.append(change)
        elif what < self.changes + 0.01:
            actions.append(cache.new_generation)
            actions.append(lambda: cache.drop([name]))
        self.actions = actions

    def happens(self):
        """In the middle of a load; or behind it, if nothing was asked."""
        while self.actions:
            self.actions.pop()()

    def answer(self, cache, request):
        as_of = p64(u64(cache.last_tid) + self.ahead)
        self.happens()
        if isinstance(self.answer_is, bytes):
            return self.answer_is
        answer = self.answer_is._replace(number=request.number)
        if hasattr(answer, 'as_of'):
            answer = answer._replace(as_of=as_of)
        return frames.frame(answer)
