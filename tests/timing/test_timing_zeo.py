"""The command `fsync-time zeo`: that the right thing is measured, and gone.

How fast it was is nowhere asserted.
"""

import contextlib
import io
import json
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
import unittest
from unittest import mock

import transaction
from rich.console import Console
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.client import local
from fsyncstorage.client.reader import Reader
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.running import machine
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.servers import launcher
from fsyncstorage.timing.servers import served
from fsyncstorage.timing.servers import zeosites
from fsyncstorage.timing.servers import zeosites as sites
from fsyncstorage.timing.zeo import commandline as zeo
from fsyncstorage.timing.zeo import light
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing
from fsyncstorage.timing.zeo import zeowire

from .fakezeo import FakeServer
from .test_timing import Command
from .test_timing import Scratch

STOCK = sites.CONTESTANTS['zeo']
SETTINGS = {
    'loop': 'asyncio', 'sync_latency': 0, 'socket': False}

#: Seconds; only a failing test waits until they are over.
LONG = 60


class WireTests(unittest.TestCase):

    level = 2

    def messages_of(self, data):
        return [zeowire.read(one) for one in zeowire.Inbox().add(data)]

    def test_messages_come_in_any_pieces(self):
        frames = b''.join(zeowire.frame(b'x' * n) for n in (3, 0, 300))
        for size in (1, 5, 307, 1000):
            inbox, found = zeowire.Inbox(), []
            for start in range(0, len(frames), size):
                found += inbox.add(frames[start:start + size])
            self.assertEqual([len(one) for one in found], [3, 0, 300], size)

    def test_each_vote_has_its_serial_and_number(self):
        vote = zeowire.Vote(p64(5))
        for serial, number in ((z64, 0), (p64(77), 12345)):
            begin, store, last = self.messages_of(
                vote.messages(serial, number))
            self.assertEqual(begin[:3], (0, True, 'tpc_begin'))
            self.assertEqual(last[0:3:2], (zeowire.VOTE, 'vote'))
            oid, stored_serial, record, transaction = store[3]
            self.assertEqual((oid, stored_serial), (p64(5), serial))
            self.assertIn(number.to_bytes(8, 'big'), record)
            self.assertEqual(transaction, begin[3][0])


class LightClientTests(Scratch):
    """Light clients at a server that can make errors."""

    level = 2

    def drive(self, number=2, **options):
        server = self.enterContext(FakeServer(**options))
        clients = [
            self.enterContext(contextlib.closing(light.Client(server.address)))
            for _ in range(number)]
        return light.drive(clients, 0), server

    def test_each_commits_once_at_least(self):
        (stretch, wrong), server = self.drive(3)
        self.assertEqual(len(stretch.durations), 3)
        self.assertEqual(
            wrong, {'tids_not_rising': 0, 'invalidations_late': 0})
        self.assertEqual(len(server.stored), 3)

    def test_the_next_serial_is_the_last_tid(self):
        server = self.enterContext(FakeServer())
        client = self.enterContext(
            contextlib.closing(light.Client(server.address)))
        light.drive([client], 0)
        light.drive([client], 0)
        self.assertEqual(
            [serial for serial, _ in server.stored], [z64, p64(1)])

    def test_tids_that_do_not_rise_are_counted(self):
        for tids, expected in [((5, 5), 2), ((5, 4), 2), ((5, 6), 0)]:
            (_, wrong), _ = self.drive(tids=map(p64, tids))
            self.assertEqual(wrong['tids_not_rising'], expected, tids)

    def test_missing_invalidations_are_counted(self):
        (_, wrong), _ = self.drive(3, invalidates=False)
        self.assertEqual(wrong['invalidations_late'], 6)

    def test_an_error_of_the_server(self):
        with self.assertRaisesRegex(ConnectionError, 'answered some.Error'):
            self.drive(error='some.Error')


class StockServerTests(Scratch):
    """Real processes, for a short time."""

    level = 2

    def measure(self, function, **settings):
        return supervisor.run(lambda: function(
            STOCK, self.scratch, **{**SETTINGS, **settings}))

    def stored(self):
        path = os.path.join(self.scratch, 'Data.fs')
        storage = FileStorage(path, read_only=True)
        with contextlib.closing(storage):
            return [
                (one.tid, [(record.oid, record.data) for record in one])
                for one in storage.iterator()]

    def test_light_commits_are_stored(self):
        figures = self.measure(
            light.measure, connections=3, seconds=0.1, sync_latency=0.02)
        stored = self.stored()
        tids = [tid for tid, _ in stored]
        self.assertEqual(len(stored), figures['transactions'])
        self.assertGreaterEqual(len(stored), 3)
        self.assertTrue(all(len(records) == 1 for _, records in stored))
        self.assertEqual(tids, sorted(set(tids)))
        self.assertEqual(figures['tids_not_rising'], 0)
        self.assertEqual(figures['invalidations_late'], 0)
        # Each was synced, and what was added reached the server.
        self.assertEqual(figures['syncs'], figures['transactions'])
        self.assertGreaterEqual(figures['p50_seconds'], 0.02)
        self.assertGreater(figures['server_cpu'], 0)
        # Each client counts in an object of its own.
        numbers = {}
        for _, [(oid, record)] in stored:
            numbers.setdefault(oid, []).append(number_in(record))
        self.assertEqual(len(numbers), 3)
        for found in numbers.values():
            self.assertEqual(found, list(range(len(found))))

    def test_a_unix_socket(self):
        figures = self.measure(
            light.measure, connections=1, seconds=0, socket=True)
        self.assertEqual(figures['transactions'], 1)
        self.assertEqual(len(self.stored()), 1)

    def test_writes(self):
        figures = self.measure(
            writing.measure, clients=2, objects=3, seconds=0)
        self.assertEqual(figures['transactions'], 2)
        # The sync of the transaction that is not timed is not counted.
        self.assertEqual(figures['syncs'], 2)
        self.assertGreater(figures['txn_cpu_seconds'], 0)
        self.assertLessEqual(
            set(writing.race(**SETTINGS).compared), figures.keys())
        stored = [records for _, records in self.stored()][-4:]
        # Of each client, one that is not timed, and one that is.
        self.assertEqual(list(map(len, stored)), [3] * 4)
        written = [{oid for oid, _ in records} for records in stored]
        self.assertEqual(len(set.union(*written)), 6)
        for records in stored:
            self.assertEqual(written.count({oid for oid, _ in records}), 2)

    def test_reads(self):
        with mock.patch.object(reading, 'OBJECTS', 5):
            figures = self.measure(
                reading.measure, clients=2, objects=2, access='get')
        for figure in reading.race(**SETTINGS).compared:
            self.assertGreater(figures[figure], 0, figure)

    @unittest.skipUnless(local.is_possible(), 'needs sealed memory')
    def test_local_reads(self):
        """The server is asked for none of the objects."""
        contestant, asked = sites.CONTESTANTS['fsync-client:local'], []

        def load_before(reader, oid, tid, load_before=Reader.load_before):
            asked.append(oid)
            return load_before(reader, oid, tid)

        def work():
            with contestant.running(self.scratch, **SETTINGS) as site:
                oids = population.plant(
                    site, population.small(read=5))['read']
                group = reading.Group('read', oids, 'get', 5)

                def job(start):
                    start()
                    for ways in reading.ONE_BY_ONE, reading.PREFETCH:
                        reading._reader(site, group, ways)(lambda: None)
                    return asked

                with mock.patch.object(Reader, 'load_before', load_before):
                    [found], _ = crew.processes(site, [job])
                return oids, found

        oids, found = supervisor.run(work)
        self.assertEqual(len(oids), 5)
        self.assertEqual(set(oids).intersection(found), set())

    def test_a_server_that_hands_out_no_file(self):
        def work():
            with STOCK.running(self.scratch, **SETTINGS) as site:
                with self.assertRaisesRegex(TimeoutError, 'hands out no file'):
                    sites.local_client(site.address, LONG / 20)

        supervisor.run(work)

    def test_reads_beside_commits(self):
        figures = self.measure(reading.measure_beside, seconds=0.01)
        self.assertGreaterEqual(figures['reads'], 1)
        self.assertGreaterEqual(figures['commits'], 1)

    def test_clients_use_the_loop_of_the_server(self):

        def work():
            with mock.patch.object(loops, 'use') as use, \
                    STOCK.running(self.scratch, **SETTINGS) as site:
                [found] = crew.processes(
                    site, [lambda start: str(use.mock_calls)]).results
                return found

        self.assertEqual(supervisor.run(work), "[call('asyncio')]")


class ProcessesTests(unittest.TestCase):

    level = 2
    SITE = served.Site(served.NoServer(), None, None)

    def run_jobs(self, *jobs):
        return supervisor.run(crew.processes, self.SITE, jobs).results

    def test_no_job_starts_before_all_are_ready_each_time(self):
        def job(start):
            times = []
            for _ in range(3):
                times.append(time.perf_counter())
                start()
                times.append(time.perf_counter())
            return times

        found = list(zip(*self.run_jobs(job, job, job)))
        for ready, started in zip(found[::2], found[1::2]):
            self.assertLess(max(ready), min(started))

    def test_results_are_in_the_order_of_the_jobs(self):
        self.assertEqual(
            self.run_jobs(lambda start: None, lambda start: 'second'),
            [None, 'second'])

    def test_seconds_of_all(self):
        self.assertEqual(crew.seconds([
            crew.Stretch(3, 7, []), crew.Stretch(2, 5, [])]), 5)


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


class ReadingTests(Scratch):
    """What cold, hot, steamin and prefetched reads ask a storage for."""

    level = 2

    def setUp(self):
        super().setUp()
        self.site = served.Site(served.NoServer(), None, self.open)
        self.oids = supervisor.run(
            lambda: population.plant(
                self.site, population.small(read=5)))['read']

    def open(self):
        self.storage = CountingStorage(
            os.path.join(self.scratch, 'Data.fs'))
        return self.storage

    def asked(self, access, ways):
        """What a storage is asked for in each stretch; and the stretches."""
        told = []
        job = reading._reader(
            self.site, reading.Group('read', self.oids, access, 2), ways)
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
            asked, stretches = self.asked(access, reading.ONE_BY_ONE)
            self.assertEqual(asked, [cold, cold, []], access)
            self.assertEqual(len(stretches), 3)
            for stretch in stretches:
                self.assertEqual(len(stretch.durations), 2)
                self.assertEqual(len(stretch.objects), 4)

    def test_prefetch(self):
        one, two, three, four, _ = self.oids
        asked, [stretch] = self.asked('ghosts', reading.PREFETCH)
        self.assertEqual(
            asked, [[[one, two], one, two, [three, four], three, four]])
        self.assertEqual(stretch.objects, [])

    def test_figures(self):
        results = [
            [crew.Stretch(
                10, 12, [0.5, 1.5], 3, [0.1, 0.4, 0.7, 0.8])],
            [crew.Stretch(11, 14, [1, 2], 4, [0.5, 0.5, 1, 1])]]
        groups = [reading.Group('read', [], 'get', 2)] * 2
        for usage, cpu in (({'cpu_seconds': 1}, {'cold_cpu_seconds': 1}),
                           ({}, {})):
            with mock.patch.object(
                    crew, 'processes',
                    return_value=crew.Found(results, [usage])):
                figures = reading.read(self.site, groups, ['cold'])
            self.assertEqual(figures, {
                'cold_per_second': 2, 'cold_seconds': 1.25,
                'cold_p50_seconds': 0.5, 'cold_p99_seconds': 1, **cpu})


def number_in(record):
    unpickler = pickle.Unpickler(io.BytesIO(record))
    unpickler.load()  # the class
    return int.from_bytes(unpickler.load()['data']['number'], 'big')


class LoopTests(unittest.TestCase):

    level = 2

    def test_servers_and_clients_use_what_was_chosen(self):
        for name in loops.installed():
            self.assertEqual(
                supervisor.run(loops_in_use, name), {name}, name)

    def test_what_zeo_would_take_comes_last(self):
        with mock.patch('importlib.util.find_spec', lambda name: name):
            self.assertEqual(loops.installed()[-1], 'uvloop')
        with mock.patch('importlib.util.find_spec', 'asyncio'.__eq__):
            self.assertEqual(loops.installed(), ['asyncio'])


def loops_in_use(name):
    import ZEO.asyncio.client
    import ZEO.asyncio.server
    loops.use(name)
    made = [module.new_event_loop() for module in (
        ZEO.asyncio.client, ZEO.asyncio.server, ZEO.asyncio.compat)]
    for loop in made:
        loop.close()
    return {type(loop).__module__.partition('.')[0] for loop in made}


class LauncherTests(unittest.TestCase):

    level = 2

    def test_the_server_gets_its_loop_before_it_starts(self):
        log = mock.Mock()
        options = {
            'module': 'made_up_server', 'configuration': 'zeo.conf',
            'directory': os.curdir, 'loop': 'uvloop', 'sync_latency': 0,
            'read_latency': None, 'bond': 7}
        with mock.patch.dict(sys.modules, made_up_server=log.server), \
                mock.patch.object(loops, 'use', log.use), \
                mock.patch.object(supervisor, 'follow', log.follow), \
                mock.patch('ZODB.event.notify'):
            launcher.main(options)
        self.assertEqual(log.mock_calls, [
            mock.call.follow(7), mock.call.use('uvloop'),
            mock.call.server.main(['-C', 'zeo.conf'])])


class DyingTests(Scratch):
    """If a server or a client dies, there is an error of one line."""

    level = 2

    def failure_of(self, work):
        with self.assertRaises(supervisor.Failed) as caught:
            supervisor.run(work)
        text = str(caught.exception)
        self.assertEqual(len(text.splitlines()), 1, text)
        return text

    def serve(self, contestant=STOCK, **settings):
        return contestant.running(
            self.scratch, **{**SETTINGS, **settings})

    def test_a_program_that_is_not_there(self):
        missing = zeosites.ZeoSite('x', 'x', 'no.such.program', '')
        text = self.failure_of(lambda: light.measure(
            missing, self.scratch, connections=1, seconds=0, **SETTINGS))
        self.assertIn('the server died with exit code 1', text)
        self.assertIn("No module named 'no'", text)

    def test_a_port_that_is_in_use(self):
        busy = self.enterContext(contextlib.closing(
            socket.create_server(('127.0.0.1', 0))))
        address = '127.0.0.1:%d' % busy.getsockname()[1]
        with mock.patch.object(
                zeosites, 'CONFIGURATION',
                zeosites.CONFIGURATION.replace('{address}', address)):
            text = self.failure_of(lambda: light.measure(
                STOCK, self.scratch, connections=1, seconds=0, **SETTINGS))
        self.assertIn('already in use', text)

    def test_a_server_that_dies_under_light_clients(self):
        def work():
            with self.serve() as site:
                client = light.Client(site.address)
                site.server._process.kill()
                with contextlib.closing(client):
                    light.drive([client], LONG)

        self.assertIn(
            'the server died with exit code -9', self.failure_of(work))

    def test_a_server_whose_death_no_client_noticed(self):
        def work():
            with self.serve() as site:
                site.server._process.kill()
                site.server._process.wait()

        self.assertIn(
            'the server died with exit code -9', self.failure_of(work))

    def test_a_server_that_dies_under_stock_clients(self):
        def work():
            with self.serve() as site:
                pid = site.server._process.pid

                def job(start):
                    start()
                    os.kill(pid, signal.SIGKILL)
                    signal.pause()

                crew.processes(site, [job, job])

        self.assertIn(
            'the server died with exit code -9', self.failure_of(work))

    def test_a_client_that_dies(self):
        def work(job):
            with self.serve() as site:
                crew.processes(site, [idle, job])

        def idle(start):
            start()
            signal.pause()

        def bad(start):
            start()
            raise OSError('disk\nfull')

        self.assertIn(
            'a client failed: its process died',
            self.failure_of(lambda: work(lambda start: os._exit(3))))
        self.assertIn(
            'a client failed: OSError: disk full',
            self.failure_of(lambda: work(bad)))


class NothingLeftTests(Scratch):
    """When a sample ends in any way, its server and its clients end, too."""

    level = 2

    def setUp(self):
        super().setUp()
        self.own, self.theirs = socket.socketpair()
        self.own.settimeout(LONG)
        self.addCleanup(self.own.close)
        self.addCleanup(self.theirs.close)

    def work(self):
        """A client sends the address of the server, and does not end."""
        def job(start):
            start()
            address = json.dumps(site.address).encode()
            self.theirs.sendall(address)
            signal.pause()

        with STOCK.running(self.scratch, **SETTINGS) as site:
            crew.processes(site, [job])

    def connect(self):
        """Connect to the server, when client and server run."""
        address = tuple(json.loads(self.own.recv(100)))
        server = socket.create_connection(address, LONG)
        self.addCleanup(server.close)
        self.assertEqual(server.recv(100), zeowire.frame(zeowire.HANDSHAKE))
        return server

    def test_the_driver_is_interrupted(self):
        connected = []

        def interrupt():
            self.theirs.close()
            connected.append(self.connect())
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            supervisor.run(self.work, meanwhile=interrupt)
        self.assertEqual(connected[0].recv(1), b'')
        self.assertEqual(self.own.recv(1), b'')

    def test_the_driver_is_killed(self):
        self.kill_driver(self.work)

    def kill_driver(self, work):
        driver = multiprocessing.get_context('fork').Process(
            target=supervisor.run, args=(work,))
        driver.start()
        self.theirs.close()
        server = self.connect()
        driver.kill()
        driver.join()
        self.assertEqual(server.recv(1), b'')
        self.assertEqual(self.own.recv(1), b'')

    def test_the_driver_is_killed_and_only_the_server_notices(self):
        def work():
            with STOCK.running(self.scratch, **SETTINGS) as site:
                address = json.dumps(site.address).encode()
                self.theirs.sendall(address)
                site.server.sentinels[0].read()

        self.kill_driver(work)

    def test_the_driver_waits_until_all_are_gone(self):
        def work():
            if os.fork() == 0:
                self.own.close()
                self.theirs.recv(1)  # does not follow the bond
                os._exit(0)

        with mock.patch.object(supervisor, '_GRACE', 0.01), \
                self.assertRaisesRegex(supervisor.Failed, 'does not end'):
            supervisor.run(work)

    def test_the_process_of_the_sample_is_killed(self):
        def work():
            with STOCK.running(self.scratch, **SETTINGS) as site:
                parent = os.getpid()

                def job(start):
                    start()
                    os.kill(parent, signal.SIGKILL)
                    signal.pause()

                crew.processes(site, [job])

        with self.assertRaisesRegex(supervisor.Failed, 'exit code -9'):
            supervisor.run(work)


class CommandTests(Command):

    level = 2
    command = 'zeo'

    def test_everything_for_real(self):
        path = self.json_file()
        with mock.patch.object(reading, 'OBJECTS', 5):
            code, out, err = self.run_main(
                'zeo', 'fsync-client', '--rounds', '1', '--seconds', '10ms',
                '--clients', '1', '--objects', '2', '--loop', 'asyncio',
                '--json', path,
                *(f'--workload={name}' for name in zeo.WORKLOADS))
        self.assertEqual((code, err), (0, ''))
        self.assertEqual(os.listdir(self.scratch), [])
        document = documents.load(path)
        self.assertTrue(document['complete'])
        self.assertEqual(
            [race['workload'] for race in document['races']],
            ['write', 'read', 'light', 'read-beside-commit'])
        # fsync-client takes no part in `light`; there is a warm-up.
        self.assertEqual(len(document['samples']), 2 * 7)
        text = ' '.join(out.split())
        for expected in ('the server take? (asyncio, over TCP, nothing added',
                         'commits a second, over ZEO? (2 objects a',
                         'by Connection.get, 2 objects a transaction',
                         'another client commits', 'nothing, 50 ms.'):
            self.assertIn(expected, text)

    def test_interrupt(self):
        path = self.json_file()
        run = supervisor.run

        def interrupted(work, contestant, directory, meanwhile):
            if contestant is not STOCK:
                raise KeyboardInterrupt
            return run(work, contestant, directory, meanwhile=meanwhile)

        with mock.patch.object(supervisor, 'run', interrupted):
            code, out, err = self.run_main(
                'zeo', 'zeo:fsyncstorage', '--workload', 'light',
                '--clients', '1', '--seconds', '1ms', '--json', path,
                '--loop', 'asyncio')
        self.assertEqual(code, 130)
        self.assertEqual(
            err, 'fsync-time zeo: interrupted; what was measured so far'
            f' is in {path}\n')
        self.assertEqual(os.listdir(self.scratch), [])
        self.assertEqual(len(documents.load(path)['samples']), 1)

    def test_a_failing_contestant_is_one_line(self):
        bad = zeosites.ZeoSite('bad', 'bad', 'no.such.program', '')
        with mock.patch.dict(sites.CONTESTANTS, bad=bad):
            code, out, err = self.run_main(
                'bad', '--workload', 'light', '--loop', 'asyncio')
        self.assertEqual(code, 1)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertRegex(
            err, r'^fsync-time zeo: bad failed \(connections 1,.*'
            'the server died with exit code 1: .*No module named')
        self.assertEqual(os.listdir(self.scratch), [])

    def test_bad_input_is_one_line(self):
        with mock.patch.object(loops, 'installed', lambda: ['asyncio']):
            for arguments, expected in [
                    (['postgres'], "there is no 'postgres'; allowed are zeo,"),
                    (['--workload', 'undo'], 'invalid choice'),
                    (['--clients', 'many'], 'whole number'),
                    (['--objects', '0'], 'whole number'),
                    (['--seconds', 'long'], 'us, ms, s'),
                    (['--seconds', '0'], 'more than 0'),
                    (['--loop', 'twisted'], 'invalid choice'),
                    (['--loop', 'uvloop'], 'invalid choice'),
            ]:
                with self.subTest(arguments):
                    code, out, err = self.run_main(*arguments)
                    self.assertEqual((code, out), (2, ''))
                    self.assertEqual(len(err.splitlines()), 1)
                    self.assertIn(expected, err)

    def test_nothing_to_measure_is_one_line(self):
        path = self.json_file()
        code, out, err = self.run_main(
            'fsync-client', '--workload', 'light', '--json', path)
        self.assertEqual((code, out), (2, ''))
        self.assertEqual(err, (
            'fsync-time zeo: none of these contestants takes part in light'
            ' (--help explains)\n'))
        self.assertEqual(os.listdir(self.scratch), [])
        self.assertFalse(os.path.exists(path))

    def test_help(self):
        code, out, err = self.run_main('--help')
        self.assertEqual(code, 0)
        for name in sites.CONTESTANTS:
            self.assertIn(name, out)


class TablesTests(unittest.TestCase):

    level = 2
    FIGURES = {
        'txn_per_second': 1234.5, 'p50_seconds': 0.0012,
        'p99_seconds': 0.034, 'server_cpu': 0.91, 'driver_cpu': 0.15,
        'tids_not_rising': 0, 'invalidations_late': 0}

    def shown(self, race, *rounds):
        """The tables if one of two contestants was measured."""
        contestants = [STOCK, sites.CONTESTANTS['fsync-zeo']]
        document = documents.new(
            'zeo', [race], contestants, 2, 'zeo',
            machine.describe(tempfile.gettempdir()))
        document['samples'] = [
            {'race': 0, 'contestant': 'zeo', 'round': number,
             'figures': figures}
            for number, figures in enumerate(rounds, 1)]
        documents.summarise(document)
        console = Console(file=io.StringIO(), width=80)
        tables.show(document, console)
        return console.file.getvalue()

    def shown_light(self, *rounds):
        return self.shown(
            light.race(connections=16, seconds=3, **SETTINGS),
            *({**self.FIGURES, **figures} for figures in rounds))

    def test_light(self):
        text = self.shown_light({}, {})
        for expected in ('asyncio, over TCP, nothing added',
                         'light connections', '1,234', 'p50 1.2 ms',
                         'p99 34 ms',
                         'server: 91% CPU', 'driver: 15% CPU'):
            self.assertIn(expected, text)
        self.assertNotIn('fsync-zeo', text)  # was not measured
        self.assertNotIn('rising', text)
        self.assertNotIn('late', text)

    def test_what_no_server_should_do_is_shown_if_it_happened_once(self):
        text = self.shown_light(
            {'invalidations_late': 2}, {'tids_not_rising': 1})
        self.assertIn('1 tid not rising', text)
        self.assertIn('2 invalidations late', text)

    def test_write_at_a_server_whose_processor_time_is_not_known(self):
        text = self.shown(
            writing.race(clients=1, objects=334, seconds=3,
                         pin='across', **SETTINGS),
            {'txn_per_second': 99, 'p50_seconds': 1, 'p99_seconds': 2,
             'clients_cpu': 0.5})
        for expected in ('(334 objects a transaction,',
                         'on different processors', 'clients: 50% CPU'):
            self.assertIn(expected, ' '.join(text.split()))

    def test_reads(self):
        text = self.shown(
            reading.race(clients=2, objects=1, access='ghosts', **SETTINGS),
            {'cold_per_second': 12345, 'cold_p50_seconds': 0.0001,
             'cold_p99_seconds': 0.0002, 'prefetch_per_second': 54321})
        for expected in ('a second? cold (by a walk over ghosts, 1'
                         ' object a transaction', 'client processes 2',
                         '12,345', 'p50 100 us', 'p99 200 us', 'prefetch (by',
                         '54,321'):
            self.assertIn(expected, ' '.join(text.split()))
