"""The core in C does what its twins in plain Python do, whatever it is given.

Goes with `core/`; a client's load is in tests.client.test_core_loads.
"""

import contextlib
import fcntl
import os
import random
import socket
import struct
import unittest

from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage import core
from fsyncstorage.format import NotAMap
from fsyncstorage.format import objectmap as layout
from fsyncstorage.format.source import Source
from fsyncstorage.local.answering import Answering
from fsyncstorage.wire import frames

from ..often import often
from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import read_to_the_end

OBJECTS = 60
LONGEST = 1 << 10


@unittest.skipUnless(core.IN_USE == 'C', 'the core was not built')
class CoreTestCase(TestCase):

    def setUp(self):
        super().setUp()
        self.choice = random.Random(self.id())
        self.storage = self.open(durability='none')
        self.tids = []
        serials = {}
        for _ in range(40):
            records = {
                self.choice.randrange(OBJECTS): os.urandom(self.choice.choice(
                    [1, 100, 4000, 4100, 30_000]))
                for _ in range(5)}
            self.tids.append(commit(self.storage, records, serials))
            serials.update(dict.fromkeys(records, self.tids[-1]))
        self.storage.announce(self.tids[-1])
        self.data, self.map = self.storage.object_map().open()
        self.addCleanup(os.close, self.data)
        self.addCleanup(os.close, self.map)

    def sources(self, data, object_map, of_child=True):
        """Of the core, and of the twin; None: it does not take them."""
        made = []
        for kind in core.Source, Source:
            try:
                made.append(kind(
                    data, object_map, self.storage.instance, of_child))
            except NotAMap:
                made.append(None)
        return made

    def copies(self):
        """Of both files, for which the map is right."""
        data = os.open(self.path('copy'), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.addCleanup(os.close, data)
        os.write(data, os.pread(self.data, 1 << 30, 0))
        size = os.fstat(self.map).st_size
        of_map = os.memfd_create(
            'copy', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, of_map)
        os.ftruncate(of_map, size)
        used = 4096 + 8 * self.capacity() + 4096
        os.pwrite(of_map, os.pread(self.map, used, 0), 0)
        status = os.fstat(data)
        os.pwrite(of_map, struct.pack('@QQ', status.st_dev, status.st_ino),
                  8 * layout.DEVICE)
        return data, of_map, used

    def capacity(self):
        return struct.unpack('@Q', os.pread(self.map, 8, 8))[0]

    def a_load(self):
        tid = p64(u64(self.choice.choice(self.tids))
                  + self.choice.choice([0, 1]))
        return oid(self.choice.randrange(OBJECTS + 2)), self.choice.choice(
            [tid, maxtid])


class Damaged(CoreTestCase):
    """A file and a map in which any byte may be wrong."""

    def test_a_map_that_is_not_sealed_or_not_whole(self):
        data, of_map, used = self.copies()
        self.assertEqual(self.sources(data, of_map), [None, None])
        fcntl.fcntl(of_map, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.assertNotIn(None, self.sources(data, of_map))
        self.assertEqual(self.sources(of_map, of_map), [None, None])
        self.assertEqual(self.sources(data, data), [None, None])
        self.assertEqual(self.sources(self.data, of_map), [None, None])
        near, far = socket.socketpair()
        with near, far:
            self.assertEqual(
                self.sources(data, near.fileno()), [None, None])
        for word, value in ((layout.MAGIC, 0), (layout.CAPACITY, 1 << 60),
                            (layout.CAPACITY, 512), (layout.INSTANCE, 1)):
            with self.subTest(word):
                data, of_map, _ = self.copies()
                os.pwrite(of_map, struct.pack('@Q', value), 8 * word)
                fcntl.fcntl(of_map, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
                self.assertEqual(self.sources(data, of_map), [None, None])

    def test_the_same_answers(self):
        for _ in range(often(10, 300)):
            data, of_map, used = self.copies()
            self.damage(data, of_map, used)
            fcntl.fcntl(of_map, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            of_core, twin = self.sources(
                data, of_map, self.choice.choice([True, False]))
            self.assertEqual(of_core is None, twin is None)
            if twin is None:
                continue
            for _ in range(200):
                load = self.a_load()
                self.assertEqual(of_core.load_before(*load),
                                 twin.load_before(*load))
            oids = [oid(number) for number in range(OBJECTS)] + [None]
            self.assertEqual(of_core.prefetch(oids), twin.prefetch(oids))

    def damage(self, data, of_map, used):
        size = os.fstat(data).st_size
        for _ in range(self.choice.randrange(40)):
            os.pwrite(data, self.choice.randbytes(
                self.choice.choice([1, 8, 42])), self.choice.randrange(size))
        for _ in range(self.choice.randrange(5)):
            at = self.choice.choice([
                8 * self.choice.randrange(layout.END, layout.ANNOUNCED),
                4096 + 8 * (self.capacity() + self.choice.randrange(OBJECTS)),
                self.choice.randrange(used)])
            os.pwrite(of_map, self.choice.choice([
                b'\0' * 8, struct.pack('@Q', self.choice.randrange(size)),
                self.choice.randbytes(8), b'\xff' * 8]), at)
        if self.choice.random() < 0.3:
            os.ftruncate(data, self.choice.randrange(size))


class Answers(CoreTestCase):
    """To the bytes of a reader."""

    def requests(self):
        found = []
        for number in range(1, 200):
            found.append(frames.frame(frames.Load(number, *self.a_load())))
        return found

    def answers(self, kind, source, requests, cut=None):
        """All that is answered, and how it ended."""
        near, far = socket.socketpair()
        with near, far:
            answering = kind(
                near if kind is Answering else near.fileno(), source, LONGEST,
                b'')
            read = Thread(read_to_the_end, far)
            end = []

            def run():
                try:
                    while True:
                        end.append(answering.run())
                        if end[-1] is None:
                            break
                except (EOFError, ValueError, frames.PeerError) as error:
                    end.append(
                        'closed' if isinstance(error, EOFError) else 'wrong')
                near.shutdown(socket.SHUT_RDWR)

            running = Thread(run)
            with contextlib.suppress(OSError):
                for request in requests:
                    far.sendall(request)
                far.shutdown(socket.SHUT_WR)
            running.result()
            return read.result(), end, (
                answering.loads, answering.requests, answering.sent)

    def check(self, requests, of_child=True):
        of_core, twin = self.sources(self.data, self.map, of_child)
        found = self.answers(core.Answering, of_core, requests)
        self.assertEqual(found, self.answers(Answering, twin, requests))
        return found

    def test_loads(self):
        for _ in range(often(2, 20)):
            data, end, _ = self.check(self.requests())
            self.assertEqual(end, ['closed'])
            self.assertGreater(len(data), 100_000)

    def test_in_pieces(self):
        all_of_them = b''.join(self.requests())
        pieces = []
        while all_of_them:
            size = self.choice.choice([1, 7, 25, 1000])
            pieces.append(all_of_them[:size])
            all_of_them = all_of_them[size:]
        self.check(pieces)

    def test_what_is_no_load(self):
        blob = frames.frame(frames.GetBlob(5, oid(1), p64(0), 0, 9))
        self.assertEqual(
            self.check([*self.requests(), blob, *self.requests()])[1],
            [blob[4:], 'closed'])
        for bad in (b'\xff\xff\xff\xff', b'\0\0\4\1' + b'x' * 99):
            self.assertEqual(
                self.check([*self.requests(), bad])[1][-1], 'wrong')

    def test_a_map_that_is_retired(self):
        self.storage.retire_map()
        requests = self.requests()
        answer, end, _ = self.check(requests)
        self.assertEqual((len(answer), end), (9, [None]))

    def test_a_source_that_was_not_opened(self):
        with self.assertRaises(ValueError):
            core.Answering(0, core.Source.__new__(core.Source), LONGEST, b'')

    def test_rubbish(self):
        for _ in range(often(50, 5000)):
            requests = self.requests()[:self.choice.randrange(4)]
            rubbish = self.choice.randbytes(self.choice.randrange(200))
            if self.choice.random() < 0.7:
                rubbish = struct.pack(
                    '>I', self.choice.randrange(40)) + rubbish
            self.check([*requests, rubbish])


class LongAnswers(CoreTestCase):
    """An answer that cannot be ended is a begin, and has no wrong byte."""

    def setUp(self):
        super().setUp()
        commit(self.storage, {OBJECTS: os.urandom(5_000_000)})
        data, serial = self.storage.load(oid(OBJECTS))
        self.answer = frames.frame(frames.Found(
            1, self.tids[-1], serial, z64, data))

    def begin(self, kind, data, of_map):
        """Ask for it: the server's end, the client's, and who answers."""
        near, far = socket.socketpair()
        self.addCleanup(near.close)
        self.addCleanup(far.close)
        of_core, twin = self.sources(data, of_map)
        answering = (
            Answering(near, twin, LONGEST, b'') if kind is Answering
            else kind(near.fileno(), of_core, LONGEST, b''))
        far.sendall(frames.frame(frames.Load(1, oid(OBJECTS), maxtid)))
        return near, far, answering

    def test_a_client_that_does_not_read_in_time(self):
        """Though it may read again at any moment."""
        for _ in range(often(600, 6000, 100)):
            near, far, answering = self.begin(
                core.Answering, self.data, self.map)
            near.setblocking(False)
            reading = Thread(read_to_the_end, far)
            self.assertRaises(OSError, answering.run)
            near.close()
            self.assertTrue(self.answer.startswith(reading.result()))

    def test_a_file_that_is_too_short(self):
        for kind in core.Answering, Answering:
            data, of_map, _ = self.copies()
            fcntl.fcntl(of_map, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            os.ftruncate(data, os.fstat(data).st_size - 1000)
            near, far, answering = self.begin(kind, data, of_map)
            far.shutdown(socket.SHUT_WR)
            reading = Thread(read_to_the_end, far)
            self.assertRaises(EOFError, answering.run)
            near.close()
            self.assertEqual(
                reading.result(), frames.frame(frames.Elsewhere(1)))

    def test_a_file_that_becomes_shorter(self):
        for kind in core.Answering, Answering:
            data, of_map, _ = self.copies()
            fcntl.fcntl(of_map, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            near, far, answering = self.begin(kind, data, of_map)
            running = Thread(answering.run)
            received = far.recv(1)  # the rest does not fit into the buffers
            os.ftruncate(data, os.fstat(data).st_size - 1000)
            reading = Thread(read_to_the_end, far)
            self.assertRaises(OSError, running.result)
            near.close()
            received += reading.result()
            self.assertLess(len(received), len(self.answer))
            self.assertTrue(self.answer.startswith(received))
