"""A copy on another machine follows: at every moment it has what was shipped,
it outlives a pack, and it ends with its timeline."""

import itertools
import os
import threading
import time
from unittest import mock

from ZODB.FileStorage import FileStorage
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage.backup import content
from fsyncstorage.backup import follow
from fsyncstorage.backup.copied import Copy
from fsyncstorage.backup.copied import NotRestored
from fsyncstorage.backup.follow import follow as run_follower
from fsyncstorage.backup.head import Damaged
from fsyncstorage.backup.timeline import History
from fsyncstorage.pack import packedblobs

from ..support import commit
from ..support import oid
from .shipped import DATABASE
from .shipped import Shipped
from .shipped import operations


class Stop:
    """Is set when the follower has all there is for the third time; before,
    something is done each time."""

    def __init__(self, *meanwhile):
        self._meanwhile = list(meanwhile)

    def is_set(self):
        return False

    def wait(self, seconds):
        if not self._meanwhile:
            return True
        self._meanwhile.pop(0)()
        return False


class Following(Shipped):

    def setUp(self):
        super().setUp()
        self.tid = self.commit_blob(1, b'one')
        commit(self.storage, {2: b'two'})
        self.packed = z64
        self.up = self.uploader()
        self.up.ship()

    def follow(self, *meanwhile, number=1, name='Copy.fs'):
        return run_follower(
            History(self.store, DATABASE, number), self.path(name),
            self.path(f'{name}.blobs'), Stop(*meanwhile))

    def change(self):
        self.tid = self.commit_blob(1, b'changed', serial=self.tid)
        self.up.ship()

    def pack(self, gc=False):
        self.storage.pack(time.time(), lambda data: [], gc=gc)
        self.packed = commit(
            self.storage, {3: b'behind the pack'}, {3: self.packed})
        self.up.ship()

    def blobs(self, directory):
        found = {}
        for path, _, names in os.walk(directory):
            for name in names:
                if name.endswith('.blob'):
                    with open(os.path.join(path, name), 'rb') as file:
                        found[name] = file.read()
        return found

    def check(self, name='Copy.fs'):
        self.assertEqual(self.content_of_file(name), self.content_of_file())
        self.assertEqual(self.blobs(self.path(f'{name}.blobs')),
                         self.blobs(self.storage.fshelper.base_dir))


class Copies(Following):

    def test_it_begins_with_a_restore_and_goes_on(self):
        self.follow(self.check, self.change, self.check, self.change)
        self.check()

    def test_a_start_goes_on(self):
        for _ in range(3):
            self.follow()
            self.check()
            self.change()

    def test_a_pack(self):
        """While it follows, and while it is away."""
        self.follow(self.change, self.pack, self.check, self.change)
        self.check()
        self.change()
        self.pack()
        self.change()
        self.follow()
        self.check()

    def test_told_to_end_in_its_first_restore(self):
        self.change()
        names = sorted(os.listdir(self.directory))
        stop = threading.Event()
        self.store.before = lambda method, key: (
            stop.set() if key.endswith('/000000000001') else None)
        self.assertIsNone(run_follower(
            History(self.store, DATABASE, 1), self.path('Copy.fs'),
            self.path('Copy.fs.blobs'), stop))
        self.assertEqual(
            {*os.listdir(self.directory)} - {*names}, {'Copy.fs.lock'})

    def test_killed_in_its_first_restore(self):
        open(self.path('Copy.fs.part'), 'x').close()
        os.mkdir(self.path('Copy.fs.blobs.part'))
        self.follow()
        self.check()

    def test_killed_before_the_blobs_of_a_pack_go(self):
        self.follow()
        self.change()
        self.follow()
        self.pack()
        child = os.fork()
        if not child:
            with mock.patch.object(
                    Copy, '_remove_blobs', lambda *args: os._exit(0)):
                self.follow()
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.follow()
        self.check()

    def test_a_reader_opens_it_at_any_time(self):
        def read():
            for make in FsyncStorage, FileStorage:
                storage = make(self.path('Copy.fs'), read_only=True,
                               blob_dir=self.path('Copy.fs.blobs'))
                self.assertEqual(storage.lastTransaction(), self.tid)
                with open(storage.loadBlob(oid(1), self.tid), 'rb') as file:
                    self.assertIn(file.read(), [b'one', b'changed'])
                storage.close()

        self.follow(self.change, read, self.change, read)

    def test_a_blob_is_there_before_its_record(self):
        def look(method, key):
            if '/blobs/' in key:
                seen.append(self.content_of_file('Copy.fs') == before)

        self.follow()
        seen, before = [], self.content_of_file('Copy.fs')
        self.change()
        self.store.before = look
        self.follow()
        self.assertEqual(seen, [True])

    def test_blobs_are_durable_and_then_their_records(self):
        self.follow()
        self.change()
        log = operations(self)
        self.follow()
        names = [each for each in log if each.startswith('names in')]
        blob, = (each for each in log if each.endswith('.blob'))
        self.assertEqual(log, [blob, *names, 'sync Copy.fs'])
        self.assertEqual(len(names), 9)  # one for each byte of the oid

    def test_each_segment_is_durable_before_the_next(self):
        """Both what is there at a start, and what comes later.  So a power
        cut tears only the last one."""
        self.follow()
        for _ in range(4):
            self.change()
        later = {key: self.store.objects.pop(key)
                 for key in self.keys('t000001/log/')[-2:]}
        log = operations(self)
        self.follow(lambda: self.store.objects.update(later))
        found = ['blob' if each.endswith('.blob') else each for each in log
                 if not each.startswith('names in')]
        self.assertEqual(found, ['blob', 'sync Copy.fs'] * 4)

    def test_a_pack_is_durable_before_it_has_the_name(self):
        self.follow()
        self.change()
        self.pack()
        log = operations(self)
        self.follow()
        at = log.index('replace Copy.fs')
        self.assertIn('sync Copy.fs.pack', log[:at])
        self.assertIn('sync .removed', log[:at])
        self.assertRegex(log[at + 1], 'names in fsyncstorage-')

    def test_the_timeline_ends(self):
        """Then the copy is the site."""
        def end():
            History(self.store, DATABASE, 1).end()

        self.assertEqual(self.follow(self.change, end), self.tid)
        self.check()
        self.storage = self.handed_out('Copy.fs')
        new = self.uploader('Copy.fs', new_timeline='promoted')
        tid = commit(self.storage, {7: b'of the new site'})
        new.ship()
        self.assertEqual(new.tip.tid, tid)

    def test_a_copy_of_a_copy_follows_its_timeline(self):
        self.test_the_timeline_ends()
        self.follow(number=2, name='Third.fs')
        self.assertEqual(self.content_of_file('Third.fs'),
                         self.content_of_file('Copy.fs'))

    def test_another_timeline_has_begun(self):
        """Nothing ends the one that it follows; it is said once."""
        def begin():
            self.up = self.uploader(new_timeline='a test')

        self.patch(follow, PATIENCE=0)
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            self.follow(self.change, begin, self.change, self.change)
        self.assertEqual(len(logs.output), 1)
        self.assertIn('--timeline 2', logs.output[0])
        self.follow(number=2)
        self.check()

    def test_the_next_object_was_removed(self):
        def remove():
            self.change()
            self.change()
            self.store.delete(self.keys('t000001/log/')[-2])

        self.patch(follow, PATIENCE=0)
        with self.assertRaisesRegex(NotRestored, 'was removed.*follow anew'):
            self.follow(remove)

    def test_it_goes_on_over_a_fork(self):
        """It is at a place that the timeline has of its parent."""
        self.follow()
        self.change()
        self.up = self.uploader(new_timeline='a test')
        self.change()
        self.follow(number=2)
        self.check()

    def test_it_is_stopped(self):
        self.assertIsNone(self.follow())


class Trouble(Following):

    def test_a_store_that_fails_at_any_call(self):
        self.patch(follow, RETREAT=0)
        self.patch(content, PART=1000)
        times = 0
        for number in itertools.count():
            self.change()
            if number in (5, 20):
                self.pack()
            history = History(self.store, DATABASE, 1)
            with self.store.failing(number) as failed, \
                    mock.patch.object(follow.logger, 'warning') as said:
                run_follower(history, self.path('Copy.fs'), self.path(
                    'Copy.fs.blobs'), Stop(*[lambda: None] * 2))
            # (Some heads are read ahead of their need.)
            self.assertLessEqual(said.call_count, len(failed))
            times += said.call_count
            self.check()
            if not failed:
                break
        self.assertGreater(times, 8)

    def test_killed_while_it_writes(self):
        """The begin of a segment is there; the next start completes it."""
        self.follow()
        before = len(self.content_of_file('Copy.fs'))
        self.change()
        more = self.content_of_file()[before:]
        with open(self.path('Copy.fs'), 'ab') as file:
            file.write(more[:len(more) // 2])
        self.follow()
        self.check()

    def test_killed_while_a_pack_removes_blobs(self):
        """Whoever opens the copy for writing removes the others."""
        self.follow()
        self.change()
        self.pack()
        with mock.patch.object(packedblobs, 'paths',
                               side_effect=KeyboardInterrupt), \
                self.assertRaises(KeyboardInterrupt):
            self.follow()
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            FsyncStorage(self.path('Copy.fs'),
                         blob_dir=self.path('Copy.fs.blobs')).close()
        self.assertIn('interrupted a pack', logs.output[0])
        self.follow()
        self.check()

    def test_torn_by_a_power_cut(self):
        """It says what to do, since it cannot tell whose bytes these are."""
        self.follow()
        before = len(self.content_of_file('Copy.fs'))
        self.change()
        size = len(self.content_of_file())
        os.truncate(self.path('Copy.fs'), size)
        with self.assertRaisesRegex(NotRestored, f'truncate --size={before} '):
            self.follow()
        os.truncate(self.path('Copy.fs'), before)
        self.follow()
        self.check()

    def test_what_was_not_shipped_is_not_overwritten(self):
        """Somebody has opened the copy, and committed."""
        self.follow()
        copy = FsyncStorage(self.path('Copy.fs'),
                            blob_dir=self.path('Copy.fs.blobs'))
        commit(copy, {9: b'of the copy'})
        copy.close()
        self.change()
        before = self.content_of_file('Copy.fs')
        with self.assertRaisesRegex(NotRestored, 'not shipped.*truncate'):
            self.follow()
        self.assertEqual(self.content_of_file('Copy.fs'), before)

    def test_nobody_writes_to_it_meanwhile(self):
        def write():
            with self.assertRaisesRegex(Exception, 'open for writing'):
                FsyncStorage(self.path('Copy.fs'))
            with self.assertRaisesRegex(NotRestored, 'open for writing'):
                self.follow()

        self.follow(write)
        held = FsyncStorage(self.path('Copy.fs'),
                            blob_dir=self.path('Copy.fs.blobs'))
        with self.assertRaisesRegex(NotRestored, 'open for writing'):
            self.follow()
        held.close()

    def test_a_file_of_something_else(self):
        other = self.open('Copy.fs', blob_dir=self.path('Copy.fs.blobs'))
        commit(other, {0: bytes(5000)})
        other.close()
        with self.assertRaisesRegex(NotRestored, 'no copy'):
            self.follow()

    def test_a_segment_that_is_damaged(self):
        self.follow()
        self.change()
        key = DATABASE.timeline(1).segment(1)
        data = self.store.objects[key]
        self.store.objects[key] = data[:-1] + bytes([data[-1] ^ 1])
        with self.assertRaisesRegex(Damaged, key):
            self.follow()
        self.store.objects[key] = data
        self.follow()
        self.check()

    def test_a_pack_of_another_packer(self):
        """It says so, and the file stays as it was; when the base is there,
        that takes its place, and only the blobs that it names stay."""
        self.follow()
        before = self.content_of_file('Copy.fs')
        self.change()
        self.storage.close()
        stock = FileStorage(self.path(), blob_dir=self.path('Data.fs.blobs'))
        stock.pack(time.time(), lambda data: [], gc=False)
        stock.close()
        self.storage = self.handed_out()
        self.up = self.uploader()
        self.up.ship()
        with self.assertRaisesRegex(Damaged, 'another one.* try again'):
            self.follow()
        self.assertTrue(self.content_of_file('Copy.fs').startswith(before))
        while self.up.put_more_of_base():
            pass
        self.follow(self.change)
        self.check()
        self.change()
        self.follow()
        self.check()

    def test_nothing_was_shipped_yet(self):
        self.store.objects.clear()
        self.uploader()
        with self.assertRaisesRegex(NotRestored, 'nothing was shipped'):
            self.follow()
