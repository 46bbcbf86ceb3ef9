"""At open: a torn tail is cut and kept, damage is refused, nothing is lost.

And the mark that acknowledged commits may be missing.
"""

import errno
import os
import shutil
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage.commit import policies
from fsyncstorage.format import scan
from fsyncstorage.format.window import Window
from fsyncstorage.storage import recovery
from fsyncstorage.storage.recovery import DamagedFile

from ..often import often
from ..support import TestCase
from ..support import commit
from ..support import oid
from ..support import vote


class RecoveryCase(TestCase):

    def write(self, transactions=5, **options):
        """A file of some transactions; their tids and where each begins."""
        storage = self.open(**options)
        self.tids = [commit(storage, {number: b'data %d' % number * 20})
                     for number in range(transactions)]
        self.starts = [each.position for each in scan.transactions(
            Window.of_file(storage._file.fileno()))]
        storage.close()
        os.remove(self.path('Data.fs.index'))
        return self.content()

    def content(self):
        with open(self.path(), 'rb') as file:
            return file.read()

    def replace(self, content):
        with open(self.path(), 'wb') as file:
            file.write(content)

    def opened(self, **options):
        """The numbers of the transactions that are there when opened."""
        storage = self.open(**options)
        found = [self.tids.index(each.tid) for each in storage.iterator()]
        for number in found:
            self.assertEqual(storage.load(oid(number)),
                             (b'data %d' % number * 20, self.tids[number]))
        with self.assertRaises(POSKeyError):
            storage.load(oid(len(found)))
        storage.close()
        return found


class TornTails(RecoveryCase):

    def cut(self, content, survivors, **options):
        """It opens with so many, and keeps the rest in Data.fs.tr0."""
        self.replace(content)
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            found = self.opened(**options)
        self.assertEqual(found, list(range(survivors)))
        end = self.starts[survivors]
        with open(self.path('Data.fs.tr0'), 'rb') as file:
            self.assertEqual(file.read(), content[end:])
        os.remove(self.path('Data.fs.tr0'))
        self.assertIn(f'cut off {len(content) - end} bytes', logs.output[0])
        self.assertIn(self.tids[survivors - 1].hex(), logs.output[0])
        # Stock agrees with what is left.
        stock = FileStorage(self.path())
        self.assertEqual(stock.lastTransaction(), self.tids[survivors - 1])
        stock.close()
        os.remove(self.path('Data.fs.index'))

    def test_every_prefix(self):
        content = self.write()
        for end in range(self.starts[4] + 1, len(content), often(5, 1, 17)):
            self.cut(content[:end], 4)

    def test_zeros_behind_the_end(self):
        """Stock mistakes them for an empty database."""
        content = self.write()
        for zeros in 1, 22, 23, 24, 4096:
            self.starts.append(len(content))
            self.cut(content + bytes(zeros), 5)

    def test_rubbish_behind_the_end(self):
        content = self.write()
        self.starts.append(len(content))
        self.cut(content + bytes(range(256)) * 3, 5)

    def test_what_an_older_file_had_in_that_place(self):
        """A block to which nothing got may show what was there before."""
        older = self.write()[self.starts[3]:]
        os.remove(self.path())
        content = self.write()
        self.cut(content[:self.starts[3]] + older, 3)
        # Nor does it prove that what is torn before it was durable.
        hole = bytes(self.starts[3] - self.starts[2])
        self.cut(content[:self.starts[2]] + hole + older, 2)

    def test_what_an_older_file_had_without_a_seal(self):
        older = self.write(checksums=False)[self.starts[3]:]
        os.remove(self.path())
        content = self.write(checksums=False)
        hole = bytes(self.starts[3] - self.starts[2])
        self.cut(content[:self.starts[2]] + hole + older, 2)

    def test_a_full_disk_leaves_no_part_of_one(self):
        content = self.write()
        self.replace(content[:-1])
        disk = self.controlled_disk()

        def fail(data, position):
            raise OSError(28, 'No space left on device')

        disk.before_write = fail
        for _ in range(2):
            with self.assertRaisesRegex(
                    OSError, 'No space left.*Nothing was changed.*free') as e:
                self.open()
            self.assertEqual(e.exception.errno, errno.ENOSPC)
            self.assertEqual(self.content(), content[:-1])
            self.assertFalse(os.path.exists(self.path('Data.fs.tr0')))

    def test_an_extension_that_is_no_pickle(self):
        """Stock takes anything, and so do we, with a seal or without."""
        for number, make in enumerate((
            FileStorage,
            lambda path: FsyncStorage(path, checksums=False),
            FsyncStorage,
        )):
            for extension in (b'no pickle', b'no pickle' * 10, b'}.tail' * 10,
                              b'}', b'x' * 65530):
                with self.subTest(maker=number, extension=extension[:9]):
                    path = self.path(
                        f'{number}-{len(extension)}-{extension[:1]}')
                    storage = make(path)
                    self.addCleanup(storage.close)
                    storage.tpc_begin(
                        transaction := TransactionMetaData('', '', extension))
                    storage.tpc_vote(transaction)
                    storage.tpc_finish(transaction)
                    shutil.copy(path, path + '.copy')
                    transaction, = self.open(path + '.copy').iterator()
                    self.assertEqual(transaction.extension_bytes, extension)

    def test_read_only_changes_nothing(self):
        content = self.write()
        self.replace(content[:-1])
        self.assertEqual(self.opened(read_only=True), [0, 1, 2, 3])
        self.assertEqual(self.content(), content[:-1])
        self.assertFalse(os.path.exists(self.path('Data.fs.tr0')))


class Damage(RecoveryCase):

    def refused(self, content, number, **options):
        self.replace(content)
        before = sorted(os.listdir(self.directory))
        with self.assertRaises(DamagedFile) as caught:
            self.open(**options)
        message = str(caught.exception)
        self.assertIn(self.path(), message)
        self.assertIn(f'transaction at {self.starts[number]}', message)
        self.assertIn('Nothing was changed', message)
        self.assertIn('fsync-check', message)
        self.assertEqual(self.content(), content)
        self.assertEqual(sorted(os.listdir(self.directory)), before)

    def test_in_what_was_durable(self):
        """All but the last: each is durable when the next one is written."""
        content = self.write()
        for number in range(4):
            for at in range(self.starts[number], self.starts[number + 1],
                            often(13, 1, 37)):
                changed = bytearray(content)
                changed[at] ^= 0x10
                self.refused(bytes(changed), number)

    def test_of_the_last_one_that_an_index_knows(self):
        """It is refused, or found later, by the check; never cut off."""
        storage = self.open()
        for number in range(3):
            start = storage.getSize()
            tid = commit(storage, {number: b'x' * 300})
        storage.close()
        content = self.content()
        refused = []
        step = often(7, 1, 31)
        for at in range(start, len(content), step):
            changed = bytearray(content)
            changed[at] ^= 1
            self.replace(bytes(changed))
            try:
                storage = self.open()
            except DamagedFile as error:
                self.assertRegex(
                    str(error), f'at {start}.* when its index was written')
                refused.append(at)
            else:
                self.assertEqual(storage.lastTransaction(), tid)
                storage.close()
        self.assertEqual(self.content()[:start], content[:start])
        self.assertLessEqual(
            set(range(start, start + 256, step)), set(refused))

    def test_no_index_of_another_file_proves_it(self):
        content = self.write()[:-1] + bytes(5000)
        other = self.open('other.fs')
        tid = z64
        for size in 2000, 100:  # the latter alone is known, and far behind
            tid = commit(other, {7: b'x' * size}, {7: tid})
            other.journal.checkpoints.write()
            shutil.copy(
                self.path('other.fs.index'), self.path('Data.fs.index'))
            self.replace(content)
            self.assertEqual(self.opened(), [0, 1, 2, 3])

    def test_in_an_unsealed_file(self):
        content = self.write(checksums=False)
        changed = bytearray(content)
        changed[self.starts[2] + 23 + 20] ^= 0xff   # a record header
        self.refused(bytes(changed), 2)

    def test_an_old_transaction_among_newer_ones(self):
        """It is sound in itself, but its block was not written."""
        old, content = self.write(), bytearray(self.write(create=True))
        _, _, start, end, _ = self.starts
        content[start:end] = old[start:end]
        for read_only in False, True:
            self.refused(bytes(content), 2, read_only=read_only)

    def test_with_an_index_the_checked_part_is_not_read_again(self):
        storage = self.open()
        tid = commit(storage, {1: b'x' * 1000})
        storage.close()
        content = bytearray(self.content())
        content[500] ^= 1
        self.replace(bytes(content))
        self.assertEqual(self.open().lastTransaction(), tid)


class LostFiles(RecoveryCase):

    def test_never_created_anew_beside_what_belongs_to_it(self):
        for name in 'Data.fs.old', 'Data.fs.index', 'blobs/0x00':
            for content in None, b'', b'FS3':
                with self.subTest(name=name, content=content):
                    os.makedirs(self.path('blobs'), exist_ok=True)
                    if content is not None:
                        self.replace(content)
                    if name.startswith('blobs'):
                        os.mkdir(self.path(name))
                    else:
                        open(self.path(name), 'wb').close()
                    with self.assertRaisesRegex(
                            DamagedFile, 'a database was here'):
                        self.open(blob_dir=self.path('blobs'))
                    for root, dirs, files in os.walk(
                            self.directory, topdown=False):
                        for each in files:
                            os.remove(os.path.join(root, each))
                        for each in dirs:
                            os.rmdir(os.path.join(root, each))

    def test_created_anew_when_it_is_asked_for(self):
        self.write(1)
        os.rename(self.path(), self.path('Data.fs.old'))
        self.assertEqual(len(self.open(create=True)), 0)

    def test_a_torn_creation(self):
        for content in b'', b'F', b'FS3':
            self.replace(content)
            storage = self.open()
            commit(storage, {1: b'x'})
            storage.close()
            self.assertEqual(len(self.open()), 1)
            for name in os.listdir(self.directory):
                os.remove(self.path(name))


class OtherWriters(RecoveryCase):

    def test_a_voted_transaction_of_another_process(self):
        writer = self.open()
        first = commit(writer, {1: b'x'})
        transaction = vote(writer, {2: b'y'})
        reader = self.open(read_only=True)
        self.assertEqual(reader.lastTransaction(), first)
        self.assertEqual(len(list(reader.iterator())), 1)
        writer.tpc_finish(transaction)
        self.assertEqual(len(list(reader.iterator())), 1)

    def test_one_that_is_completed_while_we_look(self):
        """What was seen unfinished, and is followed by a seal that proves it
        durable, was not damaged but written meanwhile."""
        content = self.write()
        torn = bytearray(content)
        torn[self.starts[2] + 16] = ord('c')
        self.replace(bytes(torn))
        looked = []

        def proof_behind(window, tid, damage, promised):
            looked.append(damage.position)
            proof = original(window, tid, damage, promised)
            self.replace(content)
            return proof

        original = recovery._proof_behind
        with mock.patch.object(recovery, '_proof_behind', proof_behind):
            self.assertEqual(self.opened(read_only=True), [0, 1, 2, 3, 4])
        self.assertEqual(looked, [self.starts[2]])


class Order(RecoveryCase):

    def test_the_disk_is_asked_not_the_cache(self):
        """Sync, drop the cache, read; and sync again before serving."""
        self.write()
        disk = self.controlled_disk()
        calls = []

        def patched(name, function):
            def call(*args):
                calls.append((name, disk.syncs))
                return function(*args)
            return mock.patch.object(
                disk if hasattr(disk, name) else recovery, name, call)

        with (patched('drop_cache', disk.drop_cache),
              patched('read_on', recovery.read_on)):
            self.opened()
        self.assertEqual([name for name, _ in calls],
                         ['drop_cache', 'read_on'])
        self.assertEqual(calls[0][1], 1)
        # Now there is an index, and no tail.
        with patched('drop_cache', disk.drop_cache):
            self.opened()
        self.assertEqual(len(calls), 2)

    def test_a_disk_that_fails_at_open_is_not_served(self):
        self.write()
        disk = self.controlled_disk()
        disk.fail_sync(OSError(5, 'Input/output error'))
        with self.assertRaisesRegex(OSError, 'Input/output'):
            self.open()
        self.assertEqual(self.opened(), [0, 1, 2, 3, 4])


class Unsynced(TestCase):

    def marked(self):
        return os.path.exists(self.path('Data.fs.unsynced'))

    def left_behind(self):
        """The mark of a storage that did not come to its end."""
        with open(self.path('Data.fs.unsynced'), 'w'):
            pass

    def test_only_while_something_may_be_lost(self):
        for policy in policies.POLICIES:
            storage = self.open(durability=policy)
            self.assertEqual(self.marked(), policy in ('none', 'interval'))
            self.assertFalse(storage.may_have_lost)
            storage.close()
            self.assertFalse(self.marked())

    def test_it_stays_until_somebody_can_notice(self):
        """A client that saw more has a tid that a later one shows up."""
        for number, policy in enumerate(('none', 'group-commit'), 2):
            self.left_behind()
            for _ in range(2):
                storage = self.open(durability=policy)
                self.assertTrue(storage.may_have_lost)
                storage.close()
            storage = self.open(durability=policy)
            commit(storage, {number: b'b'})
            storage.close()
            self.assertFalse(self.marked())

    def test_it_stays_after_a_failed_sync(self):
        storage = self.open(durability='none')
        commit(storage, {1: b'a'})
        self.controlled_disk().fail_sync(OSError(errno.EIO, 'test'))
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()
        self.assertTrue(self.marked())

    def test_read_only(self):
        self.open(durability='none').close()
        storage = self.open(durability='none', read_only=True)
        self.assertFalse(storage.may_have_lost)
        self.assertFalse(self.marked())
