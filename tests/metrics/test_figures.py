"""Figures are true: a known number of each thing gives exactly these."""

import contextlib
import os
import time
from unittest import mock

from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import ConflictError
from ZODB.utils import z64

from fsyncstorage.metrics import backups
from fsyncstorage.metrics.exporters import Showing
from fsyncstorage.pack.progress import PackWatch

from ..server.serving import ErrorReply
from ..server.serving import Served
from ..server.serving import counter
from ..server.serving import record
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import all_is_cached
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until
from ..support import vote
from .asking import NothingIsKept
from .asking import metrics
from .asking import probe

HERE = '127.0.0.1', 0


class Wrapper:
    """As others make them: what it has not is that of the storage."""

    def __init__(self, storage):
        self.__storage = storage

    def __getattr__(self, name):
        return getattr(self.__storage, name)

    def __len__(self):
        return len(self.__storage)


class FiguresTestCase(NothingIsKept, TestCase):

    def figures(self):
        self.now = {
            (name.removeprefix('fsyncstorage_'), *labels): value
            for (name, *labels), value in metrics(self.address).items()}
        return self.now

    def check(self, **expected):
        figures = self.figures()
        self.assertEqual(
            {name: figures.get((name,)) for name in expected}, expected)


class InOneProcess(FiguresTestCase):

    def show(self, **options):
        storage = self.open(**options)
        showing = Showing(HERE, 'main', storage)
        self.addCleanup(showing.close)
        self.address = showing.exporter.address
        return storage

    def test_commits_syncs_and_bytes(self):
        disk = self.controlled_disk()
        storage = self.show(durability='per-commit')
        before, syncs = storage.getSize(), disk.syncs
        tid = z64
        for number in range(5):
            tid = commit(storage, {number: b'x' * (number + 1), 9: b'y'},
                         {9: tid})
        self.check(
            commits_total=5, sync_duration_seconds_count=5,
            commit_duration_seconds_count=5, objects=6,
            committed_bytes_total=storage.getSize() - before,
            data_bytes=os.path.getsize(self.path()),
            conflicts_total=0, writing_stopped=0)
        self.assertEqual(disk.syncs - syncs, 5)
        stats = storage.stats()
        self.assertEqual(
            (stats['commits'], stats['syncs'], stats['committed_bytes'],
             stats['commit_latency']['count']),
            (5, 5, storage.getSize() - before, 5))

    def test_what_is_aborted_is_not_counted(self):
        storage = self.show()
        storage.tpc_abort(vote(storage, {1: b'x'}))
        self.check(commits_total=0, committed_bytes_total=0,
                   commit_duration_seconds_count=0)

    def test_conflicts(self):
        storage = self.show()
        first = commit(storage, {1: b'x', 2: b'x'})
        commit(storage, {1: b'y'}, {1: first})
        for call, *arguments in (
                (storage.store, oid(1), first, b'z', ''),
                (storage.deleteObject, oid(1), first),
                (storage.checkCurrentSerialInTransaction, oid(1), first)):
            transaction = begin(storage)
            call(*arguments, transaction)
            with self.assertRaises(ConflictError):
                storage.tpc_vote(transaction)
            storage.tpc_abort(transaction)
        self.check(conflicts_total=3, conflicts_resolved_total=0)

    def test_resolved_conflicts(self):
        storage = self.show()
        first = commit(storage, {1: counter(0), 2: counter(0)})
        commit(storage, {1: counter(1), 2: counter(1)}, {1: first, 2: first})
        # What is aborted is not counted.
        storage.tpc_abort(vote(storage, {1: counter(2)}, {1: first}))
        commit(storage, {1: counter(2), 2: counter(2)}, {1: first, 2: first})
        self.check(conflicts_total=0, conflicts_resolved_total=2)

    def test_waits_for_objects(self):
        storage = self.show()
        first = vote(storage, {1: b'x', 2: b'x'})
        waiting = [Thread(commit, storage, {number: b'y'})
                   for number in (1, 2)]
        until(lambda: storage.stats()['lock_waiting'] == 2, 'wait')
        self.assertEqual(self.figures()['transactions_waiting', 'vote'], 2)
        self.check(lock_wait_duration_seconds_count=0)
        storage.tpc_abort(first)
        for thread in waiting:
            thread.result()
        self.assertEqual(self.figures()['transactions_waiting', 'vote'], 0)
        self.check(lock_wait_duration_seconds_count=2)

    def test_waits_for_a_sync(self):
        disk = self.controlled_disk()
        storage = self.show()
        disk.hold_syncs()
        thread = Thread(commit, storage, {1: b'x'})
        disk.wait_for_sync()
        figures = self.figures()
        self.assertEqual(figures['transactions_waiting', 'sync'], 1)
        self.assertNotIn(
            ('last_durable_commit_timestamp_seconds',), figures)
        disk.release_syncs()
        thread.result()
        figures = self.figures()
        self.assertEqual(figures['transactions_waiting', 'sync'], 0)
        self.assertAlmostEqual(
            figures['last_durable_commit_timestamp_seconds',],
            os.path.getmtime(self.path()), delta=3600)

    def test_a_pack(self):
        storage = self.show(pack_process=False)
        self.assertNotIn(('last_pack_succeeded',), self.figures())
        seen = []
        tell = PackWatch.tell

        def look(watch, phase, done, total):
            tell(watch, phase, done, total)
            seen.append((phase, self.figures()['pack_phase_progress_ratio',
                                               phase], done / max(total, 1)))

        tid = commit(storage, {0: record(1), 1: b'x'})
        commit(storage, {0: record(2)}, {0: tid})
        with mock.patch.object(PackWatch, 'tell', look):
            storage.pack(time.time(), lambda data: [])
        self.assertIn('copy', {phase for phase, _, _ in seen})
        for phase, shown, true in seen:
            self.assertAlmostEqual(shown, true)
        self.check(last_pack_succeeded=1)
        packed = self.now['last_pack_timestamp_seconds',]
        self.assertAlmostEqual(packed, time.time(), delta=PATIENCE)
        self.assertAlmostEqual(
            self.now['last_pack_success_timestamp_seconds',], packed, 1)
        self.assertFalse(
            [name for name in self.now if name[0].startswith('pack_')])

    def test_a_pack_that_fails_behind_one_that_did_not(self):
        storage = self.show(pack_process=False)
        commit(storage, {0: record(1)})
        storage.pack(time.time(), lambda data: [])
        packed = self.figures()['last_pack_success_timestamp_seconds',] - 1000
        storage.packs._succeeded.ended -= 1000  # it was long ago
        with mock.patch.object(PackWatch, 'tell', side_effect=OSError), \
                self.assertRaises(OSError):
            storage.pack(time.time(), lambda data: [])
        self.check(last_pack_succeeded=0)
        self.assertAlmostEqual(
            self.now['last_pack_success_timestamp_seconds',], packed, 1)

    def test_a_backup(self):
        storage = self.show()
        self.assertFalse([name for name in self.figures()
                          if name[0].startswith('backup_')])
        backups.write(storage.getName(), backups.Said(1000.5, 17, 99.0))
        self.check(backup_shipped_timestamp_seconds=1000.5,
                   backup_behind_bytes=17, backup_drill_timestamp_seconds=99)

    def test_one_that_only_reads(self):
        writing = self.open()
        commit(writing, {1: b'x'})
        writing.close()
        self.show(read_only=True)
        self.check(objects=1, data_bytes=os.path.getsize(self.path()),
                   commits_total=None, writing_stopped=None)


class OverZeo(Served, FiguresTestCase):

    def setUp(self):
        super().setUp()
        all_is_cached(self)

    def served(self, storage=None, **options):
        self.server = self.serve(storage, metrics=HERE, **options)
        self.service = self.server.services['1']
        self.address = self.server._shown[0].exporter.address
        return self.connect(self.server)

    def test_commits_and_what_is_told_of_them(self):
        peer = self.served()
        others = [self.connect(self.server) for _ in range(2)]
        size = self.server.storages['1'].getSize()
        for number in range(4):
            peer.commit({number: b'x'})
        for other in others:
            other.wait_for_invalidations(4)
        self.check(
            commits_total=4, commit_duration_seconds_count=4, clients=3,
            committed_bytes_total=self.server.storages['1'].getSize() - size,
            invalidations_total=8, objects=4, conflicts_total=0)

    def test_loads(self):
        peer = self.served()
        peer.commit({1: b'x', 2: b'x'})
        for _ in range(3):
            peer.load(1)
        with mock.patch.object(
                self.service, 'load_cached', side_effect=BlockingIOError):
            peer.load(1)
            peer.load(2)
        figures = self.figures()
        self.assertEqual(figures['loads_total', 'memory'], 3)
        self.assertEqual(figures['loads_total', 'disk'], 2)

    def test_conflicts_of_clients_and_of_threads(self):
        storage = self.open()
        peer = self.served(storage)
        tid = peer.commit({1: record(1), 2: counter(0)})
        peer.commit({2: counter(1)}, tid)
        peer.commit({2: counter(2)}, tid)
        for _ in range(2):
            with self.assertRaises(ErrorReply):
                peer.vote({1: record(2)})
        self.assertEqual(
            peer.call('server_status')['conflicts_resolved'], 1)
        with self.assertRaises(ConflictError):
            vote(storage, {1: record(3)})
        self.check(conflicts_total=3, conflicts_resolved_total=1,
                   commits_total=3)

    def test_storages_of_one_server_have_one_loop(self):
        peer = self.served()
        other = Showing(HERE, 'other')
        self.addCleanup(other.close)
        traffic = self.server.traffic
        other.served_by(self.service, traffic)
        peer.commit({1: b'x' * 1000})
        peer.ping()  # behind all that is sent of the commit
        for end in other.close, lambda: None:
            self.check(received_bytes_total=traffic.received,
                       sent_bytes_total=traffic.sent)
            self.assertGreater(traffic.received, 1000)
            self.assertIn(('loop_lag_seconds_count',), self.now)
            end()

    def test_a_storage_that_is_not_ours(self):
        peer = self.served(MappingStorage())
        peer.commit({1: b'x'})
        peer.load(1)
        self.check(commits_total=1, commit_duration_seconds_count=1,
                   objects=1, clients=1)
        self.assertEqual(self.now['loads_total', 'disk'], 1)

    def test_no_code_of_another_storage_is_run_to_show_it(self):
        storage = MappingStorage()
        self.served(storage).commit({1: b'x'})
        with contextlib.ExitStack() as stack:
            called = [stack.enter_context(mock.patch.object(
                MappingStorage, name, create=True))
                for name in ('__len__', 'getSize', 'stats', 'packs',
                             'histograms')]
            self.check(objects=1, commits_total=1)
            self.assertEqual(probe(self.address, '/ready')[0], 200)
        self.assertFalse(any(each.mock_calls for each in called))

    def test_one_in_a_wrapper(self):
        peer = self.served(Wrapper(self.open()))
        peer.commit({1: b'x'})
        self.check(commits_total=1, sync_duration_seconds_count=1, objects=1)
