"""How much of the file is copied under the append lock (I2)."""

import os
from unittest import mock

from ZODB.serialize import referencesf

from fsyncstorage.pack import packing

from .undos import NODE
from .undos import ROOT
from .undos import UndoInPackCase
from .undos import undo

# Together they have much more data than may be left.
LARGE = range(100, 150)
SIZE = packing.SMALL_REST // 10


class Undone(UndoInPackCase):

    def setUp(self):
        super().setUp()
        #: What was written under the append lock, each time.
        self.written = []

    def filled(self, **options):
        storage = super().filled(**options)
        # Before the pack time: a revision that is current then.
        self.large = {
            number: self.state() + os.urandom(SIZE) for number in LARGE}
        self.store({**self.large, ROOT: self.state(NODE, *LARGE)})
        self.later()
        #: Behind it: what is undone beside the pack.
        self.changed = self.store({number: self.state() for number in LARGE})
        return storage

    def pack_and_undo(self, undo_when):
        """`undo_when` is called with the packing in each round, after it has
        copied."""
        copy_meanwhile = packing._Packing._copy_while_others_commit
        copy_rest = packing._Packing._copy_rest
        rounds = []

        def copy_and_undo(packing_it, copier):
            copy_meanwhile(packing_it, copier)
            rounds.append(copier)
            undo_when(rounds)

        def copy(packing_it, copier):
            before = copier.written_to
            copy_rest(packing_it, copier)
            if packing_it._storage._commit_lock.locked():
                self.written.append(copier.written_to - before)

        with mock.patch.multiple(
                packing._Packing, _copy_rest=copy,
                _copy_while_others_commit=copy_and_undo):
            self.storage.pack(self.time, referencesf)
        self.wanted.update(self.large)
        self.check()
        return len(rounds)

    def undo(self):
        size = self.storage.getSize()
        undo(self.storage, self.changed)
        # As the old file has it, it is tiny.
        self.assertLess(self.storage.getSize() - size, packing.TINY_REST)

    def test_of_large_objects(self):
        """A pointer is 50 bytes, and the data that take its place are not."""
        for pack_process in True, False:
            with self.subTest(pack_process=pack_process):
                self.written.clear()
                self.filled(pack_process=pack_process)

                def once(rounds):
                    if len(rounds) == 1:
                        self.undo()

                self.assertEqual(self.pack_and_undo(once), 2)
                self.assertEqual(self.written, [0])

    def test_while_the_lock_is_taken(self):
        """The pack lets go of it, and copies them first."""
        storage = self.filled(pack_process=False)
        hold_still = storage.hold_still
        undos = [self.undo]

        def undo_and_hold_still():
            if undos:
                undos.pop()()
            hold_still()

        with mock.patch.object(storage, 'hold_still', undo_and_hold_still):
            self.assertEqual(self.pack_and_undo(lambda rounds: None), 2)
        self.assertEqual(self.written, [0])
