"""Clients that are voted at the same time, over the network (I12)."""


from ZODB.blob import BlobStorage
from ZODB.MappingStorage import MappingStorage

from ..support import oid
from ..support import until
from .serving import ServedFromControlledDisk


class SideBySide(ServedFromControlledDisk):

    level = 2

    def voted(self, number):
        peer = self.connect(self.server)
        peer.vote({number: b'x'})
        return peer

    def waiting(self, number, others=0):
        """A client that waits for an object, and its vote."""
        peer = self.connect(self.server)
        asked = peer.ask_vote({number: b'y'})
        until(lambda: self.committer.waiting == others + 1, 'it waits')
        return peer, asked

    def test_an_abort_that_comes_too_late(self):
        """The client hears of its own commit as of one of others."""
        peer = self.voted(1)
        self.disk.hold_syncs()
        finish = peer.ask_finish()
        self.disk.wait_for_sync()
        peer.abort()
        self.disk.release_syncs()
        peer.wait_for_invalidations(1)
        (tid, oids), = peer.invalidations
        self.assertEqual(oids, [oid(1)])
        self.assertEqual(peer.load(1), (b'x', tid))
        self.assertNotIn(finish, peer.replies)
        peer.vote({2: b'x'})
        peer.finish()

    def test_a_client_that_never_finishes(self):
        """All others go on; those that want its objects wait in order."""
        server = self.serve(self.open('other.fs'), transaction_timeout=2)
        slow, first, second, other = (
            self.connect(server) for _ in range(4))
        slow.vote({1: b'never'})
        votes = []
        for peer in first, second:
            votes.append(peer.ask_vote({1: b'x'}))
            peer.ping()
        with self.assertLogs('ZEO.StorageServer', 'CRITICAL') as logs:
            other.commit({2: b'x'})
            first.answer(votes[0])
        self.assertIn('Transaction timeout', logs.output[0])
        first.abort()
        second.answer(votes[1])
        second.finish()

    def test_an_abort_beside_a_blob_in_a_blob_storage(self):
        """A BlobStorage takes any abort for that of its one transaction."""
        storage = BlobStorage(self.path('blobs'), MappingStorage())
        server = self.serve(storage)
        voted, begun, outside = (self.connect(server) for _ in range(3))
        voted.begin()
        voted.send_blob(1, b'blob')
        voted.call('vote', voted.id)
        begun.begin()
        begun.store(2, b'x')
        begun.abort()
        outside.ask_vote({3: b'x'})
        outside.abort()
        # In the thread that aborts, the finish is behind the aborts.
        tid = voted.finish()
        with open(storage.loadBlob(oid(1), tid), 'rb') as file:
            self.assertEqual(file.read(), b'blob')
