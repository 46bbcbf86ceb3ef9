"""A client's transaction: what is kept of it, and voted as often as needed.
Goes with `server/ballot.py`.
"""

import errno
import os
import tracemalloc
from unittest import mock

from ZODB.POSException import ConflictError
from ZODB.POSException import StorageError
from ZODB.utils import z64

from fsyncstorage.errors import Unpublished
from fsyncstorage.server import ballot as module
from fsyncstorage.server import conflicts
from fsyncstorage.server.ballot import Ballot
from fsyncstorage.wire import batch

from ..support import TestCase
from ..support import commit
from ..support import oid
from .byhand import Client
from .serving import counter
from .serving import record


class Ballots(TestCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.storage = self.open(blob_dir=self.path('blobs'))

    def ballot(self, resolves_conflicts=False, tid=None, status=' ',
               client=None, extension=None):
        ballot = Ballot(None, client or Client('one'), 1, b'user',
                        b'description', extension, tid, status,
                        resolves_conflicts)
        self.addCleanup(ballot.is_forgotten)
        self.addCleanup(ballot.close)
        return ballot

    def vote_and_finish(self, ballot):
        ballot.vote_in(self.storage)
        return self.storage.tpc_finish(ballot.transaction)

    def blob_file(self, content):
        name = os.path.join(self.storage.temporaryDirectory(), 'sent')
        with open(name, 'wb') as file:
            file.write(content)
        return name

    def temporary_files(self):
        return os.listdir(self.storage.temporaryDirectory())

    def test_many_operations_without_data(self):
        """They need memory, too."""
        ballot = self.ballot()
        with mock.patch.object(module, 'IN_MEMORY', 20_000):
            for number in range(1000):
                ballot.add('checkread', oid(number), z64)
        self.assertLess(len(ballot._operations.in_memory), 100)

    def test_conflicts_take_so_much_memory(self):
        """One more is an error, whichever kind of conflict it is."""
        first = commit(self.storage, {1: counter(0), 2: counter(0)})
        commit(self.storage, {1: counter(1), 2: counter(1)},
               {1: first, 2: first})
        self.storage.tryToResolveConflict = self.never_resolve
        ballot = self.ballot(resolves_conflicts=True)
        for number in 1, 2:
            ballot.add('store', oid(number), first, counter(10))
        two = 2 * (conflicts.OVERHEAD + len(counter(10)))
        with mock.patch.object(conflicts, 'MOST', two):
            self.assertEqual(len(ballot.vote_in(self.storage)), 2)
        with mock.patch.object(conflicts, 'MOST', two - 1):
            with self.assertRaises(ConflictError) as caught:
                ballot.vote_in(self.storage)
        self.assertEqual(caught.exception.oid, oid(2))
        self.assertIsNone(self.storage.tpc_transaction())

    def never_resolve(self, oid, committed, old, data, committed_data=b''):
        raise ConflictError(oid=oid, serials=(committed, old), data=data)

    def test_without_hard_links(self):
        """What was sent is the content, and nothing else is left of it; also
        where the vote has to be repeated."""
        for number in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP,
                       errno.ENOSYS, errno.EMLINK):
            error = OSError(number, os.strerror(number))
            with self.subTest(errno.errorcode[number]), mock.patch.object(
                    os, 'link', side_effect=error):
                serial = (self.storage.getTid(oid(1))
                          if oid(1) in self.storage._index else z64)
                ballot = self.ballot()
                ballot.add_blob(
                    oid(1), serial, record(), self.blob_file(b'content'))
                with mock.patch.object(
                        self.storage, 'tpc_vote',
                        side_effect=Unpublished(z64)):
                    with self.assertRaises(Unpublished):
                        ballot.vote_in(self.storage)
                self.assertEqual(self.storage._begun, {})
                self.assertEqual(self.temporary_files(), ['sent'])
                tid = self.vote_and_finish(ballot)
                self.assertEqual(self.temporary_files(), [])
                with open(self.storage.loadBlob(oid(1), tid), 'rb') as file:
                    self.assertEqual(file.read(), b'content')

    def test_more_records_of_blobs_than_memory(self):
        """Of one transaction, of many of one client, and of many clients."""
        before = module.kept.memory_only
        for name, bound, ballots in (
                ('MEMORY_ONLY_OF_ONE', 3400, 3 * [self.ballot()]),
                ('MEMORY_ONLY_OF_ONE', 3400, self.of_one_client(3)),
                ('MEMORY_ONLY_OF_ALL', 3400 + before,
                 [self.ballot() for _ in range(3)])):
            with self.subTest(name), mock.patch.object(module, name, bound):
                self.fill(ballots)
            for ballot in ballots:
                ballot.close()
                ballot.is_forgotten()
                ballot.is_forgotten()
            self.assertEqual(self.temporary_files(), [])
        self.assertEqual(module.kept.memory_only, before)

    def of_one_client(self, number):
        client = Client('one')
        return [self.ballot(client=client) for _ in range(number)]

    def fill(self, ballots):
        for number, ballot in enumerate(ballots):
            name = self.blob_file(b'content')
            os.rename(name, f'{name} {number}')
            ballot.add_blob(oid(number), z64, bytes(500), f'{name} {number}')
        for _ in range(2):  # what was refused does not count
            with self.assertRaisesRegex(StorageError, 'of this client'):
                ballots[0].add_blob(
                    oid(4), z64, bytes(500), self.blob_file(b'content'))
        self.assertEqual(len(self.temporary_files()), 3)

    def test_more_stores_than_memory(self):
        """Also where many come at once; what was refused does not count."""
        ballot = self.ballot()
        message = batch.pack([(oid(number), z64, b'.') for number in (1, 2)])
        with mock.patch.object(module, 'MOST_OPERATIONS', 3):
            ballot.add('store', oid(3), z64, b'.')
            ballot.add_batch(message, 2)
            for _ in range(2):
                with self.assertRaisesRegex(StorageError, 'may have 3'):
                    ballot.add_batch(message, 2)
                with self.assertRaisesRegex(StorageError, 'may have 3'):
                    ballot.add('store', oid(4), z64, b'.')
        self.vote_and_finish(ballot)
        self.assertEqual(len(self.storage), 3)

    def test_what_a_store_takes(self):
        """In the file, and in memory from the vote on."""
        number, data = 20_000, b'12345678'
        ballot = self.ballot()
        for each in range(number):
            ballot.add('store', oid(each), z64, data)
        log = ballot._operations.log
        self.assertLess(log.size(), 60 * number)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        ballot.vote_in(self.storage)
        self.assertLess(tracemalloc.get_traced_memory()[0], 320 * number)
        self.storage.tpc_finish(ballot.transaction)
