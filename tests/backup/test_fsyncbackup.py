"""`fsync-backup` and its commands: exit codes, and what is said."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

from fsyncstorage.backup import commandline
from fsyncstorage.backup import content
from fsyncstorage.backup import running
from fsyncstorage.backup import timeline
from fsyncstorage.backup.commandline import main
from fsyncstorage.backup.copied import Copy
from fsyncstorage.backup.directory import Directory
from fsyncstorage.backup.store import StoreError
from fsyncstorage.backup.timeline import History
from fsyncstorage.backup.uploader import Stopped
from fsyncstorage.metrics import backups

from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import run_command
from ..support import until
from .shipped import DATABASE
from .shipped import Shipped

DONE, DAMAGED, CANNOT_RUN, INTERRUPTED = 0, 1, 2, 130


class Command(Shipped):

    def setUp(self):
        super().setUp()
        os.mkdir(self.path('store'))
        self.store = Directory(self.path('store'))
        self.tid = self.commit_blob(1, b'one')

    def run_it(self, command, *options):
        paths = {
            'run': (self.path(), self.path('store'), '--blobs',
                    self.path('Data.fs.blobs')),
            'restore': (self.path('store'), self.path('Restored.fs'),
                        '--blobs', self.path('Restored.blobs')),
        }.get(command, (self.path('store'),))
        return run_command(main, command, *paths, *options)

    def succeed(self, *arguments):
        status, out, err = self.run_it(*arguments)
        self.assertEqual((status, err), (DONE, ''))
        return out

    def fail_with(self, expected, *arguments):
        """One line on standard error; return it."""
        status, out, err = self.run_it(*arguments)
        self.assertEqual((status, out), (expected, ''))
        self.assertRegex(err, r'\Afsync-backup[ a-z]*: [^\n]*\n\Z')
        return err

    def segment(self, number):
        return os.path.join(self.path('store'),
                            DATABASE.timeline(1).segment(number))


class Whole(Command):

    def test_from_run_to_restore(self):
        self.assertEqual(self.succeed('run', '--once'), '')
        self.assertIn(self.tid.hex(), self.succeed('list'))
        for options in (), ('--deep',):
            said = self.succeed('verify', *options)
            self.assertIn('1 segments', said)
            self.assertIn('1 blobs with 3', said)
        self.assertIn(self.tid.hex(), self.succeed('restore'))
        self.assertEqual(self.content_of_file('Restored.fs'),
                         self.content_of_file())

    def test_reports_as_json(self):
        self.succeed('run', '--once')
        found, = json.loads(self.succeed('list', '--json'))['timelines']
        self.assertEqual(
            (found['timeline'], found['objects'], found['size'], found['tid']),
            (1, 1, os.stat(self.path()).st_size, self.tid.hex()))
        found = json.loads(self.succeed('verify', '--json'))
        self.assertEqual((found['segments'], found['problems'], found['last']),
                         (1, [], self.tid.hex()))
        found = json.loads(self.succeed('restore', '--json'))
        self.assertEqual((found['tid'], found['blobs']), (self.tid.hex(), 1))

    def test_to_a_point(self):
        self.succeed('run', '--once')
        commit(self.storage, {2: b'later'})
        self.succeed('run', '--once')
        self.succeed('restore', '--to', self.tid.hex())
        self.assertLess(len(self.content_of_file('Restored.fs')),
                        len(self.content_of_file()))

    def test_help_names_the_commands(self):
        status, out, _ = run_command(main, '--help')
        self.assertEqual(status, DONE)
        for command in ('run', 'list', 'status', 'verify', 'restore',
                        'drill', 'follow', 'promote', 'prune'):
            self.assertIn(command, out)

    def test_follow(self):
        """Until the timeline has ended."""
        self.addCleanup(logging.getLogger('fsyncstorage').setLevel,
                        logging.getLogger('fsyncstorage').level)
        self.succeed('run', '--once')
        self.succeed('promote')
        status, out, _ = run_command(
            main, 'follow', self.path('store'), self.path('Copy.fs'),
            '--blobs', self.path('Copy.blobs'))
        self.assertEqual(status, DONE)
        self.assertIn(self.tid.hex(), out)
        self.assertEqual(self.content_of_file('Copy.fs'),
                         self.content_of_file())

    def test_what_it_says_to_the_metrics(self):
        """With the last drill that was sound."""
        began = time.time()
        self.succeed('run', '--once')
        said = backups.read(self.path())
        self.assertGreaterEqual(said['shipped'], began)
        self.assertEqual((said['behind'], 'drilled' in said), (0, False))
        self.drill()
        self.succeed('run', '--once')
        self.assertGreaterEqual(backups.read(self.path())['drilled'], began)
        self.assertIn('a drill was sound', self.succeed('status'))

    def drill(self):
        os.makedirs(self.path('scratch'), exist_ok=True)
        return run_command(
            main, 'drill', self.path('store'), self.path('scratch'))

    def test_promote(self):
        """Another machine takes over what was shipped, and the old site
        stops."""
        old = self.uploader()
        old.ship()
        for _ in range(2):
            self.assertIn('has ended', self.succeed('promote'))
        commit(self.storage, {3: b'too late'})
        with self.assertRaises(Stopped):
            old.ship()
        self.succeed('restore')
        os.rename(self.path('Restored.blobs'), self.path('Restored.fs.blobs'))
        self.storage = self.handed_out('Restored.fs')
        with self.assertRaises(Stopped):
            self.uploader('Restored.fs')
        new = self.uploader('Restored.fs', new_timeline='promoted')
        tid = commit(self.storage, {3: b'of the new site'})
        new.ship()
        os.mkdir(self.path('again'))
        self.assertIn(tid.hex(), run_command(
            main, 'drill', self.path('store'), self.path('again'))[1])
        self.assertIn('promoted', self.run_it('status')[1])
        self.assertIn('--timeline', self.fail_with(CANNOT_RUN, 'restore'))

    def test_promote_while_it_is_shipped(self):
        """The end is behind whatever was put before it."""
        uploader = self.uploader()
        create = self.store.create

        def late(key, data):
            self.store.create = create
            uploader.ship()
            create(key, data)

        history = History(self.store, DATABASE, 1)
        history.store.create = late
        history.end()
        self.assertEqual(history.last()[0], 1)

    def test_drill(self):
        """Nothing is left of it."""
        self.succeed('run', '--once')
        status, out, _ = self.drill()
        self.assertEqual(status, DONE)
        self.assertIn('1 blobs were restored, as of', out)
        self.assertIn(self.tid.hex(), out)
        os.remove(self.storage.fshelper.getBlobFilename(oid(1), self.tid))
        self.uploader(new_timeline='a test')
        status, out, _ = run_command(
            main, 'drill', self.path('store'), self.path('scratch'), '--json',
            '--timeline', '1')
        self.assertTrue(json.loads(out)['is_sound'])
        self.assertEqual(os.listdir(self.path('scratch')), [])

    def test_what_is_half_done_is_removed_at_sigterm(self):
        self.succeed('run', '--once')
        os.mkdir(self.path('scratch'))
        before = sorted(os.listdir(self.directory))
        with mock.patch.object(Copy, 'add', lambda *args: os.kill(
                os.getpid(), signal.SIGTERM)):
            for command, *options in [
                    ('restore',), ('drill', self.path('scratch'))]:
                with self.subTest(command):
                    self.assertEqual(
                        self.run_it(command, *options)[0], INTERRUPTED)
                    self.assertEqual(
                        sorted(os.listdir(self.directory)), before)
                    self.assertEqual(os.listdir(self.path('scratch')), [])

    def test_drill_of_what_the_site_has_lost(self):
        os.remove(self.storage.fshelper.getBlobFilename(oid(1), self.tid))
        self.run_it('run', '--once')
        status, out, _ = self.drill()
        self.assertEqual(status, DAMAGED)
        self.assertIn('and are damaged', out)
        self.assertNotIn('drill', self.succeed('status'))

    def test_drill_without_room(self):
        self.succeed('run', '--once')
        self.patch(commandline.shutil, disk_usage=lambda path: mock.Mock(
            free=10))
        status, _, err = run_command(
            main, 'drill', self.path('store'), self.directory)
        self.assertEqual(status, CANNOT_RUN)
        self.assertRegex(err, 'needs [0-9]+ bytes')

    def test_prune(self):
        """What is older than the last base that is needed goes."""
        self.succeed('run', '--once')
        self.commit_blob(1, b'two', serial=self.tid)
        self.storage.pack(time.time(), None, gc=False)
        self.succeed('run', '--once')
        self.assertIn('1 bases of 1 packs', self.succeed('verify'))
        for days in '1', '50000':  # in 1889 there were no tids
            self.assertIn('0 objects', self.succeed('prune', '--keep', days))
        self.assertIn('not needed', self.succeed(
            'prune', '--keep', '0', '--dry-run'))
        self.assertTrue(os.path.exists(self.segment(0)))
        self.assertIn('were removed', self.succeed('prune', '--keep', '0'))
        self.assertFalse(os.path.exists(self.segment(0)))
        self.assertIn('its oldest point', self.succeed('status'))
        self.succeed('verify')
        self.succeed('restore')
        self.assertEqual(self.content_of_file('Restored.fs'),
                         self.content_of_file())

    def test_prune_by_a_clock_that_is_ahead(self):
        self.succeed('run', '--once')
        self.commit_blob(1, b'two', serial=self.tid)
        self.storage.pack(time.time(), None, gc=False)
        self.succeed('run', '--once')
        ahead = time.time() + 400 * 86_400
        self.patch(time, time=lambda: ahead)
        self.assertIn('0 objects', self.succeed('prune', '--keep', '30'))

    def test_status(self):
        self.succeed('run', '--once')
        self.assertIn(self.tid.hex(), self.succeed('status'))
        self.patch(commandline, LATE=-1.0)
        status, out, _ = self.run_it('status', '--json')
        self.assertEqual(status, DAMAGED)
        self.assertIn('not seen', json.loads(out)['problems'][0])

    def test_status_of_points_that_are_lost(self):
        storage = self.handed_out('Other.fs', pack_keep_old=False)
        tid = commit(storage, {1: b'data'})
        self.uploader('Other.fs').ship()
        for data in b'again', b'and again':
            tid = commit(storage, {1: data}, {1: tid})
        storage.pack(time.time(), None, gc=False)
        with self.assertLogs('fsyncstorage', 'WARNING'):
            uploader = self.uploader('Other.fs')
        uploader.beat()
        status, out, _ = self.run_it('status')
        self.assertEqual(status, DAMAGED)
        self.assertIn('packed before it was shipped', out)


class Refusals(Command):

    def test_a_copy_that_has_gone_on(self):
        self.succeed('run', '--once')
        other = self.handed_out('Other.fs')
        commit(other, {0: b'data'})
        paths = (self.path('Other.fs'), self.path('store'), '--blobs',
                 self.path('Other.fs.blobs'), '--once')
        status, _, err = run_command(main, 'run', *paths)
        self.assertEqual(status, DAMAGED)
        self.assertIn('--new-timeline', err)
        status, _, err = run_command(
            main, 'run', *paths, '--new-timeline', 'a test')
        self.assertEqual((status, err), (DONE, ''))
        self.assertIn('a test', self.succeed('list'))
        self.assertIn('--timeline', self.fail_with(CANNOT_RUN, 'restore'))
        self.assertIn('no timeline 3', self.fail_with(
            CANNOT_RUN, 'restore', '--timeline', '3'))
        self.succeed('restore', '--timeline', '1')

    def test_what_is_there(self):
        self.succeed('run', '--once')
        with open(self.path('Restored.fs'), 'x'):
            pass
        self.assertIn('overwrites nothing', self.fail_with(
            CANNOT_RUN, 'restore'))

    def test_no_backup(self):
        for command in 'list', 'status', 'verify', 'restore':
            self.assertIn('no backup', self.fail_with(CANNOT_RUN, command))

    def test_no_store(self):
        os.rmdir(self.path('store'))
        for command in 'run', 'list', 'verify', 'restore':
            self.assertIn('no directory', self.fail_with(CANNOT_RUN, command))

    def test_no_server(self):
        status, _, err = run_command(
            main, 'run', self.path('None.fs'), self.path('store'), '--once')
        self.assertEqual(status, CANNOT_RUN)
        self.assertIn('no server', err)

    def test_bad_arguments(self):
        for arguments in (
                ('restore', '--to', 'yesterday'),
                ('list', '--database', '../a'), ('list', '--deep'),
                ('restore', '--timeline', 'x'), ('prune',),
                ('prune', '--keep', '-1'), ('prune', '--keep', 'x')):
            self.fail_with(CANNOT_RUN, *arguments)
        status, _, err = run_command(main, 'list', 'ftp://a/b')
        self.assertEqual(status, CANNOT_RUN)
        self.assertIn('s3', err)


class Damage(Command):

    def setUp(self):
        super().setUp()
        for number in range(2, 5):
            self.succeed('run', '--once')
            commit(self.storage, {number: b'data'})

    def test_a_gap(self):
        os.remove(self.segment(1))
        status, out, _ = self.run_it('verify')
        self.assertEqual(status, DAMAGED)
        self.assertIn('missing', out)
        self.assertIn('3 objects', self.succeed('list'))
        for command in ('restore',), ('run', '--once'):
            said = self.fail_with(DAMAGED, *command)
            self.assertIn('missing', said)
        self.assertIn('--new-timeline', said)

    def test_a_new_timeline_ships_anew_what_is_behind_it(self):
        for damage in os.remove, lambda path: os.truncate(path, 10):
            with self.subTest(damage):
                self.setUp()
                damage(self.segment(1))
                self.succeed('run', '--once', '--new-timeline', 'a test')
                self.succeed('verify', '--timeline', '2')
                self.succeed('restore', '--timeline', '2')
                self.assertEqual(self.content_of_file('Restored.fs'),
                                 self.content_of_file())

    def test_a_flipped_bit(self):
        with open(self.segment(1), 'r+b') as file:
            file.seek(-1, os.SEEK_END)
            last = file.read()
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        self.succeed('verify')
        status, out, _ = self.run_it('verify', '--deep', '--json')
        self.assertEqual(status, DAMAGED)
        self.assertEqual(len(json.loads(out)['problems']), 1)
        self.assertIn('--to', self.fail_with(DAMAGED, 'restore'))


class Running(Command):

    def setUp(self):
        super().setUp()
        self.patch(running, PERIOD=0.01, LONGEST_PERIOD=0.02, BEAT=0.01)
        self.addCleanup(logging.getLogger('fsyncstorage').setLevel,
                        logging.getLogger('fsyncstorage').level)

    @contextlib.contextmanager
    def runs(self):
        """An uploader that runs in a thread; it is told to end, and its thread
        is returned."""
        stop = threading.Event()
        self.made = self.uploader(start=False)
        thread = Thread(running.run, self.made, stop)
        try:
            yield thread
        finally:
            stop.set()

    def shipped(self, number):
        return until(lambda: os.path.exists(self.segment(number)),
                     'a segment that is shipped')

    def test_a_store_that_is_away(self):
        """It is said once, with up to when all is shipped, and how much is
        not; then all is shipped."""
        def said(name):
            return backups.read(self.path()).get(name)

        def fail(key, data):
            failed.append(key)
            raise StoreError('away')

        failed = []
        with self.assertLogs('fsyncstorage', 'INFO') as logs, \
                self.runs() as thread:
            self.shipped(0)
            until(lambda: said('shipped'), 'a round')
            self.store.create = fail
            commit(self.storage, {2: b'data'})
            until(lambda: said('behind'), 'a round that fails')
            shipped, count = said('shipped'), len(failed)
            until(lambda: len(failed) > count + 2, 'more of them')
            self.assertEqual(said('shipped'), shipped)
            commit(self.storage, {3: b'data'})
            del self.store.create
            until(lambda: said('behind') == 0, 'a round that ships')
            until(lambda: said('shipped') > shipped, 'what it says')
            until(lambda: 'works again' in str(logs.output), 'a line')
        thread.result()
        self.assertEqual(str(logs.output).count('away'), 1)
        self.succeed('restore')

    def test_a_store_that_takes_longer_than_a_period(self):
        """No commit waits for it; what the backup says of itself is true at
        each moment; and in the end, all is there."""
        create, begun = self.store.create, []

        def slowly(key, data):
            if '/log/' in key:
                for when in begun[-1:]:  # this put is the first that has it
                    self.assertLess(backups.read(self.path())['shipped'], when)
                if len(begun) < 5:
                    begun.append(time.time())
                    commit(self.storage, {len(begun) + 1: b'data'})
            create(key, data)

        self.store.create = slowly
        with self.runs() as thread:
            self.shipped(5)
            until(lambda: backups.read(self.path()).get(
                'shipped', 0) > begun[-1], 'what it says')
        thread.result()
        self.succeed('restore')
        self.assertEqual(self.content_of_file('Restored.fs'),
                         self.content_of_file())

    def test_a_round_that_takes_hours(self):
        """The writer is seen meanwhile, how far it is, too, and it can be
        told to end."""
        self.patch(content, PART=1)
        self.patch(running, LAST_ROUND=0.0)
        for number in range(2, 9):
            commit(self.storage, {number: b'data'})
        create, stop = self.store.create, threading.Event()

        def watched(key, data):
            create(key, data)
            if key.endswith('/000000000002'):
                beat = timeline.read_heartbeat(
                    self.store, DATABASE.timeline(1))
                self.assertEqual(beat['sequence'], 2)
                self.assertGreater(backups.read(self.path())['behind'], 0)
                stop.set()

        self.patch(running, BEAT=0.0)
        self.store.create = watched
        running.run(self.uploader(start=False), stop)
        self.assertFalse(os.path.exists(self.segment(5)))
        self.succeed('run', '--once')
        self.succeed('restore')
        self.assertEqual(self.content_of_file('Restored.fs'),
                         self.content_of_file())

    def test_a_site_where_each_round_ships_something(self):
        """Its heartbeats are whole ones."""
        clock, beats, notes = [0.0], [], []
        uploader = self.uploader(start=False)

        class Stop:

            def is_set(self):
                return clock[0] > 10

            def wait(self, seconds):
                pass

        def ship():
            clock[0] += 1
            uploader.meanwhile()

        uploader.ship, uploader.put_more_of_base = ship, lambda until: None
        uploader.beat, uploader.note = (
            lambda: beats.append(clock[0]), lambda: notes.append(clock[0]))
        self.patch(running, PERIOD=1.0, BEAT=3.0, time=mock.Mock(
            time=time.time, monotonic=lambda: clock[0]))
        running.run(uploader, Stop())
        self.assertEqual((beats, notes), ([1, 4, 7, 10], []))

    def test_a_round_begins_a_period_after_the_last(self):
        """However long that took; what is between is for a base."""
        clock, pauses, until = [0.0], [], []
        rounds = iter([0.004, 0.5, 0, 0])
        uploader = self.uploader(start=False)

        class Stop:

            def is_set(self):
                return len(pauses) == 3

            def wait(self, seconds):
                pauses.append(round(seconds, 6))
                clock[0] += seconds

        def ship():
            clock[0] += next(rounds)

        uploader.ship, uploader.put_more_of_base = ship, until.append
        self.patch(running, time=mock.Mock(
            time=time.time, monotonic=lambda: clock[0]))
        running.run(uploader, Stop())
        self.assertEqual(pauses, [0.006, 0, 0.01])
        self.assertEqual(until, [0.01, 0.02, 0.52])

    def test_a_server_that_comes_later(self):
        self.handout.close()
        self.storage.close()
        with self.assertLogs('fsyncstorage', 'WARNING') as logs, \
                self.runs() as thread:
            until(lambda: 'no server' in str(logs.output), 'a warning')
            self.storage = self.handed_out()
            self.shipped(0)
        thread.result()

    def hand_out(self, storage):
        self.handout = super().hand_out(storage)

    def test_a_signal_ends_it(self):
        process = subprocess.Popen(
            [sys.executable, '-m', 'fsyncstorage.backup.commandline', 'run',
             self.path(), self.path('store'), '--blobs',
             self.path('Data.fs.blobs')], stderr=subprocess.PIPE, text=True,
            env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.shipped(0)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
        self.assertEqual(process.returncode, DONE)
        self.assertIn('goes on at position', err)
