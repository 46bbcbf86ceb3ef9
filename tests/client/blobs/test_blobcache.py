"""The blob cache of a client, promise by promise, in one process."""

import contextlib
import errno
import gc
import itertools
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import unittest
from unittest import mock

from ZEO import ClientStorage
from ZODB.blob import LAYOUTS
from ZODB.blob import Blob
from ZODB.blob import BlobFile
from ZODB.blob import FilesystemHelper
from ZODB.POSException import POSKeyError

from fsyncstorage.client.blobs import books
from fsyncstorage.client.blobs import cachedirectory
from fsyncstorage.client.blobs import download
from fsyncstorage.client.blobs import filelocks
from fsyncstorage.client.blobs.blobcache import TRIES
from fsyncstorage.client.blobs.blobcache import CacheFailed
from fsyncstorage.client.blobs.blobcache import DownloadFailed
from fsyncstorage.client.blobs.blobcache import Interrupted
from fsyncstorage.client.blobs.guests import open_guest
from fsyncstorage.client.blobs.ledger import Ledger

from ...commit.test_interrupts import AfterCalls
from ...commit.test_interrupts import Interrupter
from ...support import PATIENCE
from ...support import Thread
from ...support import oid
from ...support import until
from .caches import SERIAL
from .caches import BlobCacheTest
from .caches import content
from .caches import hold


def no_room(*args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def open_files():
    return set(os.listdir('/dev/fd'))


class Loading(BlobCacheTest):

    def test_a_blob_is_loaded_once(self):
        self.server.put(1, 3500)
        cache = self.cache()
        self.load(cache, 1)
        self.load(cache, 1)
        self.read(cache, 1)
        self.assertEqual(self.server.asked, [(1, 0)])
        self.assertEqual(self.check(), self.names(1))

    def test_the_file_is_read_only(self):
        self.server.put(1, 10)
        path = self.cache().load(oid(1), SERIAL)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o400)

    def test_a_use_leaves_the_time_of_modification(self):
        self.server.put(1, 10)
        cache = self.cache()
        path = cache.load(oid(1), SERIAL)
        os.utime(path, (1, 2))
        cache.load(oid(1), SERIAL)
        self.assertEqual(os.stat(path).st_mtime, 2)
        self.assertGreater(os.stat(path).st_atime, 2)

    def test_a_blob_file(self):
        self.server.put(1, 10)
        cache = self.cache()
        blob = Blob()
        with cache.open(oid(1), SERIAL, blob) as file:
            self.assertIs(type(file), BlobFile)
            self.assertIs(file.blob, blob)
            self.assertEqual(file.name, cache.load(oid(1), SERIAL))

    def test_an_empty_blob(self):
        for self.server.knows_sizes in True, False:
            number = len(self.server.blobs)
            self.server.put(number, 0)
            self.read(self.cache(), number)
        self.assertEqual(self.check(), self.names(0, 1))

    def test_no_such_blob(self):
        def fetch(oid, serial, download):
            raise POSKeyError(oid)

        with self.assertRaises(POSKeyError):
            self.cache(fetch=fetch).load(oid(1), SERIAL)
        self.assertEqual(self.check(), set())

    def test_no_blob_has_its_name_before_it_is_complete(self):
        self.server.put(1, 3500)
        self.server.sending = lambda *args: self.assertEqual(
            self.disk.blobs(), {})
        self.load(self.cache(), 1)

    def test_room_is_booked_before_a_byte_is_written(self):
        def sending(download, piece):
            booked = self.disk.rows()[self.name(1)]
            self.assertEqual(booked, 3500)
            self.assertEqual(self.disk.total(), booked)

        self.server.put(1, 3500)
        self.server.sending = sending
        self.load(self.cache(), 1)

    def test_a_file_that_vanished_is_loaded_again(self):
        self.server.put(1, 1000)
        cache = self.cache()
        for load in self.load, self.read:
            load(cache, 1)
            shutil.rmtree(os.path.join(self.home, '1'))
        self.read(cache, 1)
        self.assertEqual(len(self.server.asked), 3)
        self.assertEqual(self.check(), self.names(1))

    def test_a_file_that_vanishes_before_it_is_opened(self):
        self.server.put(1, 1000)
        cache = self.cache()
        path = cache.load(oid(1), SERIAL)
        use = cachedirectory.CacheDirectory.use

        def use_and_lose(directory, name):
            try:
                return use(directory, name)
            finally:
                if os.path.exists(path) and len(self.server.asked) == 1:
                    os.remove(path)

        with mock.patch.object(
                cachedirectory.CacheDirectory, 'use', use_and_lose):
            self.read(cache, 1)
        self.assertEqual(len(self.server.asked), 2)
        self.assertEqual(self.check(), self.names(1))

    def test_what_is_closed_leaves_nothing(self):
        self.server.put(1, 1000)
        before = open_files()
        cache = self.cache()
        self.load(cache, 1)
        cache.close()
        cache.close()
        self.assertEqual(open_files(), before)
        self.assertEqual(
            set(os.listdir(self.disk.own)),
            {'books.sqlite', 'lock', 'parts', 'walked'})


class Mode(BlobCacheTest):
    """Who may read a file may go there; under any umask."""

    def setUp(self):
        super().setUp()
        self.addCleanup(os.umask, os.umask(0o077))
        self.server.put(1, 3000)

    def load_with(self, mode):
        path = self.cache(mode=mode).load(oid(1), SERIAL)
        while path != self.directory:
            yield stat.S_IMODE(os.stat(path).st_mode)
            path = os.path.dirname(path)

    def test_what_is_new(self):
        for mode, directory in (0o400, 0o700), (0o440, 0o710), (0o444, 0o711):
            with self.subTest(oct(mode)):
                self.assertEqual(
                    list(self.load_with(mode)), [mode, directory, directory])
                shutil.rmtree(self.home)

    def test_what_was_there_before(self):
        for mode, *expected in (
                (0o400, 0o400, 0o700, 0o700), (0o440, 0o440, 0o710, 0o710),
                (0o444, 0o444, 0o711, 0o711), (0o400, 0o444, 0o711, 0o711)):
            self.assertEqual(list(self.load_with(mode)), expected)
        self.assertEqual(len(self.server.asked), 1)

    def test_what_else_there_is_stays(self):
        self.cache()
        os.chmod(self.home, 0o2750)
        self.assertEqual(list(self.load_with(0o444))[-1], 0o2751)

    def test_a_download_is_for_nobody_else(self):
        def sending(download, piece):
            for part in self.disk.parts():
                part = os.path.join(self.disk.own, 'parts', part)
                self.assertEqual(stat.S_IMODE(os.stat(part).st_mode), 0o600)

        self.server.sending = sending
        list(self.load_with(0o444))


class Locks(BlobCacheTest):

    def test_one_at_a_time(self):
        path = self.path('lock')
        with filelocks.claim(path):
            self.assertIsNone(filelocks.claim(path, wait=False))
        with filelocks.claim(path, wait=False) as file:
            self.assertTrue(file.is_in_place())
            os.remove(path)
            self.assertFalse(file.is_in_place())

    def test_a_copy_of_the_descriptor_keeps_nothing_locked(self):
        path = self.path('lock')
        file = filelocks.claim(path)
        copy = os.dup(file.fd)  # as a child has it
        file.close()
        filelocks.claim(path, wait=False).close()
        os.close(copy)


    def test_one_that_is_dropped_keeps_nothing_locked(self):
        path = self.path('lock')
        file = filelocks.claim(path)
        self.assertIsNone(filelocks.claim(path, wait=False))
        del file
        filelocks.claim(path, wait=False).close()


class EveryLine(BlobCacheTest):
    """An interrupt at each line: other threads go on afterwards."""

    def check(self, step, interrupter_at=Interrupter, least=15):
        for at in itertools.count(1):
            interrupter = interrupter_at(at)
            with contextlib.suppress(KeyboardInterrupt), interrupter:
                step(at)
            Thread(step, at).result()
            if not interrupter.fired:
                break
        self.assertGreater(at, least)

    def test_of_the_books(self):
        ledger = self.cache()._books._ledger
        self.check(lambda at: ledger.work(
            lambda db: list(db.execute('SELECT name FROM blobs'))))

    def test_of_what_is_not_urgent(self):
        """The other thread would do nothing, so that it has to wait."""
        ledger = self.cache()._books._ledger
        steps = itertools.cycle([ledger.try_work, ledger.work])
        for interrupter_at, least in (
                (Interrupter, 15),
                (lambda at: AfterCalls(at, Ledger.locked.__wrapped__), 0)):
            self.check(lambda at: next(steps)(
                lambda db: list(db.execute('SELECT name FROM blobs'))),
                interrupter_at, least)

    def test_of_a_load(self):
        """The next one takes it over: each time, another blob."""
        cache = self.cache(limit=None)

        def load(at):
            self.server.put(at, 1500)
            self.load(cache, at)

        self.check(load)


class Interruptions(BlobCacheTest):

    def setUp(self):
        super().setUp()
        self.server.put(1, 3500)

    def interrupt(self, times, after=2000):
        """Interrupt a download so often when so much is there."""
        left = [times]

        def sending(download, piece):
            if download.offset >= after and left[0]:
                left[0] -= 1
                raise Interrupted('pulled the plug')

        self.server.sending = sending

    def test_it_goes_on(self):
        self.interrupt(TRIES - 1)
        self.load(self.cache(), 1)
        self.assertEqual(
            self.server.asked, [(1, 0)] + [(1, 2000)] * (TRIES - 1))
        self.assertEqual(self.check(), self.names(1))

    def test_not_for_ever(self):
        self.interrupt(TRIES)
        with self.assertRaisesRegex(DownloadFailed, 'pulled the plug'):
            self.load(self.cache(), 1)
        self.assertEqual(self.check(), set())
        self.load(self.cache(), 1)
        self.assertEqual(self.server.asked[-1], (1, 0))

    def test_a_server_that_begins_again(self):
        def fetch(oid, serial, download):
            download.restart()
            self.assertEqual(download.offset, 0)
            self.server.fetch(oid, serial, download)

        for self.server.knows_sizes in True, False:
            number = 1 + self.server.knows_sizes
            self.server.put(number, 3500)
            self.interrupt(1)
            self.load(self.cache(fetch=fetch), number)
        self.assertEqual(self.check(), self.names(1, 2))

    def test_what_was_there_before_is_gone_then(self):
        def fetch(oid, serial, download):
            download.write(b'12345')
            download.restart()
            download.write(b'67')

        with self.cache(fetch=fetch).open(oid(1), SERIAL) as file:
            self.assertEqual(file.read(), b'67')
        self.check()

    def refused(self, regex, *steps):
        def fetch(oid, serial, download):
            for method, argument in steps:
                getattr(download, method)(argument)

        with self.assertRaisesRegex(DownloadFailed, regex):
            self.cache(fetch=fetch).load(oid(1), SERIAL)
        self.assertEqual(self.check(), set())

    def test_a_wrong_length_is_an_error_and_no_file(self):
        self.refused('ended after 2 of 3', ('expect', 3), ('write', b'xx'))
        self.refused('goes on', ('expect', 3), ('write', b'xxxx'))
        self.refused('4 bytes on the server',
                     ('expect', 3), ('write', b'xx'), ('expect', 4))
        self.refused('1 bytes on the server', ('write', b'xx'), ('expect', 1))

    def test_any_error_leaves_nothing(self):
        def sending(download, piece):
            if download.offset:
                raise KeyboardInterrupt

        for self.server.knows_sizes in True, False:
            self.server.sending = sending
            cache = self.cache()
            with self.assertRaises(KeyboardInterrupt):
                cache.load(oid(1), SERIAL)
            self.assertEqual(self.check(), set())
            self.server.sending = lambda *args: None
            self.load(cache, 1)
            os.remove(cache.load(oid(1), SERIAL))

    def test_what_cannot_be_removed_stays_in_the_books(self):
        def sending(download, piece):
            if download.offset:
                raise POSKeyError('gone')

        self.server.put(2, 1000)
        self.server.sending = sending
        cache = self.cache()
        with mock.patch.object(
                cachedirectory.CacheDirectory, 'remove_part',
                side_effect=PermissionError), \
                self.assertLogs(level='WARNING'):
            with self.assertRaises(CacheFailed):
                cache.load(oid(1), SERIAL)
        self.load(cache, 2)
        self.assertEqual(self.disk.rows(), {
            self.name(1): 3500, self.name(2): 1000})
        self.assertEqual(list(self.disk.parts().values()), [1000])
        self.cache()
        self.assertEqual(self.check(), self.names(2))

    def test_memory_of_any_kind_can_be_written(self):
        def fetch(oid, serial, download):
            for piece in bytearray(b'ab'), memoryview(b'cd').cast('H'):
                download.write(piece)

        with self.cache(fetch=fetch).open(oid(1), SERIAL) as file:
            self.assertEqual(file.read(), b'abcd')


class UnknownSize(BlobCacheTest):
    """As a stock server sends a blob."""

    limit = 10 << 20

    def setUp(self):
        super().setUp()
        self.server.knows_sizes = False

    def test_room_is_booked_as_it_grows(self):
        size = 3 * download.STEP
        self.server.piece = download.STEP // 3
        self.server.put(1, size)

        def sending(download, piece):
            if download.offset:
                booked = self.disk.rows()[self.name(1)]
                self.assertGreaterEqual(booked, self.disk.used())

        self.server.sending = sending
        self.load(self.cache(), 1)
        self.assertEqual(self.check(), self.names(1))
        self.assertEqual(self.disk.total(), size)

    def test_never_more_is_written_than_is_booked(self):
        pwrite = os.pwrite

        def checked(fd, data, offset):
            booked = self.disk.rows()[self.name(1)]
            self.assertGreaterEqual(booked, offset + len(data))
            return pwrite(fd, data, offset)

        self.server.put(1, 5000)
        with mock.patch.object(os, 'pwrite', checked):
            self.load(self.cache(), 1)

    def test_a_small_one_is_booked_once(self):
        self.server.put(1, 900)
        cache = self.cache()
        with mock.patch.object(books.Books, 'reserve', autospec=True,
                               side_effect=books.Books.reserve) as reserve:
            self.load(cache, 1)
        reserve.assert_called_once()

    def test_one_that_grows_out_of_the_cache(self):
        self.server.put(1, 5000)
        cache = self.cache(limit=3000)
        self.load(cache, 1)
        self.assertEqual(self.disk.rows(), {})
        self.assertEqual(self.disk.rows(guests=True), {self.name(1): 5000})
        cache.close()
        self.assertEqual(self.check(), set())

    def test_one_that_only_seemed_to(self):
        self.server.put(1, 2500)
        self.load(self.cache(limit=3000), 1)
        self.assertEqual(self.disk.rows(), {self.name(1): 2500})


class Limit(BlobCacheTest):

    def setUp(self):
        super().setUp()
        for number in range(1, 20):
            self.server.put(number, 3000)

    def test_what_was_used_least_recently_goes_first(self):
        for use in self.load, self.read:
            cache = self.cache()
            for number in 1, 2, 3:
                self.load(cache, number)
            use(cache, 1)
            self.load(cache, 4)
            self.assertEqual(self.check(), self.names(1, 3, 4))
            shutil.rmtree(self.home)

    def test_a_use_counts_for_all(self):
        one, other = self.cache(), self.cache()
        for number in 1, 2, 3:
            self.load(one, number)
        self.load(other, 1)
        self.load(one, 4)
        self.assertEqual(self.check(), self.names(1, 3, 4))

    def test_a_use_counts_after_a_kill_too(self):
        cache = self.cache()
        for number in 1, 2, 3, 1:
            self.load(cache, number)
        # Another one that was not told by the first, which lives on.
        self.load(self.cache(), 4)
        self.assertEqual(self.check(), self.names(1, 3, 4))

    def test_not_all_that_was_used_again_is_looked_at(self):
        numbers = range(100, 150)
        for number in numbers:
            self.server.put(number, 200)
        cache = self.cache()
        for number in *numbers, *numbers:
            self.load(cache, number)
        last_use = cachedirectory.CacheDirectory.last_use
        with mock.patch.object(books, 'SECOND_CHANCES', 5), \
                mock.patch.object(cachedirectory.CacheDirectory, 'last_use',
                                  autospec=True, side_effect=last_use) as look:
            self.load(cache, 1)
        self.assertLessEqual(look.call_count, 5 + 3000 // 200)
        self.assertEqual(len(self.check()), 50 - 15 + 1)

    def test_the_limit_holds_at_each_moment(self):
        cache = self.cache()

        def sending(download, piece):
            self.assertLessEqual(self.disk.used() + len(piece), self.limit)

        self.server.sending = sending
        for number in range(1, 20):
            self.load(cache, number)

    def test_it_may_be_used_up(self):
        cache = self.cache(limit=9000)
        for number in 1, 2, 3:
            self.load(cache, number)
        self.assertEqual(self.check(), self.names(1, 2, 3))

    def test_a_download_that_ends_meanwhile_is_not_taken_for_nothing(self):
        cache = self.cache()
        for number in 1, 2, 3:
            self.load(cache, number)
        last_use = cachedirectory.CacheDirectory.last_use
        self.patch(cachedirectory.CacheDirectory, 'last_use',
                   lambda directory, name: 0 if name == self.name(1)
                   else last_use(directory, name))
        self.load(cache, 4)
        self.assertEqual(self.check(), self.names(1, 3, 4))

    def test_no_more_goes_than_must(self):
        self.server.put(30, 1500)
        cache = self.cache(limit=10000)
        for number in 1, 2, 3, 30:
            self.load(cache, number)
        self.assertEqual(self.check(), self.names(2, 3, 30))

    def test_a_smaller_limit_counts_from_the_start(self):
        cache = self.cache()
        for number in 1, 2, 3:
            self.load(cache, number)
        cache.close()
        self.cache(limit=6000)
        self.assertEqual(self.check(), self.names(2, 3))

    def test_no_limit(self):
        cache = self.cache(limit=None)
        for number in range(1, 20):
            self.load(cache, number)
        self.assertEqual(self.check(), self.names(*range(1, 20)))

    def test_blobs_that_vanished_are_no_error(self):
        cache = self.cache()
        for number in 1, 2, 3:
            self.load(cache, number)
        os.remove(cache.load(oid(1), SERIAL))
        self.load(cache, 4)
        self.assertEqual(self.check(), self.names(2, 3, 4))

    def test_nothing_is_noted_when_it_is_done(self):
        cache = self.cache()
        for number in 1, 2, 3, 4:
            self.load(cache, number)
        self.assertEqual(os.stat(cache._directory.lock).st_size, 0)

    def test_a_download_is_not_evicted(self):
        cache, other = self.cache(), self.cache()

        def sending(download, piece):
            self.server.sending = lambda *args: None
            for number in 2, 3, 4, 5:
                self.load(other, number)

        self.server.sending = sending
        self.load(cache, 1)
        self.assertEqual(self.check(), self.names(1, 4, 5))

    def test_what_is_open_can_be_read_when_it_is_gone(self):
        cache = self.cache()
        with cache.open(oid(1), SERIAL) as file:
            for number in 2, 3, 4:
                self.load(cache, number)
            self.assertFalse(os.path.exists(file.name))
            self.assertEqual(file.read(), self.server.blobs[1])


class Guests(BlobCacheTest):

    def setUp(self):
        super().setUp()
        self.server.put(1, 3000)
        self.server.put(2, 20000)
        self.server.put(3, 30000)

    def is_there(self, number):
        return self.name(number) in self.disk.blobs()

    def test_a_blob_larger_than_the_cache_goes_when_it_is_closed(self):
        cache = self.cache()
        self.load(cache, 1)
        with cache.open(oid(2), SERIAL) as file:
            self.assertEqual(file.read(), self.server.blobs[2])
            self.assertTrue(self.is_there(2))
            self.load(cache, 1)
        self.assertEqual(self.check(), self.names(1))
        self.assertEqual(len(self.server.asked), 2)

    def test_as_a_blob_file(self):
        blob = Blob()
        with self.cache().open(oid(2), SERIAL, blob) as file:
            self.assertIsInstance(file, BlobFile)
            self.assertEqual(file.name, self.cache().load(oid(2), SERIAL))
        self.assertEqual(self.check(), self.names(2))

    def test_it_goes_when_the_last_one_closes_it(self):
        one, other = self.cache(), self.cache()
        first = one.open(oid(2), SERIAL)
        second = other.open(oid(2), SERIAL)
        first.close()
        self.assertTrue(self.is_there(2))
        second.close()
        self.assertFalse(self.is_there(2))
        self.assertEqual(len(self.server.asked), 1)

    def test_it_goes_when_it_is_forgotten(self):
        cache = self.cache()
        for blob in None, Blob():
            file = cache.open(oid(2), SERIAL, blob)
            self.assertTrue(self.is_there(2))
            with self.assertWarns(ResourceWarning):
                del file
                gc.collect()
            self.assertFalse(self.is_there(2))

    def test_a_path_is_kept_until_it_is_opened_and_closed(self):
        cache = self.cache()
        self.load(cache, 2)
        self.load(cache, 1)
        self.cache()  # sees to what is left
        self.assertTrue(self.is_there(2))
        self.read(cache, 2)
        self.assertEqual(self.check(), self.names(1))
        self.assertEqual(len(self.server.asked), 2)

    def test_or_until_there_is_another_one(self):
        cache = self.cache()
        self.load(cache, 2)
        self.load(cache, 3)
        self.assertEqual(self.check(), self.names(3))
        cache.close()
        self.assertEqual(self.check(), set())

    def test_a_path_of_somebody_elses(self):
        one, other = self.cache(), self.cache()
        self.load(one, 2)
        self.load(other, 2)
        one.close()
        self.load(other, 2)
        self.assertEqual(self.check(), self.names(2))
        other.close()
        self.assertEqual(self.check(), set())

    def test_it_does_not_go_before_it_was_handed_out(self):
        complete = cachedirectory.CacheDirectory.complete
        other = self.cache()

        def complete_and_dismiss(directory, name):
            complete(directory, name)
            other._books.dismiss_guests()

        self.patch(cachedirectory.CacheDirectory, 'complete',
                   complete_and_dismiss)
        self.load(self.cache(), 2)
        self.assertEqual(len(self.server.asked), 1)

    def test_space_is_freed_when_others_can_work_again(self):
        opened = cachedirectory.CacheDirectory.opened
        freed = []

        @contextlib.contextmanager
        def watched(directory, name):
            with opened(directory, name):
                yield
                self.assertFalse(directory.has(name))
                with other._books._ledger.locked(wait=False) as locked:
                    self.assertTrue(locked)
                freed.append(name)

        cache, other = self.cache(), self.cache()
        self.patch(cachedirectory.CacheDirectory, 'opened', watched)
        self.read(cache, 2)
        self.assertEqual(freed, [self.name(2)])
        self.server.put(4, 9000)
        self.load(cache, 1)
        self.load(cache, 4)
        self.assertEqual(freed, [self.name(2), self.name(1)])

    def test_one_that_is_gone_is_not_kept(self):
        cache = self.cache()
        self.read(cache, 2)
        before = open_files()
        for blob in None, Blob():
            with self.assertRaises(FileNotFoundError):
                open_guest(cache._directory, self.name(2), None, blob)
        self.assertEqual(open_files(), before)

    def test_what_a_process_left_goes_at_the_next_need(self):
        cache = self.cache()
        with mock.patch.object(books.Books, 'dismiss_guests'):
            self.read(cache, 2)  # as if it were killed before the end
        self.assertTrue(self.is_there(2))
        self.load(cache, 1)
        self.assertEqual(self.check(), self.names(1))

    def test_it_can_be_closed_after_the_cache(self):
        cache = self.cache()
        file = cache.open(oid(2), SERIAL)
        cache.close()
        file.close()
        self.cache()
        self.assertEqual(self.check(), set())

    def test_it_does_not_wait_for_who_works_on_the_books(self):
        cache = self.cache()
        file = cache.open(oid(2), SERIAL)
        other = self.cache()
        other._books._ledger.work(lambda db: file.close())
        self.assertTrue(self.is_there(2))
        self.load(cache, 1)
        self.assertFalse(self.is_there(2))

    def test_one_that_is_being_downloaded_stays_in_the_books(self):
        cache, other = self.cache(), self.cache()

        def sending(download, piece):
            self.server.sending = lambda *args: None
            self.load(other, 1)

        self.server.sending = sending
        self.load(cache, 2)
        self.assertEqual(self.disk.rows(guests=True), {self.name(2): 20000})

    def while_it_comes(self, number, act):
        """The download of a blob, and what another process does meanwhile."""
        def sending(download, piece):
            self.server.sending = lambda *args: None
            act(other)

        cache, other = self.cache(), self.cache()
        self.server.sending = sending
        self.load(cache, number)

    def test_nothing_goes_for_one_that_does_not_fit_all_the_same(self):
        self.server.put(4, 6000)
        self.server.put(5, 5000)
        self.load(self.cache(), 1)

        def act(other):
            with other.open(oid(5), SERIAL):
                self.assertEqual(
                    self.disk.rows(), {self.name(1): 3000, self.name(4): 6000})
                self.assertEqual(
                    self.disk.rows(guests=True), {self.name(5): 5000})

        self.while_it_comes(4, act)
        self.assertEqual(self.check(), self.names(1, 4))

    def test_one_that_is_being_downloaded_takes_no_room(self):
        self.server.put(4, 9000)
        self.load(self.cache(), 1)

        def act(other):
            self.load(other, 4)
            self.assertEqual(self.disk.rows(), {self.name(4): 9000})

        self.while_it_comes(2, act)

    def test_who_waited_for_a_blob_takes_no_room(self):
        """A part is locked until it is seen that the blob is there."""
        self.server.put(4, 9000)
        cache = self.cache()
        self.load(cache, 1)
        with cache._directory.claim(self.name(1)):
            self.load(cache, 4)
        self.assertEqual(self.disk.rows(), {self.name(4): 9000})

    def test_a_smaller_limit_counts_beside_what_is_being_downloaded(self):
        self.server.put(4, 7000)
        self.load(self.cache(), 1)
        self.while_it_comes(4, lambda other: self.cache(limit=5000))
        self.assertEqual(self.check(), self.names(4))

    def test_no_room_beside_what_is_being_downloaded(self):
        self.server.put(4, 9000)
        cache, other = self.cache(), self.cache()

        def sending(download, piece):
            self.server.sending = lambda *args: None
            self.load(other, 1)
            self.assertEqual(self.disk.rows(guests=True),
                             {self.name(1): 3000})
            self.read(other, 1)
            self.assertFalse(self.is_there(1))

        self.server.sending = sending
        self.load(cache, 4)
        self.assertEqual(self.check(), self.names(4))


class OneDownload(BlobCacheTest):

    def setUp(self):
        super().setUp()
        self.server.put(1, 3500)

    def test_the_others_wait(self):
        self.one_downloads_and_the_others_wait(self.read)
        self.assertEqual(self.check(), self.names(1))

    def test_not_longer_than_for_the_download(self):
        # Those who have a guest keep it, and nobody waits for that.
        self.server.put(1, 20000)
        self.one_downloads_and_the_others_wait(self.load)
        self.assertEqual(self.check(), self.names(1))

    def one_downloads_and_the_others_wait(self, load):
        held, reached, go_on = hold(self.server.fetch)
        self.count_claims()
        caches = [self.cache(fetch=held) for _ in range(2)]
        threads = [Thread(load, cache, 1)
                   for cache in caches for _ in range(4)]
        self.assertTrue(reached.wait(PATIENCE))
        self.wait_for_claims(len(threads))
        go_on.set()
        for thread in threads:
            thread.result()
        self.assertEqual(self.server.asked, [(1, 0)])

    def test_the_next_one_takes_over(self):
        def fail(download, piece):
            self.server.sending = lambda *args: None
            reached.set()
            go_on.wait(PATIENCE)
            raise RuntimeError('no more')

        _, reached, go_on = hold(None)
        self.count_claims()
        self.server.sending = fail
        cache = self.cache()
        first = Thread(self.read, cache, 1)
        self.assertTrue(reached.wait(PATIENCE))
        second = Thread(self.read, cache, 1)
        self.wait_for_claims(2)
        go_on.set()
        with self.assertRaisesRegex(RuntimeError, 'no more'):
            first.result()
        second.result()
        self.assertEqual(self.check(), self.names(1))

    def count_claims(self):
        self.claims = []
        claim = cachedirectory.CacheDirectory.claim

        def counted(directory, name, wait=True):
            self.claims.append(name)
            return claim(directory, name, wait)

        self.patch(cachedirectory.CacheDirectory, 'claim', counted)

    def wait_for_claims(self, number):
        until(lambda: len(self.claims) == number, 'so many claims')


class Committing(BlobCacheTest):

    def stage(self, cache, number, size):
        self.server.put(number, size)
        path = self.path('upload')
        with open(path, 'wb') as file:
            file.write(self.server.blobs[number])
        staged = cache.stage(path)
        self.assertFalse(os.path.exists(path))
        self.assertEqual(os.path.dirname(staged), cache.temporary_directory)
        return staged

    def commit(self, cache, number, size):
        cache.commit(oid(number), SERIAL, self.stage(cache, number, size))
        self.assertEqual(os.listdir(cache.temporary_directory), [])

    def test_what_is_committed_is_there(self):
        cache = self.cache()
        self.commit(cache, 1, 3000)
        self.load(cache, 1)
        self.assertEqual(self.server.asked, [])
        self.assertEqual(self.check(), self.names(1))
        self.assertEqual(stat.S_IMODE(os.stat(
            cache.load(oid(1), SERIAL)).st_mode), 0o400)

    def test_not_with_fill_load(self):
        self.commit(self.cache(fill='load'), 1, 3000)
        self.assertEqual(self.check(), set())

    def test_others_go_for_it(self):
        cache = self.cache()
        for number in 1, 2, 3, 4:
            self.commit(cache, number, 3000)
        self.assertEqual(self.check(), self.names(2, 3, 4))

    def test_not_one_that_is_too_large(self):
        cache = self.cache()
        self.commit(cache, 1, 3000)
        self.commit(cache, 2, 20000)
        self.assertEqual(self.check(), self.names(1))

    def test_not_one_that_somebody_downloads(self):
        one, other = self.cache(), self.cache()
        staged = self.stage(one, 1, 3000)

        def sending(download, piece):
            one.commit(oid(1), SERIAL, staged)

        self.server.sending = sending
        self.load(other, 1)
        self.assertEqual(self.check(), self.names(1))
        self.assertFalse(os.path.exists(staged))

    def test_one_that_is_there(self):
        cache = self.cache()
        self.commit(cache, 1, 3000)
        before = os.stat(cache.load(oid(1), SERIAL))
        self.commit(cache, 1, 3000)
        after = os.stat(cache.load(oid(1), SERIAL))
        self.assertTrue(os.path.samestat(before, after))
        self.assertEqual(self.check(), self.names(1))

    def test_it_is_as_a_download(self):
        def finished(a_download):
            part = os.path.join(self.disk.own, 'parts', *self.disk.parts())
            self.assertIsNone(filelocks.claim(part, wait=False))
            self.assertTrue(os.stat(part).st_mode & stat.S_IWUSR)
            return original(a_download)

        original = download.Download.finished
        self.patch(download.Download, 'finished', finished)
        self.commit(self.cache(), 1, 3000)
        self.assertEqual(self.check(), self.names(1))

    def test_an_abort(self):
        cache = self.cache()
        cache.discard(self.stage(cache, 1, 3000))
        self.assertEqual(os.listdir(cache.temporary_directory), [])
        self.assertEqual(self.check(), set())

    def test_from_another_file_system(self):
        cache = self.cache()
        with mock.patch.object(os, 'rename', side_effect=OSError(
                errno.EXDEV, 'another file system')):
            staged = self.stage(cache, 1, 3000)
        cache.commit(oid(1), SERIAL, staged)
        self.load(cache, 1)
        self.assertEqual(self.server.asked, [])

    def test_a_file_that_cannot_be_taken_over(self):
        cache = self.cache()
        with self.assertRaises(FileNotFoundError):
            cache.stage(self.path('missing'))
        self.assertEqual(os.listdir(cache.temporary_directory), [])

    def test_a_commit_does_not_fail(self):
        cache = self.cache()
        for error in (no_room, OSError('no'), sqlite3.OperationalError('no')):
            staged = self.stage(cache, 1, 3000)
            with mock.patch.object(books.Books, 'reserve', side_effect=error):
                with self.assertLogs(level='WARNING'):
                    cache.commit(oid(1), SERIAL, staged)
        self.assertEqual(os.listdir(cache.temporary_directory), [])
        self.assertEqual(self.check(), set())


class DiskFull(BlobCacheTest):

    def setUp(self):
        super().setUp()
        for number in range(1, 4):
            self.server.put(number, 3000)

    def full_until(self, cache, condition):
        pwrite = os.pwrite
        return mock.patch.object(os, 'pwrite', lambda *args: (
            pwrite(*args) if condition() else no_room()))

    def test_others_go_for_it(self):
        cache = self.cache()
        self.load(cache, 1)
        self.load(cache, 2)
        with self.full_until(
                cache, lambda: self.name(1) not in self.disk.blobs()):
            self.load(cache, 3)
        self.assertIn(self.name(3), self.check())

    def fails_here(self, error):
        """A patch: only the disk of the cache does."""
        pwrite = os.pwrite

        def fails(fd, *args):
            if os.readlink(f'/dev/fd/{fd}').startswith(self.home):
                raise OSError(error, os.strerror(error))
            return pwrite(fd, *args)

        return mock.patch.object(os, 'pwrite', fails)

    def test_a_blob_is_read_past_it(self):
        """That is said once; nothing of it is left."""
        self.patch(tempfile, 'tempdir', self.path('tmp'))
        os.mkdir(tempfile.tempdir)
        for error, left in (errno.ENOSPC, set()), (errno.EIO, self.names(3)):
            cache = self.cache()
            with self.fails_here(error), \
                    self.assertLogs(level='WARNING') as logged:
                for number in 1, 2, 1:
                    self.check_each_way(cache, number)
            line, = logged.output
            self.assertIn('blobs are read past the cache', line)
            self.assertEqual(self.check(), left)
            self.load(cache, 3)
            self.assertEqual(self.check(), self.names(3))
            cache.close()
            self.assertEqual(os.listdir(tempfile.tempdir), [])

    def check_each_way(self, cache, number):
        expected = content(number, 3000)
        with open(cache.load(oid(number), SERIAL), 'rb') as file:
            self.assertEqual(file.read(), expected)
        for open_ in cache.open, cache.open_arriving:
            with open_(oid(number), SERIAL) as file:
                self.assertEqual(file.read(), expected)

    def test_a_blob_that_arrives(self):
        """The rest of it does not: it is whole when it is opened again."""
        self.server.put(1, 3 << 20)
        self.server.piece = 1 << 20
        cache = self.cache(limit=None)
        go_on = threading.Event()
        self.server.sending = lambda *args: go_on.wait(PATIENCE)
        self.server.begin = 0
        file = cache.open_arriving(oid(1), SERIAL)
        with self.fails_here(errno.EIO), self.assertLogs(level='WARNING'):
            go_on.set()
            with file, self.assertRaisesRegex(CacheFailed, 'Input/output'):
                file.readall()
            with cache.open_arriving(oid(1), SERIAL) as file:
                self.assertEqual(file.read(), content(1, 3 << 20))

    def test_a_clear_error_and_nothing_left(self):
        for limit, left in (10000, set()), (None, self.names(1)):
            cache = self.cache(limit)
            self.load(cache, 1)
            for self.server.knows_sizes in True, False:
                with self.full_until(cache, lambda: False):
                    with self.assertRaisesRegex(
                            CacheFailed, 'the disk of the blob cache'):
                        self.load(cache, 2)
                self.assertEqual(self.check(), left)
            self.server.knows_sizes = True

    def test_no_room_for_the_books(self):
        cache = self.cache(limit=None)
        cache._books._ledger._db.execute('PRAGMA max_page_count = 1')
        with self.assertLogs(level='WARNING'):
            for number in range(1000):
                self.server.put(number, 1)
                self.read(cache, number)
        cache.close()
        self.cache()
        self.check()


class StockClient(BlobCacheTest):
    """What one does in the directory."""

    def stock_helper(self):
        LAYOUTS.setdefault('zeocache', ClientStorage.BlobCacheLayout())
        return FilesystemHelper(self.home, 'zeocache')

    def stock_lock(self, path):
        return contextlib.closing(ClientStorage._lock_blob(path))

    def stock_blob(self, number, size, use=1, suffix=''):
        self.server.put(number, size)
        self.stock_helper().create()
        path = os.path.join(self.home, self.name(number) + suffix)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with self.stock_lock(path), open(path, 'wb') as file:
            file.write(self.server.blobs[number])
        os.utime(path, (use, 1))
        return path


class Directory(StockClient):

    def refused(self, regex):
        before = sorted(os.walk(self.home))
        with self.assertRaisesRegex(ValueError, regex):
            self.cache()
        self.assertEqual(sorted(os.walk(self.home)), before)

    def test_the_directory_of_a_server_is_refused(self):
        for layout in 'bushy', 'lawn':
            FilesystemHelper(self.home, layout).create()
            self.refused(f"blobs of a server .*'{layout}'.*shared-blob-dir")
            shutil.rmtree(self.home)

    def test_without_a_marker_too(self):
        os.makedirs(os.path.join(self.home, '0x00'))
        self.refused('blobs of a server')

    def test_an_empty_marker(self):
        os.mkdir(self.home)
        with open(os.path.join(self.home, '.layout'), 'w'):
            pass
        self.cache()
        self.stock_helper().create()

    def test_a_network_file_system_is_refused(self):
        os.mkdir(self.home)
        with mock.patch.object(
                cachedirectory, 'file_system', lambda path: 'nfs4'):
            self.refused(r'network file system \(nfs4\)')

    @unittest.skipUnless(os.path.exists('/proc/self/mountinfo'), 'not Linux')
    def test_file_systems_have_names(self):
        self.assertEqual(cachedirectory.file_system('/proc'), 'proc')
        self.assertNotIn(
            cachedirectory.file_system(self.directory), cachedirectory.NETWORK)

    def test_a_stock_client_can_take_over(self):
        self.server.put(1, 3000)
        self.server.put(2, 3000)
        cache = self.cache()
        self.load(cache, 1)
        self.load(cache, 2)
        cache.load(oid(1), SERIAL)
        cache.close()
        helper = self.stock_helper()
        helper.create()
        self.assertEqual(helper.getBlobFilename(oid(1), SERIAL),
                         os.path.join(self.home, self.name(1)))
        ClientStorage._check_blob_cache_size(self.home, 3000)
        self.assertEqual(set(self.disk.blobs()), self.names(1))


class TakingOver(StockClient):

    def test_its_blobs_are_adopted(self):
        for number, use in (1, 500), (2, 300), (3, 400):
            self.stock_blob(number, 3000, use)
        cache = self.cache()
        self.assertEqual(self.check(), self.names(1, 2, 3))
        self.server.put(4, 3000)
        self.patch(books, 'SECOND_CHANCES', 0)  # the books know it already
        self.load(cache, 4)
        self.assertEqual(self.check(), self.names(1, 3, 4))
        self.assertEqual(self.server.asked, [(4, 0)])

    def test_within_the_limit(self):
        for number in range(1, 6):
            self.stock_blob(number, 3000, use=number)
        self.stock_blob(6, 20000, use=6)
        self.cache()
        self.assertEqual(self.check(), self.names(3, 4, 5))

    def test_there_is_one_walk(self):
        self.stock_blob(1, 3000)
        self.cache().close()
        with mock.patch.object(
                cachedirectory.CacheDirectory, '_files') as files:
            self.load(self.cache(), 1)
        files.assert_not_called()

    def test_and_another_one_after_a_stock_client_was_there_again(self):
        self.server.put(1, 3000)
        self.load(self.cache(), 1)
        walked = os.stat(os.path.join(self.disk.own, 'walked')).st_mtime_ns
        path = self.stock_blob(2, 3000)
        lock = os.path.join(os.path.dirname(path), '.lock')
        os.utime(lock, ns=(walked + 1, walked + 1))
        self.cache()
        self.assertEqual(self.check(), self.names(1, 2))

    def test_what_it_left_of_a_download_is_never_a_blob(self):
        path = self.stock_blob(1, 2000, suffix='.dl')
        self.server.put(1, 3000)
        self.load(self.cache(), 1)
        self.assertFalse(os.path.exists(path))
        self.assertEqual(self.check(), self.names(1))

    def test_unless_it_is_at_work(self):
        path = self.stock_blob(1, 2000, suffix='.dl')
        with self.stock_lock(path):
            self.cache()
        self.assertTrue(os.path.exists(path))

    def test_what_it_left_of_a_commit_goes_after_a_day(self):
        old = self.stock_blob(1, 2000, suffix='.tmp-')
        new = self.stock_blob(2, 2000, suffix='.tmp-')
        os.utime(new)
        self.cache()
        self.assertFalse(os.path.exists(old))
        self.assertTrue(os.path.exists(new))


class LostBooks(BlobCacheTest):

    def setUp(self):
        super().setUp()
        for number in range(1, 6):
            self.server.put(number, 3000)

    def garbage(self):
        with open(self.disk.books, 'r+b') as file:
            file.write(os.urandom(1000))

    def shortened(self):
        os.truncate(self.disk.books, 5000)

    def emptied(self):
        os.truncate(self.disk.books, 0)

    def removed(self):
        os.remove(self.disk.books)

    def of_another_version(self):
        with contextlib.closing(sqlite3.connect(self.disk.books)) as db:
            db.execute('ALTER TABLE blobs RENAME TO files')
            db.execute('PRAGMA user_version = 99')

    ways = garbage, shortened, emptied, removed, of_another_version

    def test_they_are_made_anew_at_the_next_start(self):
        for damage in self.ways:
            with self.subTest(damage.__name__):
                cache = self.cache()
                for number in 1, 2, 3:
                    self.load(cache, number)
                cache.close()
                damage(self)
                cache = self.cache()
                self.assertEqual(self.check(), self.names(1, 2, 3))
                self.load(cache, 4)
                self.assertEqual(self.check(), self.names(2, 3, 4))
                cache.close()
                shutil.rmtree(self.home)

    def test_they_are_made_anew_in_use(self):
        for damage in self.garbage, self.removed:
            with self.subTest(damage.__name__):
                cache, other = self.cache(), self.cache()
                for number in 1, 2, 3:
                    self.load(cache, number)
                # So that what is damaged is in use.
                cache._books._ledger._db.execute(
                    'PRAGMA wal_checkpoint(TRUNCATE)')
                damage()
                self.load(other, 4)
                self.load(cache, 5)
                self.assertEqual(self.check(), self.names(3, 4, 5))
                cache.close()
                other.close()
                shutil.rmtree(self.home)

    def test_the_whole_directory_is_removed_in_use(self):
        cache, other = self.cache(), self.cache()
        self.load(cache, 1)
        shutil.rmtree(self.home)
        self.load(other, 2)
        self.load(cache, 3)
        self.load(other, 4)
        self.load(cache, 5)
        self.assertEqual(self.check(), self.names(3, 4, 5))

    def test_there_is_one_lock_after_that(self):
        cache = self.cache()
        shutil.rmtree(self.home)
        with self.cache()._books._ledger.locked():
            with cache._books._ledger.locked(wait=False) as locked:
                self.assertFalse(locked)

    def test_a_download_meanwhile_is_in_the_new_ones(self):
        cache, other = self.cache(), self.cache()

        def sending(download, piece):
            self.server.sending = lambda *args: None
            self.removed()
            self.load(other, 2)

        self.server.sending = sending
        self.load(cache, 1)
        self.assertEqual(self.check(), self.names(1, 2))

    def test_a_walk_that_does_not_end_is_begun_again(self):
        cache = self.cache()
        for number in 1, 2, 3:
            self.load(cache, number)
        cache.close()
        files = cachedirectory.CacheDirectory._files

        def some(directory):
            for number, file in enumerate(files(directory)):
                if number == 2:
                    raise KeyboardInterrupt
                yield file

        for prepare in self.removed, self.garbage:
            prepare()
            with mock.patch.object(
                    cachedirectory.CacheDirectory, '_files', some):
                with self.assertRaises(KeyboardInterrupt):
                    self.cache()
            cache = self.cache()
            self.assertEqual(self.check(), self.names(1, 2, 3))
            cache.close()

    def test_the_lock_survives_an_error(self):
        cache = self.cache()
        with mock.patch.object(books.Books, '_make_room',
                               side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                self.load(cache, 1)
        self.load(self.cache(), 2)
        self.load(cache, 1)
        self.assertEqual(self.check(), self.names(1, 2))


class Restart(BlobCacheTest):
    """The machine was started anew, perhaps after a power cut."""

    def setUp(self):
        super().setUp()
        for number in 1, 2, 3, 4:
            self.server.put(number, 3000)
        cache = self.cache()
        for number in 2, 1, 3:
            self.load(cache, number)
        cache.close()

    def restart(self):
        self.patch(cachedirectory, 'boot', lambda: 'another one')
        return self.cache()

    def path_of(self, number):
        return os.path.join(self.home, self.name(number))

    def test_what_is_as_long_as_the_books_say_is_kept(self):
        os.chmod(self.path_of(1), 0o600)
        os.truncate(self.path_of(1), 2048)
        os.remove(self.path_of(2))
        os.makedirs(os.path.dirname(self.path_of(4)))
        shutil.copy(self.path_of(3), self.path_of(4))
        self.restart()
        self.assertEqual(self.check(), self.names(3))

    def test_in_the_order_of_use(self):
        for number in 1, 2, 3:
            os.utime(self.path_of(number), (number, number))
        self.load(self.restart(), 4)
        self.assertEqual(self.check(), self.names(1, 3, 4))

    def test_nothing_is_known_without_books(self):
        with open(self.disk.books, 'wb') as file:
            file.write(os.urandom(10000))
        self.restart()
        self.assertEqual(self.check(), set())

    def test_it_counts_once(self):
        self.restart().close()
        with mock.patch.object(
                cachedirectory.CacheDirectory, '_files') as files:
            self.cache()
        files.assert_not_called()

    def test_a_start_that_is_interrupted_is_made_again(self):
        os.chmod(self.path_of(1), 0o600)
        os.truncate(self.path_of(1), 2048)
        with mock.patch.object(os, 'replace', side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                self.restart()
        self.cache()
        self.assertEqual(self.check(), self.names(2, 3))

    def test_it_is_known(self):
        if os.path.exists('/proc/sys/kernel/random/boot_id'):
            self.assertTrue(cachedirectory.boot())
        self.assertEqual(cachedirectory.boot(), cachedirectory.boot())
