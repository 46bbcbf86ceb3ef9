"""What `fsync-time` measures is what it says: syncs, commits, reads, blobs.

Jobs run in this process where they can, over storages that count.
"""

import contextlib
import itertools
import os
import time
import unittest
from unittest import mock

import transaction
import ZODB
from persistent.mapping import PersistentMapping
from ZODB.blob import Blob
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError

from fsyncstorage import datafile
from fsyncstorage.client import local
from fsyncstorage.client.reads import Reads
from fsyncstorage.timing import blobs
from fsyncstorage.timing import commits
from fsyncstorage.timing import disk
from fsyncstorage.timing import zeo
from fsyncstorage.timing.contestants import CONTESTANTS
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import latency
from fsyncstorage.timing.running import machine
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running import served
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.running import zeosites

from .support import SETTINGS
from .support import Scratch


class SyncTests(Scratch):
    """Syncs are counted, and what is added to them is added to nothing else.
    """

    def setUp(self):
        super().setUp()
        self.slept = []

    def syncs_of_commits(self, contestant, number):
        """What was slept while the contestant made this number of commits."""
        with latency.slowed(0.005, self.slept.append) as syncs, \
                contestant.opened(self.scratch) as storage:
            db = ZODB.DB(storage)
            with contextlib.closing(db):
                del syncs[:], self.slept[:]
                for n in range(number):
                    with db.transaction() as connection:
                        connection.root()['n'] = n
                self.assertEqual(len(self.slept), len(syncs))
                return list(self.slept)

    def test_each_commit_waits_for_its_syncs(self):
        for name, expected in [
                ('filestorage', 3), ('filestorage:no-fsync', 0),
                ('fsync:none', 0), ('fsync:group-commit', 3),
                ('fsync:per-commit', 3), ('fsync:two-sync', 6)]:
            with self.subTest(name):
                for left in os.listdir(self.scratch):
                    os.remove(os.path.join(self.scratch, left))
                self.assertEqual(
                    self.syncs_of_commits(CONTESTANTS[name], 3),
                    [0.005] * expected)

    def test_everything_is_put_back(self):
        before = latency._stock.fsync, datafile.disk.sync
        with self.assertRaises(ZeroDivisionError):
            with latency.slowed(1), latency.stock_without_fsync():
                self.assertIsNone(latency._stock.fsync)
                self.assertNotEqual(datafile.disk.sync, before[1])
                1 / 0
        self.assertEqual((latency._stock.fsync, datafile.disk.sync), before)

    def test_a_sync_that_fails_fails(self):
        reader, writer = os.pipe()  # which cannot be synced
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        with latency.slowed(1, self.slept.append), self.assertRaises(OSError):
            datafile.disk.sync(writer)
        self.assertEqual(self.slept, [])


class DiskTests(Scratch):
    """What each way to sync does with a file."""

    def calls(self, name):
        log = []

        def logged(owner, name):
            real = getattr(owner, name)

            def call(fd, *arguments):
                log.append((name, *arguments))
                return real(fd, *arguments)

            return mock.patch.object(owner, name, call)

        with logged(datafile.disk, 'write'), logged(datafile.disk, 'sync'), \
                logged(os, 'fsync'), logged(os, 'fdatasync'), \
                logged(datafile.disk, 'open'):
            way, = (way for way in disk._ways() if way.name == name)
            figures = disk.measure(way, self.scratch, seconds=0)
        self.assertEqual(figures['syncs'], 1)
        (opened, flags), *rest = log
        self.assertEqual(opened, 'open')
        self.assertEqual(bool(flags & os.O_DSYNC), name == 'O_DSYNC')
        return [call for call in rest
                if call != ('fdatasync',) or name == 'fdatasync']

    def test_what_is_timed(self):
        write = 'write', disk.RECORD, 0
        for way in disk.WAYS:
            expected = {
                'O_DSYNC': [write],
                'two syncs': [
                    write, ('sync',), ('write', b'x', 0), ('sync',)],
            }.get(way.name, [write, (way.name,)])
            if way.name != 'F_FULLFSYNC':
                self.assertEqual(self.calls(way.name), expected)


class CommitTests(Scratch):

    def commit(self, name='filestorage', **settings):
        return commits.measure(CONTESTANTS[name], self.scratch, **{
            'threads': 3, 'seconds': 0, 'sync_latency': 0, 'shared': False,
            **settings})

    def trees(self):
        storage = FileStorage(os.path.join(self.scratch, 'Data.fs'))
        with contextlib.closing(ZODB.DB(storage)) as db, \
                db.transaction() as connection:
            return {name: sorted(tree)
                    for name, tree in population.ground(connection).items()}

    def test_one_tree_a_thread(self):
        figures = self.commit()
        self.assertEqual(
            self.trees(), {'tree0': [0], 'tree1': [1], 'tree2': [2]})
        for figure, expected in [('transactions', 3), ('syncs', 3),
                                 ('commits_per_sync', 1), ('conflicts', 0)]:
            self.assertEqual(figures[figure], expected, figure)

    def test_conflicts_are_retried_and_counted(self):
        tree, outcomes = {}, [ConflictError(), ConflictError(), None]
        manager = mock.Mock(
            spec=transaction.TransactionManager,
            **{'commit.side_effect': outcomes})
        conflicts = []
        commits._set_one(manager, tree, 5, conflicts)
        self.assertEqual(conflicts, outcomes[:2])
        self.assertEqual(tree, {5: 5})
        self.assertEqual(manager.abort.call_count, 2)


class CountingStorage(FileStorage):
    """Notes what it is asked for; `told` returns the notes, and clears them.
    """

    def __init__(self, path):
        super().__init__(path)
        self._asked = []

    def told(self):
        asked, self._asked = self._asked, []
        return asked

    def loadBefore(self, oid, tid):
        self._asked.append(oid)
        return super().loadBefore(oid, tid)

    def prefetch(self, oids, tid):
        self._asked.append(list(oids))


class ReadTests(Scratch):
    """What cold, hot, steamin and prefetched reads ask a storage for."""

    def setUp(self):
        super().setUp()
        self.site = served.Site(served.NoServer(), None, self.open)
        self.oids = supervisor.run(
            lambda: population.plant(
                self.site, population.small(read=5)))['read']

    def open(self):
        self.storage = CountingStorage(os.path.join(self.scratch, 'Data.fs'))
        return self.storage

    def asked(self, access, ways):
        """What a storage is asked for in each stretch; and the stretches."""
        told = []
        job = zeo.reader(self.site, self.oids, access, 2, ways)
        with mock.patch.object(
                transaction.TransactionManager, 'begin', autospec=True,
                side_effect=transaction.TransactionManager.begin) as begin:
            stretches = job(lambda: told.append(self.storage.told()))
        # The begin of a transaction is timed, too.
        self.assertGreaterEqual(begin.call_count, 2 * len(stretches))
        return [*told[1:], self.storage.told()], stretches

    def test_one_by_one(self):
        # Two transactions of two objects; Connection.get makes a ghost of the
        # record, which then loads it again.
        for access, times in ('get', 2), ('ghosts', 1):
            cold = [oid for oid in self.oids[:4] for _ in range(times)]
            asked, stretches = self.asked(access, zeo.ONE_BY_ONE)
            self.assertEqual(asked, [cold, cold, []], access)
            for stretch in stretches:
                self.assertEqual(len(stretch.durations), 2)
                self.assertEqual(len(stretch.objects), 4)

    def test_prefetch(self):
        one, two, three, four, _ = self.oids
        asked, [stretch] = self.asked('ghosts', zeo.PREFETCH)
        self.assertEqual(
            asked, [[[one, two], one, two, [three, four], three, four]])
        self.assertEqual(stretch.objects, [])

    def test_figures(self):
        results = [
            [crew.Stretch(10, 12, [0.5, 1.5], 3, [0.1, 0.4, 0.7, 0.8])],
            [crew.Stretch(11, 14, [1, 2], 4, [0.5, 0.5, 1, 1])]]
        # Without the processor time of the server, there is none.
        for usage, cpu in (({'cpu_seconds': 1}, {'cold_cpu_seconds': 1}),
                           ({}, {})):
            with mock.patch.object(
                    crew, 'processes',
                    return_value=(results, [usage])):
                figures = zeo.read(self.site, [], ['cold'], 2)
            self.assertEqual(figures, {
                'cold_per_second': 2, 'cold_seconds': 1.25,
                'cold_p50_seconds': 0.5, 'cold_p99_seconds': 1, **cpu})


class BlobTests(Scratch):

    def setUp(self):
        super().setUp()
        self.site = served.Site(served.NoServer(), None, self.open)

    def open(self):
        return FileStorage(
            os.path.join(self.scratch, 'Data.fs'),
            blob_dir=os.path.join(self.scratch, 'blobs'))

    def plant(self, *contents):
        with crew.connected(self.site) as (manager, connection):
            population.ground(connection)['blobs'] = PersistentMapping(all=[
                blobs.new_blob(connection, data) for data in contents])
            manager.commit()

    def test_each_way_loads_each_blob_anew_in_a_transaction(self):
        self.plant(b'small', b'12', b'34', b'56')
        told = []
        with mock.patch.object(
                Blob, '__setstate__', autospec=True,
                side_effect=Blob.__setstate__) as load, mock.patch.object(
                transaction.TransactionManager, 'begin', autospec=True,
                side_effect=transaction.TransactionManager.begin) as begin:

            def counts():
                told.append((load.call_count, begin.call_count))

            found = blobs._reader(self.site, ['cold', 'cached'], 2)(counts)
            counts()
        for before, after in itertools.pairwise(told):
            self.assertEqual(
                [later - earlier for earlier, later in zip(before, after)],
                [3, 3])
        self.assertEqual([len(each.durations) for each in found], [3, 3])

    def test_a_blob_is_read_to_its_end(self):
        data = os.urandom(2 * blobs.READ_SIZE + 1)
        self.plant(b'small', data)
        blobs._reader(self.site, ['direct'], len(data))(lambda: None)
        with self.assertRaisesRegex(EOFError, 'of 2 bytes was read as one of'):
            blobs._reader(self.site, ['direct'], 2)(lambda: None)

    def test_a_new_blob_is_on_the_disk_that_is_measured(self):
        with crew.connected(self.site) as (_, connection):
            blob = blobs.new_blob(connection, b'x')
            self.assertTrue(
                blob._p_blob_uncommitted.startswith(self.scratch))


class ServedTests(Scratch):
    """Real servers and clients, for a short time."""

    level = 2

    def stored(self):
        storage = FileStorage(
            os.path.join(self.scratch, 'Data.fs'), read_only=True)
        with contextlib.closing(storage):
            return [{record.oid for record in one}
                    for one in storage.iterator()]

    def test_writes(self):
        figures = supervisor.run(lambda: zeo.measure_writes(
            zeosites.CONTESTANTS['zeo'], self.scratch, clients=2, objects=3,
            seconds=0, **{**SETTINGS, 'sync_latency': 0.02}))
        self.assertEqual(figures['transactions'], 2)
        # The sync of the transaction that is not timed is not counted.
        self.assertEqual(figures['syncs'], 2)
        # What was added reached the server.
        self.assertGreaterEqual(figures['p50_seconds'], 0.02)
        self.assertGreater(figures['txn_cpu_seconds'], 0)
        # Of each client, one that is not timed, and one that is.
        written = self.stored()[-4:]
        self.assertEqual(list(map(len, written)), [3] * 4)
        self.assertEqual(len(set.union(*written)), 6)
        for oids in written:
            self.assertEqual(written.count(oids), 2)

    def test_blobs(self):
        """Each client reads into a cache of its own, if it has one."""
        def sizes(directory):
            return sorted(
                os.path.getsize(os.path.join(path, name))
                for path, _, names in os.walk(directory)
                for name in names if name.endswith('.blob'))

        for name, clients, caches in [
                ('fsync-client', 2, 3), ('zeo:shared', 1, 0)]:
            with self.subTest(name), mock.patch.object(os, 'sync'):
                home = os.path.join(self.scratch, name)
                os.mkdir(home)
                figures = supervisor.run(lambda: blobs.read(
                    blobs.CONTESTANTS[name], home, clients=clients, size=3,
                    requests=2, volume=1, **SETTINGS))
                self.assertEqual('direct_per_second' in figures, not caches)
                self.assertEqual('cold_per_second' in figures, bool(caches))
                planted = [3, 3, 3, 5]
                self.assertEqual(sizes(os.path.join(home, 'blobs')), planted)
                # One more has the client that made the blobs.
                self.assertEqual(
                    [sizes(os.path.join(home, each))
                     for each in os.listdir(home) if each[:6] == 'cache-'],
                    [planted] * caches)

    @unittest.skipUnless(local.is_possible(), 'needs sealed memory')
    def test_local_reads(self):
        """The server is asked for none of the objects."""
        contestant, asked = zeosites.CONTESTANTS['fsync-client:local'], []

        def load_before(reads, oid, tid, load_before=Reads.load_before):
            asked.append(oid)
            return load_before(reads, oid, tid)

        def work():
            with contestant.running(self.scratch, **SETTINGS) as site:
                oids = population.plant(
                    site, population.small(read=5))['read']
                with mock.patch.object(Reads, 'load_before', load_before):
                    for ways in zeo.ONE_BY_ONE, zeo.PREFETCH:
                        zeo.reader(site, oids, 'get', 5, ways)(
                            lambda: None)
                return oids, asked

        oids, found = supervisor.run(work)
        self.assertEqual(len(oids), 5)
        self.assertEqual(set(oids).intersection(found), set())


class CrewTests(unittest.TestCase):

    def test_requests_are_made_for_so_long(self):
        made = []
        with mock.patch.object(
                crew.time, 'perf_counter', side_effect=itertools.count()):
            stretch = crew.timed(
                (lambda: made.append('one') for _ in itertools.count()), 6)
        self.assertEqual(len(made), 3)
        self.assertEqual(stretch.durations, [1, 1, 1])

    def test_threads_start_together(self):
        log = []

        def job(start):
            log.append('ready')
            start()
            log.append('working')
            return len(log)

        def usage():
            log.append('asked')
            return {'asked': log.count('asked')}

        results, usages = crew.threads([job, job, job], usage)
        self.assertEqual(
            log, ['ready'] * 3 + ['asked'] + ['working'] * 3 + ['asked'])
        self.assertEqual(len(results), 3)
        self.assertEqual(usages, [{'asked': 1}])

    def test_processes_start_together_each_time(self):
        def job(start):
            times = []
            for _ in range(2):
                times.append(time.perf_counter())
                start()
                times.append(time.perf_counter())
            return times

        site = served.Site(served.NoServer(), None, None)
        found, _ = supervisor.run(crew.processes, site, [job, job])
        # In the order of the jobs; all have the same clock.
        for ready, started in ((0, 1), (2, 3)):
            self.assertLess(max(each[ready] for each in found),
                            min(each[started] for each in found))

    def test_an_error_in_a_thread_frees_the_others(self):
        def bad(start):
            raise OSError('disk full')

        def bad_later(start):
            start()
            raise OSError('disk full')

        for job in bad, bad_later:
            with self.assertRaisesRegex(OSError, 'disk full'):
                crew.threads([lambda start: start(), job])


class MachineTests(Scratch):

    def test_the_innermost_mount_counts(self):
        mounts = [
            '20 1 8:1 / / rw,relatime - ext4 /dev/a rw',
            '21 20 8:2 / /srv rw,relatime shared:1 - xfs /dev/b rw',
            '22 20 8:3 / /srv/big\\040disk rw,relatime - btrfs /dev/c rw']
        for path, expected in [
                ('/home/me', 'ext4'), ('/srv', 'xfs'), ('/srv/zeo', 'xfs'),
                ('/srvother', 'ext4'), ('/srv/big disk/zeo', 'btrfs')]:
            with mock.patch.object(
                    machine, '_lines', return_value=mounts):
                self.assertEqual(machine._file_system(path), expected, path)
