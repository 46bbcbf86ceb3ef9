"""Index files: exact, believed only if right, written while commits go on."""

import os
import random
import shutil
import threading
import time
from unittest import mock

from ZODB.FileStorage import FileStorage
from ZODB.fsIndex import fsIndex
from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage.format import index
from fsyncstorage.format import scan
from fsyncstorage.storage import recovery
from fsyncstorage.storage.recovery import DamagedFile

from ..format import sealing
from ..often import often
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until


def entries(tree):
    return dict(tree.items())


class Snapshots(TestCase):

    def test_it_is_what_the_index_was(self):
        """Whatever is changed and added between the pieces."""
        rng = random.Random(1)
        data_file = datafile.open_new(self.path())
        self.addCleanup(data_file.close)
        data_file.write_at(bytes(1000), 0)
        for _ in range(30):
            tree = fsIndex()
            keys = [oid(rng.randrange(1 << 18)) for _ in range(300)]
            for key in keys:
                tree[key] = rng.randrange(1, 1000)
            before = entries(tree)
            snapshot = index.Snapshot(tree, 1000)

            def change(*_):
                changed = rng.sample(keys, 20) + [
                    oid(rng.randrange(1 << 20)) for _ in range(20)]
                snapshot.about_to_change(changed)
                for key in changed:
                    tree[key] = rng.randrange(1000, 2000)

            lock = mock.MagicMock()  # each time when it is released
            lock.__exit__.side_effect = change
            index.save(self.path('index'), snapshot, data_file, lock)
            loaded = index.load(self.path('index'))
            self.assertEqual(entries(loaded.index), before)
            self.assertEqual(
                (loaded.position, loaded.fingerprint),
                (1000, index.fingerprint(data_file, 1000)))
            self.assertIsNone(loaded.whole)
            index.say_whole(self.path('index'), 2000)
            # Stock reads it too.
            stock = fsIndex.load(self.path('index'))
            self.assertEqual(stock['pos'], 1000)
            self.assertEqual(entries(stock['index']), before)

    def test_every_changed_byte_is_found(self):
        tree = fsIndex()
        for number in range(20):
            tree[oid(number)] = number + 4
        with datafile.open_new(self.path()) as file:
            file.write_at(bytes(100), 0)
            index.save(self.path('index'), index.Snapshot(tree, 100), file)
        content = sealing.read(self.path('index'))
        for end in range(len(content) - index.TRAILER_SIZE):
            sealing.write(self.path('index'), content[:end])
            with self.assertRaises(index.Damaged):
                index.load(self.path('index'))
        sealing.write(self.path('index'), content)
        index.say_whole(self.path('index'), 300)  # as a pack does
        self.assertEqual(index.load(self.path('index')).whole, 300)
        with open(self.path('index'), 'rb') as file:
            content = file.read()
        for at in range(len(content)):
            for flip in often((0x01, 0x80), (0x01, 0x80, 0xff), (0x80,)):
                changed = bytearray(content)
                changed[at] ^= flip
                with open(self.path('index'), 'wb') as file:
                    file.write(changed)
                with self.assertRaises(index.Damaged, msg=(at, flip)):
                    if index.load(self.path('index')) is None:
                        raise index.Damaged('not recognized as an index')


class IndexFile(TestCase):

    def fill(self, storage, transactions=50):
        for number in range(transactions):
            commit(storage, {number: b'x' * 100})
        return entries(storage._index)

    def scanned_from(self, name='Data.fs'):
        """Open, and say from which position the data was scanned."""
        seen = []
        original = recovery.recover

        def recover(file, known, *args):
            seen.append(known.end)
            return original(file, known, *args)

        recovery.recover = recover
        try:
            storage = self.open(name)
        finally:
            recovery.recover = original
        found = entries(storage._index)
        storage.close()
        return seen[0], found

    def test_after_a_close_nothing_is_scanned(self):
        storage = self.open()
        index_was = self.fill(storage)
        end = storage.getSize()
        storage.close()
        self.assertEqual(self.scanned_from(), (end, index_was))

    def test_after_a_crash_with_something_behind_it(self):
        """However small the transactions are."""
        storage = self.open()
        commit(storage, {1: b'x'})
        storage.journal.checkpoints.write()
        end = storage.getSize()
        commit(storage, {2: b'x'})
        self.assertLess(storage.getSize() - end, 200)
        for suffix in '', '.index':
            shutil.copy(self.path() + suffix, self.path('copy.fs' + suffix))
        index_was = entries(storage._index)
        self.assertEqual(self.scanned_from('copy.fs'), (end, index_was))

    def test_a_damaged_one_is_rebuilt(self):
        storage = self.open()
        index_was = self.fill(storage)
        storage.close()
        with open(self.path('Data.fs.index'), 'r+b') as file:
            file.seek(100)
            file.write(b'\xff')
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            self.assertEqual(self.scanned_from(), (4, index_was))
        self.assertIn('all of the data will be scanned', logs.output[0])

    def test_one_of_another_file_is_not_believed(self):
        other = self.open('other.fs')
        self.fill(other)
        other.close()
        storage = self.open()
        for number in range(50, 100):
            commit(storage, {number: b'x' * 100})
        index_was = entries(storage._index)
        storage.close()
        os.rename(self.path('other.fs.index'), self.path('Data.fs.index'))
        self.assertEqual(self.scanned_from(), (4, index_was))

    def cut_off(self):
        """A file that is shorter than its index says, by ten objects."""
        storage = self.open()
        self.fill(storage)
        middle = storage.getSize()
        for number in range(50, 60):
            commit(storage, {number: b'x'})
        end = storage.getSize()
        storage.close()
        os.truncate(self.path(), middle)
        return middle, end

    def test_a_file_that_was_cut_off_is_refused(self):
        middle, end = self.cut_off()
        for size in middle, middle - 1, 4:
            os.truncate(self.path(), size)
            before = self.snapshot_of_directory()
            for read_only in False, True:
                with self.assertRaisesRegex(
                        DamagedFile,
                        f'ends at {size}, .*60 objects in {end} bytes'
                        '.*remove the index'):
                    self.open(read_only=read_only)
            self.assertEqual(self.snapshot_of_directory(), before)

    def test_damage_in_a_packed_file_behind_its_index(self):
        """Nothing is behind it; but the index says that it was durable."""
        storage = self.open()
        self.fill(storage)
        storage.journal.checkpoints.write()
        index_file = sealing.read(self.path('Data.fs.index'))
        commit(storage, {50: b'x'})
        end = storage.getSize()
        commit(storage, {51: b'y' * 100})
        storage.close()
        whole = sealing.read(self.path())
        for at, is_cut_off in (end - 9, False), (len(whole) - 9, True):
            with open(self.path(), 'wb') as file:
                file.write(whole if is_cut_off else whole[:end])
            with open(self.path(), 'r+b') as file:
                file.seek(at)
                file.write(b'!')
            with open(self.path('Data.fs.index'), 'wb') as file:
                file.write(index_file)
            index.say_whole(self.path('Data.fs.index'), end)
            if is_cut_off:
                with self.assertLogs('fsyncstorage', 'WARNING'):
                    self.assertEqual(self.open().getSize(), end)
            else:
                before = self.snapshot_of_directory()
                for read_only in False, True:
                    with self.assertRaisesRegex(DamagedFile, 'its index'):
                        self.open(read_only=read_only)
                self.assertEqual(self.snapshot_of_directory(), before)

    def snapshot_of_directory(self):
        return {
            name: sealing.read(self.path(name))
            for name in os.listdir(self.directory)
            if not name.endswith('.lock')}

    def test_an_older_backup_without_the_index_is_opened(self):
        self.cut_off()
        os.remove(self.path('Data.fs.index'))
        start, found = self.scanned_from()
        self.assertEqual((start, len(found)), (4, 50))

    def test_a_longer_index_of_another_file_is_no_proof(self):
        """Nor is one by stock: it may be left from before a pack."""
        middle, _ = self.cut_off()
        content = bytearray(sealing.read(self.path()))
        index_file = sealing.read(self.path('Data.fs.index'))
        os.remove(self.path('Data.fs.index'))
        other = self.open('other.fs')
        commit(other, {70: b'y' * 77})
        other.close()
        sealing.write(self.path('other.fs.index'), index_file)
        self.assertEqual(len(self.open('other.fs')), 1)
        sealing.write(self.path('Data.fs.index'),
                      index_file[:-index.TRAILER_SIZE])
        self.assertEqual(len(self.open()), 50)
        self.assertEqual(sealing.read(self.path()), content)

    def test_one_that_stock_wrote_is_accepted(self):
        storage = self.open()
        index_was = self.fill(storage)
        end = storage.getSize()
        storage.close()
        os.remove(self.path('Data.fs.index'))
        FileStorage(self.path()).close()
        self.assertEqual(self.scanned_from(), (end, index_was))

    def test_one_of_stock_after_an_object_that_was_stored_twice(self):
        """In one transaction, as ZEO does with the record of a blob."""
        storage = self.open()
        self.fill(storage)
        transaction = begin(storage)
        for data in b'x', b'y':
            storage.store(oid(99), b'\0' * 8, data, '', transaction)
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)
        index_was = entries(storage._index)
        end = storage.getSize()
        storage.close()
        self.written_by_stock(end, index_was)
        self.assertEqual(self.scanned_from(), (end, index_was))

    def test_one_of_stock_that_contradicts_the_data(self):
        for what, change in (
            ('another place', lambda index, end: (index, end)),
            ('an end in the middle', lambda index, end: (index, end - 9)),
            ('an end behind the file', lambda index, end: (index, end + 99)),
        ):
            with self.subTest(what):
                storage = self.open(what)
                commit(storage, {1: b'x'})
                last = commit(storage, {2: b'x'})
                index, end = dict(storage._index), storage.getSize()
                storage.close()
                wrong = {**index, oid(2): index[oid(1)]}
                self.written_by_stock(*reversed(change(wrong, end)), what)
                with self.assertLogs('ZODB.FileStorage', 'WARNING') as log:
                    storage = self.open(what)
                self.assertIn('Ignoring index', log.output[0])
                self.assertEqual(dict(storage._index), index)
                self.assertEqual(storage.lastTransaction(), last)
                storage.close()

    def written_by_stock(self, position, entries, name='Data.fs'):
        stock = fsIndex()
        for key, place in entries.items():
            stock[key] = place
        stock.save(position, self.path(name + '.index'))


class Told:
    """A lock that calls somebody when a thread has to wait for it."""

    def __init__(self, lock, call):
        self._lock = lock
        self._call = call

    def __enter__(self):
        if not self._lock.acquire(blocking=False):
            self._call()
            self._lock.acquire()

    def __exit__(self, *args):
        self._lock.release()


class WhileRunning(TestCase):

    def test_it_is_written_and_exact(self):
        for policy in 'none', 'group-commit':
            with self.subTest(policy):
                storage = self.open(policy, durability=policy,
                                    index_checkpoint='16KB')
                stop = threading.Event()

                def work(base):
                    number = 0
                    while not stop.is_set():
                        number += 1
                        commit(storage, {base + number: b'x' * 200})

                threads = [Thread(work, n << 20) for n in range(4)]
                until(lambda: storage.journal.checkpoints.written > 5,
                      'checkpoints')
                stop.set()
                for thread in threads:
                    thread.result()
                loaded = index.load(storage._file_name + '.index')
                self.assertLessEqual(
                    loaded.position, storage._sequencer.durable.end)
                scanned = recovery.read_on(
                    recovery.Window(
                        lambda length, at: os.pread(
                            storage._file.fileno(), length, at),
                        loaded.position),
                    recovery.Recovered(fsIndex(), scan.FIRST, z64))[0]
                self.assertEqual(entries(loaded.index),
                                 entries(scanned.index))

    def test_a_restart_scans_at_most_that_much(self):
        storage = self.open(index_checkpoint='64KB')
        for number in range(400):
            commit(storage, {number % 20: b'%d' % number * 100},
                   {number % 20: storage._index.get(oid(number % 20)) and
                    storage.getTid(oid(number % 20))}
                   if number >= 20 else {})
            end = storage.getSize()
            until(lambda: end - storage.journal.checkpoints._position
                  <= 65536, 'a checkpoint in time')

    def test_commits_do_not_wait_for_it(self):
        storage = self.open(index_checkpoint='16KB')
        writing, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        original = index.save

        def save(*args):
            writing.set()
            go_on.wait(30)
            return original(*args)

        index.save = save
        self.addCleanup(setattr, index, 'save', original)
        number = 0
        while not writing.is_set():
            number += 1
            commit(storage, {number: b'x' * 500})
        for more in range(20):
            commit(storage, {number + more + 1: b'x'})
        self.assertEqual(storage.load(oid(number + 20))[0], b'x')
        go_on.set()
        until(lambda: storage.journal.checkpoints.written > 1, 'a checkpoint')

    def test_a_pack_cancels_it(self):
        """An index of the old file never gets its name beside the new one."""
        storage = self.open(index_checkpoint='16KB')
        tid = commit(storage, {0: b'a' * 100})
        tid = commit(storage, {0: b'b' * 100}, {0: tid})
        saving, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        original = index.save

        def save(path, *args):
            result = original(path, *args)
            if path.endswith('.index_tmp'):
                saving.set()
                go_on.wait(30)
            return result

        index.save = save
        self.addCleanup(setattr, index, 'save', original)
        checkpoint = Thread(storage.journal.checkpoints.write)
        self.assertTrue(saving.wait(30))
        storage.pack(time.time() + 1, lambda data: [], False)
        go_on.set()
        self.assertFalse(checkpoint.result())
        self.assertEqual(index.load(self.path('Data.fs.index')).position,
                         storage.getSize())

    def test_a_swap_that_fails_has_left_no_index(self):
        """It is of the packed file, so the next commit writes another."""
        storage = self.open(index_checkpoint='16KB', pack_process=False)
        tid = z64
        for number in range(40):
            tid = commit(storage, {0: bytes(1000)}, {0: tid})
        storage.journal.checkpoints.write()
        replace = datafile.disk.replace

        def failing(source, target):
            if target == self.path():
                raise OSError(5, 'Input/output error')
            replace(source, target)

        with mock.patch.object(datafile.disk, 'replace', failing), \
                self.assertRaisesRegex(OSError, 'Input/output error'):
            storage.pack(time.time() + 1, lambda data: [], gc=False)
        commit(storage, {1: b'x'})

        def belongs():
            loaded = index.load(self.path('Data.fs.index'))
            return loaded.fingerprint == index.fingerprint(
                storage._file, loaded.position)

        until(belongs, 'a new index')

    def test_a_snapshot_never_knows_what_the_pipeline_does_not(self):
        """It would get its name before what it knows is synced."""
        storage = self.open()
        commit(storage, {0: b'a'})
        go_on, named, checkpoints = threading.Event(), [], []
        append = storage._sequencer.append
        give_name = storage.journal.checkpoints._give_name

        def checkpoint_first(*args):
            storage.journal.lock = Told(storage.journal.lock, go_on.set)
            checkpoints.append(Thread(storage.journal.checkpoints.write))
            self.assertTrue(go_on.wait(30))
            append(*args)

        def note(temporary):
            named.append((index.load(temporary).position,
                          storage._sequencer.durable.end))
            give_name(temporary)
            go_on.set()

        storage._sequencer.append = checkpoint_first
        storage.journal.checkpoints._give_name = note
        commit(storage, {1: b'b'})
        storage._sequencer.append = append
        checkpoints[0].result()
        for position, durable in named:
            self.assertLessEqual(position, durable)
        self.assertEqual(named[0][0], storage._pos)

    def test_nothing_is_written_after_a_failed_sync(self):
        disk = self.controlled_disk()
        storage = self.open()
        commit(storage, {1: b'x'})
        written = os.stat(self.path('Data.fs.index')).st_mtime_ns
        disk.fail_sync(OSError(5, 'Input/output error'))
        with self.assertRaises(Exception):
            commit(storage, {2: b'x'})
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            self.assertFalse(storage.journal.checkpoints.write_or_warn())
        self.assertIn('no index could be written', logs.output[0])
        storage.close()
        self.assertEqual(os.stat(self.path('Data.fs.index')).st_mtime_ns,
                         written)
