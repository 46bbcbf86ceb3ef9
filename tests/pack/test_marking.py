"""What a pack keeps because an undo after the pack time points back to it."""

from ZODB.serialize import referencesf

from ..support import commit
from .undos import DEEP
from .undos import NODE
from .undos import ROOT
from .undos import UndoInPackCase
from .undos import undo


class UndoneRevisions(UndoInPackCase):

    def setUp(self):
        super().setUp()
        self.name = 'Data.fs'
        self.storage = self.open(self.name, pack_process=False)
        self.wanted = {ROOT: self.state(NODE), NODE: self.state(DEEP),
                       DEEP: self.state()}
        commit(self.storage, self.wanted)

    def pack_and_check(self, *undone):
        """The pack time is before these undos."""
        self.later()
        for tid in undone:
            undo(self.storage, tid)
        self.storage.pack(self.time, referencesf)
        self.check()

    def test_what_one_refers_to(self):
        self.pack_and_check(self.store({NODE: self.state()}))

    def test_what_one_refers_to_whose_object_was_not_reachable(self):
        """At the pack time."""
        without_reference = self.store({NODE: self.state()})
        without_node = self.store({ROOT: self.state()})
        self.pack_and_check(without_node, without_reference)
