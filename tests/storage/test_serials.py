"""Serials of records that were written lately are known without reading."""

import time
from unittest import mock

from ZODB.POSException import ConflictError
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.format import view
from fsyncstorage.storage import transaction

from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import vote


class Serials(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open(durability='none')
        self.serials = self.storage._file.serials

    def test_an_object_that_changes_again_is_not_read(self):
        tid = commit(self.storage, {1: b'one'})
        with mock.patch.object(view, 'read_header', side_effect=OSError):
            tid = commit(self.storage, {1: b'two'}, {1: tid})
            with self.assertRaises(ConflictError) as caught:
                vote(self.storage, {1: b'three'}, {1: z64})
        self.assertEqual(caught.exception.serials, (tid, z64))

    def test_one_of_each_object(self):
        """What changes often leaves the others their place."""
        with mock.patch.object(transaction, 'MOST_SERIALS', 3):
            tids = {number: commit(self.storage, {number: b'x'})
                    for number in (1, 2, 3)}
            for _ in range(20):
                tids[1] = commit(self.storage, {1: b'y'}, tids)
            self.assertEqual(sorted(self.serials.values()),
                             sorted(tids.values()))
            with mock.patch.object(view, 'read_header', side_effect=OSError):
                commit(self.storage, {1: b'z', 2: b'z', 3: b'z'}, tids)

    def test_a_restored_record_has_its_own(self):
        tid, serial = p64(1 << 60), p64(1 << 50)
        description = begin(self.storage)
        self.storage.tpc_abort(description)
        self.storage.tpc_begin(description, tid, ' ')
        self.storage.restore(oid(1), serial, b'one', '', None, description)
        self.storage.tpc_vote(description)
        self.storage.tpc_finish(description)
        self.assertEqual([*self.serials.values()], [serial])

    def test_what_is_written_in_the_place_of_a_failed_one(self):
        first = commit(self.storage, {1: b'one'})
        disk = self.controlled_disk()
        failed = vote(self.storage, {1: b'two'}, {1: first})
        with mock.patch.object(disk, 'write', side_effect=OSError):
            with self.assertRaises(OSError):
                self.storage.tpc_finish(failed)
        second = commit(self.storage, {1: b'new'}, {1: first})
        third = commit(self.storage, {1: b'last'}, {1: second})
        self.assertEqual(self.storage.load(oid(1))[1], third)

    def test_after_a_pack_they_are_those_of_the_new_file(self):
        first = commit(self.storage, {1: b'one', 2: b'two'})
        second = commit(self.storage, {2: b'other'}, {2: first})
        self.storage.pack(time.time() + 1, lambda data: [], gc=False)
        self.assertIsNot(self.storage._file.serials, self.serials)
        self.assertEqual(self.storage._file.serials, {})
        commit(self.storage, {1: b'1'}, {1: first})
        commit(self.storage, {2: b'2'}, {2: second})

    def test_they_do_not_grow_without_end(self):
        with mock.patch.object(transaction, 'MOST_SERIALS', 5):
            for number in range(20):
                commit(self.storage, {number: b'x'})
                self.assertLessEqual(len(self.serials), 5)
            commit(self.storage, {number: b'y' for number in range(30, 40)})
            self.assertLessEqual(len(self.serials), 5)
