"""Transactions that ask for more durability than their storage gives.

They keep I3, I4, I7, I8, I10 and I11 as the commits of `group-commit` do, in
a storage whose policy promises nothing.
"""

import itertools
import os
import pickle
from unittest import mock

import transaction
import ZODB
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import StorageTransactionError
from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage import durability
from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.storage import outcome
from fsyncstorage.storage.journal import Journal

from ..support import commit
from ..support import oid
from ..support import vote
from .test_failures import EIO
from .test_invariants import InvariantCase


def vote_asking(storage, records, name='group-commit'):
    return vote(storage, records, extension={'durability': name})


class AskingCase(InvariantCase):

    def setUp(self):
        super().setUp()
        self.numbers = itertools.count()
        self.disk = self.controlled_disk()


class Promised(AskingCase):
    """Under `none`."""

    policy = 'none'

    def test_I3_others_are_not(self):
        """Neither before it nor after it."""
        storage = self.held(self.policy)
        self.disk.release_syncs()
        tid = storage.tpc_finish(vote_asking(storage, {2: b'x'}))
        self.disk.hold_again()
        last = commit(storage, {3: b'x'})
        self.assertEqual(storage.lastTransaction(), last)
        self.assertEqual(storage.stats()['last_durable'], tid)
        self.disk.release_syncs()

    def test_I1_what_comes_behind_it_waits_for_its_sync(self):
        """But has none of its own."""
        storage = self.held(self.policy)
        thread = self.finish(vote_asking(storage, {2: b'x'}))
        self.disk.wait_for_sync()
        behind = self.finish(vote(storage, {3: b'x'}))
        self.assertTrue(behind.is_alive())
        self.assertEqual(storage.lastTransaction(), self.first)
        syncs = self.disk.syncs
        self.disk.let_one_sync_end()
        self.assertLess(thread.result(), behind.result())
        self.assertEqual(self.disk.syncs, syncs + 1)
        self.assertEqual(
            storage.stats()['last_durable'], thread.result())
        self.disk.release_syncs()

    def test_I7_a_failed_sync(self):
        """It fails, and so does what is behind it.  What was acknowledged
        before it stays acknowledged, and is not shown any more: it may not
        survive."""
        storage = self.held(self.policy)
        thread = self.finish(vote_asking(storage, {2: b'x'}))
        self.disk.wait_for_sync()
        behind = self.finish(vote(storage, {3: b'x'}))
        self.disk.fail_sync(EIO)
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            self.disk.release_syncs()
            for each in thread, behind:
                with self.assertRaises(OutcomeUnknown):
                    each.result()
        self.assertLess(storage.lastTransaction(), self.first)
        syncs = self.disk.syncs
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()
        self.assertEqual(self.disk.syncs, syncs)

    def test_I8_without_a_seal_its_status_is_written_last(self):
        """As under `group-commit`: a torn one must not look whole."""
        storage = self.held(self.policy, checksums=False)
        self.disk.release_syncs()
        del self.disk.log[:]
        storage.tpc_finish(vote_asking(storage, {2: b'x'}))
        self.assertEqual(
            self.disk.log, ['write', 'sync', 'status', 'sync'])

    def test_one_that_is_alone(self):
        """It writes at its vote."""
        storage = self.held(self.policy)
        storage.journal.reserve.is_real = False
        thread = self.finish(vote_asking(storage, {2: b'x'}))
        self.disk.wait_for_sync()
        self.assertTrue(thread.is_alive())
        self.disk.release_syncs()
        self.assertEqual(
            thread.result(), storage.stats()['last_durable'])


class PromisedUnderInterval(Promised):

    policy = 'interval'


class Blobs(AskingCase):
    """I11: `none` has blobs that are not durable yet."""

    def setUp(self):
        super().setUp()
        self.storage = self.open(
            'none', durability='none', blob_dir=self.path('blobs'))
        self.synced = []
        self.patch(datafile, sync_path=self.noted(datafile.sync_path))
        self.patch(datafile.disk, sync_directory=self.noted(
            datafile.disk.sync_directory))

    def noted(self, function):

        def call(path, *args):
            if self.storage._sequencer.pipeline.queue:  # else of a vote
                self.synced.append((path, self.status_of_last()))
            return function(path, *args)

        return call

    def status_of_last(self):
        """The status byte that is in the file."""
        with open(self.path('none'), 'rb') as file:
            start = self.storage._sequencer.pipeline.queue[-1].start
            return os.pread(file.fileno(), 1, start + 16)

    def vote_blob(self, number, extension):
        metadata = TransactionMetaData(extension=extension)
        self.storage.tpc_begin(metadata)
        self.store_blob(self.storage, metadata, number)
        self.storage.tpc_vote(metadata)
        return metadata

    def test_they_are_durable_before_it_counts(self):
        before = self.disk.syncs
        metadata = self.vote_blob(1, {'durability': 'group-commit'})
        self.assertEqual(self.disk.syncs, before + 1)  # of the content
        tid = self.storage.tpc_finish(metadata)
        blob = self.storage.loadBlob(oid(1), tid)
        self.assertIn((os.path.dirname(blob), b'c'), self.synced)
        self.assertEqual({status for _, status in self.synced}, {b'c'})
        self.assertEqual(self.storage.stats()['last_durable'], tid)

    def test_those_before_it_are_durable_with_it(self):
        earlier = self.storage.tpc_finish(self.vote_blob(1, {}))
        blob = self.storage.loadBlob(oid(1), earlier)
        self.assertEqual(self.synced, [])
        self.storage.tpc_finish(
            vote_asking(self.storage, {2: b'x'}))
        paths = [path for path, _ in self.synced]
        self.assertIn(blob, paths)
        self.assertIn(os.path.dirname(blob), paths)
        self.assertFalse(self.storage.journal.unsynced_blobs)


class InTheFile(AskingCase):

    def one(self, name, extension, **options):
        """The bytes of a file with one transaction, of a fixed tid and id."""
        storage = self.open(name, **options)

        def given(journal, under_way):
            return b'\3' * 8

        with (mock.patch.object(Journal, 'new_tid', given),
              mock.patch.object(outcome, 'id_for', lambda *args: b'x' * 16)):
            storage.tpc_finish(vote(storage, {1: b'x'}, extension=extension))
        storage.close()
        with open(self.path(name), 'rb') as file:
            return file.read()

    def test_it_is_that_of_one_that_asks_for_nothing(self):
        for number, rest in enumerate((
                {}, {'key': 'value'}, {'durable': 1, 'x': [1, 'durability']})):
            with self.subTest(rest):
                expected = self.one(f'{number}', rest)
                for place in {0, len(rest)}:
                    items = list(rest.items())
                    items.insert(place, ('durability', 'group-commit'))
                    self.assertEqual(
                        self.one(f'{number} {place}', dict(items)), expected)

    def test_it_is_not_shown(self):
        db = ZODB.DB(self.open(durability='none'))
        self.addCleanup(db.close)
        with db.transaction() as connection:
            connection.root()['x'] = 1
            of_both = connection.transaction_manager.get()
            of_both.setExtendedInfo('durability', 'group-commit')
            of_both.setExtendedInfo('key', 'value')
        with db.transaction() as connection:
            connection.root()['x'] = 2
            connection.transaction_manager.get().setExtendedInfo(
                'durability', 'group-commit')
        self.assertEqual(db.storage.stats()['last_durable'],
                         db.storage.lastTransaction())
        last, before, _ = db.undoLog(0, 3)
        self.assertNotIn('durability', last)
        self.assertNotIn('durability', before)
        self.assertEqual(before['key'], 'value')
        *_, before, last = db.storage.iterator()
        self.assertEqual(before.extension, {'key': 'value'})
        self.assertEqual(last.extension_bytes, b'')
        for entry in db.storage.history(z64, 3):
            self.assertNotIn('durability', entry)

    def test_an_application_that_has_mistyped_it(self):
        db = ZODB.DB(self.open(durability='interval'))
        self.addCleanup(db.close)
        manager = transaction.TransactionManager()
        root = db.open(manager).root()
        before = db.storage.lastTransaction()
        root['x'] = 'wrong'
        manager.get().setExtendedInfo('durability', 'group-comit')
        with self.assertRaisesRegex(StorageTransactionError, 'group-comit'):
            manager.commit()
        manager.abort()
        self.assertEqual(db.storage.lastTransaction(), before)
        with self.assertRaises(ValueError):
            durability('group-comit', manager.get())
        root['x'] = 'right'
        durability('group-commit', manager.get())
        manager.commit()
        self.assertEqual(db.storage.stats()['last_durable'],
                         db.storage.lastTransaction())
        manager.abort()


class Copies(AskingCase):
    """They keep what they have, and ask for nothing."""

    def source(self):
        """A file of stock's, whose history has that key."""
        storage = FileStorage(self.path('stock'))
        self.addCleanup(storage.close)
        for number in range(1, 4):
            storage.tpc_finish(vote(
                storage, {number: b'x'}, extension={
                    'durability': 'group-commit', 'number': number}))
        return storage

    def test_of_all_transactions(self):
        source = self.source()
        target = self.open('target', durability='none')
        before = self.disk.syncs
        target.copyTransactionsFrom(source)
        self.assertEqual(self.disk.syncs, before)
        self.assertEqual(
            [each.extension_bytes for each in target.iterator()],
            [each.extension_bytes for each in source.iterator()])
        self.assertEqual(len(list(target.iterator())), 3)

    def test_with_a_dictionary(self):
        """As a server has it, or a program that has read it."""
        storage = self.open(durability='none')
        before = self.disk.syncs
        extension = {'durability': 'group-commit'}
        metadata = TransactionMetaData(extension=extension)
        storage.tpc_begin(metadata, b'\3' * 8)
        storage.restore(oid(1), b'\3' * 8, b'x', '', None, metadata)
        storage.tpc_vote(metadata)
        storage.tpc_finish(metadata)
        self.assertEqual(self.disk.syncs, before)
        last, = storage.iterator()
        self.assertEqual(last.extension, extension)


class Bomb:

    exploded = []

    def __reduce__(self):
        return self.exploded.append, (1,)


class NotHeeded(AskingCase):

    def check_refused(self, storage, value, why):
        """Nothing of it is stored, and the next one is not refused."""
        before = storage.lastTransaction()
        with self.assertRaisesRegex(StorageTransactionError, why):
            vote(storage, {1: b'x'}, extension={'durability': value})
        self.assertEqual(storage._begun, {})
        self.assertEqual(storage.lastTransaction(), before)
        commit(storage, {next(self.numbers): b'x'})

    def test_what_needs_a_log(self):
        for own in POLICIES:
            with self.subTest(own):
                self.check_refused(
                    self.open(own, durability=own), 'quorum',
                    f'for all or for none; this one has {own}')

    def test_what_there_is_already(self):
        """And less than that."""
        promising = 'group-commit', 'per-commit', 'two-sync'
        for own, name in [
                ('none', 'none'), ('interval', 'interval'),
                ('interval', 'none'), ('group-commit', 'interval')] + [
                (own, name) for own in promising for name in promising]:
            with self.subTest(own=own, name=name):
                storage = self.open(
                    f'{own} {name}', durability=own, sync_interval='1h')
                before = self.disk.syncs
                tid = storage.tpc_finish(
                    vote_asking(storage, {1: b'x'}, name))
                self.assertEqual(
                    self.disk.syncs - before,
                    {'two-sync': 2}.get(own, int(own in promising)))
                self.assertEqual(
                    storage.stats()['last_durable'] == tid, own in promising)
                last, = storage.iterator()
                self.assertEqual(last.extension_bytes, b'')
                storage.close()

    def test_what_is_no_policy(self):
        """It may be a mistyped name."""
        for own in POLICIES:
            storage = self.open(own, durability=own)
            for value in ('group_commit', '', 'group-commit ', 'x' * 50_000,
                          'group-commit\n' * 1000, b'group-commit', None,
                          True, ['group-commit'], {}, (), 'GROUP-COMMIT'):
                with self.subTest(repr(value)[:40], own=own):
                    self.check_refused(
                        storage, value, '^the transaction has .{2,60} as its'
                        ' durability, which is no policy: these are none,'
                        ' .*, quorum$')

    def test_bytes_are_not_unpickled(self):
        """They are stored as they are."""
        storage = self.open(durability='none')
        syncs = self.disk.syncs
        for data in (
                pickle.dumps({'durability': 'group-commit', 'b': Bomb()}, 3),
                pickle.dumps({'durability': 'group-commit'}, 3),
                b'durability'):
            storage.tpc_finish(
                vote(storage, {len(data): b'x'}, extension=data))
            *_, last = storage.iterator()
            self.assertEqual(last.extension_bytes, data)
        self.assertEqual(Bomb.exploded, [])
        self.assertEqual(self.disk.syncs, syncs)
