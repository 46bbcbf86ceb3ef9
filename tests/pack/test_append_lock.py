"""A pack that waits for the append lock.

A transaction that is alone has it from its vote until its client ends it,
which may be never.
"""

import os
from unittest import mock

from ZODB.serialize import referencesf

from fsyncstorage.interrupts.awaiting import Awaited
from fsyncstorage.pack.progress import COPY
from fsyncstorage.pack.progress import Cancelled

from ..support import Thread
from ..support import begin
from ..support import oid
from ..support import until
from .phases import at
from .undos import GONE
from .undos import LEAF
from .undos import UndoInPackCase


class Waiting(UndoInPackCase):

    def voted(self):
        """A transaction that has the lock."""
        storage = self.storage
        transaction = begin(storage)
        self.wanted = {GONE: self.state(), LEAF: self.first[LEAF]}
        storage.restore(oid(GONE), self.deleted, self.wanted[GONE], '', None,
                        transaction)
        storage.tpc_vote(transaction)
        self.assertTrue(storage._commit_lock.locked())
        return transaction

    def waiting(self):
        """A pack that looks, again and again, whether it must end."""
        looks = []
        seconds = Awaited._seconds

        def look(awaited):
            looks.append(awaited)
            return seconds(awaited)

        patch = mock.patch.object(Awaited, '_seconds', look)
        patch.start()
        self.addCleanup(patch.stop)
        pack = Thread(self.storage.pack, self.time, referencesf)
        until(lambda: looks[1:] and looks[-1] is looks[-2], 'it waits')
        return pack

    def check_as_before(self):
        storage = self.storage
        self.assertIsNone(storage.restorable)
        self.assertIsNone(storage.pack_watch)
        self.assertFalse(storage.is_packing or storage.is_swapping)
        self.assertNotIn(self.name + '.pack', os.listdir(self.directory))

    def cancel(self, transaction, pack):
        """The transaction is not disturbed."""
        storage = self.storage
        storage.packs.cancel()
        with self.assertRaises(Cancelled):
            pack.result()
        self.check_as_before()
        storage.tpc_finish(transaction)
        storage.pack(self.time, referencesf)
        self.check()

    def close(self, transaction, pack):
        storage = self.storage
        storage.close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            pack.result()
        self.check_as_before()
        storage.tpc_abort(transaction)

    def go_on(self, transaction, pack):
        """The wait is over when the transaction is."""
        storage = self.storage
        storage.tpc_finish(transaction)
        pack.result()
        self.check_as_before()
        self.check()

    def at_its_begin(self):
        transaction = self.voted()
        return transaction, self.waiting()

    def at_its_end(self):
        voted = []
        with at(COPY, lambda watch: voted.append(self.voted())):
            pack = self.waiting()
        return *voted, pack

    def test_each(self):
        for begin_to_wait in self.at_its_begin, self.at_its_end:
            for end in self.cancel, self.close, self.go_on:
                with self.subTest(begin_to_wait.__name__, end=end.__name__):
                    self.filled(pack_process=False)
                    end(*begin_to_wait())
