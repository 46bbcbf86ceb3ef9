"""What may be undone while a pack is under way: each order of events, what is
undone at its swap or behind it, and random histories; with blobs, too.  And
what a pack keeps because an undo after the pack time points back to it.
"""

import base64
import collections
import os
import threading
from unittest import mock

from BTrees.Length import Length
from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError
from ZODB.POSException import Unsupported
from ZODB.serialize import referencesf
from ZODB.tests.StorageTestBase import zodb_pickle

from fsyncstorage.pack import packedblobs
from fsyncstorage.pack import packing
from fsyncstorage.pack.progress import COPY
from fsyncstorage.pack.progress import REFERENCES
from fsyncstorage.pack.progress import Cancelled
from fsyncstorage.pack.restorable import Restorable

from ..often import often
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import oid
from .histories import BLOB as BLOB_RECORD
from .histories import random_history
from .histories import tid
from .phases import at
from .undos import GONE
from .undos import KNOWN
from .undos import LEAF
from .undos import LOST
from .undos import NODE
from .undos import NOT_KNOWN
from .undos import ROOT
from .undos import UndoInPackCase
from .undos import finish
from .undos import undo
from .undos import undo_of


class Orders(UndoInPackCase):

    level = 2

    def test_what_restores_a_revision_of_the_pack_time(self):
        """As soon as the marking has found that it is kept."""
        def check(phase, gc):
            def change_and_undo():
                changed = self.store({NODE: self.state(), LEAF: self.state()})
                if gc and phase not in KNOWN:
                    self.refused(NOT_KNOWN, changed)
                    return
                undone = undo(self.storage, changed)
                # And undo that, and that.
                undo(self.storage, undo(self.storage, undone))
                self.wanted.update(
                    {each: self.first[each] for each in (NODE, LEAF)})

            self.pack(phase, change_and_undo, gc)

        self.each(check)

    def test_what_was_not_reached_at_the_pack_time(self):
        """What it refers to goes."""
        def check(phase, gc):
            def change_and_undo():
                changed = self.store({LOST: self.state()})
                self.store({ROOT: self.state(LEAF, NODE, LOST)})
                if gc:
                    self.refused('nothing referred' if phase in KNOWN
                                 else NOT_KNOWN, changed)
                else:
                    undo(self.storage, changed)
                    self.wanted[LOST] = self.first[LOST]

            self.pack(phase, change_and_undo, gc)

        self.each(check)

    def test_of_a_transaction_before_the_pack_time(self):
        """The pack makes it final."""
        def check(phase, gc):
            data = self.storage.loadBefore(oid(LEAF), self.before)[0]

            def undo_it():
                if gc:
                    self.refused('packed to a later time', self.before)
                else:
                    undo(self.storage, self.before)
                    self.wanted[LEAF] = data

            self.pack(phase, undo_it, gc)

        self.each(check)

    def test_what_is_merged(self):
        """A later change is kept, and the conflict resolved: it depends on the
        revision that is merged with it."""
        def check(phase, gc):
            self.store({LEAF: zodb_pickle(Length(10))})
            self.later()
            changed = self.store({LEAF: zodb_pickle(Length(15))})
            self.store({LEAF: zodb_pickle(Length(18))})
            self.wanted[LEAF] = zodb_pickle(Length(18))

            def undo_it():
                if gc and phase not in KNOWN:
                    self.refused(NOT_KNOWN, changed)
                else:
                    undo(self.storage, changed)
                    self.wanted[LEAF] = zodb_pickle(Length(13))

            self.pack(phase, undo_it, gc)

        self.each(check)

    def test_all_of_a_transaction_or_nothing(self):
        """One object may be restored, and the other not."""
        def check(phase, gc):
            def change_and_undo():
                kept = self.store({NODE: self.state()})
                both = self.store({LEAF: self.state(), LOST: self.state()})
                for number in NODE, LEAF, LOST:
                    self.wanted[number] = storage.load(oid(number))[0]
                before = storage.getSize(), storage.lastTransaction()
                self.refused('nothing referred', both)
                # After another one, in the same transaction.
                transaction = undo_of(storage, kept)
                with self.assertRaisesRegex(UndoError, 'nothing referred'):
                    storage.undo(
                        base64.encodebytes(both).rstrip(), transaction)
                storage.tpc_abort(transaction)
                self.assertEqual(storage._begun, {})
                self.assertFalse(storage._commit_lock.locked())
                self.assertEqual(
                    (storage.getSize(), storage.lastTransaction()), before)

            storage = self.storage
            self.pack(phase, change_and_undo, gc)

        self.each(check, KNOWN, [True])

    def test_behind_the_swap(self):
        """All that is left is whole."""
        take_away = packedblobs.take_away
        for pack_process in True, False:
            with self.subTest(pack_process=pack_process):
                self.filled(pack_process=pack_process,
                            blob_dir=self.path(f'blobs-{pack_process}'))
                changed = self.store({LOST: self.state(), NODE: self.state()})

                def undo_and_take_away(*args):
                    self.refused('undoable|transaction id', self.before)
                    undo(self.storage, changed)
                    take_away(*args)

                # Of the one that was not reached, there is no revision before.
                self.wanted.update({NODE: self.first[NODE], LOST: None})
                with mock.patch.object(
                        packedblobs, 'take_away', undo_and_take_away):
                    self.pack(COPY, lambda: None)

    # Begun before, and voted later

    def test_what_was_begun_before_the_pack(self):
        """The vote decides."""
        def check(phase, gc):
            undoing = undo_of(
                self.storage, self.store({NODE: self.state()}))

            def vote():
                if gc and phase not in KNOWN:
                    with self.assertRaisesRegex(UndoError, NOT_KNOWN):
                        finish(self.storage, undoing)
                else:
                    finish(self.storage, undoing)
                    self.wanted[NODE] = self.first[NODE]

            self.pack(phase, vote, gc)

        self.each(check)

    def test_a_pack_that_begins_while_it_waits_for_the_append_lock(self):
        storage = self.filled()
        undoing = undo_of(storage, self.store({NODE: self.state()}))
        kept_file = storage._kept_file

        def begin_a_pack(wait):
            storage.restorable = Restorable(collects_garbage=True)
            return kept_file(wait)

        with mock.patch.object(storage, '_kept_file', begin_a_pack):
            with self.assertRaisesRegex(UndoError, NOT_KNOWN):
                finish(storage, undoing)
        self.assertFalse(storage._commit_lock.locked())

    def test_the_pack_waits_for_one_that_has_the_append_lock(self):
        """So that it reads what this one restores."""
        storage = self.filled(pack_process=False)
        undoing = undo_of(storage, self.store({LOST: self.state()}))
        storage.tpc_vote(undoing)
        wait, seen = packing._let_undos_end, []
        is_over = threading.Event()

        def finish_it():
            is_over.wait(.05)   # it is not; a pack that does not wait is over
            return storage.tpc_finish(undoing)

        def finish_while_it_waits(storage):
            self.assertIsNotNone(storage.restorable)
            thread = Thread(finish_it)
            wait(storage)
            seen.append(storage.lastTransaction())
            is_over.set()
            self.assertEqual(seen, [thread.result()])

        with mock.patch.object(
                packing, '_let_undos_end', finish_while_it_waits):
            Thread(storage.pack, self.time, referencesf).result()
        self.assertEqual(len(seen), 1)
        self.store({ROOT: self.state(LEAF, NODE, LOST)})
        self.wanted[LOST] = self.first[LOST]
        self.check()

    # Packs that end otherwise

    def test_after_a_pack_that_is_cancelled(self):
        storage = self.filled()
        with at(REFERENCES, lambda watch: watch.cancel()):
            with self.assertRaises(Cancelled):
                storage.pack(self.time, referencesf)
        self.check_no_pack()

    def check_no_pack(self):
        storage = self.storage
        self.assertIsNone(storage.restorable)
        undo(storage, self.store({LOST: self.state()}))
        self.assertEqual(storage.load(oid(LOST))[0], self.first[LOST])


# It has two revisions at the pack time, and is reached.
BLOB = 7


class WithBlobs(UndoInPackCase):

    def filled(self, **options):
        storage = super().filled(
            blob_dir=self.path(f'blobs-{self.number + 1}'), **options)
        self.replace_blob(b'first')
        self.replaced = self.replace_blob(b'second')
        self.store({ROOT: self.state(LEAF, NODE, BLOB)})
        self.later()
        return storage

    def replace_blob(self, content):
        storage, transaction = self.storage, begin(self.storage)
        there = oid(BLOB) in storage._index
        self.store_blob(
            storage, transaction, BLOB, content,
            storage.getTid(oid(BLOB)) if there else bytes(8), BLOB_RECORD)
        return finish(storage, transaction)

    def blob(self):
        storage = self.storage
        path = storage.loadBlob(oid(BLOB), storage.getTid(oid(BLOB)))
        with open(path, 'rb') as file:
            return file.read()

    def check_nothing_stays(self):
        """Of a transaction that was refused."""
        storage = self.storage
        self.assertEqual(storage._begun, {})
        self.assertFalse(storage._commit_lock.locked())
        self.assertEqual(os.listdir(storage.fshelper.temp_dir), [])


class Blobs(WithBlobs):

    level = 2

    def test_what_restores_one(self):
        """It gets a file of its own, which the pack leaves."""
        def check(phase, gc):
            def change_and_undo():
                changed = self.replace_blob(b'third')
                if gc and phase not in KNOWN:
                    self.refused(NOT_KNOWN, changed)
                    restored.append(b'third')
                else:
                    undo(self.storage, changed)
                    restored.append(b'second')
                self.check_nothing_stays()

            restored = []
            with mock.patch.object(self, 'check', lambda: None):
                self.pack(phase, change_and_undo, gc)
            self.assertEqual([self.blob()], restored)
            self.check()

        self.each(check)

    def test_one_that_is_voted_behind_the_swap(self):
        """The file was copied when it was called, and is copied again."""
        def check(phase, gc):
            changed = self.replace_blob(b'third')
            undoing = []
            with mock.patch.object(self, 'check', lambda: None):
                self.pack(phase, lambda: undoing.append(
                    undo_of(self.storage, changed)), gc)
            finish(self.storage, *undoing)
            self.assertEqual(self.blob(), b'second')
            self.check_nothing_stays()
            self.check()

        self.each(check, KNOWN)

    def test_one_whose_file_a_pack_has_just_taken_away(self):
        """By the file that it looks at, it may be undone."""
        storage = self.filled(pack_keep_old=False)
        refuse = storage._refuse_undo_in_a_pack

        def refuse_and_pack(*args):
            refuse(*args)
            storage.pack(self.time, referencesf)

        with mock.patch.object(
                storage, '_refuse_undo_in_a_pack', refuse_and_pack):
            self.refused('file of the blob', self.replaced)
        self.check_nothing_stays()


class BehindTheSwap(WithBlobs):

    level = 2

    def lost_and_undone(self, **options):
        """A new file with a change of LOST, and, behind the pack time, its
        undo: the tid of that."""
        self.filled(**options)
        changed = self.store({LOST: self.state()})
        self.later()
        return undo(self.storage, changed)

    def test_what_is_called_as_soon_as_the_new_file_is_shown(self):
        """The pack is still to make it durable that the file is another."""
        undone = self.lost_and_undone()
        storage = self.storage
        old, undoing, asked = storage._file, [], []
        rebase = storage._sequencer.rebase
        sync_directory = storage._spare.sync_directory

        def undo_and_sync(path):
            if storage._file is not old and not undoing:
                undoing.append(undo_of(storage, undone))
            sync_directory(path)

        def look_and_rebase(view):
            asked.append(storage.restorable)
            rebase(view)

        with mock.patch.object(self, 'check', lambda: None), \
                mock.patch.object(
                    storage._spare, 'sync_directory', undo_and_sync), \
                mock.patch.object(
                    storage._sequencer, 'rebase', look_and_rebase):
            self.pack(COPY, lambda: None)
        self.assertEqual(asked, [None])
        finish(storage, *undoing)
        self.wanted[LOST] = self.first[LOST]
        self.check()


class Restored(UndoInPackCase):
    """Copied from another storage: begun before the swap, and voted behind
    it."""

    level = 2

    def check_restored(self, number, data, earlier):
        """The pack removes the transaction that has the same data."""
        storage = self.storage
        transaction = begin(storage)
        storage.restore(
            oid(number), earlier, data, '', earlier, transaction)
        with mock.patch.object(self, 'check', lambda: None):
            self.pack(COPY, lambda: None)
        self.assertNotIn(
            earlier, [found.tid for found in storage.iterator()])
        finish(storage, transaction)
        self.wanted[number] = data
        self.check()

    def test_data(self):
        self.filled()
        data = self.state()
        earlier = self.store({LEAF: data})
        self.store({LEAF: self.state()})
        self.later()
        self.check_restored(LEAF, data, earlier)

    def test_a_creation_that_was_undone(self):
        self.filled()
        self.check_restored(GONE, None, self.deleted)


SAME, REFUSED = 'the same', 'refused'


class Histories(TestCase):

    level = 2
    histories = often(30, 2000)

    def test_called_before_the_pack_or_beside_it(self):
        outcomes = collections.Counter()
        for number in range(self.histories):
            with self.subTest(number):
                outcomes.update(self.outcomes(number))
        self.assertGreater(outcomes[SAME], self.histories / 2)
        self.assertGreater(outcomes[REFUSED], self.histories / 2)

    def outcomes(self, number):
        """Of the undo of each transaction, voted behind the swap."""
        rng, history = random_history(number)
        name = f'{number}.fs'
        with open(self.path(name), 'wb') as file:
            file.write(bytes(history))
        storage = self.open(name, durability='none', pack_process=False)
        all_of_them = range(history.last + 1)
        early = [each for each in all_of_them if rng.random() < .5]
        called = []
        self.call(storage, early, called)
        with at(COPY, lambda watch: self.call(
                    storage, set(all_of_them) - {*early}, called)), \
                mock.patch.object(packing, 'stop_of', return_value=tid(
                    rng.choice(all_of_them))):
            try:
                storage.pack(0, referencesf, gc=rng.random() < .8)
            except POSKeyError:
                pass    # a reference leads nowhere
        for transaction, wanted in called:
            try:
                storage.tpc_vote(transaction)
            except UndoError:
                yield REFUSED
            else:
                self.assertEqual(self.restored(storage, transaction), wanted)
                yield SAME
            storage.tpc_abort(transaction)
        storage.close()

    def call(self, storage, numbers, called):
        """Undo these transactions, each by itself, as far as that can be."""
        for number in numbers:
            transaction = begin(storage)
            try:
                storage.undo(
                    base64.encodebytes(tid(number)).rstrip(), transaction)
            except (UndoError, Unsupported):
                storage.tpc_abort(transaction)
            else:
                called.append(
                    (transaction, self.restored(storage, transaction)))

    @staticmethod
    def restored(storage, transaction):
        """What the objects would have; None: they would not be there."""
        found = {}
        for record in storage._find(transaction).records:
            try:
                found[record.oid] = record.data or storage._appended.load_back(
                    record.oid, record.back)[0]
            except POSKeyError:
                found[record.oid] = None
        return found
