"""A client's transaction: what is kept of it, and voted as often as needed.
Goes with `server/ballot.py`.
"""

import errno
import os
import tracemalloc
import types
from unittest import mock

from ZEO.StorageServer import StorageStats
from ZODB.POSException import StorageError
from ZODB.utils import z64

from fsyncstorage.errors import Unpublished
from fsyncstorage.server import ballot as module
from fsyncstorage.server.ballot import Ballot
from fsyncstorage.server.ballot import BytesInMemory
from fsyncstorage.server.door import Door
from fsyncstorage.server.oneatatime import OneAtATime
from fsyncstorage.wire import frames

from ..support import TestCase
from ..support import oid
from ..support import under_way
from .serving import record


class Ballots(TestCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.storage = self.open(blob_dir=self.path('blobs'))

    def ballot(self, storage=None):
        session = types.SimpleNamespace(
            client_conflict_resolution=False, kept=BytesInMemory(),
            log_label='one', server=types.SimpleNamespace(door=Door()),
            stats=StorageStats())
        ballot = Ballot(
            storage or self.storage, session, 1, b'user', b'description',
            None, None, ' ')
        self.addCleanup(ballot.forget)
        self.addCleanup(ballot.withdraw)
        return ballot

    def store(self, ballot, number, data=b'.'):
        ballot.storea(oid(number), z64, data)

    def vote_and_finish(self, ballot):
        ballot.vote(True)
        return ballot.storage.tpc_finish(ballot.transaction)

    def blob_file(self, content):
        name = os.path.join(self.storage.temporaryDirectory(), 'sent')
        with open(name, 'wb') as file:
            file.write(content)
        return name

    def temporary_files(self):
        return os.listdir(self.storage.temporaryDirectory())

    def test_many_operations_without_data(self):
        """They need memory, too."""
        for storage in self.storage, OneAtATime(self.storage):
            before = tracemalloc.get_traced_memory()[0]
            ballot = self.ballot(storage)
            with mock.patch.object(module, 'IN_MEMORY', 20_000):
                for number in range(10_000):
                    ballot.checkCurrentSerialInTransaction(oid(number), z64)
            self.assertLess(
                tracemalloc.get_traced_memory()[0] - before, 200_000)
            ballot.withdraw()

    def test_without_hard_links(self):
        """In a storage of others: what was sent is the content, and nothing
        else is left of it; also where the vote has to be repeated."""
        storage = OneAtATime(self.storage)
        for number in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP,
                       errno.ENOSYS, errno.EMLINK):
            error = OSError(number, os.strerror(number))
            with self.subTest(errno.errorcode[number]), mock.patch.object(
                    os, 'link', side_effect=error):
                serial = (self.storage.getTid(oid(1))
                          if oid(1) in self.storage._index else z64)
                ballot = self.ballot(storage)
                ballot._add_blob(
                    oid(1), serial, record(), self.blob_file(b'content'))
                with mock.patch.object(
                        self.storage, 'tpc_vote',
                        side_effect=Unpublished(z64)):
                    with self.assertRaises(Unpublished):
                        ballot.vote(True)
                self.assertEqual(self.storage._begun, {})
                self.assertEqual(self.temporary_files(), ['sent'])
                tid = self.vote_and_finish(ballot)
                self.assertEqual(self.temporary_files(), [])
                with open(self.storage.loadBlob(oid(1), tid), 'rb') as file:
                    self.assertEqual(file.read(), b'content')

    def test_it_is_forgotten_once(self):
        before, ballot = module.kept.memory_only, self.ballot()
        for _ in range(2):
            ballot.forget()
            self.assertEqual(module.kept.memory_only, before)

    def test_more_stores_than_memory(self):
        """Also where many come at once; what was refused does not count."""
        ballot = self.ballot()
        message = frames.many([(oid(number), z64, b'.') for number in (1, 2)])
        with mock.patch.object(module, 'MOST_OPERATIONS', 3):
            ballot.storea(oid(3), z64, b'.')
            ballot.batch(message, 2)
            for _ in range(2):
                with self.assertRaisesRegex(StorageError, 'may have 3'):
                    ballot.batch(message, 2)
                with self.assertRaisesRegex(StorageError, 'may have 3'):
                    ballot.storea(oid(4), z64, b'.')
        self.vote_and_finish(ballot)
        self.assertEqual(len(self.storage), 3)

    def test_what_a_store_takes(self):
        """In the file, and in memory from the vote on."""
        number, data = 20_000, b'12345678'
        ballot = self.ballot()
        for each in range(number):
            self.store(ballot, each, data)
        size = os.fstat(under_way(self.storage)._spool._file.fileno()).st_size
        self.assertLess(size, 60 * number)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        ballot.vote(True)
        self.assertLess(tracemalloc.get_traced_memory()[0], 320 * number)
        self.storage.tpc_finish(ballot.transaction)
