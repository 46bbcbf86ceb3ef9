"""The server's end of a reader.  Goes with `server/reader.py`."""

import os
import threading
import unittest
from unittest import mock

from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.server import blobstream
from fsyncstorage.server import connection
from fsyncstorage.server import incoming
from fsyncstorage.server import reader
from fsyncstorage.server import workers
from fsyncstorage.wire import frames

from ..often import often
from ..support import PATIENCE
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import until
from .reading import ReaderTestCase
from .serving import Peer as Writer

try:
    import uvloop
except ModuleNotFoundError:
    uvloop = None

PIECE = blobstream.READ_AT_ONCE


def around(tid):
    return [p64(u64(tid) + more) for more in (-1, 0, 1)]


class Loads(ReaderTestCase):

    def setUp(self):
        super().setUp()
        first = commit(self.storage, {1: b'one', 2: b'two'})
        second = commit(self.storage, {1: b'one again'}, {1: first})
        self.tids = [*around(first), *around(second), maxtid]
        self.serve()

    def check_all(self):
        peer = self.peer()
        for number in 1, 2, 3:
            for tid in self.tids:
                got = peer.load(number, tid)
                as_of = self.storage.lastTransaction()
                self.assertEqual(got.as_of, as_of)
                try:
                    expected = self.storage.loadBefore(oid(number), tid)
                except POSKeyError:
                    self.assertEqual(got, frames.Missing(got.number, as_of))
                    continue
                if expected is None:
                    self.assertEqual(got, frames.Nothing(got.number, as_of))
                else:
                    data, serial, end = expected
                    self.assertEqual(
                        got[1:], (as_of, serial, end or z64, data))

    def test_as_the_storage_has_it(self):
        with mock.patch.object(workers.Line, 'submit'):
            self.check_all()  # without reader threads
        self.assertEqual(self.figures.loads_from_disk, 0)

    def test_what_is_not_cached(self):
        self.nothing_is_cached()
        self.check_all()
        self.assertEqual(
            self.figures.loads_from_disk, self.server.stats['1'].loads)

    def test_what_was_true_before_others_have_committed(self):
        """The tid that a reply carries is that of before the look-up."""
        load_before = self.storage.loadBefore
        looked_up, go_on = threading.Event(), threading.Event()

        def slow(*args):
            found = load_before(*args)
            looked_up.set()
            go_on.wait(PATIENCE)
            return found

        self.nothing_is_cached()
        peer, other = self.peer(), Writer(self.server.addr)
        self.addCleanup(other.close)
        with mock.patch.object(self.storage, 'loadBefore', slow):
            peer.ask_to_load(1)
            self.assertTrue(looked_up.wait(PATIENCE))
            later = other.commit({1: b'later'}, self.tids[4])
            go_on.set()
            self.assertLess(peer.next().as_of, later)
        found = peer.load(1)
        self.assertEqual((found.as_of, found.serial), (later, later))

    def test_an_object_that_is_too_large(self):
        self.patch(frames, _BY_MESSAGE={
            **frames._BY_MESSAGE, frames.Found: frames._BY_MESSAGE[
                frames.Found]._replace(longest=100)})
        commit(self.storage, {4: b'x' * 200})
        peer = self.peer()
        for _ in range(2):
            with self.assertLogs('fsyncstorage', 'ERROR'):
                self.assertIsInstance(peer.load(4), frames.Error)
            self.assertIsInstance(peer.load(1), frames.Found)
            self.nothing_is_cached()

    def test_byte_by_byte(self):
        peer = self.peer(hello=False)
        load = frames.Load(1, oid(1), maxtid)
        for byte in peer.hello + frames.frame(load):
            peer.send(bytes([byte]))
        self.assertIsInstance(peer.after_greeting(), frames.Welcome)
        self.assertEqual(peer.next().data, b'one again')

    def test_storages_of_others(self):
        self.server.close()
        self.thread.join()
        self.storage = self.open(self.path('again'))
        other = MappingStorage()
        commit(other, {5: b'five'}, f=lambda tid: None)
        self.serve(other=other)
        peer = self.peer(storage='other')
        self.assertEqual(peer.load(5).data, b'five')
        self.assertIsInstance(peer.load(6), frames.Missing)
        with self.assertLogs('fsyncstorage', 'ERROR'):
            peer.ask_for_blob(5, z64)
            self.assertEqual(peer.next().name, b'builtins.AttributeError')
        self.assertIsInstance(self.peer().load(5), frames.Missing)


class Flow(ReaderTestCase):
    """A reader is read no further than its answers get away."""

    def setUp(self):
        super().setUp()
        commit(self.storage, {1: b'small', 2: b'large' * 60_000})
        self.serve()

    def test_a_window_of_unanswered_requests(self):
        self.nothing_is_cached()
        may_go_on = threading.Event()
        self.addCleanup(may_go_on.set)
        load_before = self.storage.loadBefore

        def held(oid, tid):
            may_go_on.wait(PATIENCE)
            return load_before(oid, tid)

        self.patch(self.storage, loadBefore=held)
        peer = self.peer()
        one = self.only_reader()
        total = connection.WINDOW + 300
        numbers = {peer.ask_to_load(1) for _ in range(total)}
        until(lambda: self.figures.requests == connection.WINDOW,
              'a full window')
        self.assertFalse(self.in_loop(one.transport.is_reading))
        self.assertEqual(self.figures.requests, connection.WINDOW)
        # Somebody else is served.
        self.patch(self.server.services['1'],
                   load_cached=self.storage.load_before_cached)
        self.assertEqual(self.peer().load(1).data, b'small')
        may_go_on.set()
        for _ in range(total):
            got = peer.next()
            numbers.remove(got.number)
            self.assertEqual(got.data, b'small')
        self.assertEqual(numbers, set())
        self.assertTrue(self.in_loop(one.transport.is_reading))


class Blobs(ReaderTestCase):

    level = 2
    sizes = 0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 17

    def setUp(self):
        super().setUp()
        self.data, self.serials = {}, {}
        for number, size in enumerate(self.sizes, 1):
            self.data[number] = os.urandom(size)
            self.serials[number] = self.store_blob(number, self.data[number])
        self.serve()
        self.large = len(self.sizes)

    def check_all(self, peer):
        for number, data in self.data.items():
            serial = self.serials[number]
            for offset in {0, len(data) // 2, len(data)}:
                self.assertEqual(peer.blob(number, serial, offset),
                                 (len(data), data[offset:]))
        self.no_blob_is_open()

    def test_no_more_than_a_begin_of_what_is_too_long(self):
        data, serial = self.data[self.large], self.serials[self.large]
        size = len(data)
        peer = self.peer()
        begin = frames.BEGIN_OF_A_BLOB
        for offset, most, end in (
                (0, 0, begin), (0, size - 1, begin), (0, size, size),
                (5, 1, 5 + begin), (5, size - 5, size),
                (size - 9, 8, size), (size, 0, size)):
            self.assertEqual(peer.blob(self.large, serial, offset, most),
                             (size, data[offset:end]))
        self.no_blob_is_open()

    def no_blob_is_open(self):
        until(lambda: not self.open_blobs(), 'all files are closed')

    def test_from_any_offset(self):
        self.check_all(self.peer())

    def assert_cut(self, messages):
        """There is a size, and fewer bytes than that."""
        size, *chunks = messages
        self.assertIsInstance(size, frames.BlobSize)
        self.assertLess(sum(len(each.data) for each in chunks), size.size)

    def cut_blob(self, size):
        name = self.storage.loadBlob(
            oid(self.large), self.serials[self.large])
        os.chmod(name, 0o600)
        os.truncate(name, size)

    def test_a_file_that_becomes_shorter(self):
        """The reader ends within the blob, and nothing else does."""
        peer = self.stalled()
        self.cut_blob(100)
        with self.assertLogs('fsyncstorage', 'ERROR'):
            self.assert_cut(peer.rest())
        self.no_blob_is_open()
        self.assertEqual(
            self.peer().blob(3, self.serials[3])[1], self.data[3])

    def stall(self, peer):
        """It reads nothing of a blob that does not fit into what the system
        buffers."""
        name = self.storage.loadBlob(
            oid(self.large), self.serials[self.large])
        os.chmod(name, 0o600)
        os.truncate(name, 1 << 26)
        peer.ask_for_blob(self.large, self.serials[self.large])
        self.until_stuck(self.only_reader())

    def stalled(self):
        peer = self.peer()
        self.stall(peer)
        return peer

    def test_a_peer_that_leaves(self):
        for _ in range(often(1, 3)):
            self.stalled().close()
            until(lambda: not self.figures.channels, 'its reader ends')
            self.no_blob_is_open()
            # The number of its socket is free for somebody else.
            others = [self.peer() for _ in range(3)]
            for other in others:
                self.assertEqual(other.blob(3, self.serials[3])[1],
                                 self.data[3])
                other.close()
            until(lambda: not self.figures.channels, 'the others end')

    def test_closing_the_server_meanwhile(self):
        peer = self.stalled()
        self.server.close()
        self.thread.join(PATIENCE)
        self.assertFalse(self.thread.is_alive())
        self.no_blob_is_open()
        self.assert_cut(peer.rest())


class BlobsOverTLS(Blobs):

    level = 2
    tls = True


@unittest.skipIf(uvloop is None, 'uvloop is not installed')
class BlobsOverUvloop(BlobsOverTLS):

    tls = False
    new_event_loop = staticmethod(uvloop and uvloop.new_event_loop)


class Strangers(ReaderTestCase):
    """Who does not keep to the protocol is sent away, and harms nobody."""

    def setUp(self):
        super().setUp()
        commit(self.storage, {1: b'one'})
        self.serve()
        self.honest = self.peer()

    def nobody_else_is_left(self):
        self.assertEqual(self.honest.load(1).data, b'one')
        until(lambda: len(self.server.connections) == 1, 'they are forgotten')
        self.assertEqual(self.figures.channels, 1)

    def check_refused(self, reason, text, **options):
        peer = self.peer(hello=False, **options)
        peer.send(peer.hello)
        peer.ask_to_load(1)
        refused = peer.after_greeting()
        self.assertEqual(refused.reason, reason)
        self.assertIn(text, refused.text)
        self.assertEqual(peer.rest(), [])

    def test_another_version(self):
        """Both sides are told which ones there are."""
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            self.check_refused(
                frames.OTHER_VERSION,
                b'this server speaks the versions 1 to 1 of the protocol, and'
                b' the client 7 to 9', versions=(7, 9))
        self.assertIn('the client 7 to 9', logs.output[0])
        self.nobody_else_is_left()

    def test_another_instance(self):
        self.check_refused(
            frames.OTHER_INSTANCE, b'server was restarted', instance=bytes(16))
        self.nobody_else_is_left()

    def test_another_storage(self):
        self.check_refused(
            frames.UNKNOWN_STORAGE, b"no storage 'other'", storage='other')
        self.nobody_else_is_left()

    def test_too_many(self):
        self.patch(reader, MOST_READERS=3)
        others = [self.peer() for _ in range(2)]
        self.check_refused(frames.TOO_MANY, b'3 readers are open')
        for other in others:
            self.assertEqual(other.load(1).data, b'one')
            other.close()
        self.nobody_else_is_left()
        self.assertEqual(self.peer().load(1).data, b'one')

    def test_a_request_that_does_not_end(self):
        peer = self.peer()
        self.patch(incoming, PER_FRAME=0.01)
        request = frames.frame(frames.Load(1, oid(1), maxtid))
        peer.send(request + request[:-1])
        found, = peer.rest()
        self.assertEqual(found.data, b'one')
        self.nobody_else_is_left()


class Server(ReaderTestCase):
    """How it ends its readers."""

    def setUp(self):
        super().setUp()
        commit(self.storage, {1: b'one'})
        self.serve()

    def test_closing_with_loads_under_way(self):
        self.nothing_is_cached()
        may_go_on = threading.Event()
        self.addCleanup(may_go_on.set)
        came = threading.Event()

        def held(oid, tid):
            came.set()
            may_go_on.wait(PATIENCE)

        self.patch(self.storage, loadBefore=held)
        peers = [self.peer() for _ in range(10)]
        for peer in peers:
            peer.ask_to_load(1)
        self.assertTrue(came.wait(PATIENCE))
        closing = Thread(self.server.close)
        until(lambda: not self.server.services['1'].committer.is_alive(),
              'it begins to close')
        may_go_on.set()
        closing.result()
        self.thread.join(PATIENCE)
        for peer in peers:
            self.assertLessEqual(len(peer.rest()), 1)
        self.assertEqual(self.server.connections, set())
