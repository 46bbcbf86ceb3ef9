"""What is undone at the swap of a pack, or behind it; and blobs."""

import os
from unittest import mock

from ZODB.POSException import UndoError
from ZODB.serialize import referencesf

from fsyncstorage.pack import packedblobs
from fsyncstorage.pack.progress import COPY

from ..support import begin
from ..support import oid
from .histories import BLOB as BLOB_RECORD
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

# It has two revisions at the pack time, and is reached.
BLOB = 7


class WithBlobs(UndoInPackCase):

    def filled(self, **options):
        storage = super().filled(
            blob_dir=self.path(f'blobs-{self.number + 1}'), **options)
        self.store_blob(b'first')
        self.replaced = self.store_blob(b'second')
        self.store({ROOT: self.state(LEAF, NODE, BLOB)})
        self.later()
        return storage

    def store_blob(self, content):
        storage = self.storage
        path = self.path('upload')
        with open(path, 'wb') as file:
            file.write(content)
        try:
            serial = storage.getTid(oid(BLOB))
        except KeyError:
            serial = bytes(8)
        transaction = begin(storage)
        storage.storeBlob(
            oid(BLOB), serial, BLOB_RECORD, path, '', transaction)
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
                changed = self.store_blob(b'third')
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
            changed = self.store_blob(b'third')
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

    def pack_and_do(self, do, **options):
        """`do()` is called when the files are swapped, and the pack is not
        over."""
        take_away = packedblobs.take_away
        done = []

        def do_and_take_away(*args):
            self.assertTrue(self.storage.is_packing)
            do()
            done.append(do)
            take_away(*args)

        with mock.patch.object(packedblobs, 'take_away', do_and_take_away):
            self.pack(COPY, lambda: None, **options)
        self.assertEqual(done, [do])

    def test_what_the_new_file_keeps(self):
        """An undo before the pack has restored an earlier revision of an
        object that nothing referred to; that one is kept whole."""
        for pack_process in True, False:
            with self.subTest(pack_process=pack_process):
                undone = self.lost_and_undone(pack_process=pack_process)

                def undo_that():
                    undo(self.storage, undone)
                    self.store({ROOT: self.state(LEAF, NODE, LOST)})

                self.wanted[LOST] = self.first[LOST]
                self.pack_and_do(undo_that)

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

    # Begun before

    def begun_before(self, tid, gc=True):
        """The transaction that undoes that one, and is voted behind the swap.
        """
        undoing = undo_of(self.storage, tid)
        with mock.patch.object(self, 'check', lambda: None):
            self.pack(COPY, lambda: None, gc)
        return undoing

    def check_removed(self, undoing):
        with self.assertRaisesRegex(UndoError, 'has removed'):
            finish(self.storage, undoing)
        self.check_nothing_stays()
        self.check()

    def test_what_the_pack_has_removed(self):
        """It would undo the creation of an object that is reached."""
        for pack_process in True, False:
            with self.subTest(pack_process=pack_process):
                storage = self.filled(pack_process=pack_process)
                changed = self.store({LOST: self.state()})
                self.wanted[LOST] = storage.load(oid(LOST))[0]
                self.store({ROOT: self.state(LEAF, NODE, LOST)})
                self.check_removed(self.begun_before(changed))

    def test_what_an_earlier_revision_has_taken_the_place_of(self):
        """That one is kept, because an undo has restored it."""
        for pack_process in True, False:
            with self.subTest(pack_process=pack_process):
                undone = self.lost_and_undone(pack_process=pack_process)
                self.wanted[LOST] = self.first[LOST]
                self.check_removed(self.begun_before(undone))

    def test_a_deletion_that_an_earlier_revision_has_taken_the_place_of(self):
        """It restores nothing, so that it is allowed in each phase; what it
        would leave is the earlier revision."""
        def check(phase, gc):
            undone = undo(self.storage, self.deleted)
            self.wanted[GONE] = self.storage.load(oid(GONE))[0]
            undoing = []
            with mock.patch.object(self, 'check', lambda: None):
                self.pack(phase, lambda: undoing.append(
                    undo_of(self.storage, undone)), gc)
            if gc:
                self.check_removed(*undoing)
            else:
                finish(self.storage, *undoing)
                self.wanted[GONE] = None
                self.check()

        self.each(check)

    def test_without_garbage_collection(self):
        """It was allowed, and is final now."""
        storage = self.filled()
        undoing = []
        with mock.patch.object(self, 'check', lambda: None):
            self.pack(COPY, lambda: undoing.append(
                undo_of(storage, self.replaced)), gc=False)
        with self.assertRaisesRegex(UndoError, 'undoable|transaction id'):
            finish(storage, *undoing)
        self.assertEqual(self.blob(), b'second')
        self.check_nothing_stays()
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
