"""What may be undone while a pack is under way: each order of events."""

import base64
import threading
from unittest import mock

from BTrees.Length import Length
from ZODB.POSException import UndoError
from ZODB.serialize import referencesf
from ZODB.tests.StorageTestBase import zodb_pickle

from fsyncstorage.pack import packedblobs
from fsyncstorage.pack import packing
from fsyncstorage.pack.progress import COPY
from fsyncstorage.pack.progress import REFERENCES
from fsyncstorage.pack.progress import Cancelled
from fsyncstorage.pack.restorable import Restorable

from ..support import Thread
from ..support import oid
from .phases import at
from .undos import DEEP
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

    def test_what_restores_a_later_revision(self):
        """Always."""
        def check(phase, gc):
            def change_and_undo():
                self.wanted[NODE] = self.state(DEEP, LEAF)
                self.store({NODE: self.wanted[NODE]})
                undo(self.storage, self.store({NODE: self.state()}))

            self.pack(phase, change_and_undo, gc)

        self.each(check)

    def test_what_was_changed_before_the_pack_and_after_its_time(self):
        def check(phase, gc):
            tids = [self.store({NODE: self.state()}) for _ in range(2)]

            def undo_both():
                for tid in reversed(tids):
                    undo(self.storage, tid)

            self.wanted[NODE] = self.first[NODE]
            self.pack(phase, undo_both, gc)

        self.each(check, KNOWN)

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

    def test_what_an_earlier_undo_has_restored(self):
        """So the pack follows its references, though nothing reaches it."""
        def check(phase, gc):
            changed = self.store({LOST: self.state()})
            undone = undo(self.storage, changed)

            def undo_twice():
                undo(self.storage, undone)
                undo(self.storage, changed)
                self.store({ROOT: self.state(LEAF, NODE, LOST)})

            self.wanted[LOST] = self.first[LOST]
            self.pack(phase, undo_twice, gc)

        self.each(check, KNOWN)

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

    def test_of_a_creation(self):
        """It restores nothing, so it goes on always."""
        def check(phase, gc):
            created = self.store({GONE: self.state()})
            self.wanted[GONE] = None
            self.pack(phase, lambda: undo(self.storage, created), gc)

        self.each(check)

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

    def test_what_is_voted_behind_the_swap(self):
        """Its positions are those of another file."""
        def check(phase, gc):
            changed = self.store({NODE: self.state()})
            undoing = []
            with mock.patch.object(self, 'check', lambda: None):
                self.pack(phase, lambda: undoing.append(
                    undo_of(self.storage, changed)), gc)
            finish(self.storage, *undoing)
            self.wanted[NODE] = self.first[NODE]
            self.check()

        self.each(check, KNOWN)

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

    def test_another_packer(self):
        """Nobody knows what it keeps."""
        storage = self.filled(packer=lambda *args: change_and_undo())

        def change_and_undo():
            self.refused(
                'disabled', self.store({LEAF: self.state()}))
            self.assertEqual(len(storage.undoLog(0, 10)), 4)

        storage.pack(self.time, referencesf)
        self.check_no_pack()
