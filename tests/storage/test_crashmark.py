"""The mark that acknowledged commits may be missing."""

import errno
import os

from ..support import TestCase
from ..support import commit


class Unsynced(TestCase):

    def marked(self):
        return os.path.exists(self.path('Data.fs.unsynced'))

    def left_behind(self, policy):
        """A data file whose storage did not come to its end."""
        storage = self.open(durability=policy)
        commit(storage, {1: b'a'})
        marked = self.marked()
        storage.close()
        if marked:
            with open(self.path('Data.fs.unsynced'), 'w'):
                pass

    def test_only_while_something_may_be_lost(self):
        for policy in 'none', 'interval':
            storage = self.open(durability=policy)
            self.assertTrue(self.marked())
            self.assertFalse(storage.may_have_lost)
            storage.close()
            self.assertFalse(self.marked())

    def test_not_where_nothing_is_lost(self):
        for policy in 'group-commit', 'per-commit', 'two-sync':
            storage = self.open(durability=policy)
            self.assertFalse(self.marked())
            storage.close()

    def test_found_at_open(self):
        self.left_behind('none')
        for number, policy in enumerate(('none', 'group-commit'), 2):
            with open(self.path('Data.fs.unsynced'), 'w'):
                pass
            storage = self.open(durability=policy)
            self.assertTrue(storage.may_have_lost)
            commit(storage, {number: b'b'})
            storage.close()
            self.assertFalse(self.marked())

    def test_it_stays_until_somebody_can_notice(self):
        """A client that saw more has a tid that a later one shows up."""
        self.left_behind('none')
        for _ in range(2):
            storage = self.open()
            self.assertTrue(storage.may_have_lost)
            storage.close()
        storage = self.open()
        commit(storage, {2: b'b'})
        storage.close()
        self.assertFalse(self.open().may_have_lost)

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
