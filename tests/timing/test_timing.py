"""The timing driver `fsync-time`, without timing anything.

What is measured differs from machine to machine; that the right thing is
measured, counted, compared and kept does not.
"""

import contextlib
import itertools
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import transaction
import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError

from fsyncstorage import datafile
from fsyncstorage.timing import main
from fsyncstorage.timing.commits import commandline as commits
from fsyncstorage.timing.commits import committing
from fsyncstorage.timing.options.contestants import CONTESTANTS
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import campaign
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import latency
from fsyncstorage.timing.running import machine
from fsyncstorage.timing.running import supervisor

from ..support import PATIENCE
from ..support import run_command


class Scratch(unittest.TestCase):

    def setUp(self):
        self.scratch = self.enterContext(tempfile.TemporaryDirectory())

    def enterContext(self, context):  # new in Python 3.11
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value


class Command(Scratch):
    """What `fsync-time` does with a command line."""

    #: Each test runs this command, in the scratch directory; None: any.
    command = None

    def run_main(self, *arguments):
        """Exit code, standard output, standard error."""
        if self.command:
            arguments = (
                self.command, '--directory', self.scratch, *arguments)
        return run_command(main.main, *arguments)

    def json_file(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        return os.path.join(directory, 'result.json')


class SlowedSyncs(Scratch):

    def setUp(self):
        super().setUp()
        self.slept = []

    def syncs_of_commits(self, contestant, number):
        """What was slept while the contestant made this number of commits."""
        with latency.slowed(0.005, self.slept.append) as syncs, \
                tempfile.TemporaryDirectory(dir=self.scratch) as directory, \
                contestant.opened(directory) as storage:
            db = ZODB.DB(storage)
            with contextlib.closing(db):
                del syncs[:], self.slept[:]
                for n in range(number):
                    with db.transaction() as connection:
                        connection.root()['n'] = n
                self.assertEqual(len(self.slept), len(syncs))
                return list(self.slept)


class LatencyTests(SlowedSyncs):
    """The delay is added to each sync and to nothing else, and then undone."""

    level = 2

    def test_each_commit_of_stock_waits_once(self):
        self.assertEqual(
            self.syncs_of_commits(CONTESTANTS['filestorage'], 3), [0.005] * 3)

    def test_stock_without_fsync_never_waits(self):
        self.assertEqual(
            self.syncs_of_commits(CONTESTANTS['filestorage:no-fsync'], 3), [])

    def test_policies_of_fsyncstorage(self):
        for policy, expected in [
                ('none', 0), ('group-commit', 3), ('per-commit', 3),
                ('two-sync', 6)]:
            with self.subTest(policy):
                self.assertEqual(
                    self.syncs_of_commits(CONTESTANTS[f'fsync:{policy}'], 3),
                    [0.005] * expected)

    def test_nothing_to_add_is_no_sleep(self):
        with latency.slowed(0, self.slept.append) as syncs, \
                tempfile.TemporaryFile() as file:
            datafile.disk.sync(file.fileno())
        self.assertEqual(len(syncs), 1)
        self.assertEqual(self.slept, [])

    def test_everything_is_put_back(self):
        before = latency._stock.fsync, datafile.disk.sync
        with self.assertRaises(ZeroDivisionError):
            with latency.slowed(1), latency.stock_without_fsync():
                self.assertIsNone(latency._stock.fsync)
                self.assertNotEqual(datafile.disk.sync, before[1])
                1 / 0
        self.assertEqual((latency._stock.fsync, datafile.disk.sync), before)
        self.assertNotIn('sync', vars(datafile.disk))

    def test_a_sync_that_fails_fails(self):
        reader, writer = os.pipe()  # which cannot be synced
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        with latency.slowed(1, self.slept.append):
            with self.assertRaises(OSError):
                datafile.disk.sync(writer)
        self.assertEqual(self.slept, [])


def race(**options):
    return campaign.Race('any', {}, None, (), **options)


class ScheduleTests(unittest.TestCase):

    level = 2

    def test_contestants_take_turns_and_another_one_begins(self):
        steps = campaign.schedule([race()], ['A', 'B', 'C'], 3)
        self.assertEqual(
            [(step.round, step.contestant) for step in steps],
            [(0, 'A'), (0, 'B'), (0, 'C'),
             (1, 'B'), (1, 'C'), (1, 'A'),
             (2, 'C'), (2, 'A'), (2, 'B'),
             (3, 'A'), (3, 'B'), (3, 'C')])

    def test_each_round_has_all_races(self):
        steps = campaign.schedule([race(), race()], ['A', 'B'], 1)
        self.assertEqual(
            steps,
            [(0, 0, 'A'), (0, 0, 'B'), (0, 1, 'A'), (0, 1, 'B'),
             (1, 0, 'B'), (1, 0, 'A'), (1, 1, 'B'), (1, 1, 'A')])

    def test_one_that_cannot_take_part_is_left_out_of_a_race(self):
        steps = campaign.schedule(
            [race(), race(suits='AC'.__contains__)], ['A', 'B', 'C'], 0)
        self.assertEqual(
            [(step.race, step.contestant) for step in steps],
            [(0, 'A'), (0, 'B'), (0, 'C'), (1, 'A'), (1, 'C')])


class WorkloadTests(Scratch):

    level = 2

    def commit(self, name='filestorage', **settings):
        settings = {'threads': 3, 'seconds': 0, 'sync_latency': 0,
                    'shared': False, **settings}
        return committing.measure(
            CONTESTANTS[name], self.scratch, **settings)

    def trees(self):
        storage = FileStorage(os.path.join(self.scratch, 'Data.fs'))
        with contextlib.closing(ZODB.DB(storage)) as db:
            with db.transaction() as connection:
                return {
                    name: sorted(tree)
                    for name, tree in connection.root().items()}

    def test_one_tree_a_thread(self):
        figures = self.commit()
        self.assertEqual(
            self.trees(), {'tree0': [0], 'tree1': [1], 'tree2': [2]})
        self.assertEqual(figures['transactions'], 3)
        self.assertEqual(figures['syncs'], 3)
        self.assertEqual(figures['commits_per_sync'], 1)
        self.assertEqual(figures['conflicts'], 0)

    def test_one_tree_for_all(self):
        self.commit(shared=True)
        self.assertEqual(self.trees(), {'tree0': [0, 1, 2]})

    def test_no_sync_is_no_error(self):
        figures = self.commit('filestorage:no-fsync')
        self.assertEqual(figures['syncs'], 0)
        self.assertIsNone(figures['commits_per_sync'])

    def test_requests_are_made_for_so_long(self):
        made = []
        with mock.patch.object(
                crew.time, 'perf_counter', side_effect=itertools.count()):
            stretch = crew.timed(
                (lambda: made.append('one') for _ in itertools.count()), 6)
        self.assertEqual(len(made), 3)
        self.assertEqual(stretch.durations, [1, 1, 1])

    def test_conflicts_are_retried_and_counted(self):
        tree, outcomes = {}, [ConflictError(), ConflictError(), None]
        manager = mock.Mock(
            spec=transaction.TransactionManager,
            **{'commit.side_effect': outcomes})
        conflicts = []
        committing._set_one(manager, tree, 5, conflicts)
        self.assertEqual(conflicts, outcomes[:2])
        self.assertEqual(tree, {5: 5})
        self.assertEqual(manager.abort.call_count, 2)

    def test_loads_beside_commits(self):
        figures = committing.measure_beside(
            CONTESTANTS['filestorage:no-fsync'], self.scratch,
            committers=2, seconds=0, sync_latency=0)
        self.assertEqual(figures['loads'], 1)
        self.assertEqual(figures['p50_seconds'], figures['max_seconds'])
        # All committers ended, and what they wrote is whole.
        self.assertEqual(len(self.trees()), 2)


class CrewTests(unittest.TestCase):

    level = 2

    def test_no_job_works_before_all_are_ready(self):
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

    def test_an_error_in_the_preparation_frees_the_others(self):
        def bad(start):
            raise OSError('disk full')

        with self.assertRaisesRegex(OSError, 'disk full'):
            crew.threads([lambda start: start(), bad])

    def test_an_error_at_work(self):
        def bad(start):
            start()
            raise OSError('disk full')

        with self.assertRaisesRegex(OSError, 'disk full'):
            crew.threads([lambda start: start(), bad])


class ChildTests(unittest.TestCase):

    level = 2

    def setUp(self):
        patch = mock.patch.object(supervisor, '_TICK', 0.001)
        patch.start()
        self.addCleanup(patch.stop)

    def assertNoChildLeft(self):
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_result(self):
        self.assertNotEqual(supervisor.run(os.getpid), os.getpid())
        self.assertEqual(supervisor.run(max, 3, 5), 5)
        self.assertNoChildLeft()

    def test_error_is_one_line(self):
        def fail():
            raise OSError('disk\nfull')

        with self.assertRaisesRegex(
                supervisor.Failed,
                r'^OSError: disk full \(test_timing.py, line \d+\)$'):
            supervisor.run(fail)
        self.assertNoChildLeft()

    def test_death(self):
        with self.assertRaisesRegex(supervisor.Failed, 'exit code 3'):
            supervisor.run(os._exit, 3)
        self.assertNoChildLeft()

    def test_interrupt_ends_the_child(self):
        with self.assertRaises(KeyboardInterrupt):
            supervisor.run(signal.pause, meanwhile=mock.Mock(
                side_effect=KeyboardInterrupt))
        self.assertNoChildLeft()

    def test_an_interrupt_during_the_fork_ends_the_child(self):
        process = supervisor.FORK.Process
        start = process.start

        def interrupted(self):
            start(self)
            os.kill(os.getpid(), signal.SIGINT)

        with mock.patch.object(process, 'start', interrupted), \
                self.assertRaises(KeyboardInterrupt):
            supervisor.run(signal.pause)
        self.assertNoChildLeft()

    def test_an_interrupt_while_all_ends_waits_for_the_end(self):
        end, ended = supervisor._end_all, []

        def interrupted(bond):
            os.kill(os.getpid(), signal.SIGINT)
            ended.append(end(bond))
            return ended[0]

        with mock.patch.object(supervisor, '_end_all', interrupted), \
                self.assertRaises(KeyboardInterrupt):
            supervisor.run(os.getpid)
        self.assertEqual(ended, [True])

    def test_what_comes_from_the_terminal_is_for_the_parent(self):
        self.assertNotEqual(supervisor.run(os.getpgrp), os.getpgrp())

    def test_no_process_outlives_the_child(self):
        own, theirs = socket.socketpair()
        self.addCleanup(own.close)
        own.settimeout(PATIENCE)

        def leave_a_program():
            # It does not know the bond.
            self.program = subprocess.Popen(
                [sys.executable, '-c', 'input()'], stdin=theirs)

        supervisor.run(leave_a_program)
        theirs.close()
        self.assertEqual(own.recv(1), b'')


def in_process(work, *arguments, meanwhile):
    meanwhile()
    return work(*arguments)


class CommandTests(Command):

    level = 2

    def run_main(self, *arguments, in_child=in_process):
        with mock.patch.object(supervisor, 'run', in_child):
            return super().run_main(*arguments)

    def commits(self, *arguments, **options):
        return self.run_main(
            'commits', '--directory', self.scratch, '--rounds', '1',
            '--seconds', '1us', *arguments, **options)

    def json_file(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        return os.path.join(directory, 'result.json')

    def assertScratchRemoved(self):
        self.assertEqual(os.listdir(self.scratch), [])

    def test_everything_for_real(self):
        path = self.json_file()
        code, out, err = self.commits(
            '--threads', '1,2', '--sync-latency', '0,1us', '--shared',
            '--json', path, in_child=supervisor.run)
        self.assertEqual((code, err), (0, ''))
        self.assertScratchRemoved()
        document = documents.load(path)
        self.assertTrue(document['complete'])
        self.assertEqual(list(document['contestants']), list(CONTESTANTS))
        self.assertEqual(document['baseline'], 'filestorage')
        self.assertEqual(
            [race['settings'] for race in document['races']],
            [{'threads': threads, 'seconds': 1e-6,
              'sync_latency': sync_latency, 'shared': shared}
             for shared, sync_latency, threads in [
                 (False, 0, 1), (False, 0, 2), (False, 1e-6, 1),
                 (False, 1e-6, 2), (True, 0, 2), (True, 1e-6, 2)]])
        # Each contestant in each race, in the warm-up and in the one round.
        self.assertEqual(
            {(sample['race'], sample['contestant'], sample['round'])
             for sample in document['samples']},
            {(race, contestant, number)
             for race in range(6) for contestant in CONTESTANTS
             for number in (0, 1)})
        self.assertEqual(len(document['results']), 6 * len(CONTESTANTS))
        for name in CONTESTANTS:
            self.assertIn(name, out)

    def test_the_first_one_named_is_the_baseline(self):
        path = self.json_file()
        code, out, err = self.commits(
            'filestorage:no-fsync', 'filestorage', '--threads', '1', '--json',
            path)
        self.assertEqual((code, err), (0, ''))
        document = documents.load(path)
        self.assertEqual(document['baseline'], 'filestorage:no-fsync')
        self.assertEqual(
            list(document['contestants']),
            ['filestorage:no-fsync', 'filestorage'])
        self.assertNotIn('fsync:none', out)

    def test_readers(self):
        path = self.json_file()
        with mock.patch.object(commits, 'READERS_LATENCY', 0):
            code, out, err = self.commits(
                'filestorage', '--threads', '1', '--readers', '--json', path)
        self.assertEqual((code, err), (0, ''))
        self.assertIn('How long does a load take while others commit?', out)
        self.assertEqual(
            [race['workload'] for race in documents.load(path)['races']],
            ['commits', 'loads'])

    def stopped_by(self, error, *arguments):
        """Run the command; its third sample raises the error."""
        calls = []

        def run(work, contestant, directory, meanwhile):
            calls.append(directory)
            self.assertEqual(os.listdir(directory), [])
            if len(calls) == 3:
                pathlib.Path(directory, 'Data.fs').touch()
                raise error
            return {'txn_per_second': 1}

        return self.commits(
            'filestorage', 'fsync:none', '--threads', '1', *arguments,
            in_child=run)

    def test_a_server_may_run_in_another_directory(self):
        given = []

        def run(work, contestant, directory, meanwhile):
            given.append(directory)
            raise KeyboardInterrupt

        self.commits(
            'filestorage', '--threads', '1',
            '--directory', os.path.relpath(self.scratch), in_child=run)
        self.assertEqual(given, list(map(os.path.abspath, given)))

    def test_interrupt(self):
        path = self.json_file()
        code, out, err = self.stopped_by(KeyboardInterrupt(), '--json', path)
        self.assertEqual(code, 130)
        self.assertEqual(
            err, 'fsync-time commits: interrupted; what was measured so far'
            f' is in {path}\n')
        self.assertEqual(out, '')
        self.assertScratchRemoved()
        document = documents.load(path)
        self.assertFalse(document['complete'])
        self.assertEqual(len(document['samples']), 2)

    def test_interrupt_without_a_file(self):
        code, out, err = self.stopped_by(KeyboardInterrupt())
        self.assertEqual(code, 130)
        self.assertEqual(
            err, 'fsync-time commits: interrupted; nothing is kept\n')
        self.assertScratchRemoved()

    def interrupted_before(
            self, owner, name, *arguments, when=lambda *arguments: True):
        """Run the command; an interrupt comes just before this call."""
        call = getattr(owner, name)

        def interrupted(*arguments):
            if when(*arguments):
                os.kill(os.getpid(), signal.SIGINT)
            return call(*arguments)

        with mock.patch.object(owner, name, interrupted):
            code, out, err = self.commits(
                'filestorage', '--threads', '1', *arguments)
        self.assertEqual((code, len(err.splitlines())), (130, 1))
        self.assertScratchRemoved()

    def test_interrupt_while_the_scratch_directory_is_removed(self):
        self.interrupted_before(
            tempfile.TemporaryDirectory, 'cleanup',
            when=lambda one: os.path.dirname(one.name) == self.scratch)

    def test_interrupt_while_the_results_are_written(self):
        path = self.json_file()
        self.interrupted_before(documents, 'save', '--json', path)
        self.assertTrue(documents.load(path)['complete'])

    def test_kill_is_an_interrupt(self):
        before = signal.getsignal(signal.SIGTERM)

        def run(*arguments, meanwhile):
            os.kill(os.getpid(), signal.SIGTERM)

        code, out, err = self.commits(
            'filestorage', '--threads', '1', in_child=run)
        self.assertEqual(code, 130)
        self.assertScratchRemoved()
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)

    def test_a_failing_contestant(self):
        path = self.json_file()
        code, out, err = self.stopped_by(
            supervisor.Failed('OSError: disk full'), '--json', path)
        self.assertEqual(code, 1)
        self.assertEqual(
            err, 'fsync-time commits: fsync:none failed (threads 1,'
            ' seconds 1e-06, sync_latency 0.0, shared False):'
            ' OSError: disk full\n')
        self.assertScratchRemoved()
        self.assertEqual(len(documents.load(path)['samples']), 2)

    def test_a_full_disk(self):
        code, out, err = self.stopped_by(OSError(28, 'No space left'))
        self.assertEqual(code, 1)
        self.assertEqual(err, 'fsync-time commits: [Errno 28] No space left\n')
        self.assertScratchRemoved()

    def test_unknown_contestant(self):
        code, out, err = self.commits('postgres')
        self.assertEqual(code, 2)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn("there is no 'postgres'", err)
        for name in CONTESTANTS:
            self.assertIn(name, err)

    def test_bad_input_is_one_line(self):
        for arguments, expected in [
                (['--threads', '0'], 'whole number'),
                (['--threads', '1,,2'], 'whole number'),
                (['--rounds', 'many'], 'whole number'),
                (['--seconds', '0'], 'more than 0'),
                (['--sync-latency', '5 parsecs'], 'us, ms, s'),
                (['--directory', '/no/such/place'], 'no directory'),
                (['--json', self.scratch], 'is no plain file'),
                (['--json', '/no/such/place/file'], 'no directory'),
                (['--no-such-option'], 'unrecognized'),
        ]:
            with self.subTest(arguments):
                code, out, err = self.commits(*arguments)
                self.assertEqual((code, out), (2, ''))
                self.assertEqual(len(err.splitlines()), 1)
                self.assertIn(expected, err)

    def test_no_command(self):
        code, out, err = self.run_main()
        self.assertEqual(code, 2)
        self.assertEqual(len(err.splitlines()), 1)

    def test_help(self):
        code, out, err = self.run_main('commits', '--help')
        self.assertEqual(code, 0)
        for name in CONTESTANTS:
            self.assertIn(name, out)


class MachineTests(Scratch):

    level = 2

    def test_described(self):
        found = machine.describe(self.scratch)
        self.assertGreater(found['sync_p50_seconds'], 0)
        self.assertNotEqual(found['packages']['ZODB'], '(not installed)')
        self.assertEqual(os.listdir(self.scratch), [])

    def test_the_innermost_mount_counts(self):
        mounts = '\n'.join([
            '20 1 8:1 / / rw,relatime - ext4 /dev/a rw',
            '21 20 8:2 / /srv rw,relatime shared:1 - xfs /dev/b rw',
            '22 20 8:3 / /srv/big\\040disk rw,relatime - btrfs /dev/c rw',
            ''])
        for path, expected in [
                ('/home/me', 'ext4'), ('/srv', 'xfs'), ('/srv/zeo', 'xfs'),
                ('/srvother', 'ext4'), ('/srv/big disk/zeo', 'btrfs')]:
            with mock.patch.object(
                    pathlib.Path, 'read_text', return_value=mounts):
                self.assertEqual(machine._file_system(path), expected, path)
