"""Blobs that are read before all of them is there.  Goes with
`client/blobs/arriving.py`.
"""

import contextlib
import itertools
import os
import threading
import time
import warnings
from unittest import mock

from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import POSKeyError

from fsyncstorage.client.blobs.arriving import ArrivingFile
from fsyncstorage.client.blobs.download import DownloadFailed
from fsyncstorage.client.blobs.download import Interrupted
from fsyncstorage.server.blobstream import READ_AT_ONCE
from fsyncstorage.server.blobstream import BlobStream
from fsyncstorage.wire.frames import BEGIN_OF_A_BLOB as BEGIN

from ...commit.test_interrupts import Interrupter
from ...often import often
from ...support import PATIENCE
from ...support import Thread
from ...support import oid
from ...support import until
from ..connected import ConnectedTestCase
from ..connected import blobs_held_up
from .caches import SERIAL
from .caches import BlobCacheTest


def read(file, size):
    """So many bytes, in whatever pieces they come."""
    found = b''
    while len(found) < size and (piece := file.read(size - len(found))):
        found += piece
    return found


class Short(BlobCacheTest):
    """So many bytes are not worth a thread."""

    level = 2

    def setUp(self):
        super().setUp()
        self.short_is(2000)
        self.server.put(1, 2000)
        self.server.put(2, 2001)
        self.server.put(3, 0)
        self.threads = set()
        self.server.sending = lambda download, piece: self.threads.add(
            threading.current_thread())

    def open(self, cache, number):
        file = cache.open_arriving(oid(number), SERIAL)
        self.addCleanup(file.close)
        self.assertEqual(
            file.seek(0, os.SEEK_END), len(self.server.blobs[number]))
        file.seek(0)
        self.assertEqual(file.read(), self.server.blobs[number])
        return file

    def test_is_a_plain_file(self):
        for limit in self.limit, 1000:
            for number in 1, 3:
                with self.subTest(limit=limit, number=number), \
                        contextlib.closing(self.cache(limit)) as cache:
                    self.open(cache, number).fileno()
                    self.assertEqual(self.server.begun.pop(), (number, 0))
            self.check()
            for name in self.disk.blobs():
                os.remove(os.path.join(self.home, name))
        self.assertEqual(self.threads, {threading.current_thread()})
        self.assertEqual(self.server.asked, [])

    def test_for_all_who_ask_meanwhile(self):
        """In this process, and in another."""
        cache, other = self.cache(), self.cache()
        begun, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def hold(download, piece):
            begun.set()
            go_on.wait(PATIENCE)

        self.server.sending = hold
        opened = [Thread(self.open, cache, 1)]
        self.assertTrue(begun.wait(PATIENCE))
        with mock.patch.object(time, 'sleep', side_effect=time.sleep) as slept:
            opened += [Thread(self.open, each, 1) for each in (cache, other)]
            until(lambda: slept.call_count > 3, 'they wait')
            go_on.set()
            for thread in opened:
                thread.result().fileno()
        self.assertEqual(self.server.begun, [(1, 0)])
        self.assertEqual(self.check(), self.names(1))

    def test_an_interrupt_at_each_line(self):
        """Others who ask for the blob do not wait for ever."""
        cache = self.cache(limit=None)
        for at in itertools.count(1, often(3, 1)):
            self.server.put(at, 2000)
            interrupter = Interrupter(at)
            with warnings.catch_warnings():
                # Of a file that was open, and not handed out.
                warnings.simplefilter('ignore', ResourceWarning)
                with contextlib.suppress(KeyboardInterrupt), interrupter:
                    cache.open_arriving(oid(at), SERIAL).close()
            Thread(self.open, cache, at).result()
            if not interrupter.fired:
                break
        self.assertGreater(at, 50)


class ArrivingTest(BlobCacheTest):
    """With a server that sends 2000 bytes of a blob, and then waits."""

    size = 3500

    def setUp(self):
        super().setUp()
        # Nothing is short, and of a begin only the size comes.
        self.short_is(-1)
        self.server.begin = 0
        self.server.put(1, self.size)
        self.content = self.server.blobs[1]
        self.server.sending = self.wait_after_2000
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.error = None  # raised when it goes on

    def wait_after_2000(self, download, piece):
        if download.offset == 2000:
            self.reached.set()
            self.assertTrue(self.go_on.wait(PATIENCE))
            if self.error is not None:
                raise self.error

    def cache(self, *args, **options):
        cache = super().cache(*args, **options)
        self.addCleanup(self.go_on.set)  # before it is closed
        return cache

    def arriving(self, cache):
        file = cache.open_arriving(oid(1), SERIAL)
        self.addCleanup(file.close)
        self.assertIsInstance(file, ArrivingFile)
        return file

    def begun(self, cache):
        """What there is was read, and more does not come."""
        file = self.arriving(cache)
        self.assertEqual(read(file, 2000), self.content[:2000])
        self.assertTrue(self.reached.wait(PATIENCE))
        return file

    def check_rest(self, file):
        self.assertEqual(read(file, self.size), self.content[2000:])
        self.assertEqual(file.read(10), b'')

    def until_over(self, *caches):
        for cache in caches:
            until(lambda: not cache._threads, 'downloads end')


class Reading(ArrivingTest):

    def test_what_has_come_is_read_before_the_rest(self):
        cache = self.cache()
        file = self.begun(cache)
        self.assertEqual(self.disk.blobs(), {})
        self.go_on.set()
        self.check_rest(file)
        self.until_over(cache)
        self.assertEqual(self.check(), self.names(1))
        self.assertEqual(self.server.asked, [(1, 0)])

    def test_nothing_is_read_that_has_not_come(self):
        file = self.begun(self.cache())
        file.seek(0)
        self.assertEqual(file.read(self.size), self.content[:2000])

    def test_the_size_is_known_at_once(self):
        file = self.begun(self.cache())
        self.assertEqual(file.size, self.size)
        self.assertEqual(file.seek(0, os.SEEK_END), self.size)
        self.assertEqual(file.read(1), b'')
        self.assertEqual(file.seek(-1600, os.SEEK_CUR), 1900)
        self.assertEqual(file.tell(), 1900)
        self.assertEqual(read(file, 100), self.content[1900:2000])
        self.go_on.set()
        file.seek(-10, os.SEEK_END)
        self.assertEqual(read(file, 20), self.content[-10:])

    def test_it_has_no_descriptor(self):
        """Nobody can send what is there, and take it for all."""
        with self.assertRaises(OSError):
            self.begun(self.cache()).fileno()

    def test_who_goes_away_does_not_stop_it(self):
        cache = self.cache()
        self.begun(cache).close()
        self.go_on.set()
        self.until_over(cache)
        self.assertEqual(self.check(), self.names(1))
        self.assertEqual(self.server.asked, [(1, 0)])


class Trouble(ArrivingTest):

    def test_one_that_does_not_exist(self):
        cache = self.cache()
        self.error = POSKeyError(oid(1))
        self.server.sending = mock.Mock(side_effect=self.error)
        self.server.knows_sizes = False
        with self.assertRaises(POSKeyError):
            cache.open_arriving(oid(1), SERIAL)
        self.until_over(cache)
        self.assertEqual(self.check(), set())

    def test_a_failure_is_never_an_end(self):
        cache = self.cache()
        files = self.begun(cache), self.begun(cache)
        self.error = DownloadFailed('it did not come')
        waiting = Thread(files[0].read, 10)
        self.go_on.set()
        for read_on in waiting.result, files[1].readall:
            with self.assertRaisesRegex(DownloadFailed, 'did not come'):
                read_on()
        self.until_over(cache)
        self.assertEqual(self.check(), set())

    def test_closing_the_cache(self):
        cache = self.cache()
        file = self.begun(cache)
        self.error = Interrupted('the connection is closed')
        rest = Thread(file.read, 10)
        thread, = cache._threads
        self.go_on.set()
        cache.close()
        self.assertFalse(thread.is_alive())
        with self.assertRaisesRegex(DownloadFailed, 'closed'):
            rest.result()
        with self.assertRaisesRegex(DownloadFailed, 'is closed'):
            cache.open_arriving(oid(2), SERIAL)

    def test_who_reads_what_another_process_downloads(self):
        """It may close its cache, and the other one may fail."""
        cache, other = self.cache(), self.cache()
        self.begun(cache)
        files = self.begun(other), self.begun(other)
        rest = Thread(files[0].readall)
        self.error = DownloadFailed('it did not come')
        self.server.sending = mock.Mock()
        self.go_on.set()
        self.assertEqual(rest.result(), self.content[2000:])
        other.close()
        self.check_rest(files[1])


class Guests(ArrivingTest):

    size = 20000

    def test_who_reads_it_has_it_open(self):
        """Each has one of its own."""
        one, other = self.cache(), self.cache()
        files = self.begun(one), self.begun(one), self.begun(other)
        self.go_on.set()
        self.until_over(one, other)
        self.assertEqual(self.check(), set())
        for file in files:
            self.check_rest(file)


class FromAServer(ConnectedTestCase):

    level = 2

    def setUp(self):
        super().setUp()
        # More than there is room for on the way.
        self.content = os.urandom(80 * READ_AT_ONCE)
        self.serial = self.store_blob(1, self.content)
        self.client = self.connect(blob_dir=self.path('cache'))
        self.go_on = threading.Event()
        self.addCleanup(self.go_on.set)

    def begun(self):
        patch = blobs_held_up(self.go_on)
        patch.start()
        self.addCleanup(patch.stop)
        file = self.client.openArriving(oid(1), self.serial)
        self.addCleanup(file.close)
        self.assertEqual(file.size, len(self.content))
        self.assertEqual(read(file, BEGIN), self.content[:BEGIN])
        return file

    def check_rest(self, file):
        self.assertEqual(file.read(), self.content[BEGIN:])
        with self.client.openArriving(oid(1), self.serial) as plain:
            self.assertEqual(plain.read(), self.content)

    def test_a_server_that_is_started_again_in_the_middle(self):
        file = self.begun()
        self.serve_again()
        self.go_on.set()
        self.check_rest(file)

    def test_a_server_that_is_gone(self):
        file = self.begun()
        self.client.wait_timeout = 0.1
        self.end_server()
        self.go_on.set()
        # It was waited for once.
        with self.assertRaisesRegex(ClientDisconnected, 'no server after'):
            file.read()

    def test_a_server_that_hangs(self):
        """It is waited for as long as there is a connection to it."""
        send, hung = BlobStream._send, []

        def hang(stream, piece, error):
            if not hung and stream._file.tell() > READ_AT_ONCE:
                hung.append(stream)
                self.addCleanup(stream._file.close)
            if stream not in hung:
                send(stream, piece, error)

        self.patch(BlobStream, _send=hang)
        file = self.client.openArriving(oid(1), self.serial)
        self.addCleanup(file.close)
        self.assertEqual(read(file, BEGIN), self.content[:BEGIN])
        rest = Thread(file.read)
        until(lambda: hung, 'the server hangs')  # or the next stream would
        self.cut_off(self.client)
        self.assertEqual(rest.result(), self.content[BEGIN:])

    def test_closing_the_client(self):
        rest = Thread(self.begun().read)
        closing = Thread(self.client.close)
        until(lambda: self.client.is_closed, 'closed')
        self.go_on.set()
        with self.assertRaisesRegex(TransientError, 'is closed'):
            rest.result()
        closing.result()
        with self.assertRaisesRegex(DownloadFailed, 'is closed'):
            self.client.openArriving(oid(1), self.serial)
