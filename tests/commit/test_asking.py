"""Transactions that ask for more durability than their storage gives.

They keep I3, I4, I7, I8, I10 and I11 as the commits of `group-commit` do, in
a storage whose policy promises nothing.
"""

import base64
import collections
import itertools
import os
import pickle
import threading
import unittest
from unittest import mock

import transaction
import ZODB
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import z64

from fsyncstorage import AsyncFinish
from fsyncstorage import durability
from fsyncstorage.commit import asking
from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.storage.commits import Commits
from fsyncstorage.storage.transaction import LONGEST_FIELD

from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import until
from ..support import vote
from .test_failures import EIO

# What asks for more, under a policy that promises nothing.
MORE = [
    (policy, name) for policy in ('none', 'interval')
    for name in ('group-commit', 'per-commit', 'two-sync')
] + [('none', 'interval')]


ASKED = {'durability': 'group-commit', 'key': 'value'}


def vote_asking(storage, records, name='group-commit'):
    return vote(storage, records, extension={'durability': name})


class AskingCase(TestCase):

    def setUp(self):
        super().setUp()
        self.numbers = itertools.count()  # of the storages of a test
        self.disk = self.controlled_disk()
        patch = mock.patch.object(asking, '_said_of_less', threading.Lock())
        patch.start()
        self.addCleanup(patch.stop)

    def held(self, policy, **options):
        """A storage with object 1, which is not durable; syncs are held up."""
        self.storage = self.open(
            f'{policy} {next(self.numbers)}', durability=policy,
            sync_interval='1h', **options)
        self.addCleanup(self.disk.release_syncs)
        self.first = commit(self.storage, {1: b'first'})
        self.disk.hold_again()
        return self.storage

    def start(self, metadata, f=None):
        """Finish it in a thread; return when it is appended."""
        appended = self.storage.stats()['last_appended']
        thread = Thread(self.storage.tpc_finish, metadata, f)
        until(lambda: self.storage.stats()['last_appended'] != appended,
              'appended')
        return thread


class Promised(AskingCase):
    """Under `none` and `interval`."""

    def test_I3_it_is_acknowledged_when_it_is_durable(self):
        """And with it everything before it."""
        for policy, name in MORE:
            with self.subTest(policy=policy, name=name):
                storage = self.held(policy)
                self.assertLess(
                    storage.stats()['last_durable'], self.first)
                thread = self.start(vote_asking(storage, {2: b'x'}, name))
                self.disk.wait_for_sync()
                self.assertTrue(thread.is_alive())
                self.assertEqual(storage.lastTransaction(), self.first)
                self.disk.release_syncs()
                tid = thread.result()
                self.assertEqual(storage.stats()['last_durable'], tid)
                storage.close()

    def test_I3_others_are_not(self):
        """Neither before it nor after it."""
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                self.disk.release_syncs()
                tid = storage.tpc_finish(vote_asking(storage, {2: b'x'}))
                self.disk.hold_again()
                last = commit(storage, {3: b'x'})
                self.assertEqual(storage.lastTransaction(), last)
                self.assertEqual(storage.stats()['last_durable'], tid)
                self.disk.release_syncs()
                storage.close()

    def test_I3_an_asynchronous_finish_says_when(self):
        """No thread waits: that of the storage syncs, also under `none`."""
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                told = threading.Event()
                outcome = []

                def done(tid, error):
                    outcome.append(
                        (tid, error, storage.stats()['last_durable']))
                    told.set()

                tid = storage.tpc_finish(
                    vote_asking(storage, {2: b'x'}), AsyncFinish(done))
                self.disk.wait_for_sync()
                self.assertEqual(outcome, [])
                self.disk.release_syncs()
                self.assertTrue(told.wait(30))
                self.assertEqual(outcome, [(tid, None, tid)])
                storage.close()

    def test_I4_nobody_sees_it_before(self):
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                published = []
                thread = self.start(
                    vote_asking(storage, {2: b'x'}), published.append)
                self.disk.wait_for_sync()
                with self.assertRaises(POSKeyError):
                    storage.load(oid(2))
                self.assertEqual(
                    [each.tid for each in storage.iterator()], [self.first])
                self.assertEqual(published, [])
                self.disk.release_syncs()
                self.assertEqual(published, [thread.result()])
                self.assertEqual(storage.load(oid(2))[0], b'x')
                storage.close()

    def test_I1_what_comes_behind_it_waits_for_its_sync(self):
        """But has none of its own."""
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                thread = self.start(vote_asking(storage, {2: b'x'}))
                self.disk.wait_for_sync()
                behind = self.start(vote(storage, {3: b'x'}))
                self.assertTrue(behind.is_alive())
                self.assertEqual(storage.lastTransaction(), self.first)
                syncs = self.disk.syncs
                self.disk.let_one_sync_end()
                self.assertLess(thread.result(), behind.result())
                self.assertEqual(self.disk.syncs, syncs + 1)
                self.assertEqual(
                    storage.stats()['last_durable'], thread.result())
                self.disk.release_syncs()
                storage.close()

    def test_several_share_a_sync(self):
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                first = self.start(vote_asking(storage, {2: b'x'}))
                self.disk.wait_for_sync()
                others = [self.start(vote_asking(storage, {number: b'x'}))
                          for number in range(3, 9)]
                syncs = self.disk.syncs
                self.disk.release_syncs()
                for thread in first, *others:
                    thread.result()
                self.assertEqual(self.disk.syncs, syncs + 2)
                storage.close()

    def test_I7_a_failed_sync(self):
        """It fails, and so does what is behind it.  What was acknowledged
        before it stays acknowledged, and is not shown any more: it may not
        survive."""
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                thread = self.start(vote_asking(storage, {2: b'x'}))
                self.disk.wait_for_sync()
                behind = self.start(vote(storage, {3: b'x'}))
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

    def test_I9_a_lone_committer_syncs_for_itself_once(self):
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                self.disk.release_syncs()
                threads = []
                sync = self.disk.sync

                def noted(fd):
                    threads.append(threading.current_thread())
                    sync(fd)

                with mock.patch.object(self.disk, 'sync', noted):
                    storage.tpc_finish(vote_asking(storage, {2: b'x'}))
                self.assertEqual(threads, [threading.current_thread()])
                storage.close()

    def test_I10_a_close_drains(self):
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                thread = self.start(vote_asking(storage, {2: b'x'}))
                self.disk.wait_for_sync()
                closing = Thread(storage.close)
                until(lambda: storage._closed, 'closing')
                self.disk.release_syncs()
                closing.result()
                thread.result()

    def test_I10_an_interrupted_committer_is_finished_by_the_thread(self):
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                self.disk.release_syncs()
                sync = self.disk.sync
                interrupts = [KeyboardInterrupt]

                def interrupted(fd):
                    sync(fd)
                    if interrupts:
                        raise interrupts.pop()

                with mock.patch.object(self.disk, 'sync', interrupted):
                    with self.assertRaises(KeyboardInterrupt):
                        storage.tpc_finish(vote_asking(storage, {2: b'x'}))
                    until(lambda: storage.lastTransaction() > self.first,
                          'published')
                self.assertEqual(storage.stats()['last_durable'],
                                 storage.lastTransaction())
                storage.close()

    def test_I8_without_a_seal_its_status_is_written_last(self):
        """As under `group-commit`: a torn one must not look whole."""
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy, checksums=False)
                self.disk.release_syncs()
                del self.disk.log[:]
                storage.tpc_finish(vote_asking(storage, {2: b'x'}))
                self.assertEqual(
                    self.disk.log, ['write', 'sync', 'status', 'sync'])
                storage.close()

    def test_one_that_is_alone(self):
        """An undo, which writes at its vote."""
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy)
                metadata = TransactionMetaData(
                    extension={'durability': 'group-commit'})
                storage.tpc_begin(metadata)
                storage.undo(
                    base64.encodebytes(self.first).rstrip(), metadata)
                storage.tpc_vote(metadata)
                thread = self.start(metadata)
                self.disk.wait_for_sync()
                self.assertTrue(thread.is_alive())
                self.disk.release_syncs()
                self.assertEqual(
                    thread.result(), storage.stats()['last_durable'])
                storage.close()


class Blobs(AskingCase):
    """I11: `none` has blobs that are not durable yet."""

    def setUp(self):
        super().setUp()
        self.storage = self.open(
            'none', durability='none', blob_dir=self.path('blobs'))
        self.synced = []
        for name in 'sync_path', 'sync_directory':
            patch = mock.patch.object(
                self.storage._spare, name, self.noted(
                    getattr(self.storage._spare, name)))
            patch.start()
            self.addCleanup(patch.stop)

    def noted(self, function):

        def call(path):
            self.synced.append((path, self.status_of_last()))
            return function(path)

        return call

    def status_of_last(self):
        """The status byte that is in the file."""
        with open(self.path('none'), 'rb') as file:
            start = self.storage._sequencer.pipeline.queue[-1].start
            return os.pread(file.fileno(), 1, start + 16)

    def vote_blob(self, number, extension):
        metadata = TransactionMetaData(extension=extension)
        self.storage.tpc_begin(metadata)
        with open(self.path('upload'), 'wb') as file:
            file.write(b'content')
        self.storage.storeBlob(oid(number), z64, b'record',
                               self.path('upload'), '', metadata)
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
        self.assertFalse(self.storage._unsynced_blobs)

    def test_others_are_as_before(self):
        before = self.disk.syncs
        self.storage.tpc_finish(self.vote_blob(1, {}))
        self.assertEqual(self.disk.syncs, before)


class InTheFile(AskingCase):

    def one(self, name, extension, **options):
        """The bytes of a file with one transaction, of a fixed tid."""
        storage = self.open(name, **options)

        def given(storage, under_way):
            return b'\3' * 8

        with mock.patch.object(Commits, '_new_tid', given):
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

    def test_the_callers_dictionary_stays_as_it_is(self):
        """Another database of the same transaction may be ours, too."""
        extension = {'durability': 'group-commit', 'key': 'value'}
        storage = self.open()
        storage.tpc_finish(vote(storage, {1: b'x'}, extension=extension))
        self.assertEqual(
            extension, {'durability': 'group-commit', 'key': 'value'})

    def test_an_application_that_has_mistyped_it(self):
        db = ZODB.DB(self.open(durability='interval'))
        self.addCleanup(db.close)
        manager = transaction.TransactionManager()
        root = db.open(manager).root()
        before = db.storage.lastTransaction()
        for name in 'group-comit', 'Group-Commit':
            root['x'] = name
            manager.get().setExtendedInfo('durability', name)
            with self.assertRaisesRegex(StorageTransactionError, name):
                manager.commit()
            manager.abort()
            self.assertEqual(db.storage.lastTransaction(), before)
            with self.assertRaises(ValueError):
                durability(name, manager.get())
        root['x'] = 'right'
        durability('group-commit', manager.get())
        manager.commit()
        self.assertEqual(db.storage.stats()['last_durable'],
                         db.storage.lastTransaction())
        manager.abort()

    def test_the_transaction_of_this_thread(self):
        transaction.abort()
        durability('per-commit')
        self.assertEqual(transaction.get().extension,
                         {'durability': 'per-commit'})
        transaction.abort()

    def test_two_databases(self):
        dbs = [ZODB.DB(self.open(name, durability='none'))
               for name in ('one', 'other')]
        manager = transaction.TransactionManager()
        for db in dbs:
            self.addCleanup(db.close)
            db.open(manager).root()['x'] = 1
        manager.get().setExtendedInfo('durability', 'group-commit')
        manager.commit()
        for db in dbs:
            self.assertEqual(db.storage.stats()['last_durable'],
                             db.storage.lastTransaction())
            *_, last = db.storage.iterator()
            self.assertEqual(last.extension_bytes, b'')
        manager.abort()

    def test_it_takes_no_room(self):
        storage = self.open(checksums=False)
        rest = {'x': 'y' * (LONGEST_FIELD - len(asking.encoded({'x': ''})))}
        self.assertEqual(len(asking.encoded(rest)), LONGEST_FIELD)
        storage.tpc_finish(
            vote(storage, {1: b'x'}, extension={
                'durability': 'group-commit', **rest}))
        last, = storage.iterator()
        self.assertEqual(last.extension, rest)


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

    def test_a_file_that_has_it(self):
        """It is shown as it is."""
        self.source().close()
        storage = self.open('stock', durability='none')
        self.assertEqual(
            [each.extension['durability'] for each in storage.iterator()],
            ['group-commit'] * 3)
        self.assertEqual(storage.undoLog(0, 1)[0]['durability'],
                         'group-commit')


class Slots:
    """All that IStorageTransactionMetaData promises are attributes."""

    __slots__ = 'user', 'description', 'extension', '__weakref__'

    extension_bytes = property(
        lambda self: asking.encoded(self.extension))

    def __init__(self, extension):
        self.user = self.description = b''
        self.extension = extension


class Shapes(AskingCase):
    """Of the metadata, and of the extension in it."""

    def check(self, metadata, rest):
        storage = self.open(
            f'none {next(self.numbers)}', durability='none')
        storage.tpc_begin(metadata)
        storage.store(oid(1), z64, b'x', '', metadata)
        storage.tpc_vote(metadata)
        tid = storage.tpc_finish(metadata)
        self.assertEqual(storage.stats()['last_durable'], tid)
        last, = storage.iterator()
        self.assertEqual(last.extension_bytes, asking.encoded(rest))

    def test_slots(self):
        self.check(Slots({'durability': 'group-commit'}), {})

    def test_slots_without_a_question(self):
        storage = self.open(durability='none')
        metadata = Slots({'key': 'value'})
        storage.tpc_begin(metadata)
        self.assertIsNone(asking.asked(metadata))
        storage.tpc_abort(metadata)

    def test_a_property(self):

        class WithProperty(TransactionMetaData):

            extension = property(lambda self: dict(ASKED))

        self.check(WithProperty(extension=asking.encoded(ASKED)),
                   {'key': 'value'})

    def test_an_attribute_of_the_class(self):

        class OfTheClass(Slots):

            extension = ASKED

            def __init__(self):
                self.user = self.description = b''

        self.check(OfTheClass(), {'key': 'value'})

    def test_a_subclass_of_dict(self):
        """It is stored as one."""
        for kind in collections.OrderedDict, collections.UserDict:
            self.assertIs(
                asking.asked(TransactionMetaData(extension=kind(ASKED)))
                is None, kind is collections.UserDict)
        self.check(
            TransactionMetaData(extension=collections.OrderedDict(ASKED)),
            collections.OrderedDict(key='value'))


class Bomb:

    exploded = []

    def __reduce__(self):
        return self.exploded.append, (1,)


class NotHeeded(AskingCase):

    def test_less(self):
        """One line a process."""
        storage = self.open(durability='group-commit')
        with self.assertLogs('fsyncstorage', 'INFO') as logs:
            for number, name in enumerate(('none', 'interval', 'none')):
                tid = storage.tpc_finish(
                    vote_asking(storage, {number: b'x'}, name))
                self.assertEqual(storage.stats()['last_durable'], tid)
        line, = logs.output
        self.assertIn('durability none, which is less than group-commit',
                      line)
        self.assertTrue(line.startswith('INFO'), line)
        for each in storage.iterator():
            self.assertEqual(each.extension_bytes, b'')

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

    def test_less_than_interval(self):
        storage = self.open(durability='interval', sync_interval='1h')
        syncs = self.disk.syncs
        with self.assertLogs('fsyncstorage', 'INFO'):
            storage.tpc_finish(vote_asking(storage, {1: b'x'}, 'none'))
        self.assertEqual(self.disk.syncs, syncs)

    def test_what_there_is_already(self):
        """No line: the transaction gets what it asks for."""
        promising = 'group-commit', 'per-commit', 'two-sync'
        for own, name in [('none', 'none'), ('interval', 'interval')] + [
                (own, name) for own in promising for name in promising]:
            with self.subTest(own=own, name=name):
                storage = self.open(
                    f'{own} {name}', durability=own, sync_interval='1h')
                before = self.disk.syncs
                with self.assertNoLogs('fsyncstorage', 'DEBUG'):
                    tid = storage.tpc_finish(
                        vote_asking(storage, {1: b'x'}, name))
                self.assertEqual(
                    self.disk.syncs - before,
                    {'two-sync': 2}.get(own, int(own in promising)))
                self.assertEqual(
                    storage.stats()['last_durable'] == tid, own in promising)
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

    def test_the_names_of_policies(self):
        """None of a class, or with more behind it, is one."""
        for name in POLICIES:
            self.assertEqual(
                asking.asked_in({'durability': name}).name, name)
            for value in (type(name, (), {})(), name + ' ', name + 99 * 'x'):
                self.assertIsInstance(
                    asking.asked_in({'durability': value}), asking.NoPolicy)

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

    def test_what_somebody_else_has_put_beside(self):
        metadata = TransactionMetaData(extension=b'}.')
        for value in 'group-commit', ('group-commit', b''), None:
            vars(metadata)[asking._BESIDE] = value
            self.assertIsNone(asking.asked(metadata))


class Order(unittest.TestCase):

    def test_of_the_policies(self):
        order = [['none'], ['interval'],
                 ['group-commit', 'per-commit', 'two-sync']]
        rank = {name: place for place, names in enumerate(order)
                for name in names}
        self.assertEqual(rank.keys(), POLICIES.keys())
        for one in POLICIES.values():
            for other in POLICIES.values():
                self.assertEqual(one.is_more_than(other),
                                 rank[one.name] > rank[other.name])
