"""No undo is called or voted while a pack is under way; and none is voted that
was called before it.
"""

import os
import threading
from unittest import mock

from ZODB.POSException import UndoError
from ZODB.serialize import referencesf

from fsyncstorage.pack import packing
from fsyncstorage.pack.progress import COPY
from fsyncstorage.pack.progress import REFERENCES
from fsyncstorage.pack.progress import Cancelled

from ..support import Thread
from ..support import begin
from ..support import oid
from .histories import BLOB as BLOB_RECORD
from .phases import at
from .undos import GONE
from .undos import LEAF
from .undos import LOST
from .undos import NODE
from .undos import ROOT
from .undos import UndoInPackCase
from .undos import finish
from .undos import undo
from .undos import undo_of

DISABLED = 'disabled while'


class Orders(UndoInPackCase):

    level = 2

    def test_none_is_called_or_voted(self):
        def check(phase, gc):
            changed = self.store({NODE: self.state(), LEAF: self.state()})
            undoing = undo_of(self.storage, changed)
            for number in NODE, LEAF:
                self.wanted[number] = self.storage.load(oid(number))[0]

            def call_and_vote():
                self.refused(DISABLED, changed)
                with self.assertRaisesRegex(UndoError, DISABLED):
                    finish(self.storage, undoing)
                self.assertEqual(self.storage._begun, {})
                self.assertFalse(self.storage._commit_lock.locked())

            self.pack(phase, call_and_vote, gc)

        self.each(check)

    def test_a_pack_that_begins_while_it_waits_for_the_file(self):
        storage = self.filled()
        undoing = undo_of(storage, self.store({NODE: self.state()}))
        ask = storage._turns.ask

        def begin_a_pack(*args):
            storage.is_packing = True
            return ask(*args)

        with mock.patch.object(storage._turns, 'ask', begin_a_pack):
            with self.assertRaisesRegex(UndoError, DISABLED):
                finish(storage, undoing)
        self.assertFalse(storage._commit_lock.locked())

    def test_the_pack_waits_for_one_that_holds_the_file(self):
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
            self.assertTrue(storage.is_packing)
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

    def test_after_a_pack_that_is_cancelled(self):
        storage = self.filled()
        with at(REFERENCES, lambda watch: watch.cancel()):
            with self.assertRaises(Cancelled):
                storage.pack(self.time, referencesf)
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

    def test_one_that_is_voted_behind_the_pack(self):
        """It is refused, and the blob's file, which was copied, is gone."""
        for gc in True, False:
            with self.subTest(gc=gc):
                self.wanted.clear()
                storage = self.filled(pack_process=False)
                undoing = undo_of(storage, self.replace_blob(b'third'))
                storage.pack(self.time, referencesf, gc=gc)
                with self.assertRaisesRegex(UndoError, 'a pack has ended'):
                    finish(storage, undoing)
                self.assertEqual(self.blob(), b'third')
                self.check_nothing_stays()
                self.check()

    def test_one_whose_file_a_pack_has_just_taken_away(self):
        """By the file that it looks at, it may be undone."""
        storage = self.filled(pack_keep_old=False)
        refuse = storage._refuse_undo_in_a_pack

        def refuse_and_pack():
            refuse()
            storage.pack(self.time, referencesf)

        with mock.patch.object(
                storage, '_refuse_undo_in_a_pack', refuse_and_pack):
            self.refused('file of the blob', self.replaced)
        self.check_nothing_stays()


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
