"""Transactions that end before their time, whatever point they have reached.

The lock is freed, nothing is half committed, the next one proceeds, and no
thread, file or part of a blob is left.
"""

import errno
import os
import shutil
import tempfile
import threading
from unittest import mock

from ZODB.POSException import POSKeyError

from fsyncstorage import FsyncStorage
from fsyncstorage.server import ballot

from ..support import PATIENCE
from ..support import oid
from ..support import until
from .serving import ErrorReply
from .serving import Served
from .serving import open_files

SERVER_LOG = 'fsyncstorage.server'


class SlowVote(FsyncStorage):
    """A storage whose votes can be held up, in a thread."""

    def __init__(self, *args, **options):
        self.entered = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.go_on.set()
        super().__init__(*args, **options)

    def vote_is_plain(self, transaction):
        return False  # so the loop votes nothing itself

    def tpc_vote(self, *arguments):
        self.entered.release()
        assert self.go_on.wait(PATIENCE)
        return super().tpc_vote(*arguments)

    tpc_vote.need_not_wait = True


class Interrupted(Served):

    def setUp(self):
        super().setUp()
        self.disk = self.controlled_disk()
        self.storage = SlowVote(
            self.path(), blob_dir=self.path('blobs'))
        self.addCleanup(self.storage.close)
        self.addCleanup(self.storage.go_on.set)
        self.server = self.serve(self.storage)
        self.service = self.server.services['1']
        self.other = self.connect(self.server)
        self.other.commit({9: b'before'})
        self.files = open_files()
        self.victim = self.connect(self.server)
        self.others_tids = len(self.other.tids)

    def vanish(self):
        self.victim.close()

    def check_nothing_is_left(self, committed=False):
        """After the victim is gone, everything is as if it never was."""
        until(lambda: len(self.server.connections) == 1, 'noticed')
        self.other.ping()
        self.assertEqual(len(self.other.tids) - self.others_tids, committed)
        self.other.commit({8: b'after'})
        self.assertEqual(self.service.committer.waiting, 0)
        self.assertEqual(self.server.stats['1'].active_txns, 0)
        until(lambda: self.storage.tpc_transaction() is None, 'aborted')
        if not committed:
            with self.assertRaises(POSKeyError):
                self.storage.load(oid(1))
        until(lambda: open_files() == self.files, 'no file is open')
        self.assertEqual(self.temporary_files(), [])

    def temporary_files(self):
        return os.listdir(self.storage.temporaryDirectory())

    # The points

    def test_voting(self):
        self.storage.go_on.clear()
        while self.storage.entered.acquire(blocking=False):
            pass  # of the votes before
        self.victim.begin()
        self.victim.send_blob(1, b'a blob')
        self.victim.ask('vote', self.victim.id)
        self.assertTrue(self.storage.entered.acquire(timeout=PATIENCE))
        self.vanish()
        until(lambda: len(self.server.connections) == 1, 'noticed')
        self.storage.go_on.set()
        self.check_nothing_is_left()

    def test_voted(self):
        self.victim.begin()
        self.victim.store(2, b'x')
        self.victim.send_blob(1, b'a blob')
        self.victim.call('vote', self.victim.id)
        self.vanish()
        self.check_nothing_is_left()

    def test_finishing(self):
        """What is appended is committed; only nobody is told."""
        self.victim.begin()
        self.victim.send_blob(1, b'a blob')
        self.victim.call('vote', self.victim.id)
        self.disk.hold_syncs()
        self.victim.ask_finish()
        self.disk.wait_for_sync()
        self.vanish()
        until(lambda: len(self.server.connections) == 1, 'noticed')
        self.disk.release_syncs()
        self.other.wait_for_invalidations(1)
        self.assertEqual(self.other.invalidations[0][1], [oid(1)])
        self.check_nothing_is_left(committed=True)
        tid = self.other.tids[-2]
        with open(self.storage.loadBlob(oid(1), tid), 'rb') as file:
            self.assertEqual(file.read(), b'a blob')

    # Other ends

    def test_an_abort_takes_back_half_a_blob(self):
        self.victim.begin()
        self.victim.begin_blob(b'half of it')
        self.victim.abort()
        until(lambda: not self.temporary_files(), 'removed')
        self.victim.begin()
        self.victim.send_blob(1, b'all of it')
        self.victim.call('vote', self.victim.id)
        self.victim.finish()

    def test_a_vote_takes_back_half_a_blob(self):
        """Its rest, which may not come any more, is refused."""
        self.victim.begin()
        self.victim.store(1, b'x')
        self.victim.begin_blob(b'half of it')
        self.victim.call('vote', self.victim.id)
        self.assertEqual(self.temporary_files(), [])
        with self.assertLogs(SERVER_LOG, 'ERROR'):
            self.victim.post('storeBlobChunk', b'the rest')
            self.victim.wait_for_end()

    def test_out_of_order(self):
        """Refused, and what was begun can go on."""
        self.victim.begin()
        self.victim.store(1, b'x')
        self.check_refused('tpc_finish', self.victim.id)
        self.check_refused('vote', self.victim.id + 1)
        self.victim.call('vote', self.victim.id)
        self.check_refused('vote', self.victim.id)
        self.check_refused('tpc_finish', self.victim.id + 1)
        self.victim.finish()
        self.check_refused('tpc_finish', self.victim.id)
        self.assertEqual(self.other.load(1)[0], b'x')

    def check_refused(self, name, id):
        with self.assertLogs(SERVER_LOG, 'ERROR'):
            with self.assertRaises(ErrorReply) as caught:
                self.victim.call(name, id)
        self.assertIn('Transaction', caught.exception.name)

    def test_a_record_without_data(self):
        """One client could make the file unreadable for all."""
        with self.assertLogs(SERVER_LOG, 'ERROR'):
            with self.assertRaises(ErrorReply) as caught:
                self.victim.vote({1: b''})
        self.assertEqual(caught.exception.name, 'StorageError')
        self.vanish()
        self.check_nothing_is_left()


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk(Served):
    """The transaction fails; its client stays, and is told."""

    def check(self, store):
        storage = FsyncStorage(self.path(), blob_dir=self.path('blobs'))
        self.addCleanup(storage.close)
        peer = self.connect(self.serve(storage))
        with self.assertLogs(SERVER_LOG, 'ERROR') as logs:
            store(peer)
            with self.assertRaises(ErrorReply) as caught:
                peer.call('vote', peer.id)
        line, = logs.output
        self.assertIn('a transaction failed before its vote', line)
        self.assertNotIn('Traceback', line)
        self.assertEqual(caught.exception.name, 'StorageError')
        peer.commit({5: b'another'})
        return str(caught.exception)

    def test_of_temporary_files(self):
        def store(peer):
            with mock.patch.object(ballot, 'IN_MEMORY', 0), mock.patch.object(
                    tempfile, 'TemporaryFile', return_value=mock.Mock(
                        write=no_room)):
                peer.begin()
                peer.store(1, b'x' * 10**6)
                peer.store(2, b'x')
                peer.ping()

        text = self.check(store)
        self.assertIn(tempfile.gettempdir(), text)
        self.assertIn(os.strerror(errno.ENOSPC), text)

    def test_of_blobs(self):
        make = tempfile.NamedTemporaryFile

        def full(**options):
            file = make(**options)
            file.write = no_room
            return file

        def store(peer):
            with mock.patch.object(tempfile, 'NamedTemporaryFile', full):
                peer.begin()
                peer.send_blob(1, b'content')
                peer.ping()

        self.assertIn(self.path('blobs'), self.check(store))
        until(lambda: not [name for name in os.listdir(
            self.path('blobs/tmp')) if name.startswith('upload')], 'removed')


class TimedOut(Served):

    def test_its_client_stays_and_is_told(self):
        server = self.serve(transaction_timeout=3600)
        service = server.services['1']
        slow, other = self.connect(server), self.connect(server)
        for number, end in enumerate(('abort', 'begin', 'finish'), 2):
            with self.subTest(end), self.assertLogs(
                    'ZEO.StorageServer', 'CRITICAL') as logs:
                slow.vote({1: b'never'})
                late, = service.committer.ballots()
                server.acceptor.event_loop.call_soon_threadsafe(
                    late.session.timed_out, late)
                slow.ping()
                self.assertEqual(len(logs.records), 1)
                other.commit({number: b'x'})
                slow.wait_for_invalidations(number - 1)
                with self.assertRaises(ErrorReply):
                    slow.load(1)
                if end == 'abort':
                    slow.abort()
        # An end of the connection is a stock client's ClientDisconnected.
        slow.ask_finish()
        slow.wait_for_end()
        other.ping()
        self.assertEqual(service.stats.active_txns, 0)

    def test_who_finishes_in_time_is_left_alone(self):
        """However long the disk takes."""
        disk = self.controlled_disk()
        server = self.serve(transaction_timeout=0.1)
        service = server.services['1']
        peer = self.connect(server)
        peer.vote({1: b'x'})
        disk.hold_syncs()
        finish = peer.ask_finish()
        disk.wait_for_sync()
        peer.ping()
        session, = service.sessions
        ballot, = session._ballots.values()
        self.assertIsNone(ballot.timer)
        disk.release_syncs()
        peer.answer(finish)
        self.assertEqual(peer.load(1)[0], b'x')


class Closing(Served):

    def test_no_blob_is_left(self):
        """Of transactions that were begun, voted, or waited for the lock."""
        storage = self.open(blob_dir=self.path('blobs'))
        server = self.serve(storage)
        begun, voted, waiting = (self.connect(server) for _ in range(3))
        for number, peer in enumerate((begun, voted, waiting)):
            peer.begin()
            peer.store(9, b'an object of all')
            peer.send_blob(number, b'a blob')
        voted.call('vote', voted.id)
        waiting.ask('vote', waiting.id)
        begun.begin_blob(b'half of another')
        for peer in begun, waiting:
            peer.ping()
        server.close()
        until(lambda: not os.listdir(storage.temporaryDirectory()), 'gone')

    def test_no_blob_is_left_by_one_that_was_killed(self):
        """The next start removes what it was receiving."""
        os.mkdir(self.path('home'))
        storage = self.open('home/Data.fs', blob_dir=self.path('home/blobs'))
        peer = self.connect(self.serve(storage))
        peer.begin()
        peer.send_blob(1, b'a blob')
        peer.begin_blob(b'half of another')
        peer.ping()
        shutil.copytree(self.path('home'), self.path('killed'),
                        ignore=shutil.ignore_patterns('*.local'))
        received = self.path('killed/blobs/tmp')
        self.assertEqual(len(os.listdir(received)), 2)
        self.open('killed/Data.fs', blob_dir=self.path('killed/blobs'))
        self.assertEqual(os.listdir(received), [])

    def test_the_last_client_goes_at_the_same_time(self):
        """The loop must not end before it is told to."""
        storage = self.open()
        server = self.serve(storage)
        peer = self.connect(server)
        close = storage.close

        def slow_close():
            peer.close()
            until(lambda: not server.connections, 'gone')
            close()

        storage.close = slow_close
        server.close()
