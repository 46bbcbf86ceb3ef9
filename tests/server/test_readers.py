"""Processes that read for clients of ours, at the bytes of a reader."""

import contextlib
import os
import resource
import select
import signal
import socket
import threading
import time
import unittest
from types import SimpleNamespace

import ZEO.tests
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.server import readers
from fsyncstorage.wire import frames

from ..support import PATIENCE
from ..support import commit
from ..support import oid
from ..support import until
from .reading import ReaderTestCase
from .reading import Reading
from .serving import Peer as Writer

try:
    import uvloop
except ModuleNotFoundError:
    uvloop = None

PIECE = 1 << 18


def around(tid):
    return [p64(u64(tid) + more) for more in (-1, 0, 1)]


class Loads(ReaderTestCase):

    def setUp(self):
        super().setUp()
        first = commit(self.storage, {1: b'one', 2: b'two'})
        second = commit(self.storage, {1: b'one again', 4: b'4' * 9_000_000},
                        {1: first})
        self.tids = [*around(first), *around(second), maxtid]
        self.serve()

    def check_all(self, peer):
        for number in 1, 2, 3, 4:
            for tid in self.tids:
                got = peer.load(number, tid)
                as_of = self.storage.lastTransaction()
                try:
                    expected = self.storage.loadBefore(oid(number), tid)
                except POSKeyError:
                    self.assertEqual(got, frames.Elsewhere(got.number))
                    continue
                if expected is None:
                    self.assertEqual(got, frames.Nothing(got.number, as_of))
                else:
                    data, serial, end = expected
                    self.assertEqual(
                        got[1:], (as_of, serial, end or z64, data))

    def test_as_the_storage_has_it(self):
        self.check_all(self.peer())

    def test_a_commit_is_seen_as_soon_as_it_is_told(self):
        """And the tid of a reply tells of it."""
        peer, writer = self.peer(), Writer(self.server.addr)
        self.addCleanup(writer.close)
        serial = self.tids[1]
        for number in range(100):
            serial = writer.commit({2: b'%d' % number}, serial)
            found = peer.load(2)
            self.assertEqual((found.as_of, found.serial, found.data),
                             (serial, serial, b'%d' % number))

    def test_after_a_pack(self):
        """The process gets the new file; until then, its readers end."""
        peer = self.peer()
        self.assertEqual(peer.load(1).data, b'one again')
        self.storage.pack(time.time(), lambda data: [], gc=False)
        commit(self.storage, {2: b'two again'}, {2: self.tids[1]})

        def reads_anew():
            peer = self.peer()  # none is told that there is no file
            with contextlib.suppress(EOFError, OSError):
                return getattr(peer.load(2), 'data', None) == b'two again'

        until(reads_anew, 'the new file is read')

    def test_after_a_pack_an_idle_reader_ends(self):
        """So that the old file does not take room for as long as its client
        asks for nothing."""
        peer = self.peer()
        self.storage.pack(time.time(), lambda data: [], gc=False)
        self.assertEqual(peer.rest(), [])
        directory = f'/proc/{self.process()}/fd'

        def files():
            for number in os.listdir(directory):
                with contextlib.suppress(FileNotFoundError):
                    yield os.readlink(f'{directory}/{number}')

        until(lambda: not any('Data.fs (deleted)' in file
                              for file in files()), 'the old file is let go')

    def test_byte_by_byte(self):
        peer = self.peer(hello=False, preface=b'')
        load = frames.Load(1, oid(1), maxtid)
        for byte in frames.PREFACE + peer.hello + frames.frame(load):
            peer.send(bytes([byte]))
        self.assertIsInstance(peer.after_greeting(), frames.Welcome)
        self.assertEqual(peer.next().data, b'one again')

    def test_who_does_not_read(self):
        """A reader that is stuck delays no other, and costs one piece."""
        stuck = self.peer()
        for _ in range(50):
            stuck.ask_to_load(4)
        peer = self.peer()
        self.check_all(peer)
        with open(f'/proc/{self.process()}/status') as status:
            peak = next(int(line.split()[1]) for line in status
                        if line.startswith('VmHWM'))
        self.assertLess(peak, 100_000)


def write_tls(path):
    """A configuration with TLS, and the context that it makes."""
    directory = os.path.dirname(ZEO.tests.__file__)
    with open(path, 'w') as file:
        file.write(f'''
<zeo>
  address 127.0.0.1:0
  <ssl>
    certificate {directory}/server.pem
    key {directory}/server_key.pem
    authenticate {directory}/client.pem
  </ssl>
</zeo>
<mappingstorage>
</mappingstorage>
''')


class LoadsOverTLS(Loads):
    """The process shakes hands itself, by the configuration of the server."""

    tls = True
    test_byte_by_byte = None  # a handshake is not of bytes that we choose
    test_a_commit_is_seen_as_soon_as_it_is_told = None

    def serve(self):
        write_tls(self.path('zeo.conf'))
        self.options = {'tls_from': self.path('zeo.conf')}
        super().serve()


class Blobs(ReaderTestCase):

    sizes = 0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 17

    def setUp(self):
        super().setUp()
        self.data, self.serials = {}, {}
        for number, size in enumerate(self.sizes, 1):
            self.data[number] = os.urandom(size)
            self.serials[number] = self.store_blob(number, self.data[number])
        self.serve()
        self.large = len(self.sizes)

    def no_blob_is_open(self):
        until(lambda: not self.open_blobs(), 'all files are closed')

    def test_from_any_offset(self):
        peer = self.peer()
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

    def test_a_blob_that_is_not_there(self):
        peer = self.peer()
        for number, serial, offset in (
                (99, z64, 0), (2, z64, 0), (2, self.serials[2], 5)):
            asked = peer.ask_for_blob(number, serial, offset)
            self.assertEqual(peer.next(), frames.Elsewhere(asked))

    def stalled(self):
        """It reads nothing of a blob that does not fit into what the system
        buffers."""
        self.path_of_large = self.storage.loadBlob(
            oid(self.large), self.serials[self.large])
        os.chmod(self.path_of_large, 0o600)
        os.truncate(self.path_of_large, 1 << 26)
        peer = self.peer()
        peer.ask_for_blob(self.large, self.serials[self.large])
        until(self.open_blobs, 'it is being sent')
        return peer

    def test_a_file_that_becomes_shorter(self):
        """The reader ends within the blob, and nothing else does."""
        peer = self.stalled()
        os.truncate(self.path_of_large, 100)
        size, *chunks = peer.rest()
        self.assertLess(sum(len(each.data) for each in chunks), size.size)
        self.no_blob_is_open()
        self.assertEqual(
            self.peer().blob(3, self.serials[3])[1], self.data[3])

    def test_a_peer_that_leaves(self):
        self.stalled().close()
        self.no_blob_is_open()
        until(lambda: not self.open_readers(), 'its reader ends')


class Strangers(ReaderTestCase):
    """Who does not keep to the protocol is sent away, and harms nobody."""

    def setUp(self):
        super().setUp()
        commit(self.storage, {1: b'one'})
        self.serve()
        self.honest = self.peer()

    def nobody_else_is_left(self):
        self.assertEqual(self.honest.load(1).data, b'one')
        until(lambda: self.open_readers() == 1, 'they are forgotten')

    def check_refused(self, reason, text, **options):
        peer = self.peer(hello=False, **options)
        with contextlib.suppress(ConnectionError):  # refused already
            peer.send(peer.hello)
            peer.ask_to_load(1)
        refused = peer.after_greeting()
        self.assertEqual(refused.reason, reason)
        self.assertIn(text, refused.text)
        self.assertEqual(peer.rest(), [])

    def test_who_is_refused(self):
        self.check_refused(
            frames.OTHER_VERSION,
            b'this server speaks the versions 1 to 1 of the protocol, and the'
            b' client 7 to 9', versions=(7, 9))
        self.check_refused(
            frames.OTHER_INSTANCE, b'server was restarted', instance=bytes(16))
        self.check_refused(
            frames.UNKNOWN_STORAGE, b"no storage 'other'", storage='other')
        self.nobody_else_is_left()

    def test_too_many(self):
        self.patch(readers, MOST=8)
        others = [self.peer() for _ in range(3)]
        self.check_refused(frames.TOO_MANY, b'no process')
        for other in others:
            self.assertEqual(other.load(1).data, b'one')
            other.close()
        self.nobody_else_is_left()
        self.assertEqual(self.peer().load(1).data, b'one')

    def test_no_descriptor_is_left_for_it(self):
        limit = len(os.listdir(f'/proc/{self.process()}/fd'))
        resource.prlimit(self.process(), resource.RLIMIT_NOFILE,
                         (limit, limit))
        with self.assertRaises(EOFError):
            self.peer(hello=False).after_greeting()
        self.nobody_else_is_left()

    def test_what_is_no_request(self):
        load = frames.frame(frames.Load(1, oid(1), maxtid))
        for bad in (frames.frame(frames.Load(0, oid(1), maxtid)),
                    frames.frame(frames.Ping(1)), b'\xff\xff\xff\xff',
                    b'\0\0\0\0', frames.PREFACE, b'\0' * 2000):
            peer = self.peer()
            peer.send(load)
            self.assertEqual(peer.next().data, b'one')
            peer.send(bad)
            self.assertEqual(peer.rest(), [])
        self.nobody_else_is_left()

    def test_half_a_hello(self):
        """It does not stay for ever, and delays nobody."""
        peers = [self.peer(hello=False) for _ in range(20)]
        for number, peer in enumerate(peers):
            peer.send(peer.hello[:number])
        self.assertEqual(self.honest.load(1).data, b'one')
        for peer in peers:
            with self.assertRaises(EOFError):
                peer.after_greeting()
        self.nobody_else_is_left()


class Ends(ReaderTestCase):
    """Of the process, and of the server."""

    def setUp(self):
        super().setUp()
        commit(self.storage, {1: b'one'})
        self.serve()

    def test_a_process_that_is_killed(self):
        self.patch(readers, RETREAT=0)
        peer = self.peer()
        os.kill(self.process(), signal.SIGKILL)
        self.assertEqual(peer.rest(), [])
        until(lambda: not self.open_readers(), 'its readers are forgotten')
        self.assertEqual(self.peer().load(1).data, b'one')

    def test_a_server_that_closes(self):
        peer = self.peer()
        pid = self.process()
        self.server.close()
        self.assertEqual(peer.rest(), [])
        self.assertFalse(os.path.exists(f'/proc/{pid}'))

    def test_the_loop_ends_them(self):
        """It alone knows which ones there are, also where another thread
        closes the server."""
        self.peer()
        loop, of_readers = self.server.acceptor.event_loop, self.server.readers
        end_all, beside_the_loop = of_readers.end_all, []

        def end():
            beside_the_loop.append(
                loop.is_running()
                and threading.current_thread() is not self.thread)
            end_all()

        self.patch(of_readers, end_all=end)
        self.server.close()
        self.assertEqual(set(beside_the_loop), {False})

    def test_a_process_that_is_stopped(self):
        """The server closes all the same."""
        self.peer()
        pid = self.process()
        os.kill(pid, signal.SIGSTOP)
        self.server.close()
        self.assertFalse(os.path.exists(f'/proc/{pid}'))

    def test_a_process_that_hangs(self):
        """Its clients do not wait for it for ever."""
        self.patch(readers, RETREAT=0, SILENT_FOR=5)
        peer = self.peer()
        os.kill(self.process(), signal.SIGSTOP)
        self.assertEqual(peer.rest(), [])
        until(lambda: not self.open_readers(), 'its readers are forgotten')
        self.assertEqual(self.peer().load(1).data, b'one')

    def test_figures(self):
        peer = self.peer()
        for _ in range(10):
            peer.load(1)
        until(lambda: self.figures.requests == 10, 'they are counted')
        status = self.in_loop(self.service.own_status)
        self.assertEqual((status['channels'], status['loads'],
                          status['loads-from-readers']), (1, 10, 10))
        self.assertGreaterEqual(status['channel-bytes-sent'], 10 * 36)
        peer.close()
        until(lambda: not self.figures.channels, 'it is gone')


class Several(ReaderTestCase):

    readers = 2

    def test_one_that_has_just_died(self):
        """Before the server knows, another one takes the next reader."""
        commit(self.storage, {1: b'one'})
        self.serve()
        peers = [self.peer(), self.peer()]
        with socket.create_server(('127.0.0.1', 0)) as listener:
            peer = Reading(SimpleNamespace(
                acceptor=SimpleNamespace(addr=listener.getsockname()),
                instance=self.server.instance))
            self.addCleanup(peer.close)
            taken, _ = listener.accept()
        with taken:
            self.assertTrue(self.in_loop(self.kill_one_and_take, taken))
        peer.send(peer.hello)
        self.assertIsInstance(peer.next(), frames.Welcome)
        self.assertEqual(peer.load(1).data, b'one')
        self.assertEqual(len(peers), 2)

    def kill_one_and_take(self, connection):
        first, _ = self.server.readers._processes
        ended = os.pidfd_open(first._child.pid)
        os.kill(first._child.pid, signal.SIGKILL)
        select.select([ended], [], [], PATIENCE)
        os.close(ended)
        return self.server.readers.take(connection, '')


@unittest.skipIf(uvloop is None, 'uvloop is not installed')
class EndsOverUvloop(Ends):

    new_event_loop = staticmethod(uvloop and uvloop.new_event_loop)
