"""The blob cache of a client, promise by promise, in one process.  Goes with
`client/blobs`.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import threading
import time
from unittest import mock

from ZEO import ClientStorage
from ZODB.blob import LAYOUTS
from ZODB.blob import FilesystemHelper

from fsyncstorage.client.blobs import directory
from fsyncstorage.client.blobs import room
from fsyncstorage.client.blobs.download import TRIES
from fsyncstorage.client.blobs.download import DownloadFailed
from fsyncstorage.client.blobs.download import Interrupted

from ...support import PATIENCE
from ...support import Thread
from ...support import oid
from ...support import until
from .caches import SERIAL
from .caches import BlobCacheTest
from .caches import content


def no_room(*args, **kw):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Loading(BlobCacheTest):

    def test_an_empty_blob(self):
        for self.server.knows_sizes in True, False:
            number = len(self.server.blobs)
            self.server.put(number, 0)
            self.read(self.cache(), number)
        self.assertEqual(self.check(), self.names(0, 1))

    def test_a_file_that_vanishes(self):
        """As soon as it has its name, or before it is opened."""
        for number, step in (1, 'rename'), (2, 'utime'):
            self.server.put(number, 1000)
            self.server.asked.clear()
            cache = self.cache()
            blob = os.path.join(self.home, self.name(number))
            call = getattr(os, step)

            def call_and_lose(*args, **kw):
                call(*args, **kw)
                if len(self.server.asked) == 1 and os.path.exists(blob):
                    os.remove(blob)

            with mock.patch.object(os, step, call_and_lose), \
                    self.assertNoLogs(level='WARNING'):
                self.read(cache, number)
            self.assertEqual(self.server.asked, 2 * [(number, 0)])


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
        self.limit = None
        self.refused('has 18446744073709551615', ('expect', (1 << 64) - 1))


class Limit(BlobCacheTest):

    def setUp(self):
        super().setUp()
        for number in range(1, 20):
            self.server.put(number, 3000)

    def test_a_smaller_limit_counts_from_the_start(self):
        cache = self.cache()
        for number in 1, 2, 3:
            self.load(cache, number)
        cache.close()
        self.cache(limit=6000)
        self.assertEqual(self.check(), self.names(2, 3))


class Guests(BlobCacheTest):

    def setUp(self):
        super().setUp()
        self.server.put(1, 3000)
        self.server.put(2, 20000)
        self.server.put(3, 30000)

    def read_path(self, path, number):
        with open(path, 'rb') as file:
            self.assertEqual(file.read(), self.server.blobs[number])

    def test_an_open_file_needs_no_name(self):
        cache = self.cache()
        for self.server.knows_sizes in True, False:
            with cache.open(oid(2), SERIAL) as file:
                self.assertEqual(self.check(), set())
                self.load(cache, 1)
                self.assertEqual(file.read(), self.server.blobs[2])
            os.remove(cache.load(oid(1), SERIAL))
            os.remove(self.disk.total_file)

    def test_a_path_is_kept_until_it_is_opened(self):
        cache = self.cache()
        path = cache.load(oid(2), SERIAL)
        self.load(cache, 1)
        self.cache()  # sees to what is left
        self.read_path(path, 2)
        self.read(cache, 2)
        self.assertEqual(self.check(), self.names(1))
        self.assertEqual(len(self.server.asked), 2)

    def test_or_until_there_is_another_one(self):
        cache = self.cache()
        cache.load(oid(2), SERIAL)
        path = cache.load(oid(3), SERIAL)
        self.assertEqual(list(self.disk.own_files().values()), [30000])
        self.read_path(path, 3)
        cache.close()
        self.assertEqual(self.check(), set())

    def test_no_room_beside_what_is_being_downloaded(self):
        """For what does not fit, nothing is removed."""
        self.server.put(4, 9000)
        self.server.put(5, 1000)
        cache, other = self.cache(), self.cache()
        self.load(cache, 5)

        def sending(download, piece):
            self.server.sending = lambda *args: None
            self.read_path(other.load(oid(1), SERIAL), 1)
            self.assertEqual(self.disk.total(), 10000)
            self.read(other, 1)

        self.server.sending = sending
        self.load(cache, 4)
        self.assertEqual(self.check(), self.names(4, 5))


class OneDownload(BlobCacheTest):

    def setUp(self):
        super().setUp()
        self.server.put(1, 3500)

    def test_the_next_one_takes_over(self):
        def fail(download, piece):
            self.server.sending = lambda *args: None
            reached.set()
            go_on.wait(PATIENCE)
            raise RuntimeError('no more')

        reached, go_on = threading.Event(), threading.Event()
        self.server.sending = fail
        cache = self.cache()
        flock = fcntl.flock
        with mock.patch.object(fcntl, 'flock', side_effect=flock) as locks:
            first = Thread(self.read, cache, 1)
            self.assertTrue(reached.wait(PATIENCE))
            before = locks.call_count
            second = Thread(self.read, cache, 1)
            until(lambda: locks.call_count > before, 'the second one waits')
            go_on.set()
            with self.assertRaisesRegex(RuntimeError, 'no more'):
                first.result()
            second.result()
        self.assertEqual(self.check(), self.names(1))


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

    def test_not_with_fill_load(self):
        self.commit(self.cache(fill='load'), 1, 3000)
        self.assertEqual(self.check(), set())

    def test_not_one_that_somebody_downloads(self):
        one, other = self.cache(), self.cache()
        staged = self.stage(one, 1, 3000)

        def sending(download, piece):
            one.commit(oid(1), SERIAL, staged)

        self.server.sending = sending
        self.load(other, 1)
        self.assertEqual(self.check(), self.names(1))
        self.assertFalse(os.path.exists(staged))

    def test_from_another_file_system(self):
        cache = self.cache()
        with mock.patch.object(os, 'rename', side_effect=OSError(
                errno.EXDEV, 'another file system')):
            staged = self.stage(cache, 1, 3000)
        cache.commit(oid(1), SERIAL, staged)
        self.load(cache, 1)
        self.assertEqual(self.server.asked, [])

    def test_a_commit_does_not_fail(self):
        cache = self.cache()
        for name in 'pwrite', 'utime', 'rename':
            staged = self.stage(cache, 1, 3000)
            with mock.patch.object(os, name, no_room):
                with self.assertLogs(level='WARNING'):
                    cache.commit(oid(1), SERIAL, staged)
        self.cache()  # counts
        self.assertEqual(os.listdir(cache.temporary_directory), [])
        self.assertEqual(self.check(), set())


class DiskFull(BlobCacheTest):

    def setUp(self):
        super().setUp()
        for number in range(1, 4):
            self.server.put(number, 3000)

    def everything_is_full(self):
        """There is still room for a number that was there before."""
        pwrite = os.pwrite
        return mock.patch.object(os, 'pwrite', lambda fd, data, at: (
            pwrite(fd, data, at) if len(data) == 8 else no_room()))

    def fails_here(self, error):
        """A patch: only the disk of the cache does."""
        pwrite = os.pwrite

        def fails(fd, *args):
            if os.readlink(f'/dev/fd/{fd}').startswith(
                    os.path.join(self.disk.own, 'parts')):
                raise OSError(error, os.strerror(error))
            return pwrite(fd, *args)

        return mock.patch.object(os, 'pwrite', fails)

    def test_a_blob_is_read_past_it(self):
        """That is said once; nothing of it is left."""
        self.patch(tempfile, tempdir=self.path('tmp'))
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
        """The rest of it does not, but past the cache."""
        self.server.put(1, 3 << 20)
        self.server.piece = 1 << 20
        cache = self.cache(limit=None)
        go_on = threading.Event()
        self.server.sending = lambda *args: go_on.wait(PATIENCE)
        self.server.begin = 0
        file = cache.open_arriving(oid(1), SERIAL)
        with self.fails_here(errno.EIO), self.assertLogs(level='WARNING'):
            go_on.set()
            with file:
                self.assertEqual(file.readall(), content(1, 3 << 20))
            with cache.open_arriving(oid(1), SERIAL) as file:
                self.assertEqual(file.read(), content(1, 3 << 20))

    def test_a_clear_error_and_nothing_left(self):
        for limit, left in (10000, set()), (None, self.names(1)):
            cache = self.cache(limit)
            self.load(cache, 1)
            for self.server.knows_sizes in True, False:
                with self.everything_is_full():
                    with self.assertRaisesRegex(
                            DownloadFailed, 'not be read there .* past it'):
                        self.load(cache, 2)
                self.assertEqual(self.check(), left)
            self.server.knows_sizes = True


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

    def test_a_network_file_system_is_refused(self):
        os.mkdir(self.home)
        with mock.patch.object(
                directory, 'file_system', lambda path: 'nfs4'):
            self.refused(r'network file system \(nfs4\)')

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
        self.load(cache, 4)
        self.assertEqual(self.check(), self.names(1, 3, 4))
        self.assertEqual(self.server.asked, [(4, 0)])

    def test_what_it_put_there_since(self):
        self.server.put(1, 3000)
        cache = self.cache()
        self.load(cache, 1)
        cache.close()
        before = os.stat(self.disk.total_file).st_mtime
        self.stock_blob(2, 3000)
        lock = os.path.join(self.home, '2', '.lock')
        os.utime(lock, (before + 1, before + 1))
        self.cache()
        self.assertEqual(self.check(), self.names(1, 2))

    def test_what_it_left_of_a_download_is_never_a_blob(self):
        path = self.stock_blob(1, 2000, suffix='.dl')
        self.server.put(1, 3000)
        self.load(self.cache(), 1)
        self.assertFalse(os.path.exists(path))
        self.assertEqual(self.check(), self.names(1))


class LostTotal(BlobCacheTest):
    """All is counted anew."""

    def setUp(self):
        super().setUp()
        for number in range(1, 6):
            self.server.put(number, 3000)

    def test_files_that_somebody_has_removed(self):
        """They count until room is needed."""
        cache = self.cache()
        for number in 1, 2, 3:
            self.load(cache, number)
        for number in 1, 2:
            os.remove(cache.load(oid(number), SERIAL))
        self.assertEqual(self.disk.total(), 9000)
        self.load(cache, 4)
        self.assertEqual(self.check(), self.names(3, 4))


class Restart(BlobCacheTest):
    """The machine was started anew, perhaps after a power cut."""

    def test_what_may_not_have_been_on_the_disk_goes(self):
        for number in 1, 2, 3, 4:
            self.server.put(number, 2000)
        cache = self.cache()
        paths = {number: cache.load(oid(number), SERIAL)
                 for number in (1, 2, 3, 4)}
        last = max(os.stat(path).st_ctime for path in paths.values())
        for number, age in (1, 3600), (2, 700), (3, 500):
            os.utime(paths[number], (last, last - age))
        cache.close()
        self.cache()
        self.assertEqual(self.check(), self.names(1, 2, 3, 4))
        self.patch(room, boot=lambda: b'another one')
        self.cache()
        self.assertEqual(self.check(), self.names(1, 2))
        self.cache()
        self.assertEqual(self.check(), self.names(1, 2))


class Uses(BlobCacheTest):

    def test_one_is_noted_once_a_minute(self):
        self.patch(directory, FRESH=60)
        self.server.put(1, 1000)
        cache = self.cache()
        path = cache.load(oid(1), SERIAL)
        now = time.time()
        for age, is_noted in (50, False), (70, True):
            os.utime(path, (now - age, 1))
            cache.load(oid(1), SERIAL)
            noted = os.stat(path)
            self.assertEqual(noted.st_atime > now - 1, is_noted)
            self.assertEqual(noted.st_mtime, 1)
